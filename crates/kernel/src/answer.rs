//! What the kernel has said, taken for no more than it is.
//!
//! An answer comes from a program that may be broken, older, newer or hostile. Whatever is not exactly as the protocol
//! says is [`Nonsense`], and nonsense lets nothing pass.

use model::limits as model_limits;
use model::spec::Sandbox;
use model::time::Millis;
use model::verdict::{Constraints, Decision, OutputDecision, OutputVerdict, Verdict};

use crate::limits;
use crate::proto;

/// The rule under which a job is denied, or a result quarantined, because the kernel's answer cannot be used.
pub const POLICY_ERROR: &str = "policy_error";

/// The kernel's answer about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    pub decision: Decision,
    /// The kernel's own word for the version of its rules.
    pub kernel_version: String,
    /// The decision is not the kernel's: its answer could not be used, or it refused the question, or the job was too
    /// large to ask about. The rule is then [`POLICY_ERROR`] and the verdict a denial.
    pub error: bool,
}

/// The kernel's answer about a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedOutput {
    pub decision: OutputDecision,
    /// With [`OutputVerdict::Redact`]: the result as it was is kept for operators.
    pub keep_original: bool,
    pub kernel_version: String,
    /// As in [`Checked`]; the verdict is then [`OutputVerdict::Quarantine`], so that an operator can still release it.
    pub error: bool,
}

/// The kernel's answer to a person who wants to know why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    pub checked: Checked,
    /// Line by line; at most [`limits::TRACE_LINES_MAX`].
    pub trace: Vec<String>,
}

/// Why an answer cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Nonsense(String);

/// An answer that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ruling<V> {
    pub(crate) verdict: V,
    pub(crate) rule: String,
    pub(crate) message: Option<String>,
}

/// What is said about a job: the verdict, and what limits the job once a person has approved it.
pub(crate) type JobVerdict = (Verdict, Option<Box<Constraints>>);

pub(crate) fn read_check(answer: proto::CheckResponse) -> Result<Ruling<JobVerdict>, Nonsense> {
    let decision = proto::Decision::try_from(answer.decision);
    let number = answer.decision;
    let constraints = answer.constraints.as_ref().map(read_constraints).transpose()?;
    let verdict = match decision {
        Err(_) => return Err(Nonsense(format!("its decision is {number}, which means nothing"))),
        Ok(proto::Decision::Unspecified) => return Err(Nonsense("it has no decision".to_owned())),
        Ok(proto::Decision::Allow) => Verdict::Allow,
        Ok(proto::Decision::AllowWithConstraints) => {
            Verdict::AllowWith(constraints.clone().ok_or_else(|| Nonsense("it has no constraints".to_owned()))?)
        }
        Ok(proto::Decision::RequireApproval) => Verdict::RequireApproval,
        Ok(proto::Decision::Deny) => Verdict::Deny,
        Ok(proto::Decision::Throttle) => match Millis(answer.throttle_for_ms) {
            Millis(0) => Verdict::Throttle(limits::THROTTLE_DEFAULT),
            time => Verdict::Throttle(Millis(at_most("throttle_for_ms", time.0, limits::THROTTLE_MAX.0)?)),
        },
    };
    // An "allow" with constraints would let a job run without them: better to believe that the kernel errs.
    let after_approval = match (&verdict, constraints) {
        (_, None) | (Verdict::AllowWith(_), Some(_)) => None,
        (Verdict::RequireApproval, Some(constraints)) => Some(Box::new(constraints)),
        (Verdict::Allow | Verdict::Deny | Verdict::Throttle(_), Some(_)) => {
            return Err(Nonsense(format!("it says {} and gives constraints", verdict.as_str())));
        }
    };
    if answer.throttle_for_ms != 0 && !matches!(verdict, Verdict::Throttle(_)) {
        return Err(Nonsense(format!("it says {} and gives throttle_for_ms", verdict.as_str())));
    }
    read_texts((verdict, after_approval), answer.rule, answer.reason)
}

pub(crate) fn read_output(answer: proto::CheckOutputResponse) -> Result<Ruling<(OutputVerdict, bool)>, Nonsense> {
    let decision = proto::OutputDecision::try_from(answer.decision);
    let number = answer.decision;
    let verdict = match decision {
        Err(_) => return Err(Nonsense(format!("its decision is {number}, which means nothing"))),
        Ok(proto::OutputDecision::Unspecified) => return Err(Nonsense("it has no decision".to_owned())),
        Ok(proto::OutputDecision::Allow) => OutputVerdict::Allow,
        Ok(proto::OutputDecision::Quarantine) => OutputVerdict::Quarantine,
        Ok(proto::OutputDecision::Deny) => OutputVerdict::Deny,
        Ok(proto::OutputDecision::Redact) => OutputVerdict::Redact,
    };
    if answer.keep_original && verdict != OutputVerdict::Redact {
        return Err(Nonsense(format!("it says {} and keep_original", verdict.as_str())));
    }
    read_texts((verdict, answer.keep_original), answer.rule, answer.reason)
}

/// The version of the kernel's rules. Empty where the kernel has none.
pub(crate) fn read_version(version: &str) -> Result<&str, Nonsense> {
    text("policy_version", version, limits::VERSION_BYTES_MAX)?;
    Ok(version)
}

pub(crate) fn read_trace(trace: Vec<String>) -> Vec<String> {
    trace.into_iter().take(limits::TRACE_LINES_MAX).map(model::reason::cut).collect()
}

fn read_texts<V>(verdict: V, rule: String, reason: String) -> Result<Ruling<V>, Nonsense> {
    if rule.is_empty() {
        return Err(Nonsense("it names no rule".to_owned()));
    }
    text("rule", &rule, model_limits::NAME_BYTES_MAX)?;
    if reason.len() > model_limits::MESSAGE_BYTES_MAX {
        return Err(Nonsense(too_long("reason", reason.len(), model_limits::MESSAGE_BYTES_MAX)));
    }
    Ok(Ruling { verdict, rule, message: (!reason.is_empty()).then_some(reason) })
}

fn read_constraints(given: &proto::Constraints) -> Result<Constraints, Nonsense> {
    let sandbox = match proto::Sandbox::try_from(given.sandbox) {
        Err(_) => return Err(Nonsense(format!("its sandbox is {}, which means nothing", given.sandbox))),
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
    // They may be there and not be understood: a newer kernel's.
    if constraints == Constraints::default() {
        return Err(Nonsense("none of its constraints is known here".to_owned()));
    }
    Ok(constraints)
}

fn at_most<N: PartialOrd + std::fmt::Display>(name: &str, number: N, most: N) -> Result<N, Nonsense> {
    if number > most {
        return Err(Nonsense(format!("its {name} is {number}, and may be at most {most}")));
    }
    Ok(number)
}

fn at_least_one<N: PartialOrd + From<u8>>(name: &str, number: N) -> Result<N, Nonsense> {
    if number < N::from(1) {
        return Err(Nonsense(format!("its {name} is 0: the job could never run")));
    }
    Ok(number)
}

/// A text that goes into records and logs as it is.
fn text(name: &str, text: &str, bytes_max: usize) -> Result<(), Nonsense> {
    if text.len() > bytes_max {
        return Err(Nonsense(too_long(name, text.len(), bytes_max)));
    }
    if text.chars().any(char::is_control) {
        return Err(Nonsense(format!("its {name} has control characters")));
    }
    Ok(())
}

fn too_long(name: &str, bytes: usize, bytes_max: usize) -> String {
    format!("its {name} has {bytes} bytes, and may have at most {bytes_max}")
}

#[cfg(test)]
mod tests;
