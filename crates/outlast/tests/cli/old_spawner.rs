//! A server with a spawner of protocol version 2, which has survived an upgrade. The spawner is frozen: it reads and writes
//! bytes by hand, as that version's description says, and stays as it is when the protocol changes.

mod cbor;
mod frozen;

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::Server;
use frozen::{FrozenSpawner, Greeting};

const TIMEOUT: Duration = Duration::from_secs(60);

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn submit(server: &Server, script: &str) -> String {
    server.run(["submit", "--retries", "0", "--", "sh", "-c", script]).expect(0).line().to_owned()
}

fn show(server: &Server, id: &str) -> Value {
    server.run(["jobs", "show", id, "--output", "json"]).expect(0).json()
}

fn ended(server: &Server, id: &str) -> Value {
    wait_until("the job ends", || ["succeeded", "failed"].iter().any(|state| show(server, id)["state"] == *state));
    show(server, id)
}

/// A server that is stopped, with its own spawner. Another one takes its place.
fn stopped_server() -> Server {
    let mut server = Server::start();
    assert_eq!(server.interrupt(), Some(0));
    server
}

// FEATURES: C1
#[test]
fn jobs_run_under_a_spawner_of_the_version_before_and_survive_the_server() {
    let mut server = stopped_server();
    let spawner = FrozenSpawner::start(&server.directory.path().join("data"), Greeting::Version2);
    server.start_again();
    let short = ended(&server, &submit(&server, "echo short"));
    assert_eq!((&short["state"], &short["result"]), (&Value::from("succeeded"), &Value::from("short\n")), "{short}");
    let failed = ended(&server, &submit(&server, "exit 7"));
    assert_eq!((&failed["state"], &failed["exit_code"]), (&Value::from("failed"), &Value::from(7)), "{failed}");

    let (begun, go) = (server.directory.path().join("begun"), server.directory.path().join("go"));
    let script = format!("touch {}; until [ -e {} ]; do sleep 0.05; done; echo long", begun.display(), go.display());
    let long = submit(&server, &script);
    wait_until("the program runs", || begun.exists());
    server.kill_and_restart();
    assert_eq!(show(&server, &long)["state"], "running");
    std::fs::write(go, "").unwrap();
    let long = ended(&server, &long);
    assert_eq!((&long["state"], &long["result"]), (&Value::from("succeeded"), &Value::from("long\n")), "{long}");
    assert_eq!(long["attempt"], 1, "it is the same attempt");
    assert_eq!(spawner.unknown_commands(), 0, "it is sent only what it knows");
    wait_until("ended attempts are forgotten", || spawner.attempts() == 0);
}

// FEATURES: C1
#[test]
fn a_spawner_of_an_incompatible_version_is_stopped_with_the_reason() {
    let mut server = stopped_server();
    let data = server.directory.path().join("data");
    let spawner = FrozenSpawner::start(&data, Greeting::Mismatch);
    let ran =
        crate::support::run_alone(["up", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()]).expect(1);
    let reason = "supports protocol versions 7 to 9";
    assert!(ran.stderr.contains(reason) && ran.stderr.contains("start the server again"), "{}", ran.stderr);
    wait_until("it is stopped", || spawner.has_quit());
    drop(spawner);
    server.start_again();
    assert_eq!(ended(&server, &submit(&server, "echo again"))["result"], "again\n");
}
