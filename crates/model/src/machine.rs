//! State machine of a job.
//!
//! [`step`] computes the transition of an event without side effects; [`Job::apply`] changes the record. Stale,
//! duplicate and out-of-order events are [`Ignored`] with a reason: counted, never an error. Terminal states are final
//! except for three reopen transitions: quarantine by a content scan, release, reschedule.

mod apply;

use crate::id::{Attempt, Incarnation, RunnerId};
use crate::job::{End, Job, Outcome, Placement, Scan};
use crate::limits;
use crate::reason::{Reason, ReasonCode, cut};
use crate::state::State;
use crate::time::Millis;
use crate::verdict::{Approval, Decision, OutputDecision, OutputVerdict, Phase, Verdict};

/// Rule name of decisions that allow a job because the policy cannot be evaluated and the server fails open.
pub const FAIL_OPEN_RULE: &str = "fail_open";

/// Rule name of decisions on results that could not be scanned.
pub const UNCHECKED_RULE: &str = "output_unchecked";

/// An event of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// `eligible_at` of a blocked job is reached.
    Due,
    Verdict(Decision),
    /// The policy could not be evaluated. Next evaluation at `until`.
    PolicyUnavailable {
        until: Millis,
        message: Option<String>,
    },
    /// The policy has changed since it allowed the job; it must be evaluated again.
    Recheck,
    Approval(Approval),
    /// The approval period has ended without an answer.
    ApprovalExpired,
    /// No runner satisfies the requirement. Next try at `until`; absent: no tries are left and the job fails.
    Unplaced {
        code: ReasonCode,
        message: String,
        until: Option<Millis>,
    },
    /// No runner could ever run the job.
    Unrunnable {
        code: ReasonCode,
        message: String,
    },
    /// The next attempt is dispatched to this runner.
    Dispatch {
        runner: RunnerId,
        incarnation: Incarnation,
        placement: Option<Box<Placement>>,
        /// Lease of an exclusive attempt.
        lease: Option<Millis>,
    },
    /// A newer incarnation of the runner has adopted the attempt.
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
    /// The runner is lost and the outcome of the attempt is unknown.
    Lost {
        attempt: Attempt,
        fault: Fault,
        /// The runner has reported that it does not have the attempt. Otherwise it may still run.
        is_gone: bool,
    },
    Cancel(ReasonCode),
    Retract,
    DeadlinePassed,
    /// The attempt exceeded its timeout.
    AttemptTimedOut {
        attempt: Attempt,
    },
    /// The runner did not report the start in time.
    DispatchTimedOut {
        attempt: Attempt,
    },
    /// The runner did not confirm the stop in time.
    StopOverdue {
        attempt: Attempt,
    },
    /// The content scan has finished.
    Scanned {
        attempt: Attempt,
        scan: Box<Scan>,
    },
    /// An operator releases a quarantined result.
    Release,
    /// An operator reschedules the job.
    Reschedule,
    /// The node is given up and there is no other node.
    Abandon,
    /// A node was found to be at fault: what the job was charged for its failures since then is refunded.
    Refund {
        runner: RunnerId,
        since: Millis,
    },
}

/// Cause of a lost attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Possibly the job: uses the infrastructure budget.
    Unknown,
    /// Not the job: uses no budget.
    NotTheJob,
}

/// The retry budget that a transition uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    Nothing,
    Retry,
    Infrastructure,
}

/// Delay before a job may be dispatched again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    No,
    /// Backoff after this many earlier retries.
    Backoff(u32),
    Until(Millis),
}

/// Effect of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    pub to: State,
    pub charge: Charge,
    pub wait: Wait,
    /// The runner must be sent a stop for the current attempt.
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

    fn with_reason(mut self, code: ReasonCode, message: Option<String>) -> Self {
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
        /// Why an event has no effect.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Ignored {
            $($(#[$doc])* $name,)*
        }

        impl Ignored {
            /// In declaration order: `ALL[why as usize]` is `why`.
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
    /// The job is terminal.
    Terminal = "terminal";
    /// The attempt is not the newest, or not in flight.
    StaleAttempt = "stale_attempt";
    /// The event was applied before.
    Duplicate = "duplicate";
    /// The event is not valid in this state.
    OutOfOrder = "out_of_order";
    /// The event is valid in this state, but the retry budget is used up.
    BudgetExhausted = "budget_exhausted";
    /// The approval is for another digest.
    OtherContent = "other_content";
    /// The approval is for another rule than the one that requires it now.
    OtherRule = "other_rule";
}

type StepResult = Result<Transition, Ignored>;

/// Computes the effect of `event` on `job`.
pub fn step(job: &Job, event: &Event) -> StepResult {
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
        Event::Lost { attempt, fault, is_gone } => lost(job, *attempt, *fault, *is_gone),
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
        Event::Refund { runner, since } => refund(job, *runner, *since),
    }
}

fn due(job: &Job) -> StepResult {
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

fn only_in(job: &Job, expected: State) -> Result<(), Ignored> {
    if job.state == expected {
        Ok(())
    } else if job.state.is_terminal() {
        Err(Ignored::Terminal)
    } else {
        Err(Ignored::OutOfOrder)
    }
}

fn verdict(job: &Job, decision: &Decision) -> StepResult {
    only_in(job, State::Pending)?;
    let message = decision.message.clone();
    Ok(match &decision.verdict {
        Verdict::Allow | Verdict::AllowWith(_) => Transition::to(State::Scheduled),
        // The policy does not know of approvals: the record has them.
        Verdict::RequireApproval if is_approved(job, &decision.rule) => Transition::to(State::Scheduled),
        Verdict::RequireApproval => {
            Transition::to(State::ApprovalRequired).with_reason(ReasonCode::ApprovalRequired, message)
        }
        Verdict::Deny => Transition::to(State::Denied).with_reason(ReasonCode::PolicyDenied, message),
        Verdict::Throttle(until) => {
            let mut transition = Transition::to(State::Pending).with_reason(ReasonCode::Throttled, message);
            transition.wait = Wait::Until(*until);
            transition
        }
    })
}

/// Whether the job has an approval for its digest and this rule.
pub fn is_approved(job: &Job, rule: &str) -> bool {
    let fits = |approval: &Approval| approval.approved && approval.digest == job.digest && approval.rule == rule;
    job.approval.as_deref().is_some_and(fits)
}

/// The job waits and uses no budget.
fn policy_unavailable(job: &Job, until: Millis, message: Option<&String>) -> StepResult {
    only_in(job, State::Pending)?;
    let transition = Transition::to(State::Pending).with_reason(ReasonCode::PolicyUnavailable, message.cloned());
    Ok(transition.charging(Charge::Nothing, Wait::Until(until)))
}

fn recheck(job: &Job) -> StepResult {
    only_in(job, State::Scheduled)?;
    Ok(Transition::to(State::Pending).because(ReasonCode::PolicyChanged))
}

fn approval_expired(job: &Job) -> StepResult {
    only_in(job, State::ApprovalRequired)?;
    let message = Some("nobody approved or rejected it in time".to_owned());
    Ok(Transition::to(State::Denied).with_reason(ReasonCode::ApprovalExpired, message))
}

fn unplaced(job: &Job, code: ReasonCode, message: &str, until: Option<Millis>) -> StepResult {
    only_in(job, State::Scheduled)?;
    let to = if until.is_some() { State::Scheduled } else { State::Failed };
    Ok(Transition::to(to).with_reason(code, Some(message.to_owned())))
}

fn unrunnable(job: &Job, code: ReasonCode, message: &str) -> StepResult {
    only_in(job, State::Pending)?;
    Ok(Transition::to(State::Failed).with_reason(code, Some(message.to_owned())))
}

fn approval_given(job: &Job, approval: &Approval) -> StepResult {
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
        Transition::to(State::Denied).with_reason(ReasonCode::ApprovalRejected, approval.comment.clone())
    })
}

fn dispatch(job: &Job) -> StepResult {
    only_in(job, State::Scheduled)?;
    Ok(Transition::to(State::Dispatched))
}

/// Checks that `attempt` is the one in flight.
fn check_current(job: &Job, attempt: Attempt) -> Result<(), Ignored> {
    if job.state.is_terminal() {
        return Err(Ignored::Terminal);
    }
    if attempt != job.attempt || !job.state.is_on_runner() {
        return Err(Ignored::StaleAttempt);
    }
    Ok(())
}

/// The state is unchanged: a running attempt goes on, a stop request stays in force.
fn adopted(job: &Job, attempt: Attempt, incarnation: Incarnation) -> StepResult {
    check_current(job, attempt)?;
    if job.runner().is_some_and(|(_, known)| incarnation <= known) {
        return Err(Ignored::Duplicate);
    }
    Ok(Transition::to(job.state))
}

fn started(job: &Job, attempt: Attempt) -> StepResult {
    check_current(job, attempt)?;
    match job.state {
        State::Dispatched => Ok(Transition::to(State::Running)),
        State::Running => Err(Ignored::Duplicate),
        // The attempt is being stopped: its start is irrelevant.
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

fn ended(job: &Job, attempt: Attempt, outcome: &Outcome) -> StepResult {
    if outcome.end == End::Succeeded && is_given_up(job, attempt) {
        return Ok(succeeded(job, outcome.policy.as_deref()));
    }
    check_current(job, attempt)?;
    if job.state == State::Cancelling {
        // A workflow must know that a task succeeded despite the cancel, or it would not compensate it.
        let task_succeeded = job.origin.is_some() && outcome.end == End::Succeeded;
        return Ok(if task_succeeded { succeeded(job, outcome.policy.as_deref()) } else { stopped(job) });
    }
    let message = || outcome.message.clone();
    Ok(match outcome.end {
        End::Succeeded => succeeded(job, outcome.policy.as_deref()),
        End::Error | End::Infrastructure | End::Stopped | End::LeaseExpired if job.retracting => {
            Transition::to(State::Scheduled).because(ReasonCode::Retracted)
        }
        End::Error if job.retries < job.retry_limit() => Transition::to(State::Scheduled)
            .charging(Charge::Retry, Wait::Backoff(job.retries))
            .with_reason(ReasonCode::RetryLater, message()),
        End::Error => Transition::to(State::Failed).with_reason(ReasonCode::RetriesExhausted, message()),
        End::Fatal => Transition::to(State::Failed).with_reason(ReasonCode::Fatal, message()),
        End::Infrastructure => infrastructure(job, ReasonCode::RunnerTrouble, message()),
        End::LeaseExpired if job.executor.restarts_free_of_charge() => {
            Transition::to(State::Scheduled).with_reason(ReasonCode::LeaseExpired, message())
        }
        End::LeaseExpired => first_at_once(job, infrastructure(job, ReasonCode::LeaseExpired, message())),
        End::Stopped => Transition::to(State::Scheduled).with_reason(ReasonCode::NodeDrained, message()),
        // No budget, but a backoff: without it shard and runner would loop on dispatch and rejection.
        End::Busy => {
            Transition::to(State::Scheduled).charging(Charge::Nothing, Wait::Backoff(0)).because(ReasonCode::RunnerBusy)
        }
    })
}

/// Whether the attempt was lost with its runner, and no other one was dispatched since. Its result is as good as that of the
/// next one would be.
pub fn is_given_up(job: &Job, attempt: Attempt) -> bool {
    let last = job.last_attempt().filter(|last| last.attempt == attempt && attempt == job.attempt);
    job.state == State::Scheduled && last.is_some_and(|last| last.end.is_none())
}

/// Success, unless the metadata check has quarantined the result or a content scan must come first.
fn succeeded(job: &Job, policy: Option<&OutputDecision>) -> Transition {
    match policy {
        // The content scan redacts the result; until then it is withheld.
        Some(decision) if decision.verdict == OutputVerdict::Redact => Transition::to(State::Scanning),
        Some(decision) if !decision.verdict.lets_pass() => quarantine(decision),
        Some(_) | None if job.hold_until_scanned => Transition::to(State::Scanning),
        Some(_) | None => Transition::to(State::Succeeded),
    }
}

fn quarantine(decision: &OutputDecision) -> Transition {
    let unchecked = decision.rule == UNCHECKED_RULE;
    let code = if unchecked { ReasonCode::OutputUnchecked } else { ReasonCode::OutputQuarantined };
    Transition::to(State::Quarantined).with_reason(code, decision.message.clone())
}

fn lost(job: &Job, attempt: Attempt, fault: Fault, is_gone: bool) -> StepResult {
    check_current(job, attempt)?;
    if job.state == State::Cancelling {
        return Ok(stopped(job));
    }
    if job.retracting {
        return Ok(Transition::to(State::Scheduled).because(ReasonCode::Retracted));
    }
    let message = if is_gone { None } else { lease_message(job) };
    Ok(match fault {
        Fault::NotTheJob => Transition::to(State::Scheduled).with_reason(ReasonCode::RunnerLost, message),
        Fault::Unknown => first_at_once(job, infrastructure(job, ReasonCode::RunnerLost, message)),
    })
}

/// One lost machine is no sign of a bad job: the first time it is placed again at once.
fn first_at_once(job: &Job, transition: Transition) -> Transition {
    match job.infrastructure_failures {
        0 => Transition { wait: Wait::No, ..transition },
        _ => transition,
    }
}

/// What an exclusive job waits for after an attempt that may still run.
fn lease_message(job: &Job) -> Option<String> {
    let last = job.last_attempt()?;
    let lease = last.lease()?;
    let (attempt, runner) = (last.attempt, last.runner);
    Some(format!(
        "the job is exclusive and attempt {attempt} may still run on {runner}: the next one starts when it has ended, or \
         after its lease of {} ms has run out",
        lease.0
    ))
}

/// Retry from the infrastructure budget, or failure if it is used up.
fn infrastructure(job: &Job, code: ReasonCode, message: Option<String>) -> Transition {
    if job.infrastructure_failures < limits::INFRASTRUCTURE_RETRIES_DEFAULT {
        Transition::to(State::Scheduled)
            .charging(Charge::Infrastructure, Wait::Backoff(job.infrastructure_failures))
            .with_reason(code, message)
    } else {
        Transition::to(State::Failed).with_reason(ReasonCode::InfrastructureExhausted, message)
    }
}

/// Terminal state of a stopped job, by the reason of the stop: a timeout or a cancel.
fn stopped(job: &Job) -> Transition {
    let reason = job.reason.clone().unwrap_or_else(|| Reason::new(ReasonCode::CancelRequested));
    let out_of_time = matches!(reason.code, ReasonCode::AttemptTimedOut | ReasonCode::DeadlinePassed);
    let to = if out_of_time { State::TimedOut } else { State::Cancelled };
    Transition::to(to).with_reason(reason.code, reason.message)
}

fn cancel(job: &Job, code: ReasonCode) -> StepResult {
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

fn retract(job: &Job) -> StepResult {
    match job.state {
        State::Dispatched | State::Running if job.retracting => Err(Ignored::Duplicate),
        State::Dispatched | State::Running => Ok(Transition::to(job.state).stopping()),
        // Not in flight: nothing to retract. Not an error, so that retract is idempotent.
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

fn deadline_passed(job: &Job) -> StepResult {
    let because = |transition: Transition| {
        transition.with_reason(ReasonCode::DeadlinePassed, Some("it had not ended by its deadline".to_owned()))
    };
    match job.state {
        State::Pending | State::Blocked | State::ApprovalRequired | State::Scheduled => {
            Ok(because(Transition::to(State::TimedOut)))
        }
        // Timed out only when the runner confirms: until then the attempt has its slot and no retry may run.
        State::Dispatched | State::Running => Ok(because(Transition::to(State::Cancelling)).stopping()),
        // The work has ended or is being stopped: the deadline applies to the work only.
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

fn attempt_timed_out(job: &Job, attempt: Attempt) -> StepResult {
    check_current(job, attempt)?;
    only_in(job, State::Running)?;
    let message = job.runtime_limit().map(|limit| format!("the attempt ran longer than {} ms", limit.0));
    Ok(Transition::to(State::Cancelling).with_reason(ReasonCode::AttemptTimedOut, message).stopping())
}

fn dispatch_timed_out(job: &Job, attempt: Attempt) -> StepResult {
    check_current(job, attempt)?;
    only_in(job, State::Dispatched)?;
    if job.retracting {
        // A retract waits for the runner's confirmation: no two attempts in parallel.
        return Err(Ignored::OutOfOrder);
    }
    let waits = lease_message(job).map(|message| format!("; {message}")).unwrap_or_default();
    let message = Some(format!("the runner never said that it had started{waits}"));
    let mut transition = infrastructure(job, ReasonCode::DispatchTimedOut, message.clone());
    if transition.to == State::Failed {
        transition = Transition::to(State::TimedOut).with_reason(ReasonCode::DispatchTimedOut, message);
    }
    Ok(transition.stopping())
}

fn stop_overdue(job: &Job, attempt: Attempt) -> StepResult {
    check_current(job, attempt)?;
    only_in(job, State::Cancelling)?;
    let ended = stopped(job);
    Ok(match ended.to {
        State::Cancelled => ended.because(ReasonCode::StopOverdue),
        _ => ended,
    })
}

fn scanned(job: &Job, attempt: Attempt, scan: &Scan) -> StepResult {
    if attempt != job.attempt {
        return Err(Ignored::StaleAttempt);
    }
    if was_scanned(job, scan.decision.rule == UNCHECKED_RULE) {
        return Err(if job.state.is_terminal() { Ignored::Terminal } else { Ignored::Duplicate });
    }
    let redacts = scan.decision.verdict == OutputVerdict::Redact;
    // A result that either phase wanted redacted is not shown without a redacted copy.
    let needs_copy = redacts || was_to_be_redacted(job);
    let passes = scan.decision.verdict.lets_pass() && (!needs_copy || scan.redacted.is_some());
    match job.state {
        State::Scanning if !passes => Ok(quarantine(&scan.decision)),
        State::Scanning if redacts => Ok(Transition::to(State::Succeeded).because(ReasonCode::OutputRedacted)),
        State::Scanning => Ok(Transition::to(State::Succeeded)),
        // Reopen transition: quarantine by a content scan.
        State::Succeeded if !passes => Ok(quarantine(&scan.decision)),
        State::Succeeded if redacts => Ok(Transition::to(State::Succeeded).because(ReasonCode::OutputRedacted)),
        // Only the decision is recorded.
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

/// Whether this attempt has a content decision already. A decision without a scan (`UNCHECKED_RULE`) counts only
/// against another one without a scan.
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

/// Reopen transition: release by an operator.
fn release(job: &Job) -> StepResult {
    only_in(job, State::Quarantined)?;
    Ok(Transition::to(State::Succeeded).because(ReasonCode::Released))
}

/// Reopen transition: reschedule by an operator. The policy is evaluated again: it may have changed.
fn reschedule(job: &Job) -> StepResult {
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

fn abandon(job: &Job) -> StepResult {
    if job.state.is_terminal() {
        return Err(Ignored::Terminal);
    }
    let mut transition = Transition::to(State::Abandoned).because(ReasonCode::NodeAbandoned);
    transition.stop = job.state.is_on_runner();
    Ok(transition)
}

/// The state is unchanged. The record of an ended job is final.
fn refund(job: &Job, runner: RunnerId, since: Millis) -> StepResult {
    if job.state.is_terminal() {
        return Err(Ignored::Terminal);
    }
    match job.charged_on(runner, since).next() {
        Some(_) => Ok(Transition::to(job.state)),
        None => Err(Ignored::Duplicate),
    }
}

/// Exponential backoff: doubles from `first` up to `longest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub first: Millis,
    pub longest: Millis,
}

impl Backoff {
    /// Delay after `tries` earlier retries. `spread`, any number, adds a jitter of up to a quarter, so that jobs that
    /// failed together are not retried together.
    pub fn delay(self, tries: u32, spread: u64) -> Millis {
        let doubled = self.first.0.saturating_mul(1 << tries.min(20)).min(self.longest.0);
        Millis(doubled + spread % (doubled / 4 + 1))
    }
}
