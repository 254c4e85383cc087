//! Claims of idempotency keys whose home is another shard.

use engine::{Answer, Input, PeerMessage, Refusal};
use model::id::{QueueId, ShardId, Shards};
use model::queue::QueueRef;
use model::spec::{JobSpec, KeyHash};
use model::state::State;

use crate::support::{DAY, Fixture, SECOND, config_of, echo};

const SHARDS: u16 = 2;

/// A key with this shard as its home.
fn key_at(home: u16) -> String {
    keys_at(home).next().expect("a key")
}

fn keys_at(home: u16) -> impl Iterator<Item = String> {
    let shards = Shards::new(SHARDS).expect("a number of shards");
    let keys = (0..).map(|number| format!("key {number}"));
    keys.filter(move |key| shards.owner(KeyHash::of("default", key).slot()) == ShardId(home))
}

fn shard(number: u16) -> (Fixture, QueueId) {
    let mut shard = Fixture::with(config_of(number, SHARDS));
    let queue = shard.create_queue(|_| {}).id;
    (shard, queue)
}

fn job(queue: QueueId, key: &str) -> JobSpec {
    JobSpec { queue: Some(QueueRef::Id(queue)), idempotency_key: Some(key.to_owned()), ..echo() }
}

/// Delivers the messages of two shards to each other until there are none.
fn exchange(shards: &mut [Fixture; 2]) {
    loop {
        let messages: [Vec<(ShardId, PeerMessage)>; 2] =
            [0, 1].map(|from| std::mem::take(&mut shards[from].shard_messages));
        if messages.iter().all(Vec::is_empty) {
            return;
        }
        for (from, messages) in (0..).zip(messages) {
            for (to, message) in messages {
                shards[usize::from(to.0)].input(Input::FromShard { from: ShardId(from), message });
            }
        }
    }
}

#[test]
fn one_key_makes_one_job_whatever_queue_it_names() {
    let ((first, first_queue), (second, second_queue)) = (shard(0), shard(1));
    let mut shards = [first, second];
    let key = key_at(0);
    let elsewhere = shards[1].submit_request(&[job(second_queue, &key)]);
    assert!(shards[1].answer(elsewhere).is_none(), "it waits for the home of its key");
    exchange(&mut shards);
    let Some(Answer::Submitted(results)) = shards[1].answer(elsewhere) else { panic!("no answer") };
    let id = results[0].as_ref().unwrap().id;
    assert_eq!(shards[0].try_submit(&[job(first_queue, &key)])[0], Err(Refusal::KeyConflict));
    let again = shards[1].try_submit(&[job(second_queue, &key)]);
    assert_eq!((again[0].as_ref().unwrap().id, again[0].as_ref().unwrap().deduplicated), (id, true));
    // The home remembers the claim after a crash.
    shards[0].crash();
    assert_eq!(shards[0].try_submit(&[job(first_queue, &key)])[0], Err(Refusal::KeyConflict));
}

#[test]
fn a_key_that_its_home_has_used_conflicts_elsewhere() {
    let ((first, first_queue), (second, second_queue)) = (shard(0), shard(1));
    let mut shards = [first, second];
    let key = key_at(0);
    shards[0].submit(&job(first_queue, &key));
    let request = shards[1].submit_request(&[job(second_queue, &key), job(second_queue, &key)]);
    exchange(&mut shards);
    let conflict = Err(Refusal::KeyConflict);
    assert_eq!(shards[1].answer(request), Some(Answer::Submitted(vec![conflict.clone(), conflict])));
}

#[test]
fn requests_with_one_key_that_wait_for_its_home_create_one_job() {
    let ((first, _), (second, queue)) = (shard(0), shard(1));
    let mut shards = [first, second];
    let key = key_at(0);
    let requests: Vec<_> = (0..3).map(|_| shards[1].submit_request(&[job(queue, &key)])).collect();
    assert_eq!(shards[1].shard_messages.len(), 1, "one claim for all of them");
    exchange(&mut shards);
    let ids: Vec<_> = requests
        .into_iter()
        .map(|request| match shards[1].answer(request) {
            Some(Answer::Submitted(results)) => results[0].as_ref().unwrap().id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(shards[1].shard.live_jobs(), 1);
}

#[test]
fn a_lost_claim_is_repeated_and_given_up_after_a_while() {
    let ((first, _), (second, queue)) = (shard(0), shard(1));
    let mut shards = [first, second];
    let key = key_at(0);
    let lost = shards[1].submit_request(&[job(queue, &key)]);
    shards[1].shard_messages.clear();
    shards[1].advance(SECOND);
    assert_eq!(shards[1].shard_messages.len(), 1, "it is repeated");
    exchange(&mut shards);
    assert!(matches!(shards[1].answer(lost), Some(Answer::Submitted(results)) if results[0].is_ok()));
    let other = keys_at(0).nth(1).expect("another key");
    let silent = shards[1].submit_request(&[job(queue, &other)]);
    shards[1].advance(10 * SECOND);
    let Some(Answer::Submitted(results)) = shards[1].answer(silent) else { panic!("no answer") };
    assert!(matches!(results[0], Err(Refusal::KeyHomeSilent { .. })), "{results:?}");
}

/// The simulation found it: a claim for another shard takes no id, so that no id tells its time.
#[test]
fn a_claim_outlasts_a_restart_with_an_earlier_clock() {
    let ((first, first_queue), (second, queue)) = (shard(0), shard(1));
    let mut shards = [first, second];
    let key = key_at(0);
    shards[0].wall_offset = 100 * DAY as i64;
    shards[1].submit_request(&[job(queue, &key)]);
    let (_, claim) = shards[1].shard_messages[0];
    shards[0].input(Input::FromShard { from: ShardId(1), message: claim });
    shards[0].wall_offset = 0;
    shards[0].crash();
    assert_eq!(shards[0].try_submit(&[job(first_queue, &key)])[0], Err(Refusal::KeyConflict));
}

#[test]
fn a_late_answer_to_an_earlier_claim_does_not_count() {
    let ((first, _), (second, queue)) = (shard(0), shard(1));
    let mut shards = [first, second];
    let key = key_at(0);
    let given_up = shards[1].submit_request(&[job(queue, &key)]);
    let (_, claim) = shards[1].shard_messages[0];
    shards[0].input(Input::FromShard { from: ShardId(1), message: claim });
    let late = std::mem::take(&mut shards[0].shard_messages);
    shards[1].advance(10 * SECOND);
    let Some(Answer::Submitted(results)) = shards[1].answer(given_up) else { panic!("no answer") };
    assert!(matches!(results[0], Err(Refusal::KeyHomeSilent { .. })), "{results:?}");
    shards[1].shard_messages.clear();
    shards[1].submit_request(&[job(queue, &key)]);
    for (_, message) in late {
        shards[1].input(Input::FromShard { from: ShardId(0), message });
    }
    assert_eq!(shards[1].shard.live_jobs(), 0, "the new claim is not answered yet");
    exchange(&mut shards);
    assert_eq!(shards[1].shard.live_jobs(), 1);
}

/// The shard crashes after its claim was recorded: the same request creates the job afterwards, another one conflicts.
#[test]
fn a_claim_without_its_job_is_completed_by_the_next_request() {
    let ((first, first_queue), (second, second_queue)) = (shard(0), shard(1));
    let mut shards = [first, second];
    let key = key_at(0);
    shards[1].submit_request(&[job(second_queue, &key)]);
    let (_, claim) = shards[1].shard_messages[0];
    shards[0].input(Input::FromShard { from: ShardId(1), message: claim });
    let answers = std::mem::take(&mut shards[0].shard_messages);
    assert!(matches!(answers[..], [(ShardId(1), PeerMessage::Claimed { .. })]));
    shards[1].shard_messages.clear();
    shards[1].crash();
    assert_eq!(shards[0].try_submit(&[job(first_queue, &key)])[0], Err(Refusal::KeyConflict));
    // The answer to the crashed owner is late, and repeated.
    for (_, message) in answers.iter().chain(&answers) {
        shards[1].input(Input::FromShard { from: ShardId(0), message: *message });
    }
    assert_eq!(shards[1].shard.live_jobs(), 0);
    let request = shards[1].submit_request(&[job(second_queue, &key)]);
    exchange(&mut shards);
    let Some(Answer::Submitted(results)) = shards[1].answer(request) else { panic!("no answer") };
    let id = results[0].as_ref().unwrap().id;
    assert_eq!(shards[1].state(id), State::Scheduled);
}

#[test]
fn nothing_is_claimed_for_a_request_that_is_refused_anyway() {
    let (mut shard, queue) = shard(1);
    shard.drain_queue(queue);
    let results = shard.try_submit(&[job(queue, &key_at(0))]);
    assert!(matches!(results[0], Err(Refusal::QueueClosed(_))), "{results:?}");
    assert!(shard.shard_messages.is_empty());
}
