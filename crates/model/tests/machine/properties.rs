//! What holds after any sequence of events, however senseless.

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

use crate::fixture::{
    BACKOFF, Life, OTHER_DIGEST, adopted, approval, dispatch, ended, lost, scanned, started, verdict,
};

/// An event whose attempt is said relative to the job's newest, so that both fitting and stale ones are common.
#[derive(Debug, Clone)]
enum Sketch {
    Plain(Event),
    /// By an incarnation so much newer than the one on record.
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
    ])
    .prop_map(Sketch::Plain)
}

fn sketch() -> impl Strategy<Value = Sketch> {
    let end = || {
        select(vec![End::Succeeded, End::Error, End::Fatal, End::Infrastructure, End::Stopped, End::Busy, End::Error])
    };
    let fault = select(vec![Fault::Unknown, Fault::NotTheJobs]);
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

fn birth() -> impl Strategy<Value = Life> {
    (0u32..5, any::<bool>(), any::<bool>()).prop_map(|(retries, hold, delayed)| {
        let mut life = if delayed { Life::in_state(State::Blocked) } else { Life::in_state(State::Pending) };
        life.job.max_retries = retries;
        life.job.hold_until_scanned = hold;
        life
    })
}

/// The three doors out of a terminal state, and nothing else.
fn is_a_door(before: &Job, event: &Event) -> bool {
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

/// What must hold between a job before and after an event that was accepted.
fn check_accepted(before: &Job, event: &Event, charge: Charge, after: &Job) -> Result<(), TestCaseError> {
    if before.state.is_terminal() && before.state != after.state {
        prop_assert!(is_a_door(before, event), "{event:?} moved a {} job to {}", before.state, after.state);
    }
    if let Some(attempt) = attempt_of(event) {
        prop_assert_eq!(attempt, before.attempt, "a stale attempt was believed");
        prop_assert!(before.state.is_on_runner());
    }
    match event {
        Event::Dispatch { .. } => prop_assert_eq!(after.attempt, before.attempt.next()),
        Event::Adopted { incarnation, .. } => {
            let mut expected = before.clone();
            expected.attempts.last_mut().expect("the attempt").incarnation = *incarnation;
            prop_assert_eq!(after, &expected, "nothing else changes");
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
        prop_assert!(matches!(event, Event::Ended { .. }), "only an end brings a result");
        prop_assert_eq!(&after.result, &Some(Json::of(&before.attempt.0)), "only the newest attempt's result counts");
    }
    Ok(())
}

/// What must hold of a record by itself.
fn check_record(job: &Job) -> Result<(), TestCaseError> {
    let times: Vec<Millis> = job.states.iter().map(|entry| entry.at).collect();
    prop_assert!(times.is_sorted(), "history goes back: {times:?}");
    let numbers: Vec<u32> = job.attempts.iter().map(|attempt| attempt.attempt.0).collect();
    prop_assert!(numbers.is_sorted_by(|a, b| a < b), "attempts repeat: {numbers:?}");
    prop_assert_eq!(job.states.last().map(|entry| entry.state), Some(job.state));
    prop_assert!(job.states.len() <= limits::HISTORY_ENTRIES_MAX && job.attempts.len() <= limits::HISTORY_ENTRIES_MAX);
    prop_assert_eq!(job.runner().is_some(), job.state.is_on_runner());
    prop_assert!(job.state.is_on_runner() || !job.retracting, "only what is on a runner can be taken back");
    for attempt in &job.attempts {
        let in_hand = job.state.is_on_runner() && attempt.attempt == job.attempt;
        prop_assert_eq!(attempt.ended_at.is_none(), in_hand, "attempt {} of {}", attempt.attempt, job.attempt);
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
    fn any_sequence_of_events_keeps_the_rules(
        mut life in birth(),
        events in prop::collection::vec((sketch(), 0u64..2_000), 1..120),
    ) {
        for (sketch, wait) in events {
            life.now = life.now + Millis(wait);
            let before = life.job.clone();
            let event = sketch.event(&before, life.now);
            match step(&before, &event) {
                Ok(transition) => {
                    life.job.apply(life.now, event.clone(), &transition, BACKOFF);
                    check_accepted(&before, &event, transition.charge, &life.job)?;
                }
                Err(_) => prop_assert_eq!(&life.job, &before),
            }
            check_record(&life.job)?;
        }
    }

    /// Whatever was said about an attempt, saying it again changes nothing: the record keeps every byte.
    // FEATURES: B4, D16
    #[test]
    fn words_about_an_attempt_count_once(
        mut life in birth(),
        events in prop::collection::vec(sketch(), 1..80),
    ) {
        let mut said: Vec<Event> = Vec::new();
        for sketch in events {
            let event = sketch.event(&life.job, life.now);
            let accepted = life.try_event(event.clone()).is_ok();
            if accepted && attempt_of(&event).is_some() {
                said.push(event);
            }
            for earlier in &said {
                let before = life.job.clone();
                let repeated = life.try_event(earlier.clone());
                prop_assert!(repeated.is_err(), "{earlier:?} counted twice");
                prop_assert_eq!(&life.job, &before);
            }
        }
    }

    /// A job is tried a bounded number of times by itself: all budgets together, and what costs none.
    #[test]
    fn failures_alone_end_a_job(
        mut life in birth(),
        failures in prop::collection::vec(select(vec![End::Error, End::Infrastructure]), 20),
    ) {
        let mut starts = BTreeSet::new();
        for end in failures {
            for event in [Event::Due, verdict(Verdict::Allow), dispatch(1)] {
                let _ = life.try_event(event);
            }
            let attempt = life.job.attempt.0;
            let _ = life.try_event(started(attempt));
            let _ = life.try_event(ended(attempt, end));
            starts.insert(attempt);
        }
        prop_assert_eq!(life.job.state, State::Failed);
        let most = life.job.max_retries + limits::INFRASTRUCTURE_RETRIES_DEFAULT + 1;
        prop_assert!(starts.len() as u32 <= most, "{starts:?}");
    }
}
