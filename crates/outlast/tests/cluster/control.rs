//! SIGKILL of the control node while its jobs are queued, dispatched, running and ending on runner nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::jobs::{Filter, JobList};
use client::{Client, Options};
use model::id::JobId;
use model::json::Json;
use model::state::State;
use serde_json::{Value, json};

use crate::support::{Cluster, Gate, is_running, wait_until};

const ROUNDS: usize = 3;

/// Submits jobs, one after the other, each until there is an answer. They run on runner nodes, and each attempt leaves a
/// line.
async fn submit_until(client: Client, runs: String, stop: Arc<AtomicBool>) -> BTreeMap<String, JobId> {
    let mut accepted = BTreeMap::new();
    for number in 0.. {
        let key = format!("stream{number}");
        let script = format!("echo $OUTLAST_ATTEMPT >> {runs}/{key}; echo {key}");
        let job = json!({
            "run": {"process": {"command": ["sh", "-c", script]}},
            "sandbox": "none",
            "labels": {"placement.role": "runner"},
            "idempotency_key": key,
        });
        let job = serde_json::to_vec(&job).unwrap();
        let view = loop {
            match client.submit_raw(job.clone().into(), &Default::default()).await {
                Ok(view) => break view,
                // The job may have been accepted: the key makes a retry safe.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        accepted.insert(key, view.id);
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // A stream, not a flood: every job is checked in the end.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    accepted
}

/// All jobs by idempotency key.
fn jobs_by_key(cluster: &Cluster) -> BTreeMap<String, Vec<JobId>> {
    let mut found: BTreeMap<String, Vec<JobId>> = BTreeMap::new();
    let mut filter = Filter { limit: Some(1000), ..Filter::default() };
    loop {
        let page = cluster.ask(cluster.client().jobs(JobList::All, &filter));
        for job in page.items {
            if let Some(key) = job.idempotency_key.filter(|key| !key.starts_with("auto-")) {
                found.entry(key).or_default().push(job.id);
            }
        }
        match page.next_cursor {
            Some(cursor) => filter.cursor = Some(cursor),
            None => return found,
        }
    }
}

/// Waits until the job has succeeded, and checks that its usage is recorded with the attempt that succeeded.
fn check_end(cluster: &Cluster, id: JobId) -> Json {
    let job = cluster.wait_for_success(id);
    let history = cluster.ask(cluster.client().history(id));
    let used: Vec<f64> = history.attempts.iter().filter_map(|attempt| attempt.cpu_seconds).collect();
    assert_eq!(Some(used), job.cpu_seconds.map(|used| vec![used]), "usage is recorded once: {:#?}", history.attempts);
    job.result.unwrap()
}

// FEATURES: B6, B9, B11
#[test]
fn every_job_survives_the_death_of_the_control_node_and_ends_once() {
    let mut cluster = Cluster::start(4);
    let queue = cluster.run(["queues", "create", "--max-running", "1", "--output", "json"]).expect(0);
    let queue: Value = serde_json::from_str(&queue.stdout).unwrap();
    let runs = cluster.directory().join("runs");
    std::fs::create_dir(&runs).unwrap();
    let (mut late, mut early) = (cluster.gate("late"), cluster.gate("early"));

    // Running; running and ending while there is no control node; waiting for their turn in a queue.
    let running = ["a", "b", "c"].map(|name| (name, cluster.submit(&late.job(name, &cluster.pin(0)))));
    let ending = ["e", "f", "g"].map(|name| (name, cluster.submit(&early.job(name, &cluster.pin(1)))));
    let queued = ["q", "r", "s"].map(|name| {
        let mut job = late.job(name, &cluster.anywhere());
        job["queue"] = queue["id"].clone();
        (name, cluster.submit(&job))
    });
    let running_pids = running.map(|(name, _)| late.wait_for_attempt(name, 1));
    let ending_pids = ending.map(|(name, _)| early.wait_for_attempt(name, 1));
    late.wait_for_attempt("q", 1);

    // A stream of short jobs: some are always just accepted, dispatched or ending.
    let stop = Arc::new(AtomicBool::new(false));
    let (client, stream_runs, stream_stop) = (
        Client::with_options(
            "http://127.0.0.1:7070",
            Options { resend_for: Duration::ZERO, connect_wait: Duration::ZERO, ..Options::default() },
        )
        .unwrap(),
        runs.display().to_string(),
        stop.clone(),
    );
    let stream = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(submit_until(client, stream_runs, stream_stop))
    });
    let stream_count = || std::fs::read_dir(&runs).unwrap().count();
    wait_until("the stream flows", || stream_count() > 5);

    // Dispatched to a node that has not taken notice.
    cluster.runner(2).stop();
    let dispatched = ["x", "y"].map(|name| (name, cluster.submit(&late.job(name, &cluster.pin(2)))));
    for (_, id) in dispatched {
        cluster.wait_for_job(id, "is dispatched", |job| job.state == State::Dispatched);
    }
    cluster.control().kill_server();
    cluster.runner(2).resume();
    early.open();
    wait_until("attempts end", || ending_pids.iter().all(|pid| !is_running(*pid)));
    cluster.control().start();
    cluster.wait_until_control_is_ready();
    for _ in 1..ROUNDS {
        let before = stream_count();
        wait_until("the stream flows again", || stream_count() > before + 5);
        cluster.control().kill_server();
        cluster.control().start();
        cluster.wait_until_control_is_ready();
    }
    stop.store(true, Ordering::Relaxed);
    let accepted = stream.join().unwrap();
    (0..4).for_each(|index| cluster.wait_until_ready(index));

    // What ran went on as the same attempt.
    assert!(running_pids.iter().all(|pid| is_running(*pid)));
    late.open();
    for (name, id) in running.into_iter().chain(ending) {
        assert_eq!(check_end(&cluster, id), Gate::result(name, 1));
    }
    for (name, id) in queued.into_iter().chain(dispatched) {
        let result = check_end(&cluster, id);
        assert_eq!(result, Gate::result(name, cluster.job(id).attempt.0.into()));
    }
    for (key, id) in &accepted {
        assert_eq!(check_end(&cluster, *id), Json::of(&format!("{key}\n")));
    }
    let found = jobs_by_key(&cluster);
    assert!(found.values().all(|ids| ids.len() == 1), "one key made two jobs");
    assert!(accepted.iter().all(|(key, id)| found[key] == [*id]));
    assert_eq!(found.len(), accepted.len() + running.len() + ending.len() + queued.len() + dispatched.len());
    for key in accepted.keys() {
        let text = std::fs::read_to_string(runs.join(key)).unwrap();
        let attempts: BTreeSet<&str> = text.lines().collect();
        assert_eq!(attempts.len(), text.lines().count(), "an attempt of {key} was started twice");
    }
    println!("{} jobs of the stream survived", accepted.len());
}

// FEATURES: B9
#[test]
fn nodes_wait_for_the_control_node_and_reconnect_with_their_credentials() {
    let mut cluster = Cluster::start(2);
    let mut gate = cluster.gate("gate");
    let id = cluster.submit(&gate.job("a", &cluster.pin(0)));
    gate.wait_for_attempt("a", 1);
    cluster.control().kill_server();
    // A node starts while there is no control node, and finds its attempt.
    cluster.runner(0).kill_server();
    cluster.runner(0).start();
    cluster.wait_for_log(0, "Waiting: cannot reach");
    cluster.control().start();
    cluster.wait_until_control_is_ready();
    (0..2).for_each(|index| cluster.wait_until_ready(index));
    gate.open();
    assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result("a", 1)));
}
