//! The job machine: one function that says what an event does to a job in a state.
//!
//! [`step`] decides and changes nothing; [`Job::apply`] changes the record as decided. Stale,
//! duplicate and out-of-order events are [`Ignored`] with a reason: counted, never an error.

mod apply;

use crate::id::{Attempt, Incarnation, RunnerId};
use crate::job::{End, Job, Outcome, Placement, Scan};
use crate::limits;
use crate::reason::{Reason, ReasonCode, cut};
use crate::state::State;
use crate::time::Millis;
use crate::verdict::{Approval, Decision, OutputDecision, OutputVerdict, Phase, Verdict};

/// The rule in the name of which a job is allowed while the policy cannot be asked, where operators want that.
pub const FAIL_OPEN_RULE: &str = "fail_open";

/// The rule in the name of which a result passes, or does not, that could not be looked at.
pub const UNCHECKED_RULE: &str = "output_unchecked";

/// Everything that can happen to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Its time has come.
    Due,
    Verdict(Decision),
    /// The policy could not be asked; it is to be asked again then.
    PolicyUnavailable {
        until: Millis,
        message: Option<String>,
    },
    /// The policy has changed since it allowed the job.
    Recheck,
    Approval(Approval),
    /// Nobody has said whether the job may run.
    ApprovalExpired,
    /// There is no runner that could take it. Absent: it was looked for one often enough.
    Unplaced {
        code: ReasonCode,
        message: String,
        until: Option<Millis>,
    },
    /// It cannot be run at all, whoever would run it.
    Unrunnable {
        code: ReasonCode,
        message: String,
    },
    /// A runner was chosen for the next attempt.
    Dispatch {
        runner: RunnerId,
        incarnation: Incarnation,
        placement: Option<Box<Placement>>,
    },
    /// Its runner was restarted and found the attempt alive: a newer incarnation has it in hand.
    Adopted {
        attempt: Attempt,
        incarnation: Incarnation,
    },
    Started {
        attempt: Attempt,
        at: Millis,
    },
    Ended {
        attempt: Attempt,
        outcome: Box<Outcome>,
    },
    /// The runner is gone and nobody knows how far the attempt came.
    Lost {
        attempt: Attempt,
        fault: Fault,
    },
    Cancel(ReasonCode),
    Retract,
    DeadlinePassed,
    /// The attempt ran longer than it may.
    AttemptTimedOut {
        attempt: Attempt,
    },
    /// The runner took the attempt and never said that it started.
    DispatchTimedOut {
        attempt: Attempt,
    },
    /// Asked to stop the attempt, the runner never said that it had.
    StopOverdue {
        attempt: Attempt,
    },
    /// The content scan has spoken.
    Scanned {
        attempt: Attempt,
        scan: Box<Scan>,
    },
    /// An operator lets a quarantined result go.
    Release,
    /// An operator wants another try.
    Reschedule,
    /// The node is given up and there is no other.
    Abandon,
}

/// Who is to blame for a lost attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It may have been the job: this counts.
    Unknown,
    /// Certainly not the job.
    NotTheJobs,
}

/// Which budget pays for a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    Nothing,
    Retry,
    Infrastructure,
}

/// When a job that goes back may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    No,
    /// After the backoff for this many earlier tries.
    Backoff(u32),
    Until(Millis),
}

/// What an event does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    pub to: State,
    pub charge: Charge,
    pub wait: Wait,
    /// The runner must be told to stop the current attempt.
    pub stop: bool,
    pub reason: Option<Reason>,
}

impl Transition {
    fn to(state: State) -> Self {
        Self { to: state, charge: Charge::Nothing, wait: Wait::No, stop: false, reason: None }
    }

    fn because(mut self, code: ReasonCode) -> Self {
        self.reason = Some(Reason::new(code));
        self
    }

    fn saying(mut self, code: ReasonCode, message: Option<String>) -> Self {
        self.reason = Some(Reason { code, message: message.map(cut) });
        self
    }

    fn charging(mut self, charge: Charge, wait: Wait) -> Self {
        self.charge = charge;
        self.wait = wait;
        self
    }

    fn stopping(mut self) -> Self {
        self.stop = true;
        self
    }
}

macro_rules! ignored {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// Why an event changes nothing.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Ignored {
            $($(#[$doc])* $name,)*
        }

        impl Ignored {
            /// In their order: `ALL[why as usize]` is `why`.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$name),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

ignored! {
    /// The job has ended.
    Terminal = "terminal";
    /// The words are about an attempt that is not the newest, or not in a runner's hands.
    StaleAttempt = "stale_attempt";
    /// It has happened before.
    Duplicate = "duplicate";
    /// It does not fit the state.
    OutOfOrder = "out_of_order";
    /// It is allowed here, but its budget is used up.
    BudgetExhausted = "budget_exhausted";
    /// The approval is about another content of the job.
    OtherContent = "other_content";
    /// The approval is for another rule than the one that asks now.
    OtherRule = "other_rule";
}

type Stepped = Result<Transition, Ignored>;

/// What `event` does to `job`.
pub fn step(job: &Job, event: &Event) -> Stepped {
    match event {
        Event::Due => due(job),
        Event::Verdict(decision) => verdict(job, decision),
        Event::PolicyUnavailable { until, message } => policy_unavailable(job, *until, message.as_ref()),
        Event::Recheck => recheck(job),
        Event::Approval(approval) => approval_given(job, approval),
        Event::ApprovalExpired => approval_expired(job),
        Event::Unplaced { code, message, until } => unplaced(job, *code, message, *until),
        Event::Unrunnable { code, message } => unrunnable(job, *code, message),
        Event::Dispatch { .. } => dispatch(job),
        Event::Adopted { attempt, incarnation } => adopted(job, *attempt, *incarnation),
        Event::Started { attempt, .. } => started(job, *attempt),
        Event::Ended { attempt, outcome } => ended(job, *attempt, outcome),
        Event::Lost { attempt, fault } => lost(job, *attempt, *fault),
        Event::Cancel(code) => cancel(job, *code),
        Event::Retract => retract(job),
        Event::DeadlinePassed => deadline_passed(job),
        Event::AttemptTimedOut { attempt } => attempt_timed_out(job, *attempt),
        Event::DispatchTimedOut { attempt } => dispatch_timed_out(job, *attempt),
        Event::StopOverdue { attempt } => stop_overdue(job, *attempt),
        Event::Scanned { attempt, scan } => scanned(job, *attempt, scan),
        Event::Release => release(job),
        Event::Reschedule => reschedule(job),
        Event::Abandon => abandon(job),
    }
}

fn due(job: &Job) -> Stepped {
    match job.state {
        State::Blocked => Ok(Transition::to(State::Pending)),
        State::Pending
        | State::ApprovalRequired
        | State::Scheduled
        | State::Dispatched
        | State::Running
        | State::Cancelling
        | State::Scanning => Err(Ignored::OutOfOrder),
        State::Succeeded
        | State::Failed
        | State::TimedOut
        | State::Cancelled
        | State::Denied
        | State::Quarantined
        | State::Abandoned => Err(Ignored::Terminal),
    }
}

fn only_in(job: &Job, wanted: State) -> Result<(), Ignored> {
    if job.state == wanted {
        Ok(())
    } else if job.state.is_terminal() {
        Err(Ignored::Terminal)
    } else {
        Err(Ignored::OutOfOrder)
    }
}

fn verdict(job: &Job, decision: &Decision) -> Stepped {
    only_in(job, State::Pending)?;
    let message = decision.message.clone();
    Ok(match &decision.verdict {
        Verdict::Allow | Verdict::AllowWith(_) => Transition::to(State::Scheduled),
        // The policy does not know what a person has said meanwhile; the record does.
        Verdict::RequireApproval if is_approved(job, &decision.rule) => Transition::to(State::Scheduled),
        Verdict::RequireApproval => {
            Transition::to(State::ApprovalRequired).saying(ReasonCode::ApprovalRequired, message)
        }
        Verdict::Deny => Transition::to(State::Denied).saying(ReasonCode::PolicyDenied, message),
        Verdict::Throttle(until) => {
            let mut transition = Transition::to(State::Pending).saying(ReasonCode::Throttled, message);
            transition.wait = Wait::Until(*until);
            transition
        }
    })
}

/// Whether there is an approval of this very content, for the rule that asks for it.
pub fn is_approved(job: &Job, rule: &str) -> bool {
    let fits = |approval: &Approval| approval.approved && approval.digest == job.digest && approval.rule == rule;
    job.approval.as_deref().is_some_and(fits)
}

/// It waits, and nothing is held against it.
fn policy_unavailable(job: &Job, until: Millis, message: Option<&String>) -> Stepped {
    only_in(job, State::Pending)?;
    let transition = Transition::to(State::Pending).saying(ReasonCode::PolicyUnavailable, message.cloned());
    Ok(transition.charging(Charge::Nothing, Wait::Until(until)))
}

fn recheck(job: &Job) -> Stepped {
    only_in(job, State::Scheduled)?;
    Ok(Transition::to(State::Pending).because(ReasonCode::PolicyChanged))
}

fn approval_expired(job: &Job) -> Stepped {
    only_in(job, State::ApprovalRequired)?;
    let message = Some("nobody approved or rejected it in time".to_owned());
    Ok(Transition::to(State::Denied).saying(ReasonCode::ApprovalExpired, message))
}

fn unplaced(job: &Job, code: ReasonCode, message: &str, until: Option<Millis>) -> Stepped {
    only_in(job, State::Scheduled)?;
    let to = if until.is_some() { State::Scheduled } else { State::Failed };
    Ok(Transition::to(to).saying(code, Some(message.to_owned())))
}

fn unrunnable(job: &Job, code: ReasonCode, message: &str) -> Stepped {
    only_in(job, State::Pending)?;
    Ok(Transition::to(State::Failed).saying(code, Some(message.to_owned())))
}

fn approval_given(job: &Job, approval: &Approval) -> Stepped {
    only_in(job, State::ApprovalRequired)?;
    if approval.digest != job.digest {
        return Err(Ignored::OtherContent);
    }
    if job.last_decision().is_some_and(|asking| asking.rule != approval.rule) {
        return Err(Ignored::OtherRule);
    }
    Ok(if approval.approved {
        Transition::to(State::Pending)
    } else {
        Transition::to(State::Denied).saying(ReasonCode::ApprovalRejected, approval.comment.clone())
    })
}

fn dispatch(job: &Job) -> Stepped {
    only_in(job, State::Scheduled)?;
    Ok(Transition::to(State::Dispatched))
}

/// Checks that `attempt` is the one that a runner has in hand.
fn current(job: &Job, attempt: Attempt) -> Result<(), Ignored> {
    if job.state.is_terminal() {
        return Err(Ignored::Terminal);
    }
    if attempt != job.attempt || !job.state.is_on_runner() {
        return Err(Ignored::StaleAttempt);
    }
    Ok(())
}

/// Whatever the attempt was about to do it goes on doing, to its end or to be stopped.
fn adopted(job: &Job, attempt: Attempt, incarnation: Incarnation) -> Stepped {
    current(job, attempt)?;
    if job.runner().is_some_and(|(_, known)| incarnation <= known) {
        return Err(Ignored::Duplicate);
    }
    Ok(Transition::to(job.state))
}

fn started(job: &Job, attempt: Attempt) -> Stepped {
    current(job, attempt)?;
    match job.state {
        State::Dispatched => Ok(Transition::to(State::Running)),
        State::Running => Err(Ignored::Duplicate),
        // It is being stopped; that it started first is of no use to anyone.
        State::Cancelling => Err(Ignored::OutOfOrder),
        State::Pending
        | State::Blocked
        | State::ApprovalRequired
        | State::Scheduled
        | State::Scanning
        | State::Succeeded
        | State::Failed
        | State::TimedOut
        | State::Cancelled
        | State::Denied
        | State::Quarantined
        | State::Abandoned => Err(Ignored::StaleAttempt),
    }
}

fn ended(job: &Job, attempt: Attempt, outcome: &Outcome) -> Stepped {
    current(job, attempt)?;
    if job.state == State::Cancelling {
        // What a task of a workflow has done all the same must be known, or it would never be undone.
        let done = job.origin.is_some() && outcome.end == End::Succeeded;
        return Ok(if done { succeeded(job, outcome.policy.as_deref()) } else { stopped(job) });
    }
    let message = || outcome.message.clone();
    Ok(match outcome.end {
        End::Succeeded => succeeded(job, outcome.policy.as_deref()),
        End::Error | End::Infrastructure | End::Stopped if job.retracting => {
            Transition::to(State::Scheduled).because(ReasonCode::Retracted)
        }
        End::Error if job.retries < job.retry_limit() => Transition::to(State::Scheduled)
            .charging(Charge::Retry, Wait::Backoff(job.retries))
            .saying(ReasonCode::RetryLater, message()),
        End::Error => Transition::to(State::Failed).saying(ReasonCode::RetriesExhausted, message()),
        End::Fatal => Transition::to(State::Failed).saying(ReasonCode::Fatal, message()),
        End::Infrastructure => infrastructure(job, ReasonCode::RunnerTrouble, message()),
        End::Stopped => Transition::to(State::Scheduled).saying(ReasonCode::NodeDrained, message()),
        // It costs nothing but a moment, else shard and runner would throw the job at each other without end.
        End::Busy => {
            Transition::to(State::Scheduled).charging(Charge::Nothing, Wait::Backoff(0)).because(ReasonCode::RunnerBusy)
        }
    })
}

/// Unless the policy has seen enough already.
fn succeeded(job: &Job, policy: Option<&OutputDecision>) -> Transition {
    match policy {
        // What has to be removed is removed by the scan; until then nobody sees it.
        Some(decision) if decision.verdict == OutputVerdict::Redact => Transition::to(State::Scanning),
        Some(decision) if !decision.verdict.lets_pass() => quarantine(decision),
        Some(_) | None if job.hold_until_scanned => Transition::to(State::Scanning),
        Some(_) | None => Transition::to(State::Succeeded),
    }
}

fn quarantine(decision: &OutputDecision) -> Transition {
    let unchecked = decision.rule == UNCHECKED_RULE;
    let code = if unchecked { ReasonCode::OutputUnchecked } else { ReasonCode::OutputQuarantined };
    Transition::to(State::Quarantined).saying(code, decision.message.clone())
}

fn lost(job: &Job, attempt: Attempt, fault: Fault) -> Stepped {
    current(job, attempt)?;
    if job.state == State::Cancelling {
        return Ok(stopped(job));
    }
    if job.retracting {
        return Ok(Transition::to(State::Scheduled).because(ReasonCode::Retracted));
    }
    Ok(match fault {
        Fault::NotTheJobs => Transition::to(State::Scheduled).because(ReasonCode::RunnerLost),
        Fault::Unknown => infrastructure(job, ReasonCode::RunnerLost, None),
    })
}

/// Back to the waiting jobs at the cost of the infrastructure's budget, or the end.
fn infrastructure(job: &Job, code: ReasonCode, message: Option<String>) -> Transition {
    if job.infrastructure_failures < limits::INFRASTRUCTURE_RETRIES_DEFAULT {
        Transition::to(State::Scheduled)
            .charging(Charge::Infrastructure, Wait::Backoff(job.infrastructure_failures))
            .saying(code, message)
    } else {
        Transition::to(State::Failed).saying(ReasonCode::InfrastructureExhausted, message)
    }
}

/// The end of a job that was asked to stop, for the reason it was asked for: its time was up, or someone cancelled it.
fn stopped(job: &Job) -> Transition {
    let reason = job.reason.clone().unwrap_or_else(|| Reason::new(ReasonCode::CancelRequested));
    let out_of_time = matches!(reason.code, ReasonCode::AttemptTimedOut | ReasonCode::DeadlinePassed);
    let to = if out_of_time { State::TimedOut } else { State::Cancelled };
    Transition::to(to).saying(reason.code, reason.message)
}

fn cancel(job: &Job, code: ReasonCode) -> Stepped {
    match job.state {
        State::Pending | State::Blocked | State::ApprovalRequired | State::Scheduled | State::Scanning => {
            Ok(Transition::to(State::Cancelled).because(code))
        }
        State::Dispatched | State::Running => Ok(Transition::to(State::Cancelling).because(code).stopping()),
        State::Cancelling | State::Cancelled => Err(Ignored::Duplicate),
        State::Succeeded | State::Failed | State::TimedOut | State::Denied | State::Quarantined | State::Abandoned => {
            Err(Ignored::Terminal)
        }
    }
}

fn retract(job: &Job) -> Stepped {
    match job.state {
        State::Dispatched | State::Running if job.retracting => Err(Ignored::Duplicate),
        State::Dispatched | State::Running => Ok(Transition::to(job.state).stopping()),
        // Nobody has it in hand: there is nothing to give back, and asking again is no mistake.
        State::Pending | State::Blocked | State::ApprovalRequired | State::Scheduled => Err(Ignored::Duplicate),
        State::Cancelling | State::Scanning => Err(Ignored::OutOfOrder),
        State::Succeeded
        | State::Failed
        | State::TimedOut
        | State::Cancelled
        | State::Denied
        | State::Quarantined
        | State::Abandoned => Err(Ignored::Terminal),
    }
}

fn deadline_passed(job: &Job) -> Stepped {
    let because = |transition: Transition| {
        transition.saying(ReasonCode::DeadlinePassed, Some("it had not ended by its deadline".to_owned()))
    };
    match job.state {
        State::Pending | State::Blocked | State::ApprovalRequired | State::Scheduled => {
            Ok(because(Transition::to(State::TimedOut)))
        }
        // Timed out only when its runner has let go: until then it takes its slot, and no retry may run beside it.
        State::Dispatched | State::Running => Ok(because(Transition::to(State::Cancelling)).stopping()),
        // The work is done or being undone: the deadline was for the work.
        State::Cancelling | State::Scanning => Err(Ignored::OutOfOrder),
        State::Succeeded
        | State::Failed
        | State::TimedOut
        | State::Cancelled
        | State::Denied
        | State::Quarantined
        | State::Abandoned => Err(Ignored::Terminal),
    }
}

fn attempt_timed_out(job: &Job, attempt: Attempt) -> Stepped {
    current(job, attempt)?;
    only_in(job, State::Running)?;
    let message = job.runtime_limit().map(|limit| format!("the attempt ran longer than {} ms", limit.0));
    Ok(Transition::to(State::Cancelling).saying(ReasonCode::AttemptTimedOut, message).stopping())
}

fn dispatch_timed_out(job: &Job, attempt: Attempt) -> Stepped {
    current(job, attempt)?;
    only_in(job, State::Dispatched)?;
    if job.retracting {
        // It is waited for on purpose: no second attempt beside a first one.
        return Err(Ignored::OutOfOrder);
    }
    let message = Some("the runner never said that it had started".to_owned());
    let mut transition = infrastructure(job, ReasonCode::DispatchTimedOut, message.clone());
    if transition.to == State::Failed {
        transition = Transition::to(State::TimedOut).saying(ReasonCode::DispatchTimedOut, message);
    }
    Ok(transition.stopping())
}

fn stop_overdue(job: &Job, attempt: Attempt) -> Stepped {
    current(job, attempt)?;
    only_in(job, State::Cancelling)?;
    let ended = stopped(job);
    Ok(match ended.to {
        State::Cancelled => ended.because(ReasonCode::StopOverdue),
        _ => ended,
    })
}

fn scanned(job: &Job, attempt: Attempt, scan: &Scan) -> Stepped {
    if attempt != job.attempt {
        return Err(Ignored::StaleAttempt);
    }
    if was_scanned(job, scan.decision.rule == UNCHECKED_RULE) {
        return Err(if job.state.is_terminal() { Ignored::Terminal } else { Ignored::Duplicate });
    }
    let redacts = scan.decision.verdict == OutputVerdict::Redact;
    // What was to be removed and could not be stays inside, whichever of the two looks wanted it removed.
    let wants_copy = redacts || was_to_be_redacted(job);
    let passes = scan.decision.verdict.lets_pass() && (!wants_copy || scan.redacted.is_some());
    match job.state {
        State::Scanning if !passes => Ok(quarantine(&scan.decision)),
        State::Scanning if redacts => Ok(Transition::to(State::Succeeded).because(ReasonCode::OutputRedacted)),
        State::Scanning => Ok(Transition::to(State::Succeeded)),
        // The first of the three doors out of a terminal state.
        State::Succeeded if !passes => Ok(quarantine(&scan.decision)),
        State::Succeeded if redacts => Ok(Transition::to(State::Succeeded).because(ReasonCode::OutputRedacted)),
        // Nothing but the record of the scan.
        State::Succeeded => Ok(Transition::to(State::Succeeded)),
        State::Pending
        | State::Blocked
        | State::ApprovalRequired
        | State::Scheduled
        | State::Dispatched
        | State::Running
        | State::Cancelling => Err(Ignored::OutOfOrder),
        State::Failed | State::TimedOut | State::Cancelled | State::Denied | State::Quarantined | State::Abandoned => {
            Err(Ignored::Terminal)
        }
    }
}

/// Whether there is a word on this attempt's content already. One that nobody had looked at is no word yet, except
/// against another such.
fn was_scanned(job: &Job, unchecked: bool) -> bool {
    let counts = |decision: &OutputDecision| unchecked || decision.rule != UNCHECKED_RULE;
    of_attempt(job, Phase::Content).any(counts)
}

fn was_to_be_redacted(job: &Job) -> bool {
    of_attempt(job, Phase::Metadata).any(|decision| decision.verdict == OutputVerdict::Redact)
}

fn of_attempt(job: &Job, phase: Phase) -> impl Iterator<Item = &OutputDecision> {
    job.output_decisions().iter().filter(move |decision| decision.phase == phase && decision.attempt == job.attempt)
}

/// The second door: an operator's release.
fn release(job: &Job) -> Stepped {
    only_in(job, State::Quarantined)?;
    Ok(Transition::to(State::Succeeded).because(ReasonCode::Released))
}

/// The third door: an operator's reschedule. The policy is asked again: it may have changed.
fn reschedule(job: &Job) -> Stepped {
    match job.state {
        State::Failed | State::Abandoned | State::TimedOut | State::Quarantined => {
            if job.retries >= job.retry_limit() {
                return Err(Ignored::BudgetExhausted);
            }
            Ok(Transition::to(State::Pending).because(ReasonCode::Rescheduled).charging(Charge::Retry, Wait::No))
        }
        State::Succeeded | State::Cancelled | State::Denied => Err(Ignored::Terminal),
        State::Pending
        | State::Blocked
        | State::ApprovalRequired
        | State::Scheduled
        | State::Dispatched
        | State::Running
        | State::Cancelling
        | State::Scanning => Err(Ignored::OutOfOrder),
    }
}

fn abandon(job: &Job) -> Stepped {
    if job.state.is_terminal() {
        return Err(Ignored::Terminal);
    }
    let mut transition = Transition::to(State::Abandoned).because(ReasonCode::NodeAbandoned);
    transition.stop = job.state.is_on_runner();
    Ok(transition)
}

/// The delays between tries: each twice the one before, up to a longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub first: Millis,
    pub longest: Millis,
}

impl Backoff {
    /// The delay after `tries` earlier ones. `spread` (any number) moves it by up to a quarter, so that
    /// jobs that failed together do not all come back together.
    pub fn delay(self, tries: u32, spread: u64) -> Millis {
        let doubled = self.first.0.saturating_mul(1 << tries.min(20)).min(self.longest.0);
        Millis(doubled + spread % (doubled / 4 + 1))
    }
}
