//! Life cycle of attempts: stop on request and with the runner, and removal of their files.

use std::time::Duration;

use model::job::End;
use model::message::{Capacity, RunnerMessage, ShardMessage};
use runner::StopMode;
use runner::logs::{Reader, Stream};
use serde_json::json;

use crate::support::{Fixture, attempt_ref, echo, endless, shell};

#[tokio::test]
async fn a_stop_of_an_unknown_attempt_is_confirmed_and_prevents_a_later_run() {
    let mut fixture = Fixture::with_slots().await;
    fixture.send(ShardMessage::Stop { attempt_ref: attempt_ref(1) });
    fixture.stopped(attempt_ref(1)).await;
    // A late run message: the stop wins.
    fixture.run(attempt_ref(1), &echo());
    fixture.send(ShardMessage::Stop { attempt_ref: attempt_ref(1) });
    let (retransmitted, _) = fixture.inventory().await;
    assert_eq!(retransmitted.len(), 2, "the registration and one end: {retransmitted:?}");
}

/// Acceptance, start and end are different things: what cannot be set up was never started.
#[tokio::test]
async fn a_program_that_cannot_be_started_is_accepted_and_ends_without_a_start() {
    let mut fixture = Fixture::with_slots().await;
    let missing_program = json!({"run": {"process": {"command": ["/no/such/program"]}}, "sandbox": "none"});
    fixture.run(attempt_ref(1), &missing_program);
    let accepted = fixture.message().await;
    assert!(matches!(accepted.message, RunnerMessage::Accepted { .. }), "{accepted:?}");
    let ended = fixture.message().await;
    assert!(matches!(ended.message, RunnerMessage::Ended { .. }), "{ended:?}");
    fixture.run(attempt_ref(2), &shell("exit 0"));
    let mut kinds = Vec::new();
    while kinds.last() != Some(&"ended") {
        kinds.push(match fixture.message().await.message {
            RunnerMessage::Register { .. } => "register",
            RunnerMessage::Accepted { .. } => "accepted",
            RunnerMessage::Started { .. } => "started",
            RunnerMessage::Ended { .. } => "ended",
        });
    }
    assert_eq!(kinds, ["accepted", "started", "ended"]);
}

#[tokio::test]
async fn a_stop_ends_an_attempt_once() {
    let mut fixture = Fixture::with_slots().await;
    for (job, run) in [(1, endless()), (2, shell("exec sleep 600"))] {
        fixture.run(attempt_ref(job), &run);
        fixture.started(attempt_ref(job)).await;
        for _ in 0..3 {
            fixture.send(ShardMessage::Stop { attempt_ref: attempt_ref(job) });
        }
        fixture.stopped(attempt_ref(job)).await;
        assert_eq!(fixture.commit_all().await, []);
    }
}

#[tokio::test]
async fn delayed_echo_jobs_end_in_order_of_their_delays() {
    let mut fixture = Fixture::with_slots().await;
    fixture.run(attempt_ref(1), &endless());
    fixture.started(attempt_ref(1)).await;
    for (job, delay_ms) in [(2, 60), (3, 20)] {
        fixture.run(attempt_ref(job), &json!({"run": {"echo": {"value": job, "delay_ms": delay_ms}}}));
        fixture.started(attempt_ref(job)).await;
    }
    for job in [3, 2] {
        let outcome = fixture.ended(attempt_ref(job)).await;
        assert_eq!((outcome.end, outcome.result.unwrap().as_str()), (End::Succeeded, job.to_string().as_str()));
    }
}

#[tokio::test]
async fn exit_code_and_output_of_a_program_are_reported() {
    let mut fixture = Fixture::with_slots().await;
    fixture.run(attempt_ref(1), &shell("echo out; echo err >&2; exit 5"));
    fixture.started(attempt_ref(1)).await;
    let outcome = fixture.ended(attempt_ref(1)).await;
    assert_eq!((outcome.end, outcome.exit_code, outcome.signal), (End::Error, Some(5), None));
    let mut reader = Reader::open(&fixture.log(attempt_ref(1))).unwrap().unwrap();
    let mut chunks = Vec::new();
    while let Some(chunk) = reader.next().unwrap() {
        chunks.push((chunk.stream, chunk.bytes));
    }
    chunks.sort_by_key(|(stream, _)| *stream == Stream::Stderr);
    assert_eq!(chunks, [(Stream::Stdout, "out\n".into()), (Stream::Stderr, "err\n".into())]);
    assert!(outcome.log.is_some(), "the log is stored as a blob");
    let scratch = fixture.setup.directory.path().join("scratch");
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 1, "nothing is removed before the end is committed");
    fixture.commit_all().await;
    while std::fs::read_dir(&scratch).unwrap().count() > 0 || fixture.log(attempt_ref(1)).exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_program_can_clean_up_during_the_grace_period() {
    let mut fixture = Fixture::with_slots().await;
    fixture
        .run(attempt_ref(1), &shell("trap 'echo cleaned up; exit 0' TERM; echo ready; while :; do sleep 0.01; done"));
    fixture.started(attempt_ref(1)).await;
    let log = fixture.log(attempt_ref(1));
    let received = || -> String {
        let Some(mut reader) = Reader::open(&log).unwrap() else {
            return String::new();
        };
        let chunks = std::iter::from_fn(|| reader.next().unwrap()).filter(|chunk| chunk.stream == Stream::Stdout);
        chunks.map(|chunk| String::from_utf8_lossy(&chunk.bytes).into_owned()).collect()
    };
    while received() != "ready\n" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fixture.send(ShardMessage::Stop { attempt_ref: attempt_ref(1) });
    fixture.stopped(attempt_ref(1)).await;
    assert_eq!(received(), "ready\ncleaned up\n");
}

#[tokio::test]
async fn a_stopping_runner_stops_all_attempts_and_accepts_no_more() {
    let mut fixture = Fixture::with_slots().await;
    let runs = [(1, endless()), (2, shell("exec sleep 600")), (3, shell("trap '' TERM; while :; do sleep 0.01; done"))];
    for (job, run) in &runs {
        fixture.run(attempt_ref(*job), run);
        fixture.started(attempt_ref(*job)).await;
    }
    fixture.runner.stop(StopMode::StopProcesses).await;
    fixture.run(attempt_ref(4), &echo());
    let mut stopped = Vec::new();
    while stopped.len() < 4 {
        let (_, received) = fixture.next_message().await;
        match received.message {
            RunnerMessage::Register { capacity, .. } => {
                assert_eq!(capacity, Capacity::default(), "it registers without slots")
            }
            RunnerMessage::Ended { attempt_ref, outcome, .. } => {
                assert_eq!(outcome.end, End::Stopped);
                stopped.push(attempt_ref);
            }
            RunnerMessage::Accepted { attempt_ref, .. } | RunnerMessage::Started { attempt_ref, .. } => {
                panic!("{attempt_ref:?} was accepted")
            }
        }
    }
    stopped.sort_unstable();
    assert_eq!(stopped, [attempt_ref(1), attempt_ref(2), attempt_ref(3), attempt_ref(4)]);
    assert_eq!(fixture.commit_all().await, []);
}
