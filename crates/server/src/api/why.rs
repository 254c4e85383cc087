//! Explanations of the state and placement of a job.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::api::{PlacedView, RunnerWhyView, WaitsForView, WhyView};
use axum::Json as JsonBody;
use axum::extract::State as Shared;
use engine::{Refusal, RunnerVerdict, RunnerWhy, WaitsFor, Why, WhyCounts};
use model::id::{NodeId, RunnerId};
use model::job::Job;
use model::node::NodeDecisions;
use model::reason::ReasonCode;
use model::state::State;
use model::time::{Millis, Timestamp};
use model::verdict::Verdict;

use super::parameters::Parameters;
use super::path::Path;
use super::problem::Refused;
use super::{App, jobs};
use crate::request::{Explain, RequestError};

pub(crate) async fn why(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    _: Parameters,
) -> Result<JsonBody<WhyView>, Refused> {
    let core = app.core()?;
    let id = jobs::parse_id(&id)?;
    let mut shown = view(&core.read(move |core| jobs::load(core, id)).await?, app.approval_expiry);
    if !shown.state.is_terminal() {
        match core.inbox_of(id).request(Explain { job: id }).await {
            Ok(why) => {
                add_runners(&mut shown, *why);
                if shown.runner_counts["cordoned"] > 0 {
                    let decisions = core.nodes.read();
                    add_cordons(&mut shown, &decisions);
                }
            }
            // The job has ended since it was loaded.
            Err(RequestError::Refused(Refusal::UnknownJob(_))) => {
                shown = view(&core.read(move |core| jobs::load(core, id)).await?, app.approval_expiry);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(JsonBody(shown))
}

/// Adds what only the shard knows: the fitness of the runners now.
fn add_runners(shown: &mut WhyView, why: Why) {
    shown.waits_for = waits_for(why.waits_for);
    if let Some(waits_for) = &shown.waits_for {
        shown.explanation.insert(1, format!("{}.", waits_for.message));
    }
    shown.dispatch_tries = why.tries;
    shown.dispatch_tries_max = Some(why.tries_max);
    let WhyCounts {
        other_pool,
        lack_capability,
        other_label,
        cordoned,
        disconnected,
        full,
        overloaded,
        failed_before,
        eligible,
    } = why.counts;
    shown.runner_counts = [
        ("other_pool", other_pool),
        ("lack_capability", lack_capability),
        ("other_label", other_label),
        ("cordoned", cordoned),
        ("disconnected", disconnected),
        ("full", full),
        ("overloaded", overloaded),
        ("failed_before", failed_before),
        ("fit", eligible),
    ]
    .map(|(name, count)| (name.to_owned(), count))
    .into();
    shown.runners = why.runners.into_iter().map(runner).collect();
}

/// Adds why runners are cordoned.
fn add_cordons(shown: &mut WhyView, decisions: &NodeDecisions) {
    for runner in shown.runners.iter_mut().filter(|runner| runner.verdict == "cordoned") {
        let node = runner.runner.parse::<RunnerId>().ok().map(|runner| NodeId(runner.0));
        let reason = node.and_then(|node| decisions.cordoned.get(&node)?.reason.clone());
        if let (Some(message), Some(reason)) = (&mut runner.message, reason) {
            *message = format!("{message}: {reason}");
        }
    }
}

fn waits_for(waits_for: WaitsFor) -> Option<WaitsForView> {
    let (kind, message) = match waits_for {
        WaitsFor::Nothing(_) => return None,
        WaitsFor::Time(at) => ("time", format!("The job is not tried again before {}", Timestamp(at))),
        WaitsFor::Lease { runner, until } => {
            let until = Timestamp(until);
            let what = "The job is exclusive, and its last attempt may still run on";
            (
                "lease",
                format!(
                    "{what} {runner}: the next one starts when it has ended, or when its lease has run out, at {until}"
                ),
            )
        }
        WaitsFor::Runner { code, message } => {
            ("runner", format!("No runner can take the job ({}): {message}", code.as_str()))
        }
        WaitsFor::TenantLimit { max_running } => {
            ("tenant_limit", format!("The tenant is at its limit of {max_running} running jobs"))
        }
        WaitsFor::QueueLimit { max_running: Some(max) } => {
            ("queue_limit", format!("The queue is at its limit of {max} running jobs"))
        }
        WaitsFor::QueueLimit { max_running: None } => ("queue_limit", "The queue is cancelled".to_owned()),
        WaitsFor::ConcurrencyLimit { rule, limit } => {
            ("concurrency_limit", format!("The rule {rule} is at its limit of {limit} running jobs"))
        }
        WaitsFor::FreeSlot { ahead } => {
            ("turn", format!("All eligible runners are busy, and {ahead} jobs of the queue are ahead"))
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
            ("other_label", Some(format!("the label {label} must be {wanted}; the runner {has}")))
        }
        RunnerVerdict::Cordoned => ("cordoned", Some("receives no jobs until it is uncordoned".to_owned())),
        RunnerVerdict::Disconnected => ("disconnected", Some("receives no jobs until it is connected".to_owned())),
        RunnerVerdict::Full => ("full", None),
        RunnerVerdict::Overloaded { excluded: true } => ("overloaded", Some("receives no jobs".to_owned())),
        RunnerVerdict::Overloaded { excluded: false } => {
            ("overloaded", Some("used only if there is no other".to_owned()))
        }
        RunnerVerdict::FailedBefore => ("failed_before", Some("used only if there is no other".to_owned())),
        RunnerVerdict::Eligible => ("fit", None),
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

/// Explanation of the record, in sentences.
fn explanation(job: &Job, approval_expiry: Millis) -> Vec<String> {
    let mut sentences = vec![of_state(job, approval_expiry)];
    if let Some(reason) = &job.reason {
        let message = reason.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        sentences.push(format!("The reason code is {}{message}.", reason.code.as_str()));
    }
    if let Some(decision) = job.last_decision().filter(|decision| !decision.rule.is_empty()) {
        let verdict = match &decision.verdict {
            Verdict::Allow => "allows the job",
            Verdict::AllowWith(_) => "allows the job with constraints",
            Verdict::RequireApproval => "requires an approval",
            Verdict::Deny => "denies the job",
            Verdict::Throttle(_) => "throttles the job",
        };
        let message = decision.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        sentences.push(format!("The rule {} {verdict}{message}.", decision.rule));
    }
    if let Some(approval) = &job.approval {
        let by = if approval.by.is_empty() { "An unknown person" } else { &approval.by };
        let did = if approval.approved { "approved" } else { "rejected" };
        let comment = approval.comment.as_ref().map(|comment| format!(": {comment}")).unwrap_or_default();
        sentences.push(format!("{by} {did} the job{comment}."));
    }
    if let Some(decision) = job.output_decisions().last() {
        let message = decision.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        sentences.push(format!(
            "The verdict of the rule {} on the result is {}{message}.",
            decision.rule,
            decision.verdict.as_str()
        ));
    }
    if job.dispatch_tries > 0 {
        sentences.push(format!("Dispatch tries without an eligible runner: {}.", job.dispatch_tries));
    }
    sentences
}

/// Explanation of the state.
fn of_state(job: &Job, approval_expiry: Millis) -> String {
    let next = Timestamp(job.eligible_at);
    let waits_for = |code: ReasonCode| job.reason.as_ref().is_some_and(|reason| reason.code == code);
    match job.state {
        State::Pending if waits_for(ReasonCode::Throttled) => {
            format!("The job is throttled: the next policy check is at {next}.")
        }
        State::Pending if waits_for(ReasonCode::PolicyUnavailable) => {
            format!("The policy was unavailable: the next policy check is at {next}.")
        }
        State::Pending => "The job waits for its policy check.".to_owned(),
        State::Blocked => format!("The job is blocked until {next}."),
        State::ApprovalRequired => {
            format!("The job waits for an approval until {}.", Timestamp(job.since() + approval_expiry))
        }
        State::Scheduled if job.eligible_at > job.since() => format!("The next search for a runner is at {next}."),
        State::Scheduled => "The job waits for a runner with a free slot.".to_owned(),
        State::Dispatched => "The job is dispatched to a runner, which has not started it yet.".to_owned(),
        State::Running => "The job is running.".to_owned(),
        State::Cancelling => "The job is being cancelled: its runner has not confirmed the stop yet.".to_owned(),
        State::Scanning => "The job has succeeded, and its result is being scanned before it is shown.".to_owned(),
        State::Succeeded => "The job has succeeded.".to_owned(),
        State::Failed => "The job has failed.".to_owned(),
        State::TimedOut => "The job has timed out.".to_owned(),
        State::Cancelled => "The job was cancelled.".to_owned(),
        State::Denied => "The job was denied and never ran.".to_owned(),
        State::Quarantined => "The job has succeeded, and the policy quarantined its result.".to_owned(),
        State::Abandoned => "The job was abandoned because its node was given up.".to_owned(),
    }
}
