//! Protections of the host (sandbox, limits) as reported by the server.
//!
//! A missing protection is a warning, not a failure: trusted jobs can run without.

use api::{CapacityView, NodeView, ProtectionView};
use client::{Client, Error};

use super::check::Check;

pub async fn check(client: &Client) -> Vec<Check> {
    match client.nodes().await {
        Ok(nodes) => nodes.items.iter().flat_map(node_checks).collect(),
        Err(Error::Unreachable { .. }) => vec![Check::skipped("protections", "server unreachable")],
        Err(
            error @ (Error::Refused(_)
            | Error::OutcomeUnknown { .. }
            | Error::Protocol(_)
            | Error::Address(_)
            | Error::File { .. }),
        ) => vec![Check::skipped("protections", format!("not reported by the server: {error}"))],
    }
}

fn node_checks(node: &NodeView) -> Vec<Check> {
    let mut checks = vec![Check::good("capacity", capacity(node.capacity))];
    checks.extend(node.protections.iter().map(protection));
    checks
}

fn capacity(capacity: CapacityView) -> String {
    let CapacityView { process, wasm, echo } = capacity;
    format!("{process} processes, {wasm} WebAssembly components and {echo} echo jobs at a time")
}

fn protection(protection: &ProtectionView) -> Check {
    let name = protection.name.replace('_', " ");
    if protection.in_force {
        return Check::good(name, &protection.how);
    }
    Check::warning(name, format!("not in force: {}", protection.how)).advice(advice(&protection.name))
}

/// How to enable a protection.
fn advice(name: &str) -> &'static str {
    match name {
        "sandbox" => {
            "run the server as root, or allow user namespaces: `sysctl user.max_user_namespaces` above 0, \
             `kernel.unprivileged_userns_clone=1` and `kernel.apparmor_restrict_unprivileged_userns=0` where they exist; \
             until then only jobs without a sandbox run"
        }
        "system_calls" | "network" => "available with the sandbox",
        "files" => {
            "use a kernel with Landlock (Linux 5.13 or newer) and a sandbox; the root file system of the sandbox still applies"
        }
        "processes_limit" => "available with the sandbox, or with a pids cgroup: run the server as root",
        "memory_limit" | "host_memory" => {
            "run the server as root with a writable /sys/fs/cgroup, so that it can create cgroups"
        }
        _ => "see the section about limits in docs/operations.md",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Mark;

    fn view(name: &str, in_force: bool) -> ProtectionView {
        ProtectionView { name: name.to_owned(), in_force, how: "a reason".to_owned() }
    }

    #[test]
    fn a_missing_protection_is_a_warning_with_advice() {
        let good = protection(&view("system_calls", true));
        assert_eq!((good.mark, good.name.as_str(), good.finding.as_str()), (Mark::Good, "system calls", "a reason"));
        assert_eq!(good.advice, None);
        let missing = protection(&view("sandbox", false));
        assert_eq!((missing.mark, missing.finding.as_str()), (Mark::Warning, "not in force: a reason"));
        assert!(missing.advice.unwrap().contains("root"));
    }

    #[test]
    fn an_unknown_protection_of_a_newer_server_is_shown() {
        let check = protection(&view("something_new", false));
        assert_eq!((check.mark, check.name.as_str()), (Mark::Warning, "something new"));
        assert!(check.advice.is_some());
    }
}
