//! Each transition of the breaker, with the default settings.

use super::*;

const START: Millis = Millis(1_000_000);
const SECOND: Millis = Millis::from_secs(1);

fn breaker() -> Breaker {
    Breaker::new(Settings::default())
}

fn call(breaker: &mut Breaker, now: Millis, outcome: Outcome) -> Option<State> {
    let permit = breaker.admit(now).expect("the breaker admits a call");
    breaker.report(now, permit, outcome)
}

/// A breaker that opened at [`START`].
fn opened() -> Breaker {
    let mut breaker = breaker();
    for _ in 0..3 {
        call(&mut breaker, START, Outcome::Failed);
    }
    breaker
}

const HALF_OPEN_AT: Millis = Millis(START.0 + 30_000);

// FEATURES: D9
#[test]
fn three_consecutive_failures_open_it() {
    let mut breaker = breaker();
    assert_eq!(call(&mut breaker, START, Outcome::Failed), None);
    assert_eq!(call(&mut breaker, START, Outcome::Failed), None);
    assert_eq!((breaker.state(START), breaker.failures()), (State::Closed, 2));
    assert_eq!(call(&mut breaker, START, Outcome::Failed), Some(State::Open));
    assert_eq!(breaker.admit(START), Err(CircuitOpen { state: State::Open, retry_at: HALF_OPEN_AT }));
}

#[test]
fn a_success_resets_the_failures() {
    let mut breaker = breaker();
    for _ in 0..10 {
        call(&mut breaker, START, Outcome::Failed);
        call(&mut breaker, START, Outcome::Failed);
        call(&mut breaker, START, Outcome::Succeeded);
        assert_eq!(breaker.failures(), 0);
    }
    assert_eq!(breaker.state(START), State::Closed);
}

#[test]
fn an_abandoned_call_neither_counts_as_a_failure_nor_resets_the_failures() {
    let mut breaker = breaker();
    call(&mut breaker, START, Outcome::Failed);
    call(&mut breaker, START, Outcome::Failed);
    call(&mut breaker, START, Outcome::Abandoned);
    assert_eq!(breaker.failures(), 2);
    assert_eq!(call(&mut breaker, START, Outcome::Failed), Some(State::Open));
}

// FEATURES: D9
#[test]
fn it_stays_open_for_exactly_thirty_seconds() {
    let mut breaker = opened();
    let last = HALF_OPEN_AT - Millis(1);
    assert_eq!(breaker.state(last), State::Open);
    assert_eq!(breaker.open_between(last), Some((START, HALF_OPEN_AT)));
    assert!(breaker.admit(last).is_err());
    assert_eq!(breaker.state(HALF_OPEN_AT), State::HalfOpen);
    assert_eq!(breaker.open_between(HALF_OPEN_AT), None);
    assert!(breaker.admit(HALF_OPEN_AT).is_ok());
}

// FEATURES: D9
#[test]
fn half_open_admits_three_probes_at_a_time() {
    let mut breaker = opened();
    let first = breaker.admit(HALF_OPEN_AT).unwrap();
    let _second = breaker.admit(HALF_OPEN_AT).unwrap();
    let _third = breaker.admit(HALF_OPEN_AT).unwrap();
    let rejected = breaker.admit(HALF_OPEN_AT).unwrap_err();
    assert_eq!(rejected, CircuitOpen { state: State::HalfOpen, retry_at: HALF_OPEN_AT + limits::PROBE_TIMEOUT });
    breaker.report(HALF_OPEN_AT, first, Outcome::Succeeded);
    assert!(breaker.admit(HALF_OPEN_AT).is_ok(), "the first probe has ended");
    assert!(breaker.admit(HALF_OPEN_AT).is_err());
}

// FEATURES: D9
#[test]
fn two_successes_close_it_and_reset_the_failures() {
    let mut breaker = opened();
    assert_eq!(call(&mut breaker, HALF_OPEN_AT, Outcome::Succeeded), None);
    assert_eq!(breaker.state(HALF_OPEN_AT), State::HalfOpen);
    assert_eq!(call(&mut breaker, HALF_OPEN_AT, Outcome::Succeeded), Some(State::Closed));
    call(&mut breaker, HALF_OPEN_AT, Outcome::Failed);
    call(&mut breaker, HALF_OPEN_AT, Outcome::Failed);
    assert_eq!(breaker.state(HALF_OPEN_AT), State::Closed);
    assert_eq!(breaker.transitions(), Transitions { opened: 1, half_opened: 1, closed: 1 });
}

// FEATURES: D9
#[test]
fn one_failure_while_half_open_opens_it_for_thirty_seconds_again() {
    let mut breaker = opened();
    call(&mut breaker, HALF_OPEN_AT, Outcome::Succeeded);
    let at = HALF_OPEN_AT + SECOND;
    assert_eq!(call(&mut breaker, at, Outcome::Failed), Some(State::Open));
    assert_eq!(breaker.open_between(at), Some((at, at + limits::OPEN_FOR)));
    let again = at + limits::OPEN_FOR;
    assert_eq!(call(&mut breaker, again, Outcome::Succeeded), None, "the success of the last period does not count");
    assert_eq!(breaker.transitions(), Transitions { opened: 2, half_opened: 2, closed: 0 });
}

#[test]
fn a_report_from_an_earlier_period_is_ignored() {
    let mut breaker = breaker();
    let first_period = [breaker.admit(START).unwrap(), breaker.admit(START).unwrap()];
    for _ in 0..3 {
        call(&mut breaker, START, Outcome::Failed);
    }
    let [success, failure] = first_period;
    assert_eq!(breaker.report(START, success, Outcome::Succeeded), None);
    assert_eq!(breaker.state(START), State::Open);
    call(&mut breaker, HALF_OPEN_AT, Outcome::Succeeded);
    assert_eq!(breaker.report(HALF_OPEN_AT, failure, Outcome::Failed), None);
    assert_eq!(breaker.state(HALF_OPEN_AT), State::HalfOpen);
    let slow_probe = breaker.admit(HALF_OPEN_AT).unwrap();
    call(&mut breaker, HALF_OPEN_AT, Outcome::Succeeded);
    assert_eq!(breaker.report(HALF_OPEN_AT, slow_probe, Outcome::Failed), None);
    assert_eq!((breaker.state(HALF_OPEN_AT), breaker.failures()), (State::Closed, 0));
    assert_eq!(breaker.late_reports(), 3);
}

#[test]
fn lost_probes_block_others_only_until_their_timeout() {
    let mut breaker = opened();
    let lost: Vec<_> = (0..3).map(|_| breaker.admit(HALF_OPEN_AT).unwrap()).collect();
    let given_up = HALF_OPEN_AT + limits::PROBE_TIMEOUT;
    assert!(breaker.admit(given_up - Millis(1)).is_err());
    let fresh: Vec<_> = (0..3).map(|_| breaker.admit(given_up).unwrap()).collect();
    for permit in lost {
        assert_eq!(breaker.report(given_up, permit, Outcome::Failed), None, "a new probe has replaced it");
    }
    assert!(breaker.admit(given_up).is_err());
    for permit in fresh {
        breaker.report(given_up, permit, Outcome::Succeeded);
    }
    assert_eq!(breaker.state(given_up), State::Closed);
}

#[test]
fn an_abandoned_probe_frees_its_slot_at_once() {
    let mut breaker = opened();
    for _ in 0..10 {
        assert_eq!(call(&mut breaker, HALF_OPEN_AT, Outcome::Abandoned), None);
    }
    assert_eq!(breaker.state(HALF_OPEN_AT), State::HalfOpen);
}

#[test]
fn a_trip_opens_it() {
    let mut breaker = breaker();
    let in_flight = breaker.admit(START).unwrap();
    breaker.trip(START);
    breaker.trip(START + SECOND);
    assert_eq!(breaker.open_between(START + SECOND), Some((START, HALF_OPEN_AT)), "a second trip changes nothing");
    assert_eq!(breaker.report(START, in_flight, Outcome::Succeeded), None);
    breaker.trip(HALF_OPEN_AT);
    assert_eq!(breaker.state(HALF_OPEN_AT), State::Open);
    assert_eq!(breaker.transitions(), Transitions { opened: 2, half_opened: 1, closed: 0 });
}

#[test]
fn counts_of_zero_mean_one() {
    let zero = Settings { failures_to_open: 0, probes_max: 0, successes_to_close: 0, ..Settings::default() };
    let mut breaker = Breaker::new(zero);
    assert_eq!(breaker.state(START), State::Closed);
    assert_eq!(call(&mut breaker, START, Outcome::Failed), Some(State::Open));
    assert_eq!(call(&mut breaker, HALF_OPEN_AT, Outcome::Succeeded), Some(State::Closed));
}

// FEATURES: D9
#[test]
fn the_default_settings_are_as_documented() {
    let settings = Settings::default();
    assert_eq!(settings.failures_to_open, 3);
    assert_eq!(settings.open_for, Millis(30_000));
    assert_eq!(settings.probes_max, 3);
    assert_eq!(settings.successes_to_close, 2);
}
