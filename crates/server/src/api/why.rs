//! Why a job is where it is, for people and for programs.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json as JsonBody;
use axum::extract::State as Shared;
use engine::{Answer, Input, Refusal, RunnerVerdict, RunnerWhy, WaitsFor, Why, WhyCounts};
use model::job::Job;
use model::reason::ReasonCode;
use model::state::State;
use model::time::{Millis, Timestamp};
use model::verdict::Verdict;
use model::view::{PlacedView, RunnerWhyView, WaitsForView, WhyView};

use super::list::Parameters;
use super::path::Path;
use super::problem::{Fault, Refused};
use super::{App, jobs};

pub(crate) async fn why(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    _: Parameters,
) -> Result<JsonBody<WhyView>, Refused> {
    let core = app.core()?;
    let id = jobs::parse_id(&id)?;
    let mut shown = view(&jobs::load(&core, id)?, app.approval_expiry);
    if !shown.state.is_terminal() {
        match core.inbox_of(id).ask(|request| Input::Explain { request, job: id }).await? {
            Answer::Why(why) => add_runners(&mut shown, *why),
            // It has ended meanwhile.
            Answer::Refused(Refusal::UnknownJob(_)) => shown = view(&jobs::load(&core, id)?, app.approval_expiry),
            Answer::Refused(refusal) => return Err(refusal.into()),
            _ => return Err(Refused::new(Fault::Internal)),
        }
    }
    Ok(JsonBody(shown))
}

/// Adds what only the shard knows: how it stands with the runners right now.
fn add_runners(shown: &mut WhyView, why: Why) {
    shown.waits_for = waits_for(why.waits_for);
    if let Some(waits_for) = &shown.waits_for {
        shown.explanation.insert(1, format!("{}.", waits_for.message));
    }
    shown.dispatch_tries = why.tries;
    shown.dispatch_tries_max = Some(why.tries_max);
    let WhyCounts { other_pool, lack_capability, other_label, full, overloaded, failed_before, fit } = why.counts;
    shown.runner_counts = [
        ("other_pool", other_pool),
        ("lack_capability", lack_capability),
        ("other_label", other_label),
        ("full", full),
        ("overloaded", overloaded),
        ("failed_before", failed_before),
        ("fit", fit),
    ]
    .map(|(name, count)| (name.to_owned(), count))
    .into();
    shown.runners = why.runners.into_iter().map(runner).collect();
}

fn waits_for(waits_for: WaitsFor) -> Option<WaitsForView> {
    let (kind, message) = match waits_for {
        WaitsFor::Nothing(_) => return None,
        WaitsFor::Time(at) => ("time", format!("It is not tried again before {}", Timestamp(at))),
        WaitsFor::Runner { code, message } => {
            ("runner", format!("No runner can take it ({}): {message}", code.as_str()))
        }
        WaitsFor::TenantLimit { max_running } => {
            ("tenant_limit", format!("Its tenant has {max_running} jobs with runners, which is its limit"))
        }
        WaitsFor::QueueLimit { max_running: Some(max) } => {
            ("queue_limit", format!("Its queue has {max} jobs with runners, which is its limit"))
        }
        WaitsFor::QueueLimit { max_running: None } => ("queue_limit", "Its queue is cancelled".to_owned()),
        WaitsFor::ConcurrencyLimit { rule, limit } => (
            "concurrency_limit",
            format!("{limit} jobs that the rule {rule} allows are with runners, which is its limit"),
        ),
        WaitsFor::Turn { ahead } => {
            ("turn", format!("All runners that are fit for it are busy, and {ahead} jobs of its queue go first"))
        }
    };
    Some(WaitsForView { kind: kind.to_owned(), message })
}

fn runner(why: RunnerWhy) -> RunnerWhyView {
    let (verdict, message) = match why.verdict {
        RunnerVerdict::OtherPool => ("other_pool", None),
        RunnerVerdict::LackCapability { missing } => ("lack_capability", Some(format!("lacks {}", missing.join(", ")))),
        RunnerVerdict::OtherLabel { label, wanted, has } => {
            let has = has.map_or_else(|| "has none".to_owned(), |has| format!("has {has}"));
            ("other_label", Some(format!("{label} should be {wanted}, and it {has}")))
        }
        RunnerVerdict::Full => ("full", None),
        RunnerVerdict::Overloaded { spared: true } => ("overloaded", Some("gets nothing".to_owned())),
        RunnerVerdict::Overloaded { spared: false } => ("overloaded", Some("gets it if no other does".to_owned())),
        RunnerVerdict::FailedBefore => ("failed_before", Some("gets it if no other does".to_owned())),
        RunnerVerdict::Fit => ("fit", None),
    };
    let score = why.score_milli as f64 / 1000.0;
    RunnerWhyView { runner: why.runner.to_string(), score, verdict: verdict.to_owned(), message }
}

fn view(job: &Job, approval_expiry: Millis) -> WhyView {
    let waits = !job.state.is_terminal() && job.eligible_at > job.created_at;
    WhyView {
        id: job.id,
        state: job.state,
        since: Timestamp(job.since()),
        reason: job.reason.as_ref().map(|reason| reason.code.as_str().to_owned()),
        message: job.reason.as_ref().and_then(|reason| reason.message.clone()),
        eligible_at: waits.then_some(Timestamp(job.eligible_at)),
        dispatch_tries: job.dispatch_tries,
        dispatch_tries_max: None,
        waits_for: None,
        runners: Vec::new(),
        runner_counts: BTreeMap::new(),
        explanation: explanation(job, approval_expiry),
        decisions: job.decisions.iter().map(Into::into).collect(),
        approval: job.approval.as_deref().map(Into::into),
        output_decisions: job.output_decisions().iter().map(Into::into).collect(),
        placements: job
            .attempts
            .iter()
            .map(|attempt| PlacedView {
                attempt: attempt.attempt,
                runner: attempt.runner.to_string(),
                placement: attempt.placement.as_deref().map(Into::into),
            })
            .collect(),
    }
}

/// What the record says, in sentences.
fn explanation(job: &Job, approval_expiry: Millis) -> Vec<String> {
    let mut sentences = vec![of_state(job, approval_expiry)];
    if let Some(reason) = &job.reason {
        let message = reason.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        sentences.push(format!("The reason is {}{message}.", reason.code.as_str()));
    }
    if let Some(decision) = job.last_decision().filter(|decision| !decision.rule.is_empty()) {
        let said = match &decision.verdict {
            Verdict::Allow => "lets it run",
            Verdict::AllowWith(_) => "lets it run within limits",
            Verdict::RequireApproval => "wants somebody's approval",
            Verdict::Deny => "denies it",
            Verdict::Throttle(_) => "lets it wait",
        };
        let message = decision.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        sentences.push(format!("The rule {} {said}{message}.", decision.rule));
    }
    if let Some(approval) = &job.approval {
        let by = if approval.by.is_empty() { "Somebody" } else { &approval.by };
        let did = if approval.approved { "approved" } else { "rejected" };
        let comment = approval.comment.as_ref().map(|comment| format!(": {comment}")).unwrap_or_default();
        sentences.push(format!("{by} has {did} it{comment}."));
    }
    if let Some(decision) = job.output_decisions().last() {
        let message = decision.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        sentences.push(format!(
            "Of its result the rule {} says {}{message}.",
            decision.rule,
            decision.verdict.as_str()
        ));
    }
    if job.dispatch_tries > 0 {
        sentences.push(format!("It was looked for a runner {} times when none was fit for it.", job.dispatch_tries));
    }
    sentences
}

/// What its state means for it.
fn of_state(job: &Job, approval_expiry: Millis) -> String {
    let next = Timestamp(job.eligible_at);
    let waits_for = |code: ReasonCode| job.reason.as_ref().is_some_and(|reason| reason.code == code);
    match job.state {
        State::Pending if waits_for(ReasonCode::Throttled) => format!("The policy is asked about it again at {next}."),
        State::Pending if waits_for(ReasonCode::PolicyUnavailable) => {
            format!("The policy could not be asked about it, and is asked again at {next}.")
        }
        State::Pending => "It waits for the policy's word.".to_owned(),
        State::Blocked => format!("Its time has not come: that is at {next}."),
        State::ApprovalRequired => {
            format!("It waits for somebody's approval until {}.", Timestamp(job.since() + approval_expiry))
        }
        State::Scheduled if job.eligible_at > job.since() => format!("It is looked for a runner again at {next}."),
        State::Scheduled => "It waits for a runner with room for it.".to_owned(),
        State::Dispatched => "It was given to a runner, which has not started it yet.".to_owned(),
        State::Running => "It runs.".to_owned(),
        State::Cancelling => "Its runner was asked to stop it and has not said yet that it has.".to_owned(),
        State::Scanning => "It has succeeded, and its result is being looked at before anybody gets it.".to_owned(),
        State::Succeeded => "It has succeeded.".to_owned(),
        State::Failed => "It has failed.".to_owned(),
        State::TimedOut => "Its time was up.".to_owned(),
        State::Cancelled => "It was cancelled.".to_owned(),
        State::Denied => "It was denied, and never ran.".to_owned(),
        State::Quarantined => "It has succeeded, and the policy keeps its result from everybody.".to_owned(),
        State::Abandoned => "Its node was given up.".to_owned(),
    }
}
