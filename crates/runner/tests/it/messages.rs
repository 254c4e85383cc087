//! Message protocol: sequence numbers, outbox until commit, retransmission on request.

use model::id::{Epoch, Incarnation, ShardId};
use model::job::End;
use model::message::{Capacity, RunnerMessage, ShardMessage};
use model::time::Millis;

use crate::support::{Fixture, INCARNATION, Received, attempt_ref, echo, endless, in_flight, run_message};

// FEATURES: B10
#[tokio::test]
async fn start_and_end_of_an_attempt_are_sent() {
    let mut fixture = Fixture::with_slots().await;
    fixture.run(attempt_ref(1), &echo());
    let started = fixture.message().await;
    assert_eq!(started.sequence, 2, "after the registration");
    assert!(matches!(started.message, RunnerMessage::Started { attempt_ref: of, .. } if of == attempt_ref(1)));
    let ended = fixture.message().await;
    assert_eq!(ended.sequence, 3);
    let RunnerMessage::Ended { outcome, .. } = ended.message else { panic!("{ended:?}") };
    assert_eq!(outcome.end, End::Succeeded);
    assert_eq!(outcome.result.unwrap().as_str(), "\"hello\"");
}

#[tokio::test]
async fn a_repeated_run_message_runs_once() {
    let mut fixture = Fixture::with_slots().await;
    fixture.run(attempt_ref(1), &echo());
    fixture.started(attempt_ref(1)).await;
    fixture.ended(attempt_ref(1)).await;
    fixture.run(attempt_ref(2), &endless());
    fixture.started(attempt_ref(2)).await;
    for job in [1, 2] {
        fixture.run(attempt_ref(job), &echo());
    }
    let (retransmitted, register) = fixture.inventory().await;
    // The registration, two starts, one end, and nothing new.
    assert_eq!(retransmitted.iter().map(|received| received.sequence).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(in_flight(&register), [attempt_ref(2)]);
}

// FEATURES: B4
#[tokio::test]
async fn uncommitted_messages_are_retransmitted_with_their_sequence_numbers() {
    let mut fixture = Fixture::with_slots().await;
    let mut received = Vec::new();
    for job in 1..=3 {
        fixture.run(attempt_ref(job), &echo());
        received.extend([fixture.message().await, fixture.message().await]);
    }
    let (retransmitted, register) = fixture.inventory().await;
    assert_eq!(retransmitted[1..], received);
    assert!(matches!(register, RunnerMessage::Register { oldest_kept: 1, .. }), "{register:?}");
    // Up to the end of the first attempt: later messages stay in the outbox.
    fixture.commit(3);
    let (retransmitted, register) = fixture.inventory().await;
    assert_eq!(retransmitted[..4], received[2..]);
    assert!(matches!(register, RunnerMessage::Register { oldest_kept: 4, .. }), "{register:?}");
    // An older commit message has no effect.
    fixture.commit(1);
    assert_eq!(fixture.inventory().await.0[..4], received[2..]);
}

#[tokio::test]
async fn an_inventory_lists_the_attempts_in_flight() {
    let mut fixture = Fixture::with_slots().await;
    for job in [3, 1, 2] {
        fixture.run(attempt_ref(job), &endless());
        fixture.started(attempt_ref(job)).await;
    }
    assert_eq!(fixture.commit_all().await, [attempt_ref(1), attempt_ref(2), attempt_ref(3)]);
    fixture.send(ShardMessage::Stop { attempt_ref: attempt_ref(2) });
    fixture.stopped(attempt_ref(2)).await;
    assert_eq!(fixture.commit_all().await, [attempt_ref(1), attempt_ref(3)]);
}

#[tokio::test]
async fn messages_with_an_older_epoch_or_another_incarnation_are_ignored() {
    let mut fixture = Fixture::with_slots().await;
    fixture.commit_all().await;
    let run = run_message(attempt_ref(1), &endless());
    fixture.send_as(ShardId(0), Epoch(4), run.clone());
    let envelope = fixture.envelope(ShardId(0), Epoch(6), run.clone());
    for other in [INCARNATION.0 - 1, INCARNATION.0 + 1] {
        fixture.runner.send(ShardId(0), Incarnation(other), vec![envelope.clone()]);
    }
    // Likewise those of an unknown shard.
    fixture.send_as(ShardId(9), Epoch(5), run.clone());
    assert_eq!(fixture.commit_all().await, []);
    fixture.runner.send(ShardId(0), INCARNATION, vec![envelope]);
    fixture.started(attempt_ref(1)).await;
    // From now on the previous epoch is outdated, too.
    fixture.send(ShardMessage::Stop { attempt_ref: attempt_ref(1) });
    fixture.send_as(ShardId(0), Epoch(6), ShardMessage::Inventory { request: 1 });
    let register = loop {
        let message = fixture.message().await.message;
        if matches!(message, RunnerMessage::Register { request: 1, .. }) {
            break message;
        }
    };
    assert_eq!(in_flight(&register), [attempt_ref(1)]);
}

#[tokio::test]
async fn an_undecodable_job_ends_as_an_infrastructure_failure() {
    let mut fixture = Fixture::with_slots().await;
    fixture.send(ShardMessage::Run {
        attempt_ref: attempt_ref(1),
        valid_for: Millis(u64::MAX),
        spec: bytes::Bytes::from_static(&[0xff, 1, 2]),
        constraints: None,
        lease: None,
    });
    let outcome = fixture.ended(attempt_ref(1)).await;
    assert_eq!(outcome.end, End::Infrastructure);
    assert!(outcome.message.unwrap().contains("cannot read the job"));
}

#[tokio::test]
async fn without_a_free_slot_of_its_executor_an_attempt_ends_as_busy() {
    let mut fixture = Fixture::new(Capacity { process: 1, echo: 2, wasm: 0 }).await;
    let process = crate::support::shell("exec sleep 600");
    fixture.run(attempt_ref(1), &process);
    fixture.started(attempt_ref(1)).await;
    fixture.run(attempt_ref(2), &process);
    assert_eq!(fixture.ended(attempt_ref(2)).await.end, End::Busy);
    for job in [3, 4] {
        fixture.run(attempt_ref(job), &endless());
        fixture.started(attempt_ref(job)).await;
    }
    fixture.run(attempt_ref(5), &endless());
    assert_eq!(fixture.ended(attempt_ref(5)).await.end, End::Busy);
    // The same attempt may be dispatched again once a slot is free.
    for (stop, again, job) in [(1, 2, &process), (3, 5, &endless())] {
        fixture.send(ShardMessage::Stop { attempt_ref: attempt_ref(stop) });
        fixture.stopped(attempt_ref(stop)).await;
        fixture.run(attempt_ref(again), job);
        fixture.started(attempt_ref(again)).await;
    }
    fixture.runner.stop(runner::StopMode::StopProcesses).await;
}

#[tokio::test]
async fn shards_have_separate_sequence_numbers_and_slots() {
    let mut fixture = Fixture::new(Capacity { process: 1, echo: 1, wasm: 0 }).await;
    fixture.run(attempt_ref(1), &endless());
    fixture.started(attempt_ref(1)).await;
    fixture.send_as(ShardId(1), Epoch(1), run_message(attempt_ref(2), &endless()));
    fixture.send_as(ShardId(1), Epoch(1), ShardMessage::Stop { attempt_ref: attempt_ref(1) });
    fixture.send_as(ShardId(1), Epoch(1), ShardMessage::Inventory { request: 9 });
    let mut messages = Vec::new();
    loop {
        let (shard, received) = fixture.next_message().await;
        assert_eq!(shard, ShardId(1));
        if matches!(received.message, RunnerMessage::Register { request: 9, .. }) {
            assert_eq!(in_flight(&received.message), [attempt_ref(2)]);
            break;
        }
        messages.push(received);
    }
    let is_first_start = |received: &Received| {
        matches!(received.message, RunnerMessage::Started { attempt_ref: of, .. } if of == attempt_ref(2))
            && received.sequence == 2
    };
    assert!(messages.iter().any(is_first_start), "{messages:?}");
    assert_eq!(fixture.commit_all().await, [attempt_ref(1)], "a shard cannot stop the attempt of another");
}
