//! What keeps jobs from their host and within their limits, as the server that runs them says.
//!
//! A missing protection is a warning and no failure: whoever runs only jobs of their own may do without.

use client::{Client, Error};
use model::view::{CapacityView, NodeView, ProtectionView};

use super::check::Check;

pub async fn check(client: &Client) -> Vec<Check> {
    match client.nodes().await {
        Ok(nodes) => nodes.items.iter().flat_map(judge).collect(),
        Err(Error::Unreachable { .. }) => vec![Check::skipped("protections", "no server to ask")],
        Err(error @ (Error::Refused(_) | Error::Protocol(_) | Error::Address(_) | Error::File { .. })) => {
            vec![Check::skipped("protections", format!("the server does not say: {error}"))]
        }
    }
}

fn judge(node: &NodeView) -> Vec<Check> {
    let mut checks = vec![Check::good("capacity", capacity(node.capacity))];
    checks.extend(node.protections.iter().map(protection));
    checks
}

fn capacity(capacity: CapacityView) -> String {
    let CapacityView { process, wasm, echo } = capacity;
    format!("at once {process} processes, {wasm} WebAssembly components, {echo} echoes")
}

fn protection(protection: &ProtectionView) -> Check {
    let name = protection.name.replace('_', " ");
    if protection.in_force {
        return Check::good(name, &protection.how);
    }
    Check::warning(name, format!("not in force: {}", protection.how)).advice(advice(&protection.name))
}

/// What would bring it back.
fn advice(name: &str) -> &'static str {
    match name {
        "sandbox" => {
            "run the server as root, or let users make namespaces: `sysctl user.max_user_namespaces` above 0, \
             `kernel.unprivileged_userns_clone=1` and `kernel.apparmor_restrict_unprivileged_userns=0` where they exist; \
             until then only jobs without a sandbox run"
        }
        "system_calls" | "network" => "it comes with the sandbox",
        "files" => {
            "a kernel with landlock (Linux 5.13 or newer) and a sandbox; the root file system of the sandbox still holds"
        }
        "processes_limit" => "it comes with the sandbox, or with a control group for processes: run the server as root",
        "memory_limit" | "host_memory" => {
            "run the server as root where /sys/fs/cgroup can be written, so that it can make control groups"
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
    fn what_is_in_force_is_good_and_what_is_missing_a_warning_with_advice() {
        let good = protection(&view("system_calls", true));
        assert_eq!((good.mark, good.name.as_str(), good.finding.as_str()), (Mark::Good, "system calls", "a reason"));
        assert_eq!(good.advice, None);
        let missing = protection(&view("sandbox", false));
        assert_eq!((missing.mark, missing.finding.as_str()), (Mark::Warning, "not in force: a reason"));
        assert!(missing.advice.unwrap().contains("root"));
    }

    #[test]
    fn a_protection_of_a_newer_server_is_shown_all_the_same() {
        let check = protection(&view("something_new", false));
        assert_eq!((check.mark, check.name.as_str()), (Mark::Warning, "something new"));
        assert!(check.advice.is_some());
    }
}
