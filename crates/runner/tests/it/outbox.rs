//! The durable outbox: results that no shard acknowledges survive, and those that are acknowledged go.

use std::path::{Path, PathBuf};

use model::id::{Epoch, ShardId};
use model::job::{End, Outcome};
use model::message::{AttemptRef, Capacity, RunnerMessage};
use runner::StopMode;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{Fixture, Received, Setup, attempt_ref, echo, endless, in_flight, run_message, shell, wait_until};

const NO_SLOTS: Capacity = Capacity { process: 0, echo: 0, wasm: 0 };

/// A start with an outbox of this size.
fn with_outbox(bytes_max: u64) -> Setup {
    Setup { outbox_bytes: Some(bytes_max), ..Setup::new() }
}

/// Starts a runner without results of an earlier one.
async fn start_fresh(setup: Setup) -> Fixture {
    start_with(setup, &[]).await
}

/// Starts a runner that sends the ends of these attempts again.
async fn start_with(setup: Setup, stored: &[(AttemptRef, Outcome)]) -> Fixture {
    let capacity = setup.capacity;
    start_with_capacity(setup, capacity, stored).await
}

async fn start_with_capacity(setup: Setup, capacity: Capacity, stored: &[(AttemptRef, Outcome)]) -> Fixture {
    let mut fixture = Fixture::start(setup).await;
    let mut attempts: Vec<AttemptRef> = stored.iter().map(|(attempt_ref, _)| *attempt_ref).collect();
    attempts.sort_unstable();
    fixture.registered(0, capacity, &attempts).await;
    for (attempt_ref, outcome) in stored {
        assert_eq!(fixture.ended(*attempt_ref).await, *outcome);
    }
    fixture.registered(1, capacity, &[]).await;
    fixture
}

/// Runs a job to its end, which is not acknowledged.
async fn run_to_end(fixture: &mut Fixture, job: u64, run: &Value) -> (AttemptRef, Outcome) {
    fixture.run(attempt_ref(job), run);
    fixture.started(attempt_ref(job)).await;
    (attempt_ref(job), fixture.ended(attempt_ref(job)).await)
}

async fn wait_until_stored(fixture: &Fixture, ends: u64) {
    wait_until("the ends are stored", || fixture.runner.outbox_usage().unwrap().ends == ends).await;
}

/// Waits until the runner refuses work and has registered without slots; returns the reason.
async fn await_refusal(fixture: &mut Fixture) -> String {
    wait_until("it refuses work", || fixture.runner.refuses_work().is_some()).await;
    assert_eq!(registered_capacity(fixture).await, NO_SLOTS);
    fixture.runner.refuses_work().unwrap()
}

/// Waits until the runner takes work and has registered with its slots.
async fn await_admission(fixture: &mut Fixture) {
    wait_until("it takes work", || fixture.runner.refuses_work().is_none()).await;
    assert_eq!(registered_capacity(fixture).await, fixture.setup.capacity);
}

async fn registered_capacity(fixture: &mut Fixture) -> Capacity {
    match fixture.inventory().await.1 {
        RunnerMessage::Register { capacity, .. } => capacity,
        other => panic!("{other:?}"),
    }
}

/// The attempts whose ends are among these messages.
fn ends(messages: &[Received]) -> Vec<AttemptRef> {
    let end_of = |received: &Received| match received.message {
        RunnerMessage::Ended { attempt_ref, .. } => Some(attempt_ref),
        _ => None,
    };
    messages.iter().filter_map(end_of).collect()
}

/// An echo job with a result of this size.
fn large(bytes: usize) -> Value {
    json!({"run": {"echo": {"value": "x".repeat(bytes)}}})
}

fn disk_bytes(directory: &Path) -> u64 {
    let files = std::fs::read_dir(directory).unwrap().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

/// The only segment that a crashed runner has left, with its content.
fn last_segment(directory: &Path) -> (PathBuf, Vec<u8>) {
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    assert_eq!(paths.len(), 1);
    let path = paths.remove(0);
    let content = std::fs::read(&path).unwrap();
    (path, content)
}

/// Kills the spawner of this directory.
fn kill_spawner(setup: &Setup) {
    let mark = setup.directory.path().join("sandbox").into_os_string().into_string().unwrap();
    let is_spawner = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        line.contains("--spawner") && line.contains(&mark)
    };
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_spawner);
    kill_process(Pid::from_raw(pids.next().expect("a spawner")).unwrap(), Signal::KILL).unwrap();
}

#[tokio::test]
async fn unacknowledged_results_survive_the_runner_and_its_spawner_and_are_delivered_once() {
    let mut fixture = start_fresh(with_outbox(1 << 20)).await;
    let stored =
        [run_to_end(&mut fixture, 2, &echo()).await, run_to_end(&mut fixture, 1, &shell("echo out; exit 5")).await];
    assert_eq!(stored[1].1.exit_code, Some(5));
    wait_until_stored(&fixture, 2).await;
    let setup = fixture.crash().await;
    kill_spawner(&setup);

    let mut fixture = start_with(setup, &stored).await;
    assert!(fixture.log(attempt_ref(1)).exists(), "its files are kept until the end is committed");
    assert_eq!(fixture.commit_all().await, [], "nothing else is in flight");
    fixture.wait_until_removed().await;
    wait_until_stored(&fixture, 0).await;

    let mut fixture = start_fresh(fixture.crash().await).await;
    let (retransmitted, _) = fixture.inventory().await;
    assert_eq!(ends(&retransmitted), [], "none comes back");
}

#[tokio::test]
async fn a_stored_result_wins_over_that_of_the_spawner() {
    let mut fixture = start_fresh(with_outbox(1 << 20)).await;
    let stored = [run_to_end(&mut fixture, 1, &shell("echo out")).await];
    wait_until_stored(&fixture, 1).await;
    let mut fixture = start_with(fixture.crash().await, &stored).await;
    let (retransmitted, _) = fixture.inventory().await;
    assert_eq!(ends(&retransmitted), [attempt_ref(1)], "once");
    fixture.commit_all().await;
    fixture.wait_until_removed().await;
    wait_until_stored(&fixture, 0).await;
    // The spawner has forgotten it, or it would be adopted.
    start_fresh(fixture.crash().await).await;
}

#[tokio::test]
async fn a_running_attempt_and_a_stored_result_are_both_reported() {
    let mut fixture = start_fresh(with_outbox(1 << 20)).await;
    fixture.run(attempt_ref(1), &shell("sleep 600"));
    fixture.started(attempt_ref(1)).await;
    let (ended, outcome) = run_to_end(&mut fixture, 2, &echo()).await;
    wait_until_stored(&fixture, 1).await;
    let mut fixture = Fixture::start(fixture.crash().await).await;
    let mut reported = Vec::new();
    // The shard of a running job follows from its id.
    while reported.len() < 2 {
        match fixture.next_message().await.1.message {
            register @ RunnerMessage::Register { .. } => reported.extend(in_flight(&register)),
            RunnerMessage::Ended { attempt_ref, outcome: again } => {
                assert_eq!((attempt_ref, *again), (ended, outcome.clone()));
            }
            RunnerMessage::Accepted { .. } | RunnerMessage::Started { .. } => {}
        }
    }
    reported.sort_unstable();
    assert_eq!(reported, [attempt_ref(1), attempt_ref(2)]);
    fixture.runner.stop(StopMode::StopProcesses).await;
}

#[tokio::test]
async fn acknowledged_results_do_not_come_back() {
    let mut fixture = start_fresh(with_outbox(1 << 20)).await;
    for job in 1..=3 {
        run_to_end(&mut fixture, job, &echo()).await;
    }
    wait_until_stored(&fixture, 3).await;
    // The first two: the registration is the first message, and every job has two.
    fixture.commit(5);
    wait_until_stored(&fixture, 1).await;
    let mut fixture = Fixture::start(fixture.crash().await).await;
    fixture.registered(0, fixture.setup.capacity, &[attempt_ref(3)]).await;
}

#[tokio::test]
async fn a_stopping_runner_stores_its_results_at_once() {
    let mut fixture = start_fresh(with_outbox(1 << 20)).await;
    let first = run_to_end(&mut fixture, 1, &echo()).await;
    fixture.run(attempt_ref(2), &endless());
    fixture.started(attempt_ref(2)).await;
    fixture.runner.stop(StopMode::LeaveProcesses).await;
    assert_eq!(fixture.runner.refuses_work().unwrap(), "the node is stopping");
    let second = (attempt_ref(2), Outcome::of(End::Stopped));
    start_with(fixture.crash().await, &[first, second]).await;
}

/// One end that is never acknowledged must not keep all that come after it.
#[tokio::test]
async fn the_outbox_does_not_grow_with_acknowledged_results() {
    const ROUNDS: u64 = 20;
    const ENDS: u64 = 500;
    let mut fixture = start_fresh(with_outbox(1 << 30)).await;
    fixture.send_as(ShardId(1), Epoch(1), run_message(attempt_ref(1), &echo()));
    let run = large(4_000);
    let mut largest = 0;
    for round in 0..ROUNDS {
        for job in 0..ENDS {
            fixture.run(attempt_ref(1_000 + round * ENDS + job), &run);
        }
        wait_until_stored(&fixture, 1 + ENDS).await;
        fixture.commit_all().await;
        wait_until_stored(&fixture, 1).await;
        largest = largest.max(disk_bytes(&fixture.setup.outbox()));
    }
    // All together have 40 MB; those of one round 2 MB, of which there may be three copies, and segments to be reused.
    assert!(largest < 20 << 20, "{largest} bytes on disk");
    let mut fixture = Fixture::start(fixture.crash().await).await;
    fixture.registered(0, fixture.setup.capacity, &[]).await;
    fixture.registered(1, fixture.setup.capacity, &[attempt_ref(1)]).await;
}

#[tokio::test]
async fn a_full_outbox_stops_new_work_and_a_drained_one_takes_it_again() {
    let mut fixture = start_fresh(with_outbox(10_000)).await;
    let mut stored = Vec::new();
    for job in 1..=3 {
        stored.push(run_to_end(&mut fixture, job, &large(4_000)).await);
    }
    let why = await_refusal(&mut fixture).await;
    assert!(why.contains("10000 bytes"), "{why}");
    // A dispatch that was under way, also of a job that needs no slot.
    fixture.run(attempt_ref(5), &echo());
    assert_eq!(fixture.ended(attempt_ref(5)).await.end, End::Busy);

    // Also after a restart, from the first message on.
    let mut fixture = start_with_capacity(fixture.crash().await, NO_SLOTS, &stored).await;
    assert_eq!(fixture.runner.refuses_work().unwrap(), why);
    fixture.commit(2);
    wait_until_stored(&fixture, 2).await;
    assert!(fixture.runner.refuses_work().is_some(), "more than half of the limit");
    fixture.commit(3);
    await_admission(&mut fixture).await;
    run_to_end(&mut fixture, 6, &echo()).await;
}

#[tokio::test]
async fn a_torn_tail_is_cut() {
    let mut fixture = start_fresh(with_outbox(1 << 20)).await;
    let stored = [run_to_end(&mut fixture, 1, &echo()).await];
    wait_until_stored(&fixture, 1).await;
    let setup = fixture.crash().await;
    let (path, mut content) = last_segment(&setup.outbox());
    let end = content.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    // The beginning of a frame that was never finished.
    content[end.next_multiple_of(8)..][..4].copy_from_slice(b"OFRM");
    std::fs::write(path, content).unwrap();
    let mut fixture = start_with(setup, &stored).await;
    run_to_end(&mut fixture, 2, &echo()).await;
    wait_until_stored(&fixture, 2).await;
}

#[tokio::test]
async fn a_damaged_outbox_is_set_aside_and_replaced() {
    let mut fixture = start_fresh(with_outbox(1 << 20)).await;
    run_to_end(&mut fixture, 1, &large(1_000)).await;
    wait_until_stored(&fixture, 1).await;
    let setup = fixture.crash().await;
    let (path, mut content) = last_segment(&setup.outbox());
    let damaged = content.windows(4).position(|bytes| bytes == b"xxxx").unwrap();
    content[damaged] = b'y';
    std::fs::write(path, content).unwrap();
    let mut fixture = start_fresh(setup).await;
    let names = std::fs::read_dir(fixture.setup.directory.path()).unwrap().flatten().map(|entry| entry.file_name());
    assert_eq!(names.filter(|name| name.to_string_lossy().starts_with("outbox.damaged-")).count(), 1);
    run_to_end(&mut fixture, 2, &echo()).await;
    wait_until_stored(&fixture, 1).await;
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_stops_new_work_until_it_can() {
    let setup = with_outbox(1 << 20);
    std::fs::write(setup.outbox(), "a file in its place").unwrap();
    let mut fixture = start_with_capacity(setup, NO_SLOTS, &[]).await;
    let why = fixture.runner.refuses_work().unwrap();
    assert!(why.contains("outbox"), "{why}");
    fixture.run(attempt_ref(1), &echo());
    assert_eq!(fixture.ended(attempt_ref(1)).await.end, End::Busy);
    std::fs::remove_file(fixture.setup.outbox()).unwrap();
    await_admission(&mut fixture).await;
    run_to_end(&mut fixture, 1, &echo()).await;
}

#[tokio::test]
async fn a_failed_write_stops_new_work_and_loses_nothing() {
    let mut fixture = start_fresh(with_outbox(1 << 30)).await;
    let directory = fixture.setup.directory.path().to_path_buf();
    let go = directory.join("go");
    fixture.run(attempt_ref(100), &shell(&format!("while [ ! -e {} ]; do sleep 0.01; done", go.display())));
    fixture.started(attempt_ref(100)).await;
    let mut stored = vec![run_to_end(&mut fixture, 1, &echo()).await];
    wait_until_stored(&fixture, 1).await;
    let outbox = fixture.setup.outbox();
    std::fs::rename(&outbox, directory.join("elsewhere")).unwrap();
    std::fs::write(&outbox, "a file in its place").unwrap();
    // More than fits into the open segment: the next one cannot be created.
    for job in 2..=12 {
        stored.push(run_to_end(&mut fixture, job, &large(60_000)).await);
    }
    let why = await_refusal(&mut fixture).await;
    assert!(why.contains("cannot be stored"), "{why}");
    std::fs::write(&go, "").unwrap();
    stored.push((attempt_ref(100), fixture.ended(attempt_ref(100)).await));
    assert_eq!(stored.last().unwrap().1.end, End::Succeeded, "running work goes on");
    // What was stored before is gone and stored again.
    std::fs::remove_file(&outbox).unwrap();
    await_admission(&mut fixture).await;
    wait_until_stored(&fixture, stored.len() as u64).await;
    start_with(fixture.crash().await, &stored).await;
}

#[tokio::test]
async fn stored_results_are_delivered_from_a_disk_that_cannot_be_written() {
    let mut fixture = start_fresh(with_outbox(1 << 20)).await;
    let stored = [run_to_end(&mut fixture, 1, &echo()).await];
    wait_until_stored(&fixture, 1).await;
    let setup = fixture.crash().await;
    // The journal cannot remove it, and therefore cannot be opened.
    let obstacle = setup.outbox().join("spare-00000009.tmp");
    std::fs::create_dir(&obstacle).unwrap();
    let mut fixture = start_with_capacity(setup, NO_SLOTS, &stored).await;
    fixture.commit(2);
    std::fs::remove_dir(&obstacle).unwrap();
    await_admission(&mut fixture).await;
    wait_until_stored(&fixture, 0).await;
    start_fresh(fixture.crash().await).await;
}

#[tokio::test]
async fn a_runner_short_of_memory_says_so() {
    let mut fixture = Fixture::start(Setup { memory_reserve_bytes: u64::MAX / 2, ..Setup::new() }).await;
    wait_until("it refuses work", || fixture.runner.refuses_work().is_some()).await;
    assert!(fixture.runner.refuses_work().unwrap().contains("memory"));
    let echo_only = Capacity { process: 0, wasm: 0, ..fixture.setup.capacity };
    assert_eq!(registered_capacity(&mut fixture).await, echo_only);
    assert_eq!(fixture.runner.outbox_usage(), None);
}
