//! SIGKILL of the server at arbitrary moments: accepted jobs are finished or continue.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use client::jobs::{Filter, JobList};
use client::{Client, Options};
use model::id::JobId;
use model::json::Json;
use model::spec::{EchoRun, JobSpec, Run};
use model::state::State;
use model::time::{Millis, Timestamp};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::support::Server;

const TIMEOUT: Duration = Duration::from_secs(60);

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn client(server: &Server) -> Client {
    let options = Options { resend_for: Duration::ZERO, connect_wait: Duration::ZERO, ..Options::default() };
    Client::with_options(&server.url, options).unwrap()
}

fn echo(key: &str, delay_ms: u64) -> JobSpec {
    let mut spec = JobSpec::new(Run::Echo(EchoRun { value: Json::of(&key), delay_ms, fail: None }));
    spec.idempotency_key = Some(key.to_owned());
    spec
}

/// Submits jobs with idempotency keys in sequence, each retried until there is a response.
async fn submit_until(client: Client, name: usize, stop: Arc<AtomicBool>) -> BTreeMap<String, JobId> {
    let mut accepted = BTreeMap::new();
    for number in 0.. {
        let key = format!("{name}-{number}");
        let spec = echo(&key, if number % 3 == 0 { 20 } else { 0 });
        loop {
            match client.submit(&spec).await {
                Ok(view) => {
                    accepted.insert(key, view.id);
                    break;
                }
                // The job may have been accepted: the key makes a retry safe.
                Err(_) if !stop.load(Ordering::Relaxed) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(_) => return accepted,
            }
        }
        if stop.load(Ordering::Relaxed) {
            return accepted;
        }
    }
    accepted
}

async fn wait_until_drained(client: &Client) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let queues = client.queues(None, None).await.unwrap();
        if queues.items.iter().all(|queue| queue.counters.active == 0) {
            return;
        }
        assert!(Instant::now() < deadline, "jobs do not finish: {queues:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// All jobs by idempotency key.
async fn jobs_by_key(client: &Client) -> BTreeMap<String, Vec<JobId>> {
    let mut found: BTreeMap<String, Vec<JobId>> = BTreeMap::new();
    let mut filter = Filter { limit: Some(1000), ..Filter::default() };
    loop {
        let page = client.jobs(JobList::All, &filter).await.unwrap();
        for job in page.items {
            assert_eq!(job.state, State::Succeeded, "{job:?}");
            let key = job.idempotency_key.unwrap();
            assert_eq!(job.result, Some(Json::of(&key)));
            found.entry(key).or_default().push(job.id);
        }
        match page.next_cursor {
            Some(cursor) => filter.cursor = Some(cursor),
            None => return found,
        }
    }
}

fn no_job_is_lost_or_duplicated(shards: &str) {
    let mut server = Server::start_with(&["--shards", shards]);
    let runtime = runtime();
    let stop = Arc::new(AtomicBool::new(false));
    let submitters: Vec<_> =
        (0..8).map(|name| runtime.spawn(submit_until(client(&server), name, stop.clone()))).collect();
    for round in 0..12u64 {
        // Some commits, then SIGKILL at an arbitrary moment.
        let target = Duration::from_millis(20 + round * 37 % 120);
        let since = Instant::now();
        while since.elapsed() < target {
            std::thread::yield_now();
        }
        server.kill_and_restart();
    }
    stop.store(true, Ordering::Relaxed);
    runtime.block_on(async {
        let client = client(&server);
        let mut accepted = BTreeMap::new();
        for submitter in submitters {
            accepted.extend(submitter.await.unwrap());
        }
        wait_until_drained(&client).await;
        let found = jobs_by_key(&client).await;
        assert!(accepted.len() > 50, "only {} jobs were accepted", accepted.len());
        for (key, id) in &accepted {
            assert_eq!(found.get(key), Some(&vec![*id]), "{key}");
        }
        assert!(found.values().all(|ids| ids.len() == 1), "one key made two jobs");
    });
}

// FEATURES: B2, B3, B4
#[test]
fn accepted_jobs_survive_sigkill_and_no_key_makes_two() {
    no_job_is_lost_or_duplicated("1");
}

// FEATURES: B2, B3, B4
#[test]
fn accepted_jobs_survive_sigkill_with_four_shards() {
    no_job_is_lost_or_duplicated("4");
}

fn submit(server: &Server, job: &str) -> String {
    server.run_with_input(&["submit", "--file", "-"], job).expect(0).line().to_owned()
}

fn wait_for_file(path: &Path) -> String {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => assert!(Instant::now() < deadline, "{} does not appear", path.display()),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Running, and not a zombie.
fn is_running(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z')))
}

// FEATURES: B2, B3
#[test]
fn a_process_is_killed_with_its_spawner_and_restarted_once() {
    let mut server = Server::start();
    let directory = server.directory.path().to_owned();
    // Leaves a grandchild in its own session, which must be killed too.
    let script = format!(
        "cd {0}; setsid sh -c 'echo $$ > {0}/far.$OUTLAST_ATTEMPT; sleep 600' & \
         echo $$ > {0}/near.$OUTLAST_ATTEMPT; while [ ! -e {0}/go ]; do sleep 0.02; done; echo done",
        directory.display()
    );
    let id = server.run(["submit", "--sandbox", "none", "--", "sh", "-c", &script]).expect(0).line().to_owned();
    let near = wait_for_file(&directory.join("near.1"));
    let far = wait_for_file(&directory.join("far.1"));
    let spawner = crate::survive::spawner(&server).unwrap();
    server.kill();
    assert!(std::process::Command::new("kill").args(["-KILL", &spawner]).status().unwrap().success());
    server.start_again();
    wait_for_file(&directory.join("near.2"));
    assert!(!is_running(&near) && !is_running(&far), "the first attempt still runs beside the second");
    std::fs::write(directory.join("go"), "").unwrap();
    let job = server.wait_for_state(&id, &["succeeded"]);
    assert_eq!((&job["attempt"], &job["retries"]), (&Value::from(2), &Value::from(0)));
}

// FEATURES: B3, D11, B10
#[test]
fn every_state_survives_two_restarts() {
    let mut server = Server::start();
    let finished = submit(&server, r#"{"run":{"echo":{"value":"kept"}}}"#);
    server.wait_for_state(&finished, &["succeeded"]);
    let failed = submit(&server, r#"{"run":{"echo":{"fail":"fatal"}}}"#);
    server.wait_for_state(&failed, &["failed"]);
    let queue = server.run(["queues", "create", "--max-running", "1", "--output", "json"]).expect(0).json();
    let queue = queue["id"].as_str().unwrap();
    let slow = format!(r#"{{"queue":"{queue}","run":{{"echo":{{"value":"slow","delay_ms":400}}}}}}"#);
    let running = submit(&server, &slow);
    server.wait_for_state(&running, &["running"]);
    let scheduled = submit(&server, &slow);
    let in_an_hour = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(3600);
    let in_an_hour = Timestamp(Millis(in_an_hour.as_millis() as u64));
    let blocked = submit(&server, &format!(r#"{{"not_before":"{in_an_hour}","run":{{"echo":{{}}}}}}"#));
    for _ in 0..2 {
        server.kill_and_restart();
        let show = |id: &str| server.run(["jobs", "show", id, "--output", "json"]).expect(0).json();
        assert_eq!(show(&finished)["result"], "kept");
        assert_eq!(show(&failed)["state"], "failed");
        assert_eq!(show(&blocked)["state"], "blocked");
    }
    let second = server.wait_for_state(&scheduled, &["succeeded"]);
    let first = server.wait_for_state(&running, &["succeeded"]);
    assert_eq!((&first["retries"], &second["retries"]), (&Value::from(0), &Value::from(0)));
    let at = |job: &Value| job["states"].as_array().unwrap().last().unwrap()["at"].as_str().unwrap().to_owned();
    assert!(at(&first) < at(&second), "first in, first out, one at a time: {first} {second}");
    server.run(["jobs", "cancel", &blocked]).expect(0);
}
