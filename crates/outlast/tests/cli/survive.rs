//! Processes outlive their server: the next one with the same data adopts them, with the same attempt.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::Server;

const TIMEOUT: Duration = Duration::from_secs(60);

fn show(server: &Server, id: &str) -> Value {
    server.run(["jobs", "show", id, "--output", "json"]).expect(0).json()
}

fn await_job(server: &Server, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + TIMEOUT;
    loop {
        let job = show(server, id);
        if wanted(&job) {
            return job;
        }
        assert!(Instant::now() < until, "{job}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn submit(server: &Server, script: &str) -> String {
    server.run(["submit", "--retries", "0", "--", "sh", "-c", script]).expect(0).line().to_owned()
}

fn await_output(server: &Server, id: &str, text: &str) {
    let until = Instant::now() + TIMEOUT;
    while !server.run(["logs", id]).stdout.contains(text) {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Process id and process group of a server's spawner and of the init processes of its attempts, which have the same
/// command line.
fn spawner_processes(server: &Server) -> Vec<(String, String)> {
    let data = server.directory.path().join("data/scratch").display().to_string();
    let process = |entry: std::fs::DirEntry| {
        let line = String::from_utf8_lossy(&std::fs::read(entry.path().join("cmdline")).ok()?).into_owned();
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let group = stat.rsplit_once(") ")?.1.split(' ').nth(2)?.to_owned();
        let pid = entry.file_name().into_string().ok()?;
        (line.starts_with("outlast-spawner") && line.contains(&data)).then_some((pid, group))
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(process).collect()
}

/// The spawner of a server: the leader of its process group.
pub fn spawner(server: &Server) -> Option<String> {
    spawner_processes(server).into_iter().find(|(pid, group)| pid == group).map(|(pid, _)| pid)
}

// FEATURES: C1
#[test]
fn a_process_continues_while_its_server_restarts() {
    let mut server = Server::start();
    let id = submit(&server, "echo before; sleep 2; echo after");
    await_output(&server, &id, "before");
    server.kill_and_restart();
    let job = await_job(&server, &id, |job| job["state"] == "succeeded");
    assert_eq!((&job["attempt"], &job["result"]), (&Value::from(1), &Value::from("before\nafter\n")));
    assert!(job["memory_peak_bytes"].as_u64().unwrap() > 0);
    assert_eq!(server.run(["logs", &id]).expect(0).stdout, "before\nafter\n");
}

#[test]
fn an_attempt_that_ends_between_two_servers_is_reported_to_the_next() {
    let mut server = Server::start();
    let id = submit(&server, "echo up; sleep 0.5; echo done; exit 7");
    await_output(&server, &id, "up");
    server.kill();
    let until = Instant::now() + TIMEOUT;
    while spawner_processes(&server).len() > 1 {
        assert!(Instant::now() < until, "the attempt does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    // The end is not committed yet: only the spawner knows it.
    server.start_again();
    let job = await_job(&server, &id, |job| job["state"] == "failed");
    assert_eq!((&job["attempt"], &job["exit_code"]), (&Value::from(1), &Value::from(7)));
    assert_eq!(server.run(["logs", &id]).expect(0).stdout, "up\ndone\n");
}

#[test]
fn an_adopted_process_is_cancelled_with_its_whole_tree() {
    let mut server = Server::start();
    let id = submit(&server, "setsid sleep 1000 & echo up; sleep 1000");
    await_output(&server, &id, "up");
    server.kill_and_restart();
    server.run(["jobs", "cancel", &id]).expect(0);
    await_job(&server, &id, |job| job["state"] == "cancelled");
}

#[test]
fn sigterm_keeps_processes_running_and_ctrl_c_stops_them() {
    let mut server = Server::start();
    let id = submit(&server, "echo up; sleep 1; echo on");
    await_output(&server, &id, "up");
    server.restart();
    let job = await_job(&server, &id, |job| job["state"] == "succeeded");
    assert_eq!(job["attempt"], 1);
    let id = submit(&server, "echo up; sleep 1000");
    await_output(&server, &id, "up");
    let spawner = spawner(&server).unwrap();
    server.interrupt();
    let until = Instant::now() + TIMEOUT;
    while std::path::Path::new("/proc").join(&spawner).exists() {
        assert!(Instant::now() < until, "the spawner does not exit");
        std::thread::sleep(Duration::from_millis(10));
    }
    server.start_again();
    // The attempt was retracted and the job runs again without using a retry.
    let job = await_job(&server, &id, |job| job["state"] == "running");
    assert_eq!((&job["attempt"], &job["retries"]), (&Value::from(2), &Value::from(0)));
}

#[test]
fn a_job_is_restarted_after_its_spawner_is_killed() {
    let server = Server::start();
    let id = submit(&server, "echo up; sleep 3");
    await_output(&server, &id, "up");
    let pid = spawner(&server).unwrap();
    assert!(std::process::Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
    let job = await_job(&server, &id, |job| job["state"] == "succeeded");
    // An infrastructure failure: no retry of the job is used.
    assert_eq!((&job["attempt"], &job["retries"]), (&Value::from(2), &Value::from(0)));
    assert_ne!(spawner(&server).unwrap(), pid);
}

// FEATURES: C5
#[test]
fn a_running_job_shows_what_it_uses() {
    let server = Server::start();
    let id = submit(&server, "echo up; while :; do :; done");
    await_output(&server, &id, "up");
    await_job(&server, &id, |job| job["cpu_percent"].as_f64().is_some_and(|percent| percent > 1.0));
    server.run(["jobs", "cancel", &id]).expect(0);
    let job = await_job(&server, &id, |job| job["state"] == "cancelled");
    assert!(job["cpu_seconds"].as_f64().unwrap() > 0.0);
}
