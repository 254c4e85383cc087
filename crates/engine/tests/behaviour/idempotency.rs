//! Idempotency keys: the same key makes one job or queue.

use engine::{Answer, Input, Refusal};
use model::batch::Keyspace;
use model::job::End;
use model::queue::QueueRef;
use model::spec::{Digest, KeyHash};
use model::state::State;
use model::time::Millis;

use crate::support::{DAY, Fixture, HOUR, RUNNER, config_of, echo, job, keyed, room};

/// The shard that requests with this key are sent to if they name no queue.
fn home_of(key: &str, shards: u16) -> Fixture {
    let slot = KeyHash::of("default", key).slot();
    Fixture::with(config_of(slot.number() % shards, shards))
}

#[test]
fn the_same_key_and_body_is_the_same_job() {
    for shards in [1, 4] {
        let mut shard = home_of("k", shards);
        let first = shard.try_submit(&[keyed("k")]).remove(0).unwrap();
        let again = shard.try_submit(&[keyed("k")]).remove(0).unwrap();
        assert!(!first.deduplicated && again.deduplicated);
        assert_eq!((again.id, again.seq, again.created_at), (first.id, first.seq, first.created_at));
        assert_eq!(again.state, Some(State::Scheduled));
        assert_eq!(shard.records.len(Keyspace::Live), 1);
    }
}

#[test]
fn a_different_body_under_the_same_key_is_a_conflict() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&keyed("k"));
    let other = job(|spec| {
        spec.idempotency_key = Some("k".to_owned());
        spec.max_retries = Some(9);
    });
    assert_eq!(shard.try_submit(std::slice::from_ref(&other))[0], Err(Refusal::KeyConflict));
    shard.run_attempt(id, End::Succeeded);
    assert_eq!(shard.try_submit(&[other])[0], Err(Refusal::KeyConflict), "also when the job has ended");
}

#[test]
fn keys_of_two_tenants_are_two_keys() {
    let mut shard = Fixture::new();
    let a = shard.submit(&keyed("k"));
    let b = shard.submit(&job(|spec| {
        spec.idempotency_key = Some("k".to_owned());
        spec.tenant = "other".to_owned();
    }));
    assert_ne!(a, b);
}

#[test]
fn duplicates_wait_for_the_same_key_lookup() {
    let mut shard = Fixture::new();
    shard.hold_fetches = true;
    let requests: Vec<_> = (0..3).map(|_| shard.submit_request(&[keyed("k")])).collect();
    assert!(requests.iter().all(|request| shard.answer(*request).is_none()), "no job is created before the key lookup");
    assert_eq!(shard.fetches.len(), 1, "one lookup");
    shard.answer_fetches();
    let ids: Vec<_> = requests.iter().map(|request| accepted(shard.answer(*request))).collect();
    assert!(ids.iter().all(|id| *id == ids[0]));
    assert_eq!(shard.records.len(Keyspace::Live), 1);
}

#[track_caller]
fn accepted(answer: Option<Answer>) -> model::id::JobId {
    match answer {
        Some(Answer::Submitted(results)) => results[0].as_ref().expect("accepted").id,
        other => panic!("unexpected answer to a submit: {other:?}"),
    }
}

#[test]
fn a_batch_mixes_jobs_with_and_without_keys() {
    let mut shard = Fixture::new();
    let old = shard.submit(&keyed("old"));
    let results = shard.try_submit(&[echo(), keyed("old"), keyed("new"), keyed("new"), echo()]);
    let ids: Vec<_> = results.iter().map(|result| result.as_ref().unwrap().id).collect();
    assert_eq!((ids[1], ids[2]), (old, ids[3]));
    let deduplicated: Vec<bool> = results.iter().map(|result| result.as_ref().unwrap().deduplicated).collect();
    assert_eq!(deduplicated, [false, true, false, true, false]);
}

#[test]
fn a_key_survives_a_restart_and_the_end_of_its_job() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&keyed("k"));
    shard.crash();
    assert_eq!(shard.submit(&keyed("k")), id);
    shard.finish_all();
    let after_its_end = shard.try_submit(&[keyed("k")]).remove(0).unwrap();
    assert_eq!((after_its_end.id, after_its_end.state), (id, None));
    shard.crash();
    assert_eq!(shard.submit(&keyed("k")), id);
    shard.exact_counters = false;
    assert_eq!(shard.request(|request| Input::Remove { request, job: id, by: None }), Answer::Removed);
    assert_eq!(shard.submit(&keyed("k")), id, "even when it was removed");
}

#[test]
fn a_crash_between_commit_and_answer_makes_no_second_job() {
    let mut shard = Fixture::new();
    // The first step looks up the key, the second accepts the job.
    shard.crash_at = Some(2);
    let request = shard.submit_request(&[keyed("k")]);
    assert_eq!(shard.answer(request), None);
    let resent = shard.try_submit(&[keyed("k")]).remove(0).unwrap();
    assert!(resent.deduplicated);
    assert_eq!(shard.records.len(Keyspace::Live), 1);
}

#[test]
fn a_key_is_forgotten_after_a_day() {
    for hour in [0, 1, 12, 23] {
        let mut shard = Fixture::with_runner(10);
        shard.advance(hour * HOUR);
        let first = shard.submit(&keyed("k"));
        shard.finish_all();
        let used = shard.job(first).created_at;
        shard.advance(DAY - 1 - (shard.now - used).0);
        assert_eq!(shard.submit(&keyed("k")), first, "used at {hour} o'clock");
        shard.advance(1);
        assert_ne!(shard.submit(&keyed("k")), first, "used at {hour} o'clock");
    }
}

#[test]
fn a_key_lives_a_day_even_if_its_job_lives_longer() {
    for restart in [false, true] {
        // Without a runner the job would fail earlier.
        let mut shard = Fixture::with_runner(0);
        let first = shard.submit(&keyed("k"));
        shard.advance(DAY);
        if restart {
            shard.crash();
        }
        let second = shard.submit(&keyed("k"));
        assert_ne!(second, first);
        assert_eq!(shard.submit(&keyed("k")), second);
        shard.cancel(first);
        assert_eq!(shard.submit(&keyed("k")), second, "the end of the first job is not the end of the key");
        shard.crash();
        assert_eq!(shard.submit(&keyed("k")), second);
    }
}

/// The key has expired and been used again; the retry must not reclaim it.
#[test]
fn retrying_an_old_job_does_not_restore_its_key() {
    let mut shard = Fixture::with_runner(1);
    let old = shard.submit(&keyed("k"));
    shard.run_attempt(old, End::Fatal);
    shard.advance(DAY);
    shard.resize(RUNNER, room(0));
    let new = shard.submit(&keyed("k"));
    assert_eq!(shard.retry(old), Ok(State::Scheduled));
    assert_eq!(shard.submit(&keyed("k")), new);
    shard.crash();
    assert_eq!(shard.submit(&keyed("k")), new, "regardless of the order of restoring");
    shard.cancel(old);
    assert_eq!(shard.submit(&keyed("k")), new);
}

/// Keys are stored by day. A clock set back over midnight while the shard was down must not hide them.
#[test]
fn a_key_is_found_after_the_clock_went_back_over_midnight() {
    let mut shard = Fixture::with_runner(1);
    let first = shard.submit(&keyed("k"));
    shard.finish_all();
    shard.now = shard.now.saturating_sub(Millis(HOUR));
    shard.crash();
    assert_eq!(shard.submit(&keyed("k")), first);
    let second = shard.submit(&keyed("other"));
    shard.cancel(second);
    shard.crash();
    assert_eq!(shard.submit(&keyed("other")), second);
}

#[test]
fn the_number_of_a_tenants_keys_is_limited() {
    let mut config = config_of(0, 1);
    config.keys_per_tenant_max = 3;
    let mut shard = Fixture::with(config);
    for key in ["a", "b", "c"] {
        shard.submit(&keyed(key));
    }
    assert_eq!(shard.try_submit(&[keyed("d")])[0], Err(Refusal::TooManyKeys { max: 3 }));
    assert!(shard.try_submit(&[keyed("a")])[0].is_ok(), "a known key does not count again");
    assert!(shard.try_submit(&[echo()])[0].is_ok(), "the limit does not apply without a key");
    shard.crash();
    assert_eq!(shard.try_submit(&[keyed("d")])[0], Err(Refusal::TooManyKeys { max: 3 }));
    shard.advance(2 * DAY);
    assert!(shard.try_submit(&[keyed("d")])[0].is_ok());
}

#[test]
fn a_queue_is_created_once_under_its_key() {
    for shards in [1, 4] {
        let mut shard = home_of("queue", shards);
        let key = (KeyHash::of("default", "queue"), Digest([1; 16]));
        let first = shard.create_queue(|new| new.key = Some(key));
        let again = shard.create_queue(|new| new.key = Some(key));
        assert_eq!((again.id, again.token), (first.id, first.token), "the first token counts");
        shard.crash();
        assert_eq!(shard.create_queue(|new| new.key = Some(key)).id, first.id);
        let other = shard.new_queue(|new| new.key = Some((key.0, Digest([2; 16]))));
        let refused = shard.request(|request| Input::CreateQueue { request, queue: Box::new(other) });
        assert_eq!(refused, Answer::Refused(Refusal::KeyConflict));
        shard.remove_queue(first.id);
        let again = shard.new_queue(|new| new.key = Some(key));
        let gone = shard.request(|request| Input::CreateQueue { request, queue: Box::new(again) });
        assert_eq!(gone, Answer::QueueExists(first.id));
    }
}

#[test]
fn two_queues_in_flight_under_one_key_are_one() {
    let mut shard = Fixture::new();
    shard.hold_fetches = true;
    let key = (KeyHash::of("default", "queue"), Digest([1; 16]));
    let requests: Vec<_> = (0..2)
        .map(|_| {
            let new = shard.new_queue(|new| new.key = Some(key));
            let request = shard.next_request();
            shard.input(Input::CreateQueue { request, queue: Box::new(new) });
            request
        })
        .collect();
    shard.answer_fetches();
    let ids: Vec<_> = requests
        .iter()
        .map(|request| match shard.answer(*request) {
            Some(Answer::Queue(queue)) => queue.id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids[0], ids[1]);
}

#[test]
fn a_key_used_for_a_job_cannot_create_a_queue() {
    let mut shard = Fixture::new();
    shard.submit(&keyed("k"));
    let new = shard.new_queue(|new| new.key = Some((KeyHash::of("default", "k"), Digest([1; 16]))));
    let refused = shard.request(|request| Input::CreateQueue { request, queue: Box::new(new) });
    assert_eq!(refused, Answer::Refused(Refusal::KeyConflict));
}

/// A refused creation does not count towards the tenant's keys.
#[test]
fn a_queue_that_is_refused_uses_no_key() {
    let mut config = config_of(0, 1);
    config.queues_max = 2;
    config.keys_per_tenant_max = 1;
    let mut shard = Fixture::with(config);
    shard.submit(&echo());
    let queue = shard.create_queue(|_| {}).id;
    let key = (KeyHash::of("default", "queue"), Digest([1; 16]));
    let new = shard.new_queue(|new| new.key = Some(key));
    let refused = shard.request(|request| Input::CreateQueue { request, queue: Box::new(new) });
    assert_eq!(refused, Answer::Refused(Refusal::TooManyQueues { max: 2 }));
    shard.remove_queue(queue);
    shard.create_queue(|new| new.key = Some(key));
}

#[test]
fn a_refused_job_leaves_its_key_free() {
    let mut shard = Fixture::new();
    let queue = shard.create_queue(|_| {}).id;
    shard.drain_queue(queue);
    let into_closed = job(|spec| {
        spec.idempotency_key = Some("k".to_owned());
        spec.queue = Some(QueueRef::Id(queue));
    });
    assert!(shard.try_submit(&[into_closed])[0].is_err());
    assert!(shard.try_submit(&[keyed("k")])[0].is_ok());
}
