//! Orphaned processes of an earlier start.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};

use model::id::NodeId;

use crate::support::new_node;

/// Process in its own session, with the environment variable of a node.
fn orphan(node: NodeId) -> Child {
    let mut command = Command::new("setsid");
    command.args(["sleep", "600"]).env("OUTLAST_NODE", node.to_string());
    command.spawn().unwrap()
}

#[test]
fn only_orphans_of_the_own_node_are_killed() {
    let (own, other) = (new_node(), new_node());
    let mut mine = [orphan(own), orphan(own)];
    let mut foreign = orphan(other);
    // The variable is visible once the child has called exec.
    let has_variable = |child: &Child| {
        let environment = std::fs::read(format!("/proc/{}/environ", child.id())).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains("OUTLAST_NODE=")
    };
    while !mine.iter().chain([&foreign]).all(has_variable) {
        std::thread::yield_now();
    }
    assert!(runner::kill_orphans(own) >= 2);
    for child in &mut mine {
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
    assert_eq!(foreign.try_wait().unwrap(), None, "another node's process keeps running");
    assert_eq!(runner::kill_orphans(own), 0);
    foreign.kill().unwrap();
    foreign.wait().unwrap();
}
