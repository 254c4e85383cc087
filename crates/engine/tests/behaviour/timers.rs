//! Time: delays, deadlines, timeouts; never early, never twice, and not forgotten over a restart.

use model::id::JobId;
use model::job::End;
use model::limits;
use model::reason::ReasonCode;
use model::state::State;
use model::time::Millis;

use crate::common::{Fixture, RUNNER, SECOND, START, at, config_of, echo, job, room};

// FEATURES: D11
#[test]
fn a_delayed_job_starts_at_its_time() {
    for (number, shards) in [(0, 1), (3, 4)] {
        let mut shard = Fixture::with(config_of(number, shards));
        shard.runner(RUNNER, room(1));
        let id = shard.submit(&job(|spec| spec.not_before = at(10 * SECOND)));
        assert_eq!(shard.state(id), State::Blocked);
        shard.pass(10 * SECOND - 1);
        assert_eq!(shard.state(id), State::Blocked, "not early");
        shard.pass(1);
        assert_eq!(shard.state(id), State::Dispatched);
        assert_eq!(shard.job(id).attempts[0].dispatched_at, START + Millis(10 * SECOND));
    }
}

// FEATURES: D4
#[test]
fn a_passed_deadline_ends_waiting_and_running_jobs() {
    let mut shard = Fixture::with_runner(1);
    let with_deadline = job(|spec| spec.deadline = at(10 * SECOND));
    let (running, waiting) = (shard.submit(&with_deadline), shard.submit(&with_deadline));
    let ticket = shard.current(running);
    shard.start(ticket);
    shard.pass(10 * SECOND - 1);
    assert_eq!((shard.state(running), shard.state(waiting)), (State::Running, State::Scheduled));
    shard.pass(1);
    assert_eq!((shard.state(running), shard.state(waiting)), (State::Cancelling, State::TimedOut));
    assert_eq!(shard.stops, [ticket]);
    shard.end(ticket, End::Succeeded);
    for id in [running, waiting] {
        assert_eq!(
            (shard.state(id), shard.reason(id)),
            (State::TimedOut, Some(ReasonCode::DeadlinePassed)),
            "too late"
        );
    }
}

#[test]
fn a_deadline_in_the_past_is_passed() {
    let mut shard = Fixture::new();
    let id = shard.submit(&job(|spec| spec.deadline = at(0)));
    shard.pass(0);
    assert_eq!(shard.state(id), State::TimedOut);
}

#[test]
fn nothing_is_started_after_its_deadline() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&job(|spec| spec.deadline = at(0)));
    assert_eq!((shard.state(id), shard.runs.len()), (State::TimedOut, 0));
}

// FEATURES: D4
#[test]
fn an_attempt_has_its_time_from_its_start() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&job(|spec| spec.timeout_ms = Some(5 * SECOND)));
    shard.pass(20 * SECOND);
    let ticket = shard.current(id);
    shard.start(ticket);
    shard.pass(5 * SECOND - 1);
    assert_eq!(shard.state(id), State::Running);
    shard.pass(1);
    assert_eq!((shard.state(id), shard.reason(id)), (State::Cancelling, Some(ReasonCode::AttemptTimedOut)));
    assert_eq!(shard.stops, [ticket]);
    shard.end(ticket, End::Stopped);
    assert_eq!((shard.state(id), shard.reason(id)), (State::TimedOut, Some(ReasonCode::AttemptTimedOut)));
}

#[test]
fn a_second_attempt_has_its_own_time() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&job(|spec| spec.timeout_ms = Some(5 * SECOND)));
    shard.start(shard.current(id));
    shard.pass(4 * SECOND);
    shard.end(shard.current(id), End::Error);
    shard.pass(3 * SECOND);
    shard.start(shard.current(id));
    shard.pass(5 * SECOND - 1);
    assert_eq!(shard.state(id), State::Running);
    shard.pass(1);
    assert_eq!(shard.state(id), State::Cancelling);
    shard.pass(shard.config.stop_timeout.0);
    assert_eq!(shard.state(id), State::TimedOut, "whether its runner says so or not");
}

// FEATURES: D4
#[test]
fn an_attempt_that_never_starts_is_tried_again_until_the_limit() {
    let mut shard = Fixture::with_runner(100);
    let id = shard.submit(&echo());
    for failures in 1..=limits::INFRASTRUCTURE_RETRIES_DEFAULT {
        shard.pass(shard.config.dispatch_timeout.0 - 1);
        assert_eq!(shard.state(id), State::Dispatched, "not early");
        shard.pass(1);
        assert_eq!(shard.job(id).infrastructure_failures, failures);
        shard.pass(40 * SECOND);
        // The backoff is over; from there its time begins anew.
        let since = shard.job(id).since();
        shard.pass((since + Millis(50 * SECOND) - shard.now).0);
        shard.now = since;
    }
    shard.now = shard.job(id).since() + shard.config.dispatch_timeout;
    shard.pass(0);
    assert_eq!((shard.state(id), shard.reason(id)), (State::TimedOut, Some(ReasonCode::DispatchTimedOut)));
}

/// After a restart attempts are put back in the order of their jobs, not of their dispatch.
#[test]
fn an_attempt_that_never_starts_is_found_in_time_after_a_restart() {
    let mut shard = Fixture::new();
    let old = shard.submit(&job(|spec| spec.not_before = at(50 * SECOND)));
    let young = shard.submit(&echo());
    shard.runner(RUNNER, room(2));
    shard.pass(50 * SECOND);
    assert_eq!((shard.state(old), shard.state(young)), (State::Dispatched, State::Dispatched));
    shard.crash();
    shard.pass(10 * SECOND);
    assert_eq!(shard.job(young).infrastructure_failures, 1, "its minute is over");
    assert_eq!(shard.job(old).infrastructure_failures, 0);
}

/// What every kind of timer does, when its time comes while nobody is there.
fn past_due_job(shard: &mut Fixture, kind: &str) -> (JobId, State) {
    match kind {
        "delay" => (shard.submit(&job(|spec| spec.not_before = at(10 * SECOND))), State::Dispatched),
        "deadline" => (shard.submit(&job(|spec| spec.deadline = at(10 * SECOND))), State::Cancelling),
        "backoff" => {
            let id = shard.submit(&echo());
            shard.play(id, End::Error);
            (id, State::Dispatched)
        }
        "timeout" => {
            let id = shard.submit(&job(|spec| spec.timeout_ms = Some(10 * SECOND)));
            shard.start(shard.current(id));
            (id, State::Cancelling)
        }
        _ => {
            let id = shard.submit(&echo());
            shard.start(shard.current(id));
            shard.cancel(id);
            (id, State::Cancelled)
        }
    }
}

// FEATURES: D11
#[test]
fn timers_past_due_at_a_restart_fire_once() {
    for kind in ["delay", "deadline", "backoff", "timeout", "stop"] {
        let mut shard = Fixture::with_runner(1);
        let (id, expected) = past_due_job(&mut shard, kind);
        let versions = shard.job(id).states.len();
        let starts = shard.job(id).attempts.len();
        // The runner is there again, but has nothing to say.
        shard.deaf_runners = true;
        shard.now = shard.now + shard.config.stop_timeout + Millis(1);
        shard.crash();
        shard.resize(RUNNER, room(1));
        shard.pass(0);
        assert_eq!(shard.state(id), expected, "{kind}");
        shard.pass(SECOND);
        let record = shard.job(id);
        assert!(record.states.len() <= versions + 3, "{kind}: {:?}", record.states);
        assert!(record.attempts.len() <= starts + 1, "{kind} fired once");
    }
}

// FEATURES: D11
#[test]
fn timers_of_the_future_are_armed_again_at_a_restart() {
    for kind in ["delay", "deadline", "backoff", "timeout", "stop"] {
        let mut shard = Fixture::with_runner(1);
        let (id, expected) = past_due_job(&mut shard, kind);
        let before = shard.state(id);
        let due = match kind {
            "backoff" => shard.job(id).eligible_at,
            "stop" => shard.job(id).since() + shard.config.stop_timeout,
            _ => START + Millis(10 * SECOND),
        };
        shard.crash();
        shard.pass((due - shard.now).0 - 1);
        assert_eq!(shard.state(id), before, "{kind} is not early");
        shard.pass(1);
        assert_eq!(shard.state(id), expected, "{kind}");
    }
}

/// The clock went back while the shard was down. Nothing may wait for a time that has no timer.
#[test]
fn a_clock_that_went_back_over_a_restart_strands_nobody() {
    let mut shard = Fixture::new();
    let waiting = shard.submit(&echo());
    shard.now = START.saturating_sub(Millis(20 * SECOND));
    shard.crash();
    shard.runner(RUNNER, room(1));
    shard.pass(30 * SECOND);
    assert_eq!(shard.state(waiting), State::Dispatched);
}

#[test]
fn a_clock_that_goes_back_stands_still_until_it_has_caught_up() {
    let mut shard = Fixture::new();
    let id = shard.submit(&job(|spec| spec.not_before = at(10 * SECOND)));
    shard.pass(5 * SECOND);
    shard.now = START;
    shard.give(engine::Input::Tick);
    assert_eq!(shard.shard.now(), START + Millis(5 * SECOND));
    shard.pass(10 * SECOND);
    assert_eq!(shard.state(id), State::Scheduled);
}

#[test]
fn a_tick_does_a_bounded_amount_of_work() {
    let mut config = config_of(0, 1);
    config.timers_per_step = 10;
    let mut shard = Fixture::with(config);
    let jobs: Vec<_> = (0..25).map(|_| shard.submit(&job(|spec| spec.not_before = at(SECOND)))).collect();
    shard.now = START + Millis(SECOND);
    for expected in [10, 20, 25] {
        shard.give(engine::Input::Tick);
        let due = jobs.iter().filter(|id| shard.state(**id) == State::Scheduled).count();
        assert_eq!(due, expected);
    }
}
