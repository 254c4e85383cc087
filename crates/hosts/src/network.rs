//! Hosts in network namespaces, joined by a bridge in a namespace of its own. The network of the machine is not touched.

use std::fs::File;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::delay::{self, Delay, DelayedLink};

/// Names of namespaces begin so, followed by the id of the test process.
const PREFIX: &str = "outlast-test-";
/// Where `ip netns` keeps namespaces by name.
const NAMESPACES: &str = "/run/netns";

/// Distinguishes the networks of one process.
static NETWORKS: AtomicU32 = AtomicU32::new(0);

/// A bridge with hosts. Dropping it removes the namespaces, and with them everything in them.
pub struct Network {
    bridge: Namespace,
    name: String,
    hosts: u8,
}

impl Default for Network {
    fn default() -> Self {
        Self::new()
    }
}

impl Network {
    pub fn new() -> Self {
        assert!(rustix::process::geteuid().is_root(), "network namespaces need root: run this test as root");
        remove_abandoned();
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let bridge = Namespace::new(format!("{name}-bridge"));
        bridge.ip("link add bridge type bridge\nlink set bridge up\n");
        Self { bridge, name, hosts: 0 }
    }

    /// Adds a host with an address of its own.
    pub fn add_host(&mut self) -> Host {
        self.hosts += 1;
        let (number, bridge) = (self.hosts, self.bridge.0.clone());
        let namespace = Namespace::new(format!("{}-{number}", self.name));
        let (port, address) = (format!("port{number}"), Ipv4Addr::new(10, 77, 0, number));
        self.bridge.ip(&format!(
            "link add {port} type veth peer name eth0 netns {}\nlink set {port} master bridge up\n",
            namespace.0
        ));
        namespace.ip(&format!("link set lo up\naddr add {address}/24 dev eth0\nlink set eth0 up\n"));
        Host { namespace, address, bridge, port, _delay: None }
    }

    /// Adds a host whose link delays what it carries, in both directions. There is no module of the kernel for that
    /// everywhere: a thread of this process carries the frames.
    pub fn add_distant_host(&mut self, delay: Delay) -> Host {
        self.hosts += 1;
        let (number, bridge) = (self.hosts, self.bridge.0.clone());
        let namespace = Namespace::new(format!("{}-{number}", self.name));
        let (port, address) = (format!("port{number}"), Ipv4Addr::new(10, 77, 0, number));
        let near = run_in(&self.bridge.0, || delay::tap(&port));
        let far = run_in(&namespace.0, || delay::tap("eth0"));
        self.bridge.ip(&format!("link set {port} master bridge up\n"));
        namespace.ip(&format!("link set lo up\naddr add {address}/24 dev eth0\nlink set eth0 up\n"));
        Host { namespace, address, bridge, port, _delay: Some(DelayedLink::new(near, far, delay)) }
    }
}

/// Packets that a link loses, in percent of those from the host and to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    pub outgoing: u8,
    pub incoming: u8,
}

impl Loss {
    pub const ALL: Self = Self { outgoing: 100, incoming: 100 };
    pub const OUTGOING: Self = Self { outgoing: 100, incoming: 0 };
    pub const INCOMING: Self = Self { outgoing: 0, incoming: 100 };
}

/// A host: a namespace with an address, and a link to the bridge.
pub struct Host {
    namespace: Namespace,
    address: Ipv4Addr,
    bridge: String,
    /// Its interface at the bridge.
    port: String,
    _delay: Option<DelayedLink>,
}

impl Host {
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Moves this thread into the namespace. Processes that it starts are inside as well.
    pub fn enter(&self) {
        enter(&self.namespace.0);
    }

    /// Runs `work` on a thread inside the namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        run_in(&self.namespace.0, work)
    }

    /// Drops packets of the link, as if the network lost them: neither side is told.
    pub fn lose(&self, loss: Loss) {
        // Each direction is dropped where it arrives. Dropping a packet where it is sent is an error for the sender.
        drop_arriving(&self.namespace.0, "eth0", loss.incoming);
        drop_arriving(&self.bridge, &self.port, loss.outgoing);
    }

    /// Ends the loss.
    pub fn heal(&self) {
        self.lose(Loss { outgoing: 0, incoming: 0 });
    }
}

fn enter(namespace: &str) {
    let namespace = File::open(Path::new(NAMESPACES).join(namespace)).unwrap();
    move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(LinkNameSpaceType::Network)).unwrap();
}

fn run_in<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            enter(namespace);
            work()
        });
        inside.join().unwrap()
    })
}

fn drop_arriving(namespace: &str, interface: &str, percent: u8) {
    // The first line makes sure that there is a table to delete.
    let mut rules = format!("table netdev {interface}\ndelete table netdev {interface}\n");
    let verdict = match percent {
        0 => None,
        100 => Some("drop".to_owned()),
        _ => Some(format!("numgen random mod 100 < {percent} drop")),
    };
    if let Some(verdict) = verdict {
        rules.push_str(&format!(
            "table netdev {interface} {{ chain arriving {{\n\
             type filter hook ingress device \"{interface}\" priority 0; policy accept;\n\
             {verdict}\n}}\n}}\n"
        ));
    }
    run_with_input(Command::new("ip").args(["netns", "exec", namespace, "nft", "-f", "-"]), &rules);
}

/// A named network namespace, deleted on drop.
struct Namespace(String);

impl Namespace {
    fn new(name: String) -> Self {
        run_with_input(Command::new("ip").args(["netns", "add", &name]), "");
        Self(name)
    }

    /// Runs commands of `ip`, one per line, in the namespace.
    fn ip(&self, commands: &str) {
        run_with_input(Command::new("ip").args(["-netns", &self.0, "-batch", "-"]), commands);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        delete(&self.0);
    }
}

fn delete(namespace: &str) {
    // Best effort: it may be gone.
    let _ = Command::new("ip").args(["netns", "delete", namespace]).stderr(Stdio::null()).status();
}

/// Removes namespaces of test processes that were killed before they could do it themselves, with the servers in them.
fn remove_abandoned() {
    let Ok(entries) = std::fs::read_dir(NAMESPACES) else { return };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
            kill_all_in(&name);
            delete(&name);
        }
    }
}

fn kill_all_in(namespace: &str) {
    let Ok(found) = Command::new("ip").args(["netns", "pids", namespace]).output() else { return };
    let pids = String::from_utf8_lossy(&found.stdout).into_owned();
    for pid in pids.lines().filter_map(|line| line.trim().parse().ok()).filter_map(Pid::from_raw) {
        // It may have ended.
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn run_with_input(command: &mut Command, input: &str) {
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}: {}\n{input}", String::from_utf8_lossy(&output.stderr));
}
