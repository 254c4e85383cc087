//! The policy as operators see it, and what it would say of a job.

use std::sync::Arc;

use axum::Json as JsonBody;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::HeaderMap;
use engine::Gate;
use kernel::CheckFacts;
use model::id::JobId;
use model::json::Json;
use model::limits;
use model::spec::JobSpec;
use model::verdict::PolicyVersion;
use model::view::{CheckView, ConstraintsView, DecisionView, PolicyView, RulesView, SpokenView};
use policy::{Explanation, JobFacts, SpokenRule};

use super::actor::actor;
use super::list::Parameters;
use super::problem::{Fault, Refused};
use super::{App, Core, body, submit};
use crate::clock;
use crate::error::Error;

/// Who decides, in the API's words.
const NONE: &str = "none";
const RULES: &str = "rules";
const KERNEL: &str = "kernel";

/// The rule of servers that ask nobody.
const NOBODY_ASKED: &str = "no_policy";

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
    let kernel = policy.kernel().map(|kernel| Json::of(&kernel.status()));
    let mode = match (&rules, &kernel) {
        (Some(_), _) => RULES,
        (None, Some(_)) => KERNEL,
        (None, None) => NONE,
    };
    Ok(JsonBody(PolicyView {
        mode: mode.to_owned(),
        fail_mode: policy.fail_mode().as_str().to_owned(),
        version: version(&core),
        failed_open: policy.failed_open(),
        rules,
        kernel,
    }))
}

/// The rules in force; nothing while a kernel has not said which ones it has.
fn version(core: &Core) -> Option<PolicyVersion> {
    if let Some(kernel) = core.policy.kernel() {
        return kernel.policy_version();
    }
    match core.policy.setup().gate {
        Gate::Open => None,
        Gate::Policy(version) => Some(version),
    }
}

/// Nothing is submitted, and nothing is remembered.
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
    // As with a submit: which queue it is in is no part of what is decided about.
    spec.queue = None;
    let submitter = actor(&headers)?;
    if let Some(rules) = core.policy.rules().map(|rules| rules.rules()) {
        let explain = move || {
            rules.explain(&JobFacts { spec: &spec, submitter: submitter.as_deref(), queue: None }, clock::now())
        };
        let explained = tokio::task::spawn_blocking(explain).await;
        return Ok(JsonBody(check_view(explained.map_err(|error| Error::Panicked(error.to_string()))?)));
    }
    let Some(kernel) = core.policy.kernel() else { return Ok(JsonBody(by_nobody())) };
    let facts = CheckFacts::of(JobId(0), &spec, submitter.as_deref(), clock::now());
    let explained = kernel.explain(&facts).await;
    let explained =
        explained.map_err(|unavailable| Refused::saying(Fault::PolicyUnavailable, unavailable.to_string()))?;
    let DecisionView { verdict, rule, message, policy, constraints, until, .. } =
        DecisionView::from(&explained.checked.decision);
    let (mode, spoke) = (KERNEL.to_owned(), Vec::new());
    Ok(JsonBody(CheckView { mode, verdict, rule, message, until, constraints, policy, spoke, trace: explained.trace }))
}

/// What rules have said, as the API shows it.
pub fn check_view(explained: Explanation) -> CheckView {
    let Explanation { policy, verdict, rule, message, until, constraints, keep_original: _, spoke, printed } =
        explained;
    CheckView {
        mode: RULES.to_owned(),
        verdict: verdict.to_owned(),
        rule,
        message,
        until,
        constraints: constraints.map(constraints_view),
        policy: Some(policy),
        spoke: spoke.into_iter().map(spoken_view).collect(),
        trace: printed,
    }
}

fn by_nobody() -> CheckView {
    CheckView {
        mode: NONE.to_owned(),
        verdict: "allow".to_owned(),
        rule: NOBODY_ASKED.to_owned(),
        message: Some("this server asks no policy: every job may run".to_owned()),
        until: None,
        constraints: None,
        policy: None,
        spoke: Vec::new(),
        trace: Vec::new(),
    }
}

fn spoken_view(said: SpokenRule) -> SpokenView {
    let SpokenRule { verdict, rule, reason, for_ms, constraints } = said;
    SpokenView { verdict: verdict.to_owned(), rule, reason, for_ms, constraints: constraints.map(constraints_view) }
}

fn constraints_view(constraints: policy::ConstraintsView) -> ConstraintsView {
    let policy::ConstraintsView { max_runtime_ms, max_retries, max_artifact_bytes, max_concurrent, sandbox, network } =
        constraints;
    ConstraintsView { max_runtime_ms, max_retries, max_artifact_bytes, max_concurrent, sandbox, network }
}
