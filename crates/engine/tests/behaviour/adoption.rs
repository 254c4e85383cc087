//! Adoption: a restarted runner reports the attempts that survived, and they continue.

use engine::Input;
use model::id::{Incarnation, JobId, RunnerId};
use model::job::End;
use model::json::Json;
use model::message::{AttemptRef, FromRunner, RunnerMessage};
use model::reason::ReasonCode;
use model::spec::ExecutorKind;
use model::state::State;

use crate::support::{Fixture, RUNNER, SECOND, at, attempt_ref, config_of, echo, process, room};

/// Process jobs with dispatched attempts, started if `started`.
fn processes(shard: &mut Fixture, count: usize, started: bool) -> Vec<AttemptRef> {
    let specs = vec![process(); count];
    let jobs: Vec<JobId> =
        shard.try_submit(&specs).into_iter().map(|result| result.expect("the job is accepted").id).collect();
    shard.advance(500);
    let attempt_refs: Vec<AttemptRef> = jobs.iter().map(|job| shard.current(*job)).collect();
    for attempt_ref in attempt_refs.iter().filter(|_| started) {
        shard.start(*attempt_ref);
    }
    attempt_refs
}

#[track_caller]
fn expect_adopted(shard: &Fixture, attempt_ref: AttemptRef, state: State, incarnation: u64) {
    let record = shard.job(attempt_ref.job);
    assert_eq!((record.state, record.attempt), (state, attempt_ref.attempt));
    assert_eq!(record.runner(), Some((RUNNER, Incarnation(incarnation))));
    assert_eq!((record.retries, record.infrastructure_failures), (0, 0));
}

/// A shard whose adoptions take many steps.
fn in_small_steps() -> Fixture {
    let mut config = config_of(0, 1);
    config.step_bytes_max = 4_000;
    let mut shard = Fixture::with(config);
    shard.runner(RUNNER, room(1_000));
    shard
}

#[test]
fn a_restarted_runner_adopts_its_live_attempts() {
    let mut shard = Fixture::with_runner(3);
    let running = processes(&mut shard, 1, true)[0];
    let dispatched = processes(&mut shard, 1, false)[0];
    let gone = processes(&mut shard, 1, true)[0];
    shard.restart(RUNNER, room(3), &[running, dispatched]);
    expect_adopted(&shard, running, State::Running, 2);
    expect_adopted(&shard, dispatched, State::Dispatched, 2);
    assert_eq!(shard.stops, []);
    let lost = shard.job(gone.job);
    assert_eq!((lost.state, lost.infrastructure_failures), (State::Dispatched, 1));
    shard.end(running, End::Succeeded);
    let record = shard.job(running.job);
    assert_eq!((record.state, record.result), (State::Succeeded, Some(Json::of(&1))));
    assert_eq!(record.states.iter().filter(|entry| entry.state == State::Running).count(), 1);
    shard.start(dispatched);
    assert_eq!(shard.state(dispatched.job), State::Running);
    assert_eq!(shard.shard.stats().adopted, 2);
}

#[test]
fn an_attempt_is_adopted_repeatedly() {
    let mut shard = Fixture::with_runner(1);
    let running = processes(&mut shard, 1, true)[0];
    for incarnation in 2..8 {
        shard.restart(RUNNER, room(1), &[running]);
        expect_adopted(&shard, running, State::Running, incarnation);
    }
    shard.end(running, End::Succeeded);
    assert_eq!(shard.job(running.job).attempts.len(), 1);
}

/// Echo jobs run inside the server; they are started again without using the budget.
#[test]
fn echo_jobs_are_not_adopted_and_use_no_retry_budget() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    shard.start(shard.current(id));
    shard.restart(RUNNER, room(1), &[]);
    let record = shard.job(id);
    assert_eq!((record.state, record.attempt.0, record.infrastructure_failures), (State::Dispatched, 2, 0));
}

#[test]
fn adopted_attempts_take_slots_even_beyond_the_capacity() {
    let mut shard = Fixture::with_runner(3);
    let alive = processes(&mut shard, 3, true);
    let next = shard.submit(&process());
    shard.restart(RUNNER, room(1), &alive);
    assert_eq!(shard.shard.load(ExecutorKind::Process), (1, 3));
    for attempt_ref in &alive[..2] {
        shard.end(*attempt_ref, End::Succeeded);
        assert_eq!(shard.state(next), State::Scheduled);
    }
    shard.end(alive[2], End::Succeeded);
    assert_eq!(shard.state(next), State::Dispatched);
}

#[test]
fn stop_messages_are_repeated_after_a_runner_restart() {
    let mut shard = Fixture::with_runner(4);
    let mut spec = process();
    spec.timeout_ms = Some(SECOND);
    let timed_out = shard.submit(&spec);
    let alive = processes(&mut shard, 3, true);
    let timed_out = shard.current(timed_out);
    shard.start(timed_out);
    shard.drop_runner_messages = true;
    shard.cancel(alive[0].job);
    shard.retract(alive[1].job);
    shard.advance(SECOND);
    shard.drop_runner_messages = false;
    shard.stops.clear();
    let all = [timed_out, alive[0], alive[1], alive[2]];
    shard.restart(RUNNER, room(4), &all);
    let mut stops = shard.stops.clone();
    stops.sort_unstable();
    let mut expected = [timed_out, alive[0], alive[1]];
    expected.sort_unstable();
    assert_eq!(stops, expected);
    expect_adopted(&shard, alive[1], State::Running, 2);
    for attempt_ref in expected {
        shard.end(attempt_ref, End::Stopped);
    }
    assert_eq!((shard.state(timed_out.job), shard.state(alive[0].job)), (State::TimedOut, State::Cancelled));
    assert_eq!(shard.job(alive[1].job).attempt.0, 2);
}

#[test]
fn an_unwanted_attempt_is_stopped_and_takes_its_slot_until_then() {
    let mut shard = Fixture::with_runner(3);
    let done = processes(&mut shard, 1, true)[0];
    let superseded = processes(&mut shard, 1, true)[0];
    shard.end(done, End::Succeeded);
    shard.lose(RUNNER, 1);
    shard.restart(RUNNER, room(3), &[done, superseded]);
    let mut stops = shard.stops.clone();
    stops.sort_unstable();
    assert_eq!(stops, [done, superseded]);
    assert_eq!(shard.shard.load(ExecutorKind::Process).1, 3);
    assert_eq!(shard.job(superseded.job).infrastructure_failures, 1);
    let again = shard.current(superseded.job);
    assert_eq!(again.attempt.0, 2, "one slot is left for the next attempt");
    for attempt_ref in [done, superseded] {
        shard.end(attempt_ref, End::Stopped);
    }
    assert_eq!(shard.shard.load(ExecutorKind::Process).1, 1);
    assert_eq!(shard.current(superseded.job), again);
}

#[test]
fn the_timeout_of_an_adopted_attempt_continues() {
    let mut shard = Fixture::with_runner(3);
    let mut limited = process();
    limited.timeout_ms = Some(10 * SECOND);
    let mut urgent = process();
    urgent.deadline = at(20 * SECOND);
    let jobs = [limited, urgent, process()].map(|spec| shard.submit(&spec));
    let attempt_refs = jobs.map(|job| shard.current(job));
    shard.start(attempt_refs[0]);
    shard.start(attempt_refs[1]);
    shard.advance(6 * SECOND);
    shard.restart(RUNNER, room(3), &attempt_refs);
    shard.advance(3 * SECOND);
    assert_eq!(shard.state(jobs[0]), State::Running);
    shard.advance(SECOND);
    assert_eq!((shard.state(jobs[0]), shard.reason(jobs[0])), (State::Cancelling, Some(ReasonCode::AttemptTimedOut)));
    shard.advance(10 * SECOND);
    assert_eq!((shard.state(jobs[1]), shard.reason(jobs[1])), (State::Cancelling, Some(ReasonCode::DeadlinePassed)));
    // The time for its start begins again with the adoption.
    shard.advance(shard.config.dispatch_timeout.0 - 15 * SECOND);
    assert_eq!(shard.state(jobs[2]), State::Dispatched);
    shard.advance(SECOND);
    assert_eq!(shard.reason(jobs[2]), Some(ReasonCode::DispatchTimedOut));
    assert!(shard.stops.contains(&attempt_refs[2]));
}

#[test]
fn many_attempts_are_adopted_a_few_per_step_and_their_slots_count_immediately() {
    let mut shard = in_small_steps();
    let alive = processes(&mut shard, 200, true);
    shard.largest_commit = 0;
    shard.restart(RUNNER, room(1_000), &alive);
    let behind = |shard: &Fixture| {
        let adopted = |attempt_ref: &&AttemptRef| shard.job(attempt_ref.job).runner() == Some((RUNNER, Incarnation(2)));
        alive.len() - alive.iter().filter(adopted).count()
    };
    assert!(behind(&shard) > 100, "all of them were adopted in one step");
    assert_eq!(shard.shard.load(ExecutorKind::Process).1, 200);
    shard.advance(500);
    assert_eq!(behind(&shard), 0);
    assert!(shard.largest_commit < 6_000, "{} bytes in one commit", shard.largest_commit);
}

/// Messages about an attempt count before its record has been adopted.
#[test]
fn messages_about_attempts_not_yet_adopted_count() {
    let mut shard = in_small_steps();
    let alive = processes(&mut shard, 200, false);
    let [.., starts, ends, cancelled] = alive.as_slice() else { panic!("at least three attempts") };
    let now = shard.now;
    let register = shard.restart_silently(RUNNER, room(1_000), &alive);
    let started = shard.messages(RUNNER, |runner| runner.start(*starts, now));
    let ended = shard.messages(RUNNER, |runner| runner.end(*ends, End::Succeeded));
    shard.input_together(vec![Input::Runner(register), Input::Runner(started), Input::Runner(ended)]);
    expect_adopted(&shard, *starts, State::Running, 2);
    let record = shard.job(ends.job);
    assert_eq!((record.state, record.attempts[0].incarnation), (State::Succeeded, Incarnation(2)));
    assert_eq!(shard.shard.load(ExecutorKind::Process).1, 199);
    shard.stops.clear();
    shard.cancel(cancelled.job);
    assert_eq!(shard.stops, [*cancelled]);
    assert!(
        shard.messages(RUNNER, |runner| runner.to_stop.contains(cancelled)),
        "the new incarnation got the stop message"
    );
    shard.finish_all();
    assert!(alive.iter().all(|attempt_ref| shard.job(attempt_ref.job).attempt == attempt_ref.attempt));
}

#[test]
fn a_crash_during_adoption_loses_no_attempt() {
    for inventory_is_lost in [false, true] {
        let mut shard = in_small_steps();
        let alive = processes(&mut shard, 200, true);
        shard.restart(RUNNER, room(1_000), &alive[1..]);
        shard.drop_runner_messages = inventory_is_lost;
        shard.crash();
        shard.drop_runner_messages = false;
        shard.advance(30 * SECOND);
        for attempt_ref in &alive[1..] {
            expect_adopted(&shard, *attempt_ref, State::Running, 2);
        }
        assert_eq!(shard.job(alive[0].job).infrastructure_failures, 1, "the attempt that was not reported");
        shard.finish_all();
    }
}

#[test]
fn a_second_restart_during_adoption_starts_it_anew() {
    let mut shard = in_small_steps();
    let alive = processes(&mut shard, 200, true);
    shard.restart(RUNNER, room(1_000), &alive);
    shard.restart(RUNNER, room(1_000), &alive[..150]);
    assert_eq!(shard.shard.load(ExecutorKind::Process).1, 150);
    shard.advance(500);
    for attempt_ref in &alive[..150] {
        expect_adopted(&shard, *attempt_ref, State::Running, 3);
    }
    for attempt_ref in &alive[150..] {
        assert_eq!(shard.job(attempt_ref.job).infrastructure_failures, 1);
    }
    shard.finish_all();
}

#[test]
fn a_runner_lost_during_adoption_loses_all_its_attempts() {
    let mut shard = in_small_steps();
    let alive = processes(&mut shard, 200, true);
    shard.restart(RUNNER, room(1_000), &alive);
    shard.lose(RUNNER, 2);
    shard.advance(500);
    assert!(alive.iter().all(|attempt_ref| shard.job(attempt_ref.job).infrastructure_failures == 1));
    assert_eq!(shard.shard.load(ExecutorKind::Process).1, 0);
    shard.restart(RUNNER, room(1_000), &[]);
    shard.finish_all();
}

/// The loss was wrong, or meant the earlier incarnation.
#[test]
fn adopted_attempts_are_not_lost_with_an_earlier_incarnation() {
    let mut shard = in_small_steps();
    let alive = processes(&mut shard, 200, true);
    shard.lose(RUNNER, 1);
    let still = |shard: &Fixture| {
        let mine = |attempt_ref: &AttemptRef| shard.job(attempt_ref.job).state == State::Running;
        alive.iter().copied().filter(mine).collect::<Vec<_>>()
    };
    let left = still(&shard);
    assert!(left.len() > 100, "all of them were lost in one step");
    shard.restart(RUNNER, room(1_000), &alive);
    shard.lose(RUNNER, 1);
    shard.advance(500);
    for attempt_ref in &still(&shard) {
        expect_adopted(&shard, *attempt_ref, State::Running, 2);
    }
    assert!(still(&shard).len() > 80);
    shard.finish_all();
    assert!(alive.iter().all(|attempt_ref| shard.state(attempt_ref.job) == State::Succeeded));
}

/// A disconnected runner returns before all its attempts are lost. They are lost nevertheless and must be stopped.
#[test]
fn attempts_being_lost_are_stopped_when_their_runner_returns() {
    let mut shard = in_small_steps();
    let alive = processes(&mut shard, 200, true);
    shard.lose(RUNNER, 1);
    shard.resize(RUNNER, room(1_000));
    shard.advance(500);
    let mut stops = shard.stops.clone();
    stops.sort_unstable();
    stops.dedup();
    assert_eq!(stops, alive);
    assert!(alive.iter().all(|attempt_ref| shard.job(attempt_ref.job).infrastructure_failures == 1));
    for attempt_ref in &alive {
        shard.end(*attempt_ref, End::Stopped);
    }
    shard.finish_all();
}

/// Reported again after its job has left memory, it still takes one slot of its executor.
#[test]
fn an_unwanted_attempt_takes_one_slot_however_often_it_is_reported() {
    let mut shard = Fixture::with_runner(2);
    let id = shard.submit(&echo());
    let current = shard.current(id);
    shard.start(current);
    shard.lose(RUNNER, 1);
    shard.resize(RUNNER, room(2));
    assert_eq!(shard.shard.load(ExecutorKind::Echo).1, 2, "the old attempt and the new one");
    shard.cancel(id);
    shard.end(attempt_ref(id, 2), End::Stopped);
    assert_eq!(shard.state(id), State::Cancelled);
    shard.resize(RUNNER, room(2));
    assert_eq!((shard.shard.load(ExecutorKind::Echo).1, shard.shard.load(ExecutorKind::Process).1), (1, 0));
    shard.end(current, End::Stopped);
    assert_eq!((shard.shard.load(ExecutorKind::Echo).1, shard.shard.load(ExecutorKind::Process).1), (0, 0));
}

/// Without a register message of the incarnation nothing is decided.
#[test]
fn nothing_is_lost_before_the_runner_has_registered() {
    let mut shard = Fixture::with_runner(2);
    let alive = processes(&mut shard, 2, true);
    let ended = shard.messages(RUNNER, |runner| {
        *runner = runner.restarted(room(2), &alive);
        runner.end(alive[0], End::Succeeded)
    });
    shard.drop_runner_messages = true;
    shard.deliver(ended);
    assert_eq!(shard.state(alive[0].job), State::Succeeded);
    shard.advance(20 * SECOND);
    assert_eq!((shard.state(alive[1].job), shard.job(alive[1].job).infrastructure_failures), (State::Running, 0));
    assert!(shard.inventory_requests.len() > 1, "the inventory request is repeated");
    shard.drop_runner_messages = false;
    shard.advance(6 * SECOND);
    expect_adopted(&shard, alive[1], State::Running, 2);
}

#[test]
fn messages_of_the_earlier_incarnation_are_ignored_after_an_adoption() {
    let mut shard = Fixture::with_runner(1);
    let running = processes(&mut shard, 1, true)[0];
    let message = RunnerMessage::Ended { attempt_ref: running, outcome: Box::new(model::job::Outcome::of(End::Fatal)) };
    let late = FromRunner { runner: RUNNER, incarnation: Incarnation(1), sequence: 3, message };
    shard.restart(RUNNER, room(1), &[running]);
    shard.deliver(late);
    expect_adopted(&shard, running, State::Running, 2);
}

/// Inventories treat adopted attempts like any others.
#[test]
fn an_adopted_attempt_missing_from_the_inventory_is_lost() {
    let mut shard = Fixture::with_runner(1);
    let running = processes(&mut shard, 1, true)[0];
    shard.restart(RUNNER, room(1), &[running]);
    shard.messages(RUNNER, |runner| runner.in_flight.remove(&running));
    // A gap makes the shard request an inventory.
    let _lost = shard.messages(RUNNER, |runner| runner.register(0));
    let after_gap = shard.messages(RUNNER, |runner| runner.register(0));
    shard.deliver(after_gap);
    assert_eq!(shard.job(running.job).infrastructure_failures, 1);
    assert_eq!(shard.current(running.job).attempt.0, 2);
    assert_eq!(shard.shard.load(ExecutorKind::Process).1, 1, "only the next attempt");
}

#[test]
fn only_its_own_runner_adopts_an_attempt() {
    let other = RunnerId(2);
    let mut shard = Fixture::with_runner(1);
    let running = processes(&mut shard, 1, true)[0];
    shard.runner(other, room(1));
    shard.stops.clear();
    shard.restart(other, room(1), &[running]);
    assert_eq!(shard.stops, [running]);
    assert_eq!(shard.job(running.job).runner(), Some((RUNNER, Incarnation(1))));
    assert_eq!(shard.current(running.job), attempt_ref(running.job, 1));
}
