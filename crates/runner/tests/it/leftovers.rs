//! Processes that an earlier start has left behind.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};

use model::id::NodeId;

use crate::common::new_node;

/// A process in a session of its own, with the mark of a node.
fn left_behind(node: NodeId) -> Child {
    let mut command = Command::new("setsid");
    command.args(["sleep", "600"]).env("OUTLAST_NODE", node.to_string());
    command.spawn().unwrap()
}

#[test]
fn what_a_node_has_left_behind_is_ended_and_nothing_else() {
    let (own, other) = (new_node(), new_node());
    let mut mine = [left_behind(own), left_behind(own)];
    let mut foreign = left_behind(other);
    // The mark is there once the child has become its program.
    let marked = |child: &Child| {
        let environment = std::fs::read(format!("/proc/{}/environ", child.id())).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains("OUTLAST_NODE=")
    };
    while !mine.iter().chain([&foreign]).all(marked) {
        std::thread::yield_now();
    }
    assert!(runner::end_leftovers(own) >= 2);
    for child in &mut mine {
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
    assert_eq!(foreign.try_wait().unwrap(), None, "another node's process runs on");
    assert_eq!(runner::end_leftovers(own), 0);
    foreign.kill().unwrap();
    foreign.wait().unwrap();
}
