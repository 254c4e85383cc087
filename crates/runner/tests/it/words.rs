//! The protocol: numbered words, kept until committed, said again when asked for.

use model::id::{Epoch, Incarnation, ShardId};
use model::job::End;
use model::message::{Capacity, RunnerWord, ShardFace, Ticket, ToRunner};

use crate::common::{Bench, INCARNATION, echo, endless, spec, ticket};

// FEATURES: B10
#[tokio::test]
async fn an_attempt_is_said_to_start_and_to_end() {
    let mut bench = Bench::roomy().await;
    bench.run(ticket(1), &echo());
    let started = bench.word().await;
    assert_eq!(started.sequence, 2, "after the hello");
    assert!(matches!(started.word, RunnerWord::Started { ticket: of, .. } if of == ticket(1)));
    let ended = bench.word().await;
    assert_eq!(ended.sequence, 3);
    let RunnerWord::Ended { outcome, .. } = ended.word else { panic!("{ended:?}") };
    assert_eq!(outcome.end, End::Succeeded);
    assert_eq!(outcome.result.unwrap().as_str(), "\"said\"");
}

#[tokio::test]
async fn an_order_that_is_heard_twice_is_obeyed_once() {
    let mut bench = Bench::roomy().await;
    bench.run(ticket(1), &echo());
    bench.started(ticket(1)).await;
    bench.ended(ticket(1)).await;
    bench.run(ticket(2), &endless());
    bench.started(ticket(2)).await;
    for job in [1, 2] {
        bench.run(ticket(job), &echo());
    }
    let (repeated, here) = bench.inventory().await;
    // The hello, two starts, one end: and nothing new.
    assert_eq!(repeated.iter().map(|said| said.sequence).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(matches!(here, RunnerWord::Here { ref holding, .. } if *holding == [ticket(2)]));
}

// FEATURES: B4
#[tokio::test]
async fn what_is_not_committed_is_said_again_with_its_number() {
    let mut bench = Bench::roomy().await;
    let mut said = Vec::new();
    for job in 1..=3 {
        bench.run(ticket(job), &echo());
        said.extend([bench.word().await, bench.word().await]);
    }
    let (repeated, here) = bench.inventory().await;
    assert_eq!(repeated[1..], said);
    assert!(matches!(here, RunnerWord::Here { oldest_kept: 1, .. }), "{here:?}");
    // Up to the end of the first: what comes after is kept.
    bench.tell(ToRunner::Committed { sequence: 3 });
    let (repeated, here) = bench.inventory().await;
    assert_eq!(repeated[..4], said[2..]);
    assert!(matches!(here, RunnerWord::Here { oldest_kept: 4, .. }), "{here:?}");
    // An older word about commits takes nothing back.
    bench.tell(ToRunner::Committed { sequence: 1 });
    assert_eq!(bench.inventory().await.0[..4], said[2..]);
}

#[tokio::test]
async fn an_inventory_names_what_is_in_hand() {
    let mut bench = Bench::roomy().await;
    for job in [3, 1, 2] {
        bench.run(ticket(job), &endless());
        bench.started(ticket(job)).await;
    }
    assert_eq!(bench.settle().await, [ticket(1), ticket(2), ticket(3)]);
    bench.tell(ToRunner::Stop { ticket: ticket(2) });
    bench.stopped(ticket(2)).await;
    assert_eq!(bench.settle().await, [ticket(1), ticket(3)]);
}

#[tokio::test]
async fn an_earlier_owner_and_another_incarnation_are_not_obeyed() {
    let mut bench = Bench::roomy().await;
    bench.settle().await;
    let run = ToRunner::Run { ticket: ticket(1), spec: spec(&endless()), constraints: None };
    bench.tell_as(ShardId(0), Epoch(4), run.clone());
    let face = ShardFace { shard: ShardId(0), epoch: Epoch(5) };
    for other in [INCARNATION.0 - 1, INCARNATION.0 + 1] {
        bench.runner.send(face, Incarnation(other), vec![run.clone()]);
    }
    // Nor is a shard that it does not serve.
    bench.tell_as(ShardId(9), Epoch(5), run.clone());
    assert_eq!(bench.settle().await, []);
    bench.tell_as(ShardId(0), Epoch(6), run);
    bench.started(ticket(1)).await;
    // From now on the owner before is an earlier one, too.
    bench.tell(ToRunner::Stop { ticket: ticket(1) });
    bench.tell_as(ShardId(0), Epoch(6), ToRunner::Inventory { question: 1 });
    let here = loop {
        let word = bench.word().await.word;
        if matches!(word, RunnerWord::Here { question: 1, .. }) {
            break word;
        }
    };
    assert!(matches!(here, RunnerWord::Here { ref holding, .. } if *holding == [ticket(1)]), "{here:?}");
}

#[tokio::test]
async fn a_job_that_cannot_be_read_is_not_to_blame() {
    let mut bench = Bench::roomy().await;
    bench.tell(ToRunner::Run { ticket: ticket(1), spec: bytes::Bytes::from_static(&[0xff, 1, 2]), constraints: None });
    let outcome = bench.ended(ticket(1)).await;
    assert_eq!(outcome.end, End::Infrastructure);
    assert!(outcome.message.unwrap().contains("cannot read the job"));
}

#[tokio::test]
async fn beyond_its_capacity_it_is_busy_for_each_kind_on_its_own() {
    let mut bench = Bench::new(Capacity { process: 1, echo: 2, wasm: 0 }).await;
    let process = crate::common::shell("exec sleep 600");
    bench.run(ticket(1), &process);
    bench.started(ticket(1)).await;
    bench.run(ticket(2), &process);
    assert_eq!(bench.ended(ticket(2)).await.end, End::Busy);
    for job in [3, 4] {
        bench.run(ticket(job), &endless());
        bench.started(ticket(job)).await;
    }
    bench.run(ticket(5), &endless());
    assert_eq!(bench.ended(ticket(5)).await.end, End::Busy);
    // Refused for lack of room, the very same attempt may come when there is some.
    for (stop, again, job) in [(1, 2, &process), (3, 5, &endless())] {
        bench.tell(ToRunner::Stop { ticket: ticket(stop) });
        bench.stopped(ticket(stop)).await;
        bench.run(ticket(again), job);
        bench.started(ticket(again)).await;
    }
    bench.runner.stop(runner::Departure::EndProcesses).await;
}

#[tokio::test]
async fn shards_have_their_own_numbers_and_their_own_room() {
    let mut bench = Bench::new(Capacity { process: 1, echo: 1, wasm: 0 }).await;
    bench.run(ticket(1), &endless());
    bench.started(ticket(1)).await;
    bench.tell_as(ShardId(1), Epoch(1), ToRunner::Run { ticket: ticket(2), spec: spec(&endless()), constraints: None });
    bench.tell_as(ShardId(1), Epoch(1), ToRunner::Stop { ticket: ticket(1) });
    bench.tell_as(ShardId(1), Epoch(1), ToRunner::Inventory { question: 9 });
    let mut words = Vec::new();
    loop {
        let (shard, said) = bench.any_word().await;
        assert_eq!(shard, ShardId(1));
        if matches!(said.word, RunnerWord::Here { question: 9, .. }) {
            let RunnerWord::Here { holding, .. } = said.word else { unreachable!() };
            assert_eq!(holding, [ticket(2)]);
            break;
        }
        words.push(said);
    }
    let starts =
        |of: Ticket| move |word: &RunnerWord| matches!(word, RunnerWord::Started { ticket, .. } if *ticket == of);
    assert!(words.iter().any(|said| said.sequence == 2 && starts(ticket(2))(&said.word)), "{words:?}");
    assert_eq!(bench.settle().await, [ticket(1)], "the other shard's attempt is not this one's to stop");
}
