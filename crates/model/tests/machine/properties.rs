//! Invariants after any sequence of events, valid or not.

use std::collections::BTreeSet;

use model::id::Attempt;
use model::job::{End, Job};
use model::json::Json;
use model::limits;
use model::machine::{Charge, Event, Fault, step};
use model::reason::ReasonCode;
use model::state::State;
use model::time::Millis;
use model::verdict::{Constraints, Verdict};
use proptest::prelude::*;
use proptest::sample::select;

use crate::support::{
    BACKOFF, Case, OTHER_DIGEST, adopted, approval, dispatch, ended, lost, scanned, started, verdict,
};

/// An event with an attempt number relative to the job's newest, so that current and stale attempts are both common.
#[derive(Debug, Clone)]
enum Sketch {
    Plain(Event),
    /// Attempt offset, and the distance to the recorded incarnation.
    Adopted(i64, u64),
    Started(i64),
    Ended(i64, End),
    Lost(i64, Fault),
    AttemptTimedOut(i64),
    DispatchTimedOut(i64),
    StopOverdue(i64),
    Approval {
        approved: bool,
        fits: bool,
    },
    Throttle(u64),
}

impl Sketch {
    fn event(&self, job: &Job, now: Millis) -> Event {
        let attempt = |offset: i64| u32::try_from(i64::from(job.attempt.0) + offset).unwrap_or(0);
        match self {
            Self::Plain(event) => event.clone(),
            Self::Adopted(offset, newer) => {
                let known = job.last_attempt().map_or(0, |attempt| attempt.incarnation.0);
                adopted(attempt(*offset), known + newer)
            }
            Self::Started(offset) => started(attempt(*offset)),
            Self::Ended(offset, end) => ended(attempt(*offset), *end),
            Self::Lost(offset, fault) => lost(attempt(*offset), *fault),
            Self::AttemptTimedOut(offset) => Event::AttemptTimedOut { attempt: Attempt(attempt(*offset)) },
            Self::DispatchTimedOut(offset) => Event::DispatchTimedOut { attempt: Attempt(attempt(*offset)) },
            Self::StopOverdue(offset) => Event::StopOverdue { attempt: Attempt(attempt(*offset)) },
            Self::Approval { approved, fits } => {
                approval(*approved, if *fits { job.digest } else { OTHER_DIGEST }, "a rule")
            }
            Self::Throttle(wait) => verdict(Verdict::Throttle(now + Millis(*wait))),
        }
    }
}

fn offset() -> impl Strategy<Value = i64> {
    prop_oneof![6 => Just(0i64), 1 => Just(-1), 1 => Just(1), 1 => Just(-2)]
}

fn plain() -> impl Strategy<Value = Sketch> {
    let constraints = Constraints { max_runtime: Some(Millis(5)), max_retries: Some(1), ..Constraints::default() };
    select(vec![
        Event::Due,
        verdict(Verdict::AllowWith(constraints)),
        verdict(Verdict::RequireApproval),
        verdict(Verdict::Deny),
        Event::Cancel(ReasonCode::QueueCancelled),
        Event::Retract,
        Event::Retract,
        Event::DeadlinePassed,
        scanned(true),
        scanned(false),
        Event::Release,
        Event::Reschedule,
        Event::Abandon,
        Event::Refund { runner: model::id::RunnerId(1), since: Millis(0) },
    ])
    .prop_map(Sketch::Plain)
}

fn sketch() -> impl Strategy<Value = Sketch> {
    let end = || {
        select(vec![
            End::Succeeded,
            End::Error,
            End::Fatal,
            End::Infrastructure,
            End::Stopped,
            End::Busy,
            End::LeaseExpired,
        ])
    };
    let fault = select(vec![Fault::Unknown, Fault::NotTheJob]);
    let forward = prop_oneof![
        Just(Sketch::Plain(verdict(Verdict::Allow))),
        (1u64..4).prop_map(|runner| Sketch::Plain(dispatch(runner))),
    ];
    prop_oneof![
        8 => forward,
        3 => plain(),
        2 => (offset(), 0u64..3).prop_map(|(offset, newer)| Sketch::Adopted(offset, newer)),
        3 => offset().prop_map(Sketch::Started),
        4 => (offset(), end()).prop_map(|(offset, end)| Sketch::Ended(offset, end)),
        2 => (offset(), fault).prop_map(|(offset, fault)| Sketch::Lost(offset, fault)),
        1 => offset().prop_map(Sketch::AttemptTimedOut),
        1 => offset().prop_map(Sketch::DispatchTimedOut),
        1 => offset().prop_map(Sketch::StopOverdue),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(approved, fits)| Sketch::Approval { approved, fits }),
        1 => (0u64..5_000).prop_map(Sketch::Throttle),
    ]
}

fn new_job() -> impl Strategy<Value = Case> {
    (0u32..5, any::<bool>(), any::<bool>()).prop_map(|(retries, hold, delayed)| {
        let mut case = if delayed { Case::in_state(State::Blocked) } else { Case::in_state(State::Pending) };
        case.job.max_retries = retries;
        case.job.hold_until_scanned = hold;
        case
    })
}

/// Whether the event is one of the three reopen transitions.
fn is_reopen_transition(before: &Job, event: &Event) -> bool {
    match (before.state, event) {
        (State::Succeeded, Event::Scanned { scan, .. }) => !scan.decision.verdict.lets_pass(),
        (State::Quarantined, Event::Release) => true,
        (State::Failed | State::Abandoned | State::TimedOut | State::Quarantined, Event::Reschedule) => {
            before.retries < before.retry_limit()
        }
        _ => false,
    }
}

fn attempt_of(event: &Event) -> Option<Attempt> {
    match event {
        Event::Adopted { attempt, .. }
        | Event::Started { attempt, .. }
        | Event::Ended { attempt, .. }
        | Event::Lost { attempt, .. }
        | Event::AttemptTimedOut { attempt }
        | Event::DispatchTimedOut { attempt }
        | Event::StopOverdue { attempt } => Some(*attempt),
        _ => None,
    }
}

/// Invariants between a job before and after an accepted event.
fn check_accepted(before: &Job, event: &Event, charge: Charge, after: &Job) -> Result<(), TestCaseError> {
    if before.state.is_terminal() && before.state != after.state {
        prop_assert!(is_reopen_transition(before, event), "{event:?} moved a {} job to {}", before.state, after.state);
    }
    if let Some(attempt) = attempt_of(event) {
        prop_assert_eq!(attempt, before.attempt, "an event of a stale attempt was accepted");
        let was_lost = before.last_attempt().is_some_and(|last| last.end.is_none());
        let is_late_success = matches!(event, Event::Ended { outcome, .. } if outcome.end == End::Succeeded)
            && before.state == State::Scheduled
            && was_lost;
        prop_assert!(before.state.is_on_runner() || is_late_success);
    }
    match event {
        Event::Dispatch { .. } => prop_assert_eq!(after.attempt, before.attempt.next()),
        Event::Adopted { incarnation, .. } => {
            let mut expected = before.clone();
            expected.attempts.last_mut().expect("the attempt").incarnation = *incarnation;
            prop_assert_eq!(after, &expected, "only the incarnation changes");
        }
        _ => prop_assert_eq!(after.attempt, before.attempt),
    }
    match charge {
        Charge::Retry => prop_assert!(before.retries < before.retry_limit() && after.retries == before.retries + 1),
        Charge::Nothing | Charge::Infrastructure => prop_assert_eq!(after.retries, before.retries),
    }
    prop_assert!(after.infrastructure_failures <= limits::INFRASTRUCTURE_RETRIES_DEFAULT);
    prop_assert!(after.max_retries <= before.max_retries);
    if after.result != before.result && after.result.is_some() {
        prop_assert!(matches!(event, Event::Ended { .. }), "only the end of an attempt sets a result");
        prop_assert_eq!(&after.result, &Some(Json::of(&before.attempt.0)), "only the newest attempt's result counts");
    }
    Ok(())
}

/// Invariants of a record.
fn check_record(job: &Job) -> Result<(), TestCaseError> {
    let times: Vec<Millis> = job.states.iter().map(|entry| entry.at).collect();
    prop_assert!(times.is_sorted(), "history is out of order: {times:?}");
    let numbers: Vec<u32> = job.attempts.iter().map(|attempt| attempt.attempt.0).collect();
    prop_assert!(numbers.is_sorted_by(|a, b| a < b), "attempts repeat: {numbers:?}");
    prop_assert_eq!(job.states.last().map(|entry| entry.state), Some(job.state));
    prop_assert!(job.states.len() <= limits::HISTORY_ENTRIES_MAX && job.attempts.len() <= limits::HISTORY_ENTRIES_MAX);
    prop_assert_eq!(job.runner().is_some(), job.state.is_on_runner());
    prop_assert!(job.state.is_on_runner() || !job.retracting, "only an attempt in flight can be retracted");
    for attempt in &job.attempts {
        let in_flight = job.state.is_on_runner() && attempt.attempt == job.attempt;
        prop_assert_eq!(attempt.ended_at.is_none(), in_flight, "attempt {} of {}", attempt.attempt, job.attempt);
    }
    let mut bytes = Vec::new();
    job.encode_into(&mut bytes);
    prop_assert_eq!(&Job::decode(&bytes).expect("what was written can be read"), job);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    // FEATURES: C1, D16
    #[test]
    fn any_sequence_of_events_preserves_the_invariants(
        mut case in new_job(),
        events in prop::collection::vec((sketch(), 0u64..2_000), 1..120),
    ) {
        for (sketch, wait) in events {
            case.now = case.now + Millis(wait);
            let before = case.job.clone();
            let event = sketch.event(&before, case.now);
            match step(&before, &event) {
                Ok(transition) => {
                    case.job.apply(case.now, event.clone(), &transition, BACKOFF);
                    check_accepted(&before, &event, transition.charge, &case.job)?;
                }
                Err(_) => prop_assert_eq!(&case.job, &before),
            }
            check_record(&case.job)?;
        }
    }

    /// A repeated event of an attempt does not change the record.
    // FEATURES: B4, D16
    #[test]
    fn events_of_an_attempt_are_applied_once(
        mut case in new_job(),
        events in prop::collection::vec(sketch(), 1..80),
    ) {
        let mut applied: Vec<Event> = Vec::new();
        for sketch in events {
            let event = sketch.event(&case.job, case.now);
            let accepted = case.try_event(event.clone()).is_ok();
            if accepted && attempt_of(&event).is_some() {
                applied.push(event);
            }
            for earlier in &applied {
                let before = case.job.clone();
                let repeated = case.try_event(earlier.clone());
                prop_assert!(repeated.is_err(), "{earlier:?} was applied twice");
                prop_assert_eq!(&case.job, &before);
            }
        }
    }

    /// Without an operator, a job has a bounded number of attempts: the sum of its budgets, plus one.
    #[test]
    fn repeated_failures_end_a_job(
        mut case in new_job(),
        failures in prop::collection::vec(select(vec![End::Error, End::Infrastructure]), 20),
    ) {
        let mut starts = BTreeSet::new();
        for end in failures {
            for event in [Event::Due, verdict(Verdict::Allow), dispatch(1)] {
                let _ = case.try_event(event);
            }
            let attempt = case.job.attempt.0;
            let _ = case.try_event(started(attempt));
            let _ = case.try_event(ended(attempt, end));
            starts.insert(attempt);
        }
        prop_assert_eq!(case.job.state, State::Failed);
        let most = case.job.max_retries + limits::INFRASTRUCTURE_RETRIES_DEFAULT + 1;
        prop_assert!(starts.len() as u32 <= most, "{starts:?}");
    }
}
