//! Messages of runners: delivered at least once, in any order, from any incarnation; applied once and in order.

use engine::Input;
use model::batch::Keyspace;
use model::id::{Incarnation, RunnerId};
use model::job::{End, Outcome};
use model::json::Json;
use model::message::{FromRunner, ReportedAttempt, RunnerMessage};
use model::state::State;

use crate::support::{Fixture, RUNNER, SECOND, attempt_ref, config_of, echo, process, room};

// FEATURES: B4, D16
#[test]
fn a_duplicate_message_counts_once() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    let current = shard.current(id);
    let now = shard.now;
    let started = shard.messages(RUNNER, |runner| runner.start(current, now));
    let ended = shard.messages(RUNNER, |runner| runner.end(current, End::Succeeded));
    for message in [&started, &started, &ended, &started, &ended] {
        shard.deliver(message.clone());
    }
    let record = shard.job(id);
    assert_eq!(record.state, State::Succeeded);
    assert_eq!(record.states.len(), 5, "{:?}", record.states);
    assert_eq!(shard.shard.stats().duplicate_messages, 3);
}

#[test]
fn a_gap_in_the_messages_makes_the_shard_request_an_inventory() {
    for (number, shards) in [(0, 1), (3, 4)] {
        let mut shard = Fixture::with(config_of(number, shards));
        shard.runner(RUNNER, room(1));
        let id = shard.submit(&echo());
        let current = shard.current(id);
        let now = shard.now;
        let _lost = shard.messages(RUNNER, |runner| runner.start(current, now));
        let ended = shard.messages(RUNNER, |runner| runner.end(current, End::Succeeded));
        shard.deliver(ended);
        assert_eq!(shard.state(id), State::Succeeded, "the inventory request made the runner retransmit");
        assert_eq!(shard.job(id).states.iter().filter(|entry| entry.state == State::Running).count(), 1);
        assert_eq!(shard.shard.stats().gaps, 1);
    }
}

/// An inventory is applied after all earlier messages; it must not overtake an end in transit.
#[test]
fn an_inventory_does_not_overtake_messages_in_transit() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&process());
    let current = shard.current(id);
    let now = shard.now;
    shard.drop_runner_messages = true;
    let started = shard.messages(RUNNER, |runner| runner.start(current, now));
    let ended = shard.messages(RUNNER, |runner| runner.end(current, End::Succeeded));
    let register = shard.messages(RUNNER, |runner| runner.register(0));
    let RunnerMessage::Register { oldest_kept, .. } = register.message else { panic!("not an inventory") };
    assert_eq!(oldest_kept, started.sequence);
    for message in [register, started, ended] {
        shard.deliver(message);
    }
    assert_eq!(shard.job(id).result, Some(Json::of(&1)), "the result was not lost");
}

// FEATURES: B5
#[test]
fn messages_that_a_runner_no_longer_has_are_not_awaited() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&process());
    let current = shard.current(id);
    shard.start(current);
    let message = RunnerMessage::Register {
        capacity: room(1),
        profile: Default::default(),
        in_flight: vec![ReportedAttempt { attempt_ref: current, running_for: None }],
        request: 0,
        oldest_kept: 9,
    };
    shard.deliver(FromRunner { runner: RUNNER, incarnation: Incarnation(1), sequence: 9, message });
    let end = RunnerMessage::Ended { attempt_ref: current, outcome: Box::new(model::job::Outcome::of(End::Succeeded)) };
    shard.deliver(FromRunner { runner: RUNNER, incarnation: Incarnation(1), sequence: 10, message: end });
    assert_eq!(shard.state(id), State::Succeeded);
}

// FEATURES: D16
#[test]
fn a_late_result_of_an_ended_job_is_ignored() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    let current = shard.current(id);
    shard.start(current);
    shard.cancel(id);
    shard.advance(shard.config.stop_timeout.0);
    assert_eq!(shard.state(id), State::Cancelled);
    let before = shard.job(id);
    shard.end(current, End::Succeeded);
    assert_eq!(shard.job(id), before);
}

#[test]
fn a_new_incarnation_without_attempts_loses_the_old_ones() {
    let mut shard = Fixture::with_runner(2);
    let (running, dispatched) = (shard.submit(&process()), shard.submit(&process()));
    let current = shard.current(running);
    shard.start(current);
    let late = shard.messages(RUNNER, |runner| runner.end(current, End::Succeeded));
    shard.runner(RUNNER, room(2));
    for id in [running, dispatched] {
        assert_eq!((shard.state(id), shard.job(id).infrastructure_failures), (State::Dispatched, 1));
        assert_eq!(shard.current(id).attempt.0, 2);
    }
    shard.deliver(late);
    assert_eq!(shard.state(running), State::Dispatched, "messages of the old incarnation are ignored");
    shard.finish_all();
    assert_eq!(shard.job(running).result, Some(Json::of(&2)));
}

#[test]
fn a_lost_runner_gets_no_jobs_until_it_sends_a_message() {
    let (first, second) = (RunnerId(1), RunnerId(2));
    let mut shard = Fixture::new();
    shard.runner(first, room(1));
    let id = shard.submit(&echo());
    shard.start(shard.current(id));
    shard.lose(first, 1);
    assert_eq!(shard.state(id), State::Scheduled);
    shard.runner(second, room(1));
    assert_eq!(shard.job(id).runner().unwrap().0, second);
    let waiting = shard.submit(&echo());
    assert_eq!(shard.state(waiting), State::Scheduled);
    shard.stops.clear();
    shard.resize(first, room(2));
    assert_eq!(shard.stops, [attempt_ref(id, 1)], "the lost attempt is stopped");
    assert_eq!(shard.state(waiting), State::Dispatched, "the runner is available again");
}

#[test]
fn the_loss_of_an_old_incarnation_does_not_affect_a_new_one() {
    let mut shard = Fixture::with_runner(1);
    shard.runner(RUNNER, room(1));
    let id = shard.submit(&process());
    shard.lose(RUNNER, 1);
    assert_eq!((shard.state(id), shard.job(id).infrastructure_failures), (State::Dispatched, 0));
}

// FEATURES: B3
#[test]
fn after_a_restart_the_inventory_settles_the_attempts() {
    let mut shard = Fixture::with_runner(4);
    let jobs = shard.submit_some(4);
    shard.start(shard.current(jobs[1]));
    shard.start(shard.current(jobs[2]));
    let (in_flight, ended, vanished) = (shard.current(jobs[1]), shard.current(jobs[2]), shard.current(jobs[3]));
    let _lost_word = shard.messages(RUNNER, |runner| runner.end(ended, End::Succeeded));
    shard.messages(RUNNER, |runner| runner.in_flight.remove(&vanished));
    shard.runs.clear();
    shard.crash();
    assert_eq!(shard.state(jobs[1]), State::Running, "attempts in flight continue");
    assert!(shard.messages(RUNNER, |runner| runner.in_flight.contains(&in_flight)));
    assert_eq!(shard.state(jobs[2]), State::Succeeded, "the outbox had the outcome");
    assert_eq!(shard.state(jobs[0]), State::Dispatched);
    let vanished = shard.job(jobs[3]);
    assert_eq!((vanished.state, vanished.attempt.0, vanished.infrastructure_failures), (State::Dispatched, 2, 0));
}

#[test]
fn an_attempt_missing_from_the_inventory_is_dispatched_again() {
    let mut shard = Fixture::with_runner(2);
    shard.drop_runner_messages = true;
    let never_heard = shard.submit(&process());
    shard.drop_runner_messages = false;
    // A gap makes the shard request an inventory.
    let now = shard.now;
    let _lost = shard.messages(RUNNER, |runner| runner.register(0));
    let other = shard.messages(RUNNER, |runner| runner.register(0));
    shard.deliver(other);
    let record = shard.job(never_heard);
    assert_eq!((record.state, record.attempt.0), (State::Dispatched, 2));
    assert_eq!(record.infrastructure_failures, 0, "it never began");
    assert_eq!(shard.now, now);
}

/// The inventory was requested before the dispatch, so a missing attempt means nothing.
#[test]
fn an_attempt_dispatched_after_the_inventory_request_is_not_lost() {
    let mut shard = Fixture::with_runner(2);
    shard.drop_runner_messages = true;
    let _gap = shard.messages(RUNNER, |runner| runner.register(0));
    let after_gap = shard.messages(RUNNER, |runner| runner.register(0));
    shard.deliver(after_gap);
    let id = shard.submit(&process());
    let request = (1 << 24) + 1;
    let resent = shard.messages(RUNNER, |runner| runner.obey(model::message::ShardMessage::Inventory { request }));
    for message in resent {
        shard.deliver(message);
    }
    assert_eq!((shard.state(id), shard.job(id).attempt.0), (State::Dispatched, 1));
}

/// The late answer to a request made before registration does not answer the next request.
#[test]
fn inventory_requests_to_an_unregistered_runner_have_their_own_numbers() {
    let mut shard = Fixture::new();
    let register = |request| RunnerMessage::Register {
        capacity: room(1),
        profile: Default::default(),
        in_flight: Vec::new(),
        request,
        oldest_kept: 1,
    };
    let deliver = |shard: &mut Fixture, sequence, message| {
        shard.deliver(FromRunner { runner: RUNNER, incarnation: Incarnation(1), sequence, message });
    };
    deliver(&mut shard, 3, register(0));
    let first = shard.inventory_requests[0];
    deliver(&mut shard, 1, register(0));
    let id = shard.submit(&process());
    shard.advance(2 * SECOND);
    deliver(&mut shard, 4, register(0));
    assert_eq!(shard.inventory_requests.len(), 2, "one request per gap");
    // The runner sent this before the dispatch.
    deliver(&mut shard, 2, register(first));
    assert_eq!((shard.state(id), shard.job(id).attempt.0), (State::Dispatched, 1));
}

/// Each request makes a runner retransmit everything; a request per message would multiply them.
#[test]
fn inventory_requests_after_gaps_are_rate_limited() {
    for known in [false, true] {
        let mut shard = Fixture::new();
        shard.drop_runner_messages = true;
        if known {
            shard.runner(RUNNER, room(1));
        }
        let register = || RunnerMessage::Register {
            capacity: room(1),
            profile: Default::default(),
            in_flight: Vec::new(),
            request: 0,
            oldest_kept: 1,
        };
        for sequence in 3..30 {
            shard.deliver(FromRunner { runner: RUNNER, incarnation: Incarnation(1), sequence, message: register() });
        }
        assert_eq!(shard.inventory_requests.len(), 1, "known: {known}");
        shard.advance(SECOND);
        shard.deliver(FromRunner { runner: RUNNER, incarnation: Incarnation(1), sequence: 3, message: register() });
        assert_eq!(shard.inventory_requests.len(), 2, "known: {known}");
    }
}

#[test]
fn a_lingering_attempt_takes_its_slot_until_the_runner_confirms_the_stop() {
    let mut shard = Fixture::with_runner(1);
    let mut spec = process();
    spec.timeout_ms = Some(SECOND);
    let id = shard.submit(&spec);
    let current = shard.current(id);
    shard.start(current);
    shard.advance(SECOND);
    assert_eq!(shard.state(id), State::Cancelling);
    let next = shard.submit(&process());
    assert_eq!(shard.state(next), State::Scheduled, "the process may still run");
    shard.end(current, End::Stopped);
    assert_eq!((shard.state(id), shard.state(next)), (State::TimedOut, State::Dispatched));
}

/// Both the run and the stop message are lost: the runner does not know the attempt.
#[test]
fn a_slot_of_an_attempt_that_never_arrived_is_found_and_freed() {
    let mut shard = Fixture::with_runner(1);
    shard.drop_runner_messages = true;
    let id = shard.submit(&process());
    shard.advance(shard.config.dispatch_timeout.0);
    shard.drop_runner_messages = false;
    assert_eq!(shard.job(id).infrastructure_failures, 1);
    let next = shard.submit(&process());
    shard.advance(shard.config.stop_timeout.0 - 1);
    assert_eq!(shard.state(next), State::Scheduled);
    shard.advance(1);
    assert_eq!(shard.shard.load(model::spec::ExecutorKind::Process).1, 1);
    shard.finish_all();
    assert_eq!((shard.state(id), shard.state(next)), (State::Succeeded, State::Succeeded));
}

/// The stop message overtakes the run message: the runner confirms the stop, then starts the attempt.
#[test]
fn an_abandoned_attempt_that_starts_late_is_stopped() {
    let mut shard = Fixture::with_runner(2);
    let id = shard.submit(&process());
    let old = shard.current(id);
    shard.advance(shard.config.dispatch_timeout.0);
    shard.stops.clear();
    shard.start(old);
    assert_eq!(shard.stops, [old]);
}

#[test]
fn a_raised_capacity_is_used_at_once_and_a_lowered_one_is_respected() {
    let mut shard = Fixture::with_runner(1);
    let jobs = shard.submit_some(4);
    shard.resize(RUNNER, room(3));
    assert_eq!(shard.take_runs(), jobs[..3]);
    shard.resize(RUNNER, room(1));
    shard.run_attempt(jobs[0], End::Succeeded);
    shard.run_attempt(jobs[1], End::Succeeded);
    assert_eq!(shard.take_runs(), []);
    shard.run_attempt(jobs[2], End::Succeeded);
    assert_eq!(shard.take_runs(), [jobs[3]]);
}

#[test]
fn messages_are_acknowledged_once_committed() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    shard.run_attempt(id, End::Succeeded);
    let register = shard.messages(RUNNER, |runner| runner.register(0));
    let RunnerMessage::Register { oldest_kept, .. } = register.message else { panic!("not an inventory") };
    assert_eq!(oldest_kept, register.sequence, "earlier messages are acknowledged");
}

#[test]
fn messages_about_unknown_jobs_change_nothing() {
    let mut shard = Fixture::with_runner(1);
    let nobody = attempt_ref(model::id::JobId(5), 1);
    let message = shard.messages(RUNNER, |runner| runner.end(nobody, End::Succeeded));
    shard.input(Input::Runner(message));
    assert_eq!(shard.shard.live_jobs(), 0);
}

// FEATURES: B5
#[test]
fn a_rejected_message_is_stored_and_the_following_ones_are_applied() {
    let mut shard = Fixture::with_runner(2);
    let (bad, good) = (shard.submit(&echo()), shard.submit(&echo()));
    let result = Some(model::json::Json::of(&"x".repeat(model::limits::RESULT_BYTES_MAX)));
    let attempt_ref = shard.current(bad);
    shard.start(attempt_ref);
    shard.end_with(attempt_ref, Outcome { result, ..Outcome::of(End::Succeeded) });
    assert_eq!(shard.state(bad), State::Failed, "a retry would give the same");
    assert!(shard.job(bad).reason.unwrap().message.unwrap().contains("was rejected"));
    assert_eq!(shard.records.len(Keyspace::RejectedMessages), 1);
    assert_eq!(shard.shard.stats().rejected_messages, 1);
    shard.run_attempt(good, End::Succeeded);
    assert_eq!(shard.state(good), State::Succeeded);
    shard.crash();
    assert_eq!(shard.records.len(Keyspace::RejectedMessages), 1);
}

// FEATURES: B5
#[test]
fn only_the_newest_rejected_messages_are_stored() {
    let config = engine::Config { rejected_messages_max: 4, ..config_of(0, 1) };
    let mut shard = Fixture::with(config);
    shard.runner(RUNNER, room(1));
    let result = Some(model::json::Json::of(&"x".repeat(model::limits::RESULT_BYTES_MAX)));
    for round in 0..9 {
        let job = shard.submit(&echo());
        let attempt_ref = shard.current(job);
        shard.start(attempt_ref);
        shard.end_with(attempt_ref, Outcome { result: result.clone(), ..Outcome::of(End::Succeeded) });
        if round == 6 {
            shard.crash();
        }
    }
    assert_eq!(shard.records.len(Keyspace::RejectedMessages), 4);
    let first = shard.records.table(Keyspace::RejectedMessages).next().unwrap().0.to_vec();
    assert_eq!(first, 6_u64.to_be_bytes());
}
