//! The policy: state and checks of jobs.

use std::sync::Arc;

use ::api::{CheckView, DecisionView, PolicyView, RuleVerdictView, RulesView};
use axum::Json as JsonBody;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::HeaderMap;
use engine::PolicyMode;
use model::id::JobId;
use model::json::Json;
use model::limits;
use model::spec::JobSpec;
use model::verdict::PolicyVersion;
use policy::{Explanation, JobFacts, RuleVerdict};
use policy_service::CheckFacts;

use super::actor::actor;
use super::blocking::blocking;
use super::parameters::Parameters;
use super::problem::{ProblemKind, Refused};
use super::{App, Core, body, submit};
use crate::clock;

/// Names of policy backends in the API.
const NONE: &str = "none";
const RULES: &str = "rules";
const SERVICE: &str = "kernel";

/// Rule of decisions without a policy.
const NO_POLICY: &str = "no_policy";

pub(crate) async fn show(Shared(app): Shared<Arc<App>>, _: Parameters) -> Result<JsonBody<PolicyView>, Refused> {
    let core = app.core()?;
    let policy = &core.policy;
    let rules = policy.rules().map(|rules| {
        let status = rules.status();
        RulesView {
            directory: status.directory.display().to_string(),
            files: status.files,
            loaded_at: status.loaded_at,
            error: status.error,
            cacheable: status.cacheable,
            reads: status.reads,
            has_output_rules: status.has_output_rules,
        }
    });
    let service = policy.service().map(|service| Json::of(&service.status()));
    let mode = match (&rules, &service) {
        (Some(_), _) => RULES,
        (None, Some(_)) => SERVICE,
        (None, None) => NONE,
    };
    Ok(JsonBody(PolicyView {
        mode: mode.to_owned(),
        fail_mode: policy.fail_mode().as_str().to_owned(),
        version: version(&core),
        failed_open: policy.failed_open(),
        rules,
        service,
    }))
}

/// Version of the policy in force. None until the policy service has answered once.
fn version(core: &Core) -> Option<PolicyVersion> {
    if let Some(service) = core.policy.service() {
        return service.policy_version();
    }
    match core.policy.settings().policy {
        PolicyMode::Disabled => None,
        PolicyMode::Enforced(version) => Some(version),
    }
}

/// Checks a job without submitting it. The decision is not cached.
pub(crate) async fn check(
    Shared(app): Shared<Arc<App>>,
    headers: HeaderMap,
    _: Parameters,
    request_body: Body,
) -> Result<JsonBody<CheckView>, Refused> {
    let core = app.core()?;
    body::expect_json(&headers)?;
    let bytes = body::read(request_body, limits::JOB_BODY_BYTES_MAX).await?;
    let mut spec: JobSpec = body::parse(&bytes)?;
    submit::check(&app, &spec)?;
    // As in a submit: the policy does not see the queue.
    spec.queue = None;
    let submitter = actor(&headers)?;
    if let Some(rules) = core.policy.rules().map(|rules| rules.rules()) {
        let explain = move || {
            rules.explain(&JobFacts { spec: &spec, submitter: submitter.as_deref(), queue: None }, clock::now())
        };
        return Ok(JsonBody(check_view(blocking(move || Ok(explain())).await?)));
    }
    let Some(service) = core.policy.service() else { return Ok(JsonBody(without_policy())) };
    let facts = CheckFacts::of(JobId(0), &spec, submitter.as_deref(), clock::now());
    let explained = service.explain(&facts).await;
    let explained =
        explained.map_err(|unavailable| Refused::detailed(ProblemKind::PolicyUnavailable, unavailable.to_string()))?;
    let DecisionView { verdict, rule, message, policy, constraints, until, .. } =
        DecisionView::from(&explained.check.decision);
    let (mode, spoke) = (SERVICE.to_owned(), Vec::new());
    Ok(JsonBody(CheckView { mode, verdict, rule, message, until, constraints, policy, spoke, trace: explained.trace }))
}

/// View of an explanation.
pub fn check_view(explained: Explanation) -> CheckView {
    let Explanation { policy, verdict, rule, message, until, constraints, keep_original: _, rule_verdicts, printed } =
        explained;
    CheckView {
        mode: RULES.to_owned(),
        verdict: verdict.to_owned(),
        rule,
        message,
        until,
        constraints,
        policy: Some(policy),
        spoke: rule_verdicts.into_iter().map(rule_verdict_view).collect(),
        trace: printed,
    }
}

fn without_policy() -> CheckView {
    CheckView {
        mode: NONE.to_owned(),
        verdict: "allow".to_owned(),
        rule: NO_POLICY.to_owned(),
        message: Some("this server has no policy: all jobs are allowed".to_owned()),
        until: None,
        constraints: None,
        policy: None,
        spoke: Vec::new(),
        trace: Vec::new(),
    }
}

fn rule_verdict_view(rule_verdict: RuleVerdict) -> RuleVerdictView {
    let RuleVerdict { verdict, rule, reason, for_ms, constraints } = rule_verdict;
    RuleVerdictView { verdict: verdict.to_owned(), rule, reason, for_ms, constraints }
}
