//! Validation of answers of the policy service.
//!
//! The service may be broken, older, newer or hostile. An answer that violates the protocol in any way is an
//! [`InvalidAnswer`], and never allows anything.

use model::limits as model_limits;
use model::spec::Sandbox;
use model::time::Millis;
use model::verdict::{Constraints, Decision, OutputDecision, OutputVerdict, Verdict};

use crate::limits;
use crate::proto;

/// Rule of a job that was denied, or a result that was quarantined, for lack of a valid answer.
pub const POLICY_ERROR: &str = "policy_error";

/// Answer to [`crate::Client::check`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckResult {
    pub decision: Decision,
    /// The `policy_version` of the answer.
    pub service_version: String,
    /// The decision is not the service's: its answer was invalid or INVALID_ARGUMENT, or the job was too large to send.
    /// The rule is then [`POLICY_ERROR`] and the verdict a denial.
    pub error: bool,
}

/// Answer to [`crate::Client::check_output`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputCheckResult {
    pub decision: OutputDecision,
    /// With [`OutputVerdict::Redact`]: the original is stored for operators.
    pub keep_original: bool,
    pub service_version: String,
    /// As in [`CheckResult`]. The verdict is then [`OutputVerdict::Quarantine`], so that an operator can release it.
    pub error: bool,
}

/// Answer to [`crate::Client::explain`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainResult {
    pub check: CheckResult,
    /// At most [`limits::TRACE_LINES_MAX`] lines.
    pub trace: Vec<String>,
}

/// Why an answer is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidAnswer(String);

/// A valid answer, without time and version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ValidAnswer<V> {
    pub(crate) verdict: V,
    pub(crate) rule: String,
    pub(crate) message: Option<String>,
}

/// Verdict on a job, and the constraints that apply after its approval.
pub(crate) type JobVerdict = (Verdict, Option<Box<Constraints>>);

pub(crate) fn parse_check(answer: proto::CheckResponse) -> Result<ValidAnswer<JobVerdict>, InvalidAnswer> {
    let decision = proto::Decision::try_from(answer.decision);
    let number = answer.decision;
    let constraints = answer.constraints.as_ref().map(parse_constraints).transpose()?;
    let verdict = match decision {
        Err(_) => return Err(InvalidAnswer(format!("unknown decision {number}"))),
        Ok(proto::Decision::Unspecified) => return Err(InvalidAnswer("no decision".to_owned())),
        Ok(proto::Decision::Allow) => Verdict::Allow,
        Ok(proto::Decision::AllowWithConstraints) => {
            Verdict::AllowWith(constraints.clone().ok_or_else(|| InvalidAnswer("no constraints".to_owned()))?)
        }
        Ok(proto::Decision::RequireApproval) => Verdict::RequireApproval,
        Ok(proto::Decision::Deny) => Verdict::Deny,
        Ok(proto::Decision::Throttle) => match Millis(answer.throttle_for_ms) {
            Millis(0) => Verdict::Throttle(limits::THROTTLE_DEFAULT),
            time => Verdict::Throttle(Millis(at_most("throttle_for_ms", time.0, limits::THROTTLE_MAX.0)?)),
        },
    };
    // "Allow" with constraints is invalid: the job would run without them.
    let after_approval = match (&verdict, constraints) {
        (_, None) | (Verdict::AllowWith(_), Some(_)) => None,
        (Verdict::RequireApproval, Some(constraints)) => Some(Box::new(constraints)),
        (Verdict::Allow | Verdict::Deny | Verdict::Throttle(_), Some(_)) => {
            return Err(InvalidAnswer(format!("constraints with the decision {}", verdict.as_str())));
        }
    };
    if answer.throttle_for_ms != 0 && !matches!(verdict, Verdict::Throttle(_)) {
        return Err(InvalidAnswer(format!("throttle_for_ms with the decision {}", verdict.as_str())));
    }
    parse_texts((verdict, after_approval), answer.rule, answer.reason)
}

pub(crate) fn parse_output(
    answer: proto::CheckOutputResponse,
) -> Result<ValidAnswer<(OutputVerdict, bool)>, InvalidAnswer> {
    let decision = proto::OutputDecision::try_from(answer.decision);
    let number = answer.decision;
    let verdict = match decision {
        Err(_) => return Err(InvalidAnswer(format!("unknown decision {number}"))),
        Ok(proto::OutputDecision::Unspecified) => return Err(InvalidAnswer("no decision".to_owned())),
        Ok(proto::OutputDecision::Allow) => OutputVerdict::Allow,
        Ok(proto::OutputDecision::Quarantine) => OutputVerdict::Quarantine,
        Ok(proto::OutputDecision::Deny) => OutputVerdict::Deny,
        Ok(proto::OutputDecision::Redact) => OutputVerdict::Redact,
    };
    if answer.keep_original && verdict != OutputVerdict::Redact {
        return Err(InvalidAnswer(format!("keep_original with the decision {}", verdict.as_str())));
    }
    parse_texts((verdict, answer.keep_original), answer.rule, answer.reason)
}

/// May be empty.
pub(crate) fn parse_version(version: &str) -> Result<&str, InvalidAnswer> {
    check_text("policy_version", version, limits::VERSION_BYTES_MAX)?;
    Ok(version)
}

pub(crate) fn truncate_trace(trace: Vec<String>) -> Vec<String> {
    trace.into_iter().take(limits::TRACE_LINES_MAX).map(model::reason::cut).collect()
}

fn parse_texts<V>(verdict: V, rule: String, reason: String) -> Result<ValidAnswer<V>, InvalidAnswer> {
    if rule.is_empty() {
        return Err(InvalidAnswer("no rule".to_owned()));
    }
    check_text("rule", &rule, model_limits::NAME_BYTES_MAX)?;
    if reason.len() > model_limits::MESSAGE_BYTES_MAX {
        return Err(InvalidAnswer(too_long("reason", reason.len(), model_limits::MESSAGE_BYTES_MAX)));
    }
    Ok(ValidAnswer { verdict, rule, message: (!reason.is_empty()).then_some(reason) })
}

fn parse_constraints(given: &proto::Constraints) -> Result<Constraints, InvalidAnswer> {
    let sandbox = match proto::Sandbox::try_from(given.sandbox) {
        Err(_) => return Err(InvalidAnswer(format!("unknown sandbox {}", given.sandbox))),
        Ok(proto::Sandbox::Unspecified) => None,
        Ok(proto::Sandbox::Strict) => Some(Sandbox::Strict),
        Ok(proto::Sandbox::Standard) => Some(Sandbox::Standard),
        Ok(proto::Sandbox::None) => Some(Sandbox::None),
    };
    let runtime = |time| at_least_one("max_runtime_ms", at_most("max_runtime_ms", time, model_limits::DURATION_MAX.0)?);
    let retries = |count| at_most("max_retries", count, model_limits::RETRIES_MAX);
    let bytes = |count| at_most("max_artifact_bytes", count, model_limits::OUTPUT_LIMIT_BYTES_MAX);
    let jobs = |count| at_least_one("max_concurrent", at_most("max_concurrent", count, limits::CONCURRENT_MAX)?);
    let constraints = Constraints {
        max_runtime: given.max_runtime_ms.map(runtime).transpose()?.map(Millis),
        max_retries: given.max_retries.map(retries).transpose()?,
        max_artifact_bytes: given.max_artifact_bytes.map(bytes).transpose()?,
        max_concurrent: given.max_concurrent.map(jobs).transpose()?,
        sandbox,
        network: given.network,
    };
    // A newer service may send constraints that this version does not know.
    if constraints == Constraints::default() {
        return Err(InvalidAnswer("no known constraint".to_owned()));
    }
    Ok(constraints)
}

fn at_most<N: PartialOrd + std::fmt::Display>(name: &str, number: N, most: N) -> Result<N, InvalidAnswer> {
    if number > most {
        return Err(InvalidAnswer(format!("{name} is {number}; the maximum is {most}")));
    }
    Ok(number)
}

fn at_least_one<N: PartialOrd + From<u8>>(name: &str, number: N) -> Result<N, InvalidAnswer> {
    if number < N::from(1) {
        return Err(InvalidAnswer(format!("{name} is 0: the job could never run")));
    }
    Ok(number)
}

/// Checks a text that goes into records and logs unchanged.
fn check_text(name: &str, text: &str, bytes_max: usize) -> Result<(), InvalidAnswer> {
    if text.len() > bytes_max {
        return Err(InvalidAnswer(too_long(name, text.len(), bytes_max)));
    }
    if text.chars().any(char::is_control) {
        return Err(InvalidAnswer(format!("{name} has control characters")));
    }
    Ok(())
}

fn too_long(name: &str, bytes: usize, bytes_max: usize) -> String {
    format!("{name} has {bytes} bytes; the maximum is {bytes_max}")
}

#[cfg(test)]
mod tests;
