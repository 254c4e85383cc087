//! Leases: an attempt is killed when its lease runs out, with or without a server.

use std::time::{Duration, Instant};

use spawner::protocol::{Command, Launch, Profile};
use spawner::steady_clock::now_ms;

use crate::support::{Fixture, TIMEOUT, exited, launch};

fn leased(script: &str, lease_ms: u64) -> Launch {
    let mut launch = Launch { lease_until: Some(now_ms() + lease_ms), ..launch(Profile::None, script) };
    // Not every host can limit them without a sandbox.
    launch.bounds.processes = None;
    launch
}

#[test]
fn an_attempt_is_killed_when_its_lease_runs_out() {
    let mut fixture = Fixture::new();
    assert!(fixture.claimed.keeps_leases);
    let begin = now_ms();
    // It ignores a polite request to stop.
    let key = fixture.start(leased("trap '' TERM; sleep 1000 & wait", 300));
    let exit = fixture.await_exit(key);
    assert!(exit.lease_expired, "{exit:?}");
    assert!(now_ms() >= begin + 300, "not before its time");
}

#[test]
fn a_renewed_lease_lasts_longer_and_never_shorter() {
    let mut fixture = Fixture::new();
    let hour = now_ms() + 3_600_000;
    let key = fixture.start(leased("sleep 3; exit 3", 2_500));
    fixture.send(&Command::Renew { key, lease_until: hour });
    fixture.send(&Command::Renew { key, lease_until: now_ms() });
    let exit = fixture.await_exit(key);
    assert_eq!((exited(&exit), exit.lease_expired), (3, false));
}

#[test]
fn an_attempt_whose_lease_has_run_out_is_not_started() {
    let mut fixture = Fixture::new();
    let witness = fixture.dir.path().join("started");
    let script = format!("touch {}", witness.display());
    let key = fixture.start(leased(&script, 0));
    assert!(fixture.await_exit(key).lease_expired);
    assert!(!witness.exists());
}

#[test]
fn a_lease_runs_out_without_a_server_and_the_next_server_is_told() {
    let mut fixture = Fixture::new();
    let witness = fixture.dir.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 1000", witness.display());
    let key = fixture.start(leased(&script, 1_500));
    let deadline = Instant::now() + TIMEOUT;
    let pid = loop {
        assert!(Instant::now() < deadline, "it never started");
        match std::fs::read_to_string(&witness).ok().and_then(|text| text.trim().parse::<i32>().ok()) {
            Some(pid) => break pid,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let process = format!("/proc/{pid}");
    // The server does not read a single message meanwhile.
    while std::path::Path::new(&process).exists() {
        assert!(Instant::now() < deadline, "it was not killed");
        std::thread::sleep(Duration::from_millis(5));
    }
    fixture.replace_server();
    let found = fixture.claimed.in_flight.iter().find(|attempt| attempt.key == key).cloned().unwrap();
    assert!(found.lease_until.is_some());
    let exit = found.exit.unwrap_or_else(|| fixture.await_exit(key));
    assert!(exit.lease_expired, "{exit:?}");
}

#[test]
fn an_attempt_that_ends_in_time_keeps_its_own_exit() {
    let mut fixture = Fixture::new();
    let key = fixture.start(leased("exit 4", 60_000));
    let exit = fixture.await_exit(key);
    assert_eq!((exited(&exit), exit.lease_expired), (4, false));
}
