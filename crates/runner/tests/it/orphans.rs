//! Orphaned processes of an earlier start.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};

use model::id::NodeId;
use runner::HomeId;

use crate::support::new_node;

/// Process in its own session, with the environment variables of a node. Earlier versions did not name the directory.
fn orphan(node: NodeId, home: Option<HomeId>) -> Child {
    let mut command = Command::new("setsid");
    command.args(["sleep", "600"]).env("OUTLAST_NODE", node.to_string());
    command.envs(home.map(|home| ("OUTLAST_NODE_HOME", home.to_string())));
    command.spawn().unwrap()
}

#[test]
fn only_orphans_of_the_own_node_and_directory_are_killed() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [home, copy] = directories.each_ref().map(|directory| HomeId::of(directory.path()).unwrap());
    let (own, other) = (new_node(), new_node());
    let mut mine = [orphan(own, Some(home)), orphan(own, None)];
    let mut foreign = [orphan(other, Some(home)), orphan(own, Some(copy))];
    // The variable is visible once the child has called exec.
    let has_variable = |child: &Child| {
        let environment = std::fs::read(format!("/proc/{}/environ", child.id())).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains("OUTLAST_NODE=")
    };
    while !mine.iter().chain(&foreign).all(has_variable) {
        std::thread::yield_now();
    }
    assert!(runner::kill_orphans(own, home) >= 2);
    for child in &mut mine {
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
    for child in &mut foreign {
        assert_eq!(child.try_wait().unwrap(), None, "processes of another node or of a copy keep running");
    }
    assert_eq!(runner::kill_orphans(own, home), 0);
    for child in &mut foreign {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
