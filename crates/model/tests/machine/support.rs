//! A job under test and constructors of events.

use model::id::{Attempt, Incarnation, JobId, QueueId, RunnerId};
use model::job::{End, Job, NewJob, Outcome, Redacted, Scan};
use model::json::Json;
use model::machine::{self, Backoff, Event, Fault, Ignored};
use model::reason::ReasonCode;
use model::spec::{Digest, EchoRun, JobSpec, Run};
use model::state::State;
use model::time::{Millis, Timestamp};
use model::verdict::{Approval, Decision, OutputDecision, OutputVerdict, Phase, Verdict};

pub const BACKOFF: Backoff = Backoff { first: Millis(1_000), longest: Millis(30_000) };
pub const START: Millis = Millis(1_000_000);
pub const OTHER_DIGEST: Digest = Digest([9; 16]);

/// A job under test and the clock, which advances by 1 ms with every event.
#[derive(Debug, Clone)]
pub struct Case {
    pub job: Job,
    pub now: Millis,
}

impl Case {
    pub fn new(change: impl FnOnce(&mut JobSpec)) -> Self {
        let mut spec = JobSpec::new(Run::Echo(EchoRun::default()));
        change(&mut spec);
        let new_job =
            NewJob { id: JobId(77), queue: QueueId(5), seq: 1, now: START, queue_max_retries: 3, runtime_max: None };
        Self { job: Job::new(new_job, spec.pack()), now: START }
    }

    /// A job with this retry limit.
    pub fn with_retries(max: u32) -> Self {
        Self::new(|spec| spec.max_retries = Some(max))
    }

    /// A job in `state`, by the shortest sequence of events.
    pub fn in_state(state: State) -> Self {
        match state {
            State::Blocked => Self::new(|spec| spec.not_before = Some(Timestamp(START + Millis(500)))),
            State::Pending => Self::with_retries(3),
            State::ApprovalRequired => Self::in_state(State::Pending).then(verdict(Verdict::RequireApproval)),
            State::Denied => Self::in_state(State::Pending).then(verdict(Verdict::Deny)),
            State::Scheduled => Self::in_state(State::Pending).then(verdict(Verdict::Allow)),
            State::Dispatched => Self::in_state(State::Scheduled).then(dispatch(1)),
            State::Running => Self::in_state(State::Dispatched).then(started(1)),
            State::Cancelling => Self::in_state(State::Running).then(cancel()),
            State::Cancelled => Self::in_state(State::Scheduled).then(cancel()),
            State::Scanning => {
                let mut case = Self::in_state(State::Running);
                case.job.hold_until_scanned = true;
                case.then(ended(1, End::Succeeded))
            }
            State::Succeeded => Self::in_state(State::Running).then(ended(1, End::Succeeded)),
            State::Failed => Self::in_state(State::Running).then(ended(1, End::Fatal)),
            State::TimedOut => Self::in_state(State::Scheduled).then(Event::DeadlinePassed),
            State::Quarantined => Self::in_state(State::Succeeded).then(scanned(false)),
            State::Abandoned => Self::in_state(State::Running).then(Event::Abandon),
        }
    }

    /// Applies an event that must be accepted.
    #[track_caller]
    pub fn then(mut self, event: Event) -> Self {
        if let Err(why) = self.try_event(event.clone()) {
            panic!("{event:?} was ignored in {}: {}", self.job.state, why.as_str());
        }
        self
    }

    pub fn try_event(&mut self, event: Event) -> Result<State, Ignored> {
        self.now = self.now + Millis(1);
        let transition = machine::step(&self.job, &event)?;
        self.job.apply(self.now, event, &transition, BACKOFF);
        Ok(self.job.state)
    }

    /// Asserts that the event is ignored for this reason and changes nothing.
    #[track_caller]
    pub fn ignores(mut self, event: Event, why: Ignored) -> Self {
        let before = self.job.clone();
        assert_eq!(self.try_event(event), Err(why), "in {}", before.state);
        assert_eq!(self.job, before);
        self
    }

    #[track_caller]
    pub fn is(self, state: State) -> Self {
        assert_eq!(self.job.state, state);
        self
    }

    #[track_caller]
    pub fn because(self, code: ReasonCode) -> Self {
        assert_eq!(self.job.reason.as_ref().map(|reason| reason.code), Some(code));
        self
    }

    /// Used budgets: retries, infrastructure failures.
    pub fn used(&self) -> (u32, u32) {
        (self.job.retries, self.job.infrastructure_failures)
    }

    /// Dispatches and starts the next attempt.
    #[track_caller]
    pub fn runs_again(self, runner: u64) -> Self {
        let case = self.is(State::Scheduled).then(dispatch(runner));
        let attempt = case.job.attempt.0;
        case.then(started(attempt))
    }
}

pub fn verdict(verdict: Verdict) -> Event {
    verdict_of("a rule", verdict)
}

pub fn verdict_of(rule: &str, verdict: Verdict) -> Event {
    Event::Verdict(Decision {
        at: Millis(0),
        verdict,
        rule: rule.to_owned(),
        message: None,
        policy: None,
        constraints: None,
    })
}

pub fn approval(approved: bool, digest: Digest, rule: &str) -> Event {
    let (by, rule) = ("someone".to_owned(), rule.to_owned());
    Event::Approval(Approval { at: Millis(0), by, approved, comment: None, digest, rule })
}

pub fn dispatch(runner: u64) -> Event {
    Event::Dispatch { runner: RunnerId(runner), incarnation: Incarnation(1), placement: None, lease: None }
}

pub fn adopted(attempt: u32, incarnation: u64) -> Event {
    Event::Adopted { attempt: Attempt(attempt), incarnation: Incarnation(incarnation) }
}

pub fn started(attempt: u32) -> Event {
    Event::Started { attempt: Attempt(attempt), at: Millis(0) }
}

/// The result is the attempt's number.
pub fn ended(attempt: u32, end: End) -> Event {
    let outcome = Outcome { result: Some(Json::of(&attempt)), ..Outcome::of(end) };
    Event::Ended { attempt: Attempt(attempt), outcome: Box::new(outcome) }
}

pub fn lost(attempt: u32, fault: Fault) -> Event {
    Event::Lost { attempt: Attempt(attempt), fault, is_gone: false }
}

pub fn cancel() -> Event {
    Event::Cancel(ReasonCode::CancelRequested)
}

pub fn scanned(clean: bool) -> Event {
    scanned_as(if clean { OutputVerdict::Allow } else { OutputVerdict::Quarantine }, None)
}

pub fn scanned_as(verdict: OutputVerdict, redacted: Option<Redacted>) -> Event {
    let decision = OutputDecision {
        at: Millis(0),
        phase: Phase::Content,
        verdict,
        rule: "an output rule".to_owned(),
        message: None,
        policy: None,
        findings: Vec::new(),
        attempt: Attempt::default(),
    };
    // All tests with a scan have one attempt.
    Event::Scanned { attempt: Attempt(1), scan: Box::new(Scan { decision, redacted }) }
}
