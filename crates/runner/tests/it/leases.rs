//! Leases of exclusive attempts: killed when they run out, renewed by the shard, kept across a restart of the runner.

use model::id::{Epoch, ShardId};
use model::job::{End, Outcome};
use model::message::{RunnerMessage, Session, ShardMessage, ToRunner};
use model::time::Millis;
use runner::steady_clock;
use serde_json::{Value, json};

use crate::support::{Fixture, Received, Setup, attempt_ref, run_message, shell};

/// A dispatch by a shard that has just heard the runner.
fn run_leased(fixture: &Fixture, job: u64, run: &Value, lease: u64) -> Millis {
    let mut message = run_message(attempt_ref(job), run);
    if let ShardMessage::Run { lease: of_run, .. } = &mut message {
        *of_run = Some(Millis(lease));
    }
    let mut envelope = fixture.envelope(ShardId(0), Epoch(5), message);
    let now = steady_clock::now();
    if let ToRunner::Message { heard, .. } = &mut envelope {
        *heard = now;
    }
    fixture.send_raw(envelope);
    now + Millis(lease)
}

fn renew(fixture: &Fixture) {
    let session = Session { epoch: Epoch(5), number: 1 };
    fixture.send_raw(ToRunner::Renewed { session, heard: steady_clock::now() });
}

/// The end of an attempt, after whatever else is reported.
async fn end_of(fixture: &mut Fixture, job: u64) -> Outcome {
    loop {
        if let (_, Received { message: RunnerMessage::Ended { attempt_ref: of, outcome }, .. }) =
            fixture.next_message().await
            && of == attempt_ref(job)
        {
            return *outcome;
        }
    }
}

fn slow_echo() -> Value {
    json!({"run": {"echo": {"value": 1, "delay_ms": 600_000}}})
}

#[tokio::test]
async fn a_process_and_an_echo_job_end_when_their_lease_runs_out() {
    let mut fixture = Fixture::with_slots().await;
    for (job, run) in [(1, slow_echo()), (2, shell("exec sleep 600"))] {
        let until = run_leased(&fixture, job, &run, 1_000);
        let outcome = end_of(&mut fixture, job).await;
        assert_eq!(outcome.end, End::LeaseExpired, "{outcome:?}");
        assert!(outcome.message.unwrap().contains("lease"));
        assert!(steady_clock::now() >= until, "not before its time");
    }
}

#[tokio::test]
async fn a_renewed_attempt_goes_on() {
    let mut fixture = Fixture::with_slots().await;
    run_leased(&fixture, 1, &shell("sleep 3; exit 0"), 2_000);
    let interval = std::time::Duration::from_millis(100);
    let outcome = loop {
        renew(&fixture);
        if let Ok(outcome) = tokio::time::timeout(interval, end_of(&mut fixture, 1)).await {
            break outcome;
        }
    };
    assert_eq!(outcome.end, End::Succeeded);
}

#[tokio::test]
async fn an_adopted_attempt_keeps_its_lease() {
    let mut fixture = Fixture::start(Setup { outbox_bytes: Some(1 << 20), ..Setup::new() }).await;
    let until = run_leased(&fixture, 1, &shell("exec sleep 600"), 4_000);
    while !matches!(fixture.next_message().await.1.message, RunnerMessage::Started { .. }) {}
    // Nobody renews it from here on. It ends while no server runs, or after the next one has adopted it.
    let setup = fixture.crash().await;
    let mut fixture = Fixture::start(setup).await;
    let outcome = end_of(&mut fixture, 1).await;
    assert_eq!(outcome.end, End::LeaseExpired, "{outcome:?}");
    assert!(steady_clock::now() >= until);
}
