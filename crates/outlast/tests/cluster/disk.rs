//! The disk of a runner node fills up.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use api::CreateJoinToken;
use serde_json::json;

use crate::support::{Cluster, Gate, is_running, wait_until};

const MEBIBYTES: u64 = 320;

/// A small file system, unmounted on drop.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf) -> Self {
        std::fs::create_dir_all(&at).unwrap();
        let options = format!("size={MEBIBYTES}m");
        assert!(
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&at).status().unwrap().success()
        );
        Self(at)
    }

    /// Leaves so much room.
    fn fill(&self, mebibytes_left: u64) {
        let disk = rustix::fs::statvfs(&self.0).unwrap();
        let left = mebibytes_left << 20;
        let filler = File::create(self.0.join("filler")).unwrap();
        rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, disk.f_bavail * disk.f_frsize - left)
            .unwrap();
    }

    fn make_room(&self) {
        std::fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

// FEATURES: A5
#[test]
fn a_node_with_a_full_disk_takes_no_work_until_there_is_room() {
    let mut cluster = Cluster::start(2);
    // Outlives the node on it.
    let disk = SmallDisk::mount(cluster.directory().join("small").join("data"));
    let token = cluster.join_token(CreateJoinToken::default());
    let small = cluster.join_runner("small", &token);
    let mut gate = cluster.gate("gate");

    // Almost full: what runs goes on, nothing new is started.
    let ([kept], [kept_pid]) = cluster.start_on(small, &gate, ["kept"]);
    disk.fill(100);
    wait_until("the node refuses work", || {
        cluster.node(small).refuses_work.is_some_and(|reason| reason.contains("disk of the node is almost full"))
    });
    let shown = cluster.run(["nodes", "show", &cluster.id(small).to_string()]).expect(0).stdout;
    assert!(shown.contains("almost full"), "{shown}");
    let waiting = cluster.submit(&gate.job("waiting", &cluster.pin(small)));
    let elsewhere = cluster.submit(&gate.job("elsewhere", &cluster.anywhere()));
    gate.wait_for_attempt("elsewhere", 1);
    assert_ne!(cluster.job(elsewhere).runner, Some(cluster.runner_id(small)));
    assert!(!cluster.job(waiting).state.is_terminal() && cluster.job(waiting).attempt.0 == 0, "it waits for room");
    assert!(is_running(kept_pid));
    // Jobs without files are not concerned.
    cluster.wait_for_success(cluster.submit(&json!({"run": {"echo": {}}, "labels": cluster.pin(small)})));

    // Full to the last byte: what runs is started elsewhere, and nothing is lost.
    disk.make_room();
    disk.fill(0);
    gate.wait_for_attempt("kept", 2);
    wait_until("the first attempt ends", || !is_running(kept_pid));
    assert_ne!(cluster.job(kept).runner, Some(cluster.runner_id(small)));
    (0..2).for_each(|index| cluster.assert_gets_work(index));

    disk.make_room();
    wait_until("the node takes work", || cluster.node(small).refuses_work.is_none());
    gate.wait_for_attempt("waiting", 1);
    gate.open();
    for (name, attempt, id) in [("kept", 2, kept), ("waiting", 1, waiting), ("elsewhere", 1, elsewhere)] {
        assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result(name, attempt)));
    }
    assert_eq!(cluster.job(waiting).runner, Some(cluster.runner_id(small)));
    (0..=small).for_each(|index| cluster.assert_never_lost(index));
    drop((cluster, disk));
}
