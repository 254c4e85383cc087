//! Data of earlier versions open and go on.
//!
//! `fixtures/data-*.tar.gz` are data directories of servers that were killed (`kill -9`). They hold terminal jobs, a dead
//! letter, a finished workflow, a workflow that waits for the signal `go` behind a task whose large result was spilled, and
//! a schedule.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::Server;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Old records are not removed during the test.
const SETTINGS: &str = "retention_ms: 3000000000000\ndead_letter_retention_ms: 3000000000000\n";

fn unpack(version: &str, directory: &Path) {
    let archive = format!("{}/tests/fixtures/data-{version}.tar.gz", env!("CARGO_MANIFEST_DIR"));
    let status = Command::new("tar").arg("xzf").arg(archive).arg("-C").arg(directory).status().unwrap();
    assert!(status.success());
}

fn workflow(server: &Server, id: &str) -> Value {
    server.run(["workflows", "show", id, "--output", "json"]).expect(0).json()
}

#[test]
fn data_of_version_0_1_0_open_and_go_on() {
    let server = Server::start_prepared(SETTINGS, |directory| unpack("0.1.0", directory));
    let jobs = server.run(["jobs", "--output", "json"]).expect(0).json();
    let of_kind = |kind: &str| {
        let items = jobs["items"].as_array().unwrap();
        items.iter().find(|job| job["labels"]["kind"] == kind).unwrap_or_else(|| panic!("{kind}: {jobs}")).clone()
    };
    assert_eq!((&of_kind("done")["state"], &of_kind("done")["result"]["n"]), (&"succeeded".into(), &42.into()));
    let process = of_kind("process");
    let log = server.run(["logs", process["id"].as_str().unwrap()]).expect(0);
    assert_eq!(log.stdout, "from the old version\n");
    let letters = server.run(["dlq", "--output", "json"]).expect(0).json();
    assert_eq!(letters["items"][0]["id"], of_kind("dead")["id"]);
    assert!(server.run(["schedules"]).expect(0).stdout.contains("nightly"));
    server.run(["audit", "verify"]).expect(0);

    let all = server.run(["workflows", "--output", "json"]).expect(0).json();
    let named = |name: &str| {
        let found = all["items"].as_array().unwrap().iter().find(|workflow| workflow["name"] == name);
        found.unwrap_or_else(|| panic!("{name}: {all}"))["id"].as_str().unwrap().to_owned()
    };
    assert_eq!(workflow(&server, &named("finished"))["result"], 1);
    let waiting = named("waiting");
    assert_eq!(workflow(&server, &waiting)["state"], "running");
    server.run(["workflows", "signal", &waiting, "go"]).expect(0);
    let until = Instant::now() + TIMEOUT;
    let ended = loop {
        let workflow = workflow(&server, &waiting);
        if workflow["state"] != "running" {
            break workflow;
        }
        assert!(Instant::now() < until, "{workflow}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!((&ended["state"], &ended["result"]), (&"succeeded".into(), &3.into()));
    server.run(["submit", "--wait", "--", "true"]).expect(0);
}
