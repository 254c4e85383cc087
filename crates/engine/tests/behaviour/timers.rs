//! Timers: delays, deadlines, timeouts; never early, never twice, and durable across restarts.

use engine::Config;
use model::id::JobId;
use model::job::End;
use model::limits;
use model::message::AttemptRef;
use model::reason::ReasonCode;
use model::state::State;
use model::time::Millis;

use crate::support::{Fixture, RUNNER, SECOND, START, at, attempt_ref, config_of, echo, job, process, room};

// FEATURES: D11
#[test]
fn a_delayed_job_starts_at_its_time() {
    for (number, shards) in [(0, 1), (3, 4)] {
        let mut shard = Fixture::with(config_of(number, shards));
        shard.runner(RUNNER, room(1));
        let id = shard.submit(&job(|spec| spec.not_before = at(10 * SECOND)));
        assert_eq!(shard.state(id), State::Blocked);
        shard.advance(10 * SECOND - 1);
        assert_eq!(shard.state(id), State::Blocked, "not early");
        shard.advance(1);
        assert_eq!(shard.state(id), State::Dispatched);
        assert_eq!(shard.job(id).attempts[0].dispatched_at, START + Millis(10 * SECOND));
    }
}

// FEATURES: D4
#[test]
fn an_expired_deadline_ends_waiting_and_running_jobs() {
    let mut shard = Fixture::with_runner(1);
    let with_deadline = job(|spec| spec.deadline = at(10 * SECOND));
    let (running, waiting) = (shard.submit(&with_deadline), shard.submit(&with_deadline));
    let attempt_ref = shard.current(running);
    shard.start(attempt_ref);
    shard.advance(10 * SECOND - 1);
    assert_eq!((shard.state(running), shard.state(waiting)), (State::Running, State::Scheduled));
    shard.advance(1);
    assert_eq!((shard.state(running), shard.state(waiting)), (State::Cancelling, State::TimedOut));
    assert_eq!(shard.stops, [attempt_ref]);
    shard.end(attempt_ref, End::Succeeded);
    for id in [running, waiting] {
        assert_eq!(
            (shard.state(id), shard.reason(id)),
            (State::TimedOut, Some(ReasonCode::DeadlinePassed)),
            "too late"
        );
    }
}

#[test]
fn a_deadline_in_the_past_times_the_job_out() {
    let mut shard = Fixture::new();
    let id = shard.submit(&job(|spec| spec.deadline = at(0)));
    shard.advance(0);
    assert_eq!(shard.state(id), State::TimedOut);
}

#[test]
fn no_job_starts_after_its_deadline() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&job(|spec| spec.deadline = at(0)));
    assert_eq!((shard.state(id), shard.runs.len()), (State::TimedOut, 0));
}

// FEATURES: D4
#[test]
fn the_timeout_of_an_attempt_begins_at_its_start() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&job(|spec| spec.timeout_ms = Some(5 * SECOND)));
    shard.advance(20 * SECOND);
    let attempt_ref = shard.current(id);
    shard.start(attempt_ref);
    shard.advance(5 * SECOND - 1);
    assert_eq!(shard.state(id), State::Running);
    shard.advance(1);
    assert_eq!((shard.state(id), shard.reason(id)), (State::Cancelling, Some(ReasonCode::AttemptTimedOut)));
    assert_eq!(shard.stops, [attempt_ref]);
    shard.end(attempt_ref, End::Stopped);
    assert_eq!((shard.state(id), shard.reason(id)), (State::TimedOut, Some(ReasonCode::AttemptTimedOut)));
}

#[test]
fn each_attempt_has_its_own_timeout() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&job(|spec| spec.timeout_ms = Some(5 * SECOND)));
    shard.start(shard.current(id));
    shard.advance(4 * SECOND);
    shard.end(shard.current(id), End::Error);
    shard.advance(3 * SECOND);
    shard.start(shard.current(id));
    shard.advance(5 * SECOND - 1);
    assert_eq!(shard.state(id), State::Running);
    shard.advance(1);
    assert_eq!(shard.state(id), State::Cancelling);
    shard.advance(shard.config.stop_timeout.0);
    assert_eq!(shard.state(id), State::TimedOut, "without the runner's confirmation");
}

// FEATURES: D4
#[test]
fn an_attempt_that_never_starts_is_retried_until_the_limit() {
    let mut shard = Fixture::with_runner(100);
    shard.drop_runner_messages = true;
    let id = shard.submit(&echo());
    for failures in 1..=limits::INFRASTRUCTURE_RETRIES_DEFAULT {
        shard.advance(shard.config.dispatch_timeout.0 - 1);
        assert_eq!(shard.state(id), State::Dispatched, "not early");
        shard.advance(1);
        assert_eq!(shard.job(id).infrastructure_failures, failures);
        // After the backoff the start timeout begins again.
        while shard.state(id) != State::Dispatched {
            shard.advance(1);
        }
    }
    shard.advance(shard.config.dispatch_timeout.0);
    assert_eq!((shard.state(id), shard.reason(id)), (State::TimedOut, Some(ReasonCode::DispatchTimedOut)));
}

#[test]
fn an_accepted_attempt_has_the_setup_timeout_to_start_and_is_not_running_before() {
    let mut shard = Fixture::with(Config { setup_timeout: Millis(600 * SECOND), ..config_of(0, 1) });
    shard.runner(RUNNER, room(1));
    let id = shard.submit(&process());
    let attempt_ref = attempt_ref(id, 1);
    shard.accept(attempt_ref);
    shard.advance(shard.config.dispatch_timeout.0 + SECOND);
    assert_eq!(shard.state(id), State::Dispatched, "its inputs may take a while");
    shard.start(attempt_ref);
    assert_eq!(shard.state(id), State::Running);
    let late = shard.submit(&process());
    shard.end(attempt_ref, End::Succeeded);
    let late_attempt = AttemptRef { job: late, ..attempt_ref };
    shard.accept(late_attempt);
    shard.accept(late_attempt);
    shard.advance(600 * SECOND - 1);
    assert_eq!(shard.state(late), State::Dispatched);
    shard.advance(1);
    assert_eq!(shard.job(late).infrastructure_failures, 1);
}

/// How long the server was down is unknown: the clock may have been set meanwhile.
#[test]
fn after_a_restart_starts_and_stops_have_their_whole_time_again() {
    let mut shard = Fixture::with_runner(2);
    let (dispatched, cancelled) = (shard.submit(&echo()), shard.submit(&echo()));
    shard.start(shard.current(cancelled));
    shard.cancel(cancelled);
    shard.advance(50 * SECOND);
    shard.crash();
    assert_eq!(shard.config.dispatch_timeout, shard.config.stop_timeout);
    shard.advance(shard.config.dispatch_timeout.0 - 1);
    assert_eq!(shard.job(dispatched).infrastructure_failures, 0);
    assert_eq!(shard.state(cancelled), State::Cancelling);
    shard.advance(1);
    assert_eq!(shard.job(dispatched).infrastructure_failures, 1);
    assert_eq!(shard.state(cancelled), State::Cancelled);
}

const YEAR: i64 = 365 * 24 * 3_600 * 1_000;

#[test]
fn a_jump_of_the_wall_clock_ends_nothing_that_runs() {
    for (jump, restart) in [(YEAR, false), (-YEAR, false), (YEAR, true), (-YEAR, true)] {
        let mut shard = Fixture::with_runner(4);
        let queue = shard.create_queue(|_| {}).id;
        let limited = shard.submit(&job(|spec| spec.timeout_ms = Some(10 * SECOND)));
        let jobs = [limited, shard.submit(&process()), shard.submit(&process()), shard.submit(&process())];
        let [running, dispatched, accepted, cancelled] = jobs.map(|job| shard.current(job));
        shard.start(running);
        shard.accept(accepted);
        shard.start(cancelled);
        shard.cancel(cancelled.job);
        shard.advance(9 * SECOND);
        shard.wall_offset = jump;
        if restart {
            shard.crash();
        }
        shard.advance(SECOND - 1);
        let states = jobs.map(|job| shard.state(job));
        let expected = [State::Running, State::Dispatched, State::Dispatched, State::Cancelling];
        assert_eq!(states, expected, "jump {jump}, restart: {restart}");
        assert!(restart || shard.records.queue(queue).is_some(), "the queue was idle for ten seconds");
        shard.advance(1);
        assert_eq!(shard.reason(limited), Some(ReasonCode::AttemptTimedOut), "jump {jump}, restart: {restart}");
        assert!([dispatched, accepted].iter().all(|it| shard.job(it.job).infrastructure_failures == 0));
    }
}

#[test]
fn deadlines_and_delays_follow_the_wall_clock() {
    let mut shard = Fixture::with_runner(4);
    let late = shard.submit(&job(|spec| spec.deadline = at(60 * SECOND)));
    shard.start(shard.current(late));
    let delayed = shard.submit(&job(|spec| spec.not_before = at(60 * SECOND)));
    shard.advance(SECOND);
    assert_eq!((shard.state(late), shard.state(delayed)), (State::Running, State::Blocked));
    shard.wall_offset = 59 * SECOND as i64;
    shard.advance(0);
    assert_eq!((shard.state(late), shard.state(delayed)), (State::Cancelling, State::Dispatched));
}

/// A job whose timer becomes due while the shard is down, with its expected state.
fn past_due_job(shard: &mut Fixture, kind: &str) -> (JobId, State) {
    match kind {
        "delay" => (shard.submit(&job(|spec| spec.not_before = at(10 * SECOND))), State::Dispatched),
        "deadline" => (shard.submit(&job(|spec| spec.deadline = at(10 * SECOND))), State::Cancelling),
        "backoff" => {
            let id = shard.submit(&echo());
            shard.run_attempt(id, End::Error);
            (id, State::Dispatched)
        }
        "timeout" => {
            let id = shard.submit(&job(|spec| spec.timeout_ms = Some(10 * SECOND)));
            shard.start(shard.current(id));
            (id, State::Cancelling)
        }
        other => panic!("{other}"),
    }
}

// FEATURES: D11
#[test]
fn timers_overdue_at_a_restart_fire_once() {
    for kind in ["delay", "deadline", "backoff", "timeout"] {
        let mut shard = Fixture::with_runner(1);
        let (id, expected) = past_due_job(&mut shard, kind);
        let versions = shard.job(id).states.len();
        let starts = shard.job(id).attempts.len();
        // The runner registers again without news.
        shard.drop_runner_messages = true;
        shard.now = shard.now + shard.config.stop_timeout + Millis(1);
        shard.crash();
        shard.resize(RUNNER, room(1));
        shard.advance(0);
        assert_eq!(shard.state(id), expected, "{kind}");
        shard.advance(SECOND);
        let record = shard.job(id);
        assert!(record.states.len() <= versions + 3, "{kind}: {:?}", record.states);
        assert!(record.attempts.len() <= starts + 1, "{kind} fired once");
    }
}

// FEATURES: D11
#[test]
fn timers_of_the_future_are_armed_again_at_a_restart() {
    for kind in ["delay", "deadline", "backoff", "timeout"] {
        let mut shard = Fixture::with_runner(1);
        let (id, expected) = past_due_job(&mut shard, kind);
        let before = shard.state(id);
        let due = match kind {
            "backoff" => shard.job(id).eligible_at,
            "stop" => shard.job(id).since() + shard.config.stop_timeout,
            _ => START + Millis(10 * SECOND),
        };
        shard.crash();
        shard.advance((due - shard.now).0 - 1);
        assert_eq!(shard.state(id), before, "{kind} is not early");
        shard.advance(1);
        assert_eq!(shard.state(id), expected, "{kind}");
    }
}

/// The clock was set back while the shard was down. Every waiting job must still have a timer.
#[test]
fn a_clock_set_back_during_a_restart_strands_no_job() {
    let mut shard = Fixture::new();
    let waiting = shard.submit(&echo());
    shard.now = START.saturating_sub(Millis(20 * SECOND));
    shard.crash();
    shard.runner(RUNNER, room(1));
    shard.advance(30 * SECOND);
    assert_eq!(shard.state(waiting), State::Dispatched);
}

#[test]
fn shard_time_stands_still_while_the_clock_is_behind() {
    let mut shard = Fixture::new();
    let id = shard.submit(&job(|spec| spec.not_before = at(10 * SECOND)));
    shard.advance(5 * SECOND);
    shard.now = START;
    shard.input(engine::Input::Tick);
    assert_eq!(shard.shard.now(), START + Millis(5 * SECOND));
    shard.advance(10 * SECOND);
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
        shard.input(engine::Input::Tick);
        let due = jobs.iter().filter(|id| shard.state(**id) == State::Scheduled).count();
        assert_eq!(due, expected);
    }
}
