//! Queues: limits, counters, drain, cancel, expiry.

use engine::{Answer, Input, Refusal};
use model::batch::Keyspace;
use model::id::{Attempt, QueueId, ShardId};
use model::job::End;
use model::key;
use model::queue::{QueueRef, QueueState};
use model::reason::ReasonCode;
use model::spec::JobSpec;
use model::state::State;
use model::time::Millis;
use model::verdict::OutputVerdict;

use crate::support::{DAY, Fixture, HOUR, RUNNER, config_of, echo, job, keyed, room, scan};

fn into(queue: QueueId) -> JobSpec {
    job(|spec| spec.queue = Some(QueueRef::Id(queue)))
}

fn state_of(answer: Answer) -> QueueState {
    match answer {
        Answer::Queue(queue) => queue.state,
        other => panic!("expected a queue: {other:?}"),
    }
}

// FEATURES: C4
#[test]
fn a_queue_is_reached_by_its_number_and_by_its_token() {
    for (number, shards) in [(0, 1), (3, 4)] {
        let mut shard = Fixture::with(config_of(number, shards));
        let queue = shard.create_queue(|new| new.tag = "mine".to_owned());
        let token = queue.token.unwrap();
        assert_eq!(shard.config.shards.owner(token.slot()), ShardId(number));
        let by_token = shard.submit(&job(|spec| spec.queue = Some(QueueRef::Token(token))));
        let by_number = shard.submit(&into(queue.id));
        assert_eq!((shard.job(by_token).queue, shard.job(by_number).queue), (queue.id, queue.id));
        assert_eq!((shard.job(by_token).seq, shard.job(by_number).seq), (1, 2));
        shard.crash();
        shard.submit(&job(|spec| spec.queue = Some(QueueRef::Token(token))));
        assert_eq!(shard.queue(queue.id).counters.active, 3);
        let nowhere = QueueRef::Id(QueueId(1));
        let refused = shard.try_submit(&[job(|spec| spec.queue = Some(nowhere))]).remove(0);
        assert_eq!(refused, Err(Refusal::UnknownQueue(nowhere)));
    }
}

/// The simulation found it: a jump of the clock had ended the key of the first creation.
#[test]
fn a_token_belongs_to_one_queue() {
    let mut shard = Fixture::new();
    let new = shard.new_queue(|_| {});
    let create = |shard: &mut Fixture| match shard.request(|request| {
        let queue = Box::new(new.clone());
        Input::CreateQueue { request, queue }
    }) {
        Answer::Queue(queue) => queue.id,
        other => panic!("expected a queue: {other:?}"),
    };
    let first = create(&mut shard);
    assert_eq!(create(&mut shard), first);
    assert_eq!(shard.records.len(Keyspace::Queues), 1);
}

#[test]
fn tokens_of_an_earlier_version_are_indexed_by_the_first_owner() {
    let mut shard = Fixture::new();
    let token = |queue: model::queue::Queue| key::queue_token(queue.token.unwrap());
    let tokens: Vec<_> = (0..3).map(|_| token(shard.create_queue(|_| {}))).collect();
    for token in &tokens {
        shard.records.remove(Keyspace::Meta, token);
    }
    shard.crash();
    assert!(tokens.iter().all(|token| shard.records.get(Keyspace::Meta, token).is_some()));
    let commits = shard.commits;
    shard.crash();
    assert_eq!(shard.records.get(Keyspace::Meta, key::META_NAMES_INDEXED), Some(&[][..]));
    assert!(shard.commits > commits && shard.largest_commit < 10_000);
}

// FEATURES: C4
#[test]
fn queues_close_one_way_only() {
    let mut shard = Fixture::new();
    let queue = shard.create_queue(|_| {}).id;
    assert_eq!(state_of(shard.drain_queue(queue)), QueueState::Draining);
    assert_eq!(state_of(shard.drain_queue(queue)), QueueState::Draining);
    assert_eq!(state_of(shard.cancel_queue(queue)), QueueState::Cancelled);
    assert_eq!(state_of(shard.drain_queue(queue)), QueueState::Cancelled, "cancelled is final");
    let other = shard.create_queue(|_| {}).id;
    assert_eq!(state_of(shard.cancel_queue(other)), QueueState::Cancelled);
    let refused = shard.try_submit(&[into(queue)]).remove(0);
    assert_eq!(refused, Err(Refusal::QueueClosed(QueueState::Cancelled)));
}

// FEATURES: C4
#[test]
fn a_draining_queue_finishes_what_it_has() {
    let mut shard = Fixture::with_runner(1);
    let queue = shard.create_queue(|_| {}).id;
    let jobs = [shard.submit(&into(queue)), shard.submit(&into(queue))];
    shard.drain_queue(queue);
    assert_eq!(shard.try_submit(&[into(queue)])[0], Err(Refusal::QueueClosed(QueueState::Draining)));
    shard.crash();
    shard.finish_all();
    assert!(jobs.iter().all(|job| shard.state(*job) == State::Succeeded));
    assert_eq!(shard.queue(queue).counters.succeeded, 2);
}

// FEATURES: C4
#[test]
fn counters_say_how_jobs_ended() {
    let mut shard = Fixture::with_runner(10);
    let queue = shard.create_queue(|new| new.max_retries = 1).id;
    let jobs: Vec<_> = (0..5).map(|_| shard.submit(&into(queue))).collect();
    shard.run_attempt(jobs[0], End::Succeeded);
    shard.run_attempt(jobs[1], End::Fatal);
    shard.cancel(jobs[2]);
    shard.end(shard.current(jobs[2]), End::Stopped);
    shard.run_attempt(jobs[3], End::Fatal);
    shard.retry(jobs[3]).unwrap();
    let counters = shard.queue(queue).counters;
    assert_eq!((counters.active, counters.succeeded, counters.failed, counters.cancelled), (2, 1, 1, 1));
    shard.input(Input::Scanned { job: jobs[0], attempt: Attempt(1), scan: scan(OutputVerdict::Quarantine) });
    let counters = shard.queue(queue).counters;
    assert_eq!((counters.succeeded, counters.quarantined), (0, 1));
    let released = shard.request(|request| Input::Release { request, job: jobs[0], by: None });
    assert!(matches!(released, Answer::Job(job) if job.state == State::Succeeded));
    assert_eq!(shard.queue(queue).counters.succeeded, 1);
}

#[test]
fn a_queue_limits_its_running_jobs() {
    let mut shard = Fixture::with_runner(10);
    let queue = shard.create_queue(|new| new.max_running = Some(2)).id;
    let jobs: Vec<_> = (0..5).map(|_| shard.submit(&into(queue))).collect();
    assert_eq!(shard.take_runs(), jobs[..2]);
    let other = shard.submit(&echo());
    assert_eq!(shard.take_runs(), [other], "other queues are not held up");
    shard.run_attempt(jobs[0], End::Succeeded);
    assert_eq!(shard.take_runs(), [jobs[2]]);
    shard.crash();
    assert_eq!(shard.state(jobs[3]), State::Scheduled, "and after a restart");
    shard.finish_all();
    assert_eq!(shard.queue(queue).counters.succeeded, 5);
}

#[test]
fn a_queue_at_its_limit_returns_for_new_and_aged_jobs() {
    let mut shard = Fixture::with_runner(10);
    let queue = shard.create_queue(|new| new.max_running = Some(1)).id;
    let first = shard.submit(&into(queue));
    let rest: Vec<_> = (0..3).map(|_| shard.submit(&into(queue))).collect();
    shard.advance(40_000);
    let late = shard.submit(&into(queue));
    shard.cancel(rest[0]);
    shard.run_attempt(first, End::Succeeded);
    assert_eq!(shard.state(rest[1]), State::Dispatched);
    shard.finish_all();
    assert_eq!(shard.state(late), State::Succeeded);
}

// FEATURES: C4
#[test]
fn jobs_without_a_queue_share_the_implicit_one_of_their_tenant() {
    let mut shard = Fixture::new();
    let tenant = |name: &str| job(|spec| spec.tenant = name.to_owned());
    let (a, b, other) = (shard.submit(&tenant("a")), shard.submit(&tenant("a")), shard.submit(&tenant("b")));
    let queue = shard.job(a).queue;
    assert_eq!((shard.job(b).queue, shard.job(b).seq), (queue, 2));
    assert_ne!(shard.job(other).queue, queue);
    for answer in [shard.drain_queue(queue), shard.cancel_queue(queue), shard.remove_queue(queue)] {
        assert_eq!(answer, Answer::Refused(Refusal::QueueImplicit));
    }
    shard.crash();
    let again = shard.submit(&tenant("a"));
    assert_eq!(shard.job(again).queue, queue);
    shard.cancel(a);
    shard.cancel(b);
    shard.cancel(again);
    shard.exact_counters = false;
    shard.advance(10 * shard.config.queue_idle_expiry.0);
    assert!(shard.records.queue(queue).is_none(), "it expires like any other");
    let anew = shard.submit(&tenant("a"));
    assert_ne!(shard.job(anew).queue, queue);
}

// FEATURES: C4
#[test]
fn an_idle_queue_expires_and_a_used_one_does_not() {
    for restart in [false, true] {
        let mut shard = Fixture::with_runner(1);
        let expiry = shard.config.queue_idle_expiry.0;
        let (idle, used) = (shard.create_queue(|_| {}).id, shard.create_queue(|_| {}).id);
        let id = shard.submit(&into(used));
        shard.advance(expiry - 1);
        assert!(shard.records.queue(idle).is_some(), "not early");
        if restart {
            shard.crash();
        }
        shard.advance(1);
        assert!(shard.records.queue(idle).is_none());
        shard.advance(expiry);
        assert!(shard.records.queue(used).is_some());
        shard.finish_all();
        shard.advance(expiry - 1);
        assert!(shard.records.queue(used).is_some(), "it has been idle since its last job ended");
        shard.advance(1);
        assert!(shard.records.queue(used).is_none());
        assert_eq!(shard.state(id), State::Succeeded, "its jobs are still known");
    }
}

// FEATURES: C4
#[test]
fn a_large_queue_is_cancelled_in_chunks_despite_a_crash() {
    for (number, shards) in [(0, 1), (3, 4)] {
        let mut config = config_of(number, shards);
        config.cancel_chunk = 10;
        let mut shard = Fixture::with(config);
        shard.runner(RUNNER, room(2));
        let queue = shard.create_queue(|_| {}).id;
        let results = shard.try_submit(&vec![into(queue); 95]);
        let jobs: Vec<_> = results.into_iter().map(|result| result.unwrap().id).collect();
        shard.start(shard.current(jobs[0]));
        assert_eq!(state_of(shard.cancel_queue(queue)), QueueState::Cancelled);
        assert_eq!(shard.queue(queue).counters.active, 95, "the answer does not wait for the cancellations");
        for ticks in 1..=3 {
            shard.input(Input::Tick);
            let touched = jobs.iter().filter(|job| shard.reason(**job).is_some()).count();
            assert_eq!(touched, 10 * ticks, "a bounded number in one step");
        }
        shard.crash();
        shard.finish_all();
        for job in jobs {
            assert_eq!((shard.state(job), shard.reason(job)), (State::Cancelled, Some(ReasonCode::QueueCancelled)));
        }
        assert_eq!(shard.queue(queue).counters.cancelled, 95);
        assert!(shard.next_tick() > shard.now, "no further tick is due");
    }
}

#[test]
fn a_queue_is_removed_when_it_is_empty() {
    let mut shard = Fixture::with_runner(1);
    let queue = shard.create_queue(|_| {});
    let id = shard.submit(&into(queue.id));
    assert_eq!(shard.remove_queue(queue.id), Answer::Refused(Refusal::QueueNotEmpty(1)));
    shard.run_attempt(id, End::Succeeded);
    assert_eq!(shard.remove_queue(queue.id), Answer::QueueRemoved);
    let reference = QueueRef::Token(queue.token.unwrap());
    let refused = shard.request(|request| Input::DrainQueue { request, queue: reference, by: None });
    assert_eq!(refused, Answer::Refused(Refusal::UnknownQueue(reference)));
    assert_eq!(shard.records.len(Keyspace::Queues), 0);
    shard.crash();
    assert!(shard.create_queue(|_| {}).id > queue.id, "a removed id is not used again");
}

#[test]
fn the_number_of_queues_is_limited() {
    let mut config = config_of(0, 1);
    config.queues_max = 2;
    let mut shard = Fixture::with(config);
    shard.create_queue(|_| {});
    let last = shard.create_queue(|_| {}).id;
    let new = shard.new_queue(|_| {});
    let refused = shard.request(|request| Input::CreateQueue { request, queue: Box::new(new) });
    assert_eq!(refused, Answer::Refused(Refusal::TooManyQueues { max: 2 }));
    assert_eq!(shard.try_submit(&[echo()])[0], Err(Refusal::TooManyQueues { max: 2 }));
    shard.remove_queue(last);
    assert!(shard.try_submit(&[echo()])[0].is_ok());
}

#[test]
fn the_queue_sets_retries_unless_the_job_does() {
    let mut shard = Fixture::new();
    let queue = shard.create_queue(|new| new.max_retries = 7).id;
    let plain = shard.submit(&into(queue));
    let own = shard.submit(&job(|spec| {
        spec.queue = Some(QueueRef::Id(queue));
        spec.max_retries = Some(0);
    }));
    assert_eq!((shard.job(plain).max_retries, shard.job(own).max_retries), (7, 0));
}

/// Names of tenants come from clients. Those without jobs must not use up the limit of queues.
#[test]
fn names_of_tenants_do_not_accumulate() {
    let mut config = config_of(0, 1);
    config.queues_max = 10;
    let mut shard = Fixture::with(config);
    shard.exact_counters = false;
    shard.runner(RUNNER, room(100));
    for round in 0..5 {
        for number in 0..10 {
            let tenant = format!("tenant-{round}-{number}");
            let id = shard.submit(&job(|spec| spec.tenant = tenant.clone()));
            shard.run_attempt(id, End::Succeeded);
        }
        let refused = shard.try_submit(&[job(|spec| spec.tenant = "one too many".to_owned())]);
        assert!(matches!(refused[..], [Err(Refusal::TooManyQueues { max: 10 })]), "{refused:?}");
        shard.advance(shard.config.queue_idle_expiry.0 + 1);
        assert_eq!(shard.records.len(Keyspace::Queues), 0);
        if round == 2 {
            shard.crash();
        }
    }
}

/// The queue is part of what a key stands for.
#[test]
fn an_implicit_queue_stays_as_long_as_its_idempotency_keys() {
    let mut shard = Fixture::with_runner(1);
    let spec = keyed("a");
    let id = shard.submit(&spec);
    shard.run_attempt(id, End::Succeeded);
    shard.now = shard.now + Millis(23 * HOUR);
    shard.advance(1_000);
    let [Ok(again)] = &shard.try_submit(&[spec])[..] else { panic!("the key is known") };
    assert_eq!((again.id, again.deduplicated), (id, true));
    shard.exact_counters = false;
    shard.now = shard.now + Millis(2 * DAY);
    shard.advance(shard.config.queue_idle_expiry.0 * 2);
    assert_eq!(shard.records.len(Keyspace::Queues), 0);
}
