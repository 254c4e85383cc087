//! Everything that rules say of a job or a result, not only what wins: for whoever writes them.

use model::reason::cut;
use model::spec::Sandbox;
use model::time::{Millis, Timestamp};
use model::verdict::{Constraints, PolicyVersion, Verdict};
use serde::{Deserialize, Serialize};

use crate::answer::{JobVerdict, ResultVerdict, Spoken};
use crate::facts::{JobFacts, OutputFacts};
use crate::rules::Rules;

/// An answer with all that led to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    pub policy: PolicyVersion,
    pub verdict: &'static str,
    pub rule: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When a throttled job may ask again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// What limits it, also once it is approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<ConstraintsView>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_original: bool,
    /// Every rule that spoke.
    pub spoke: Vec<SpokenRule>,
    /// What rules printed on the way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub printed: Vec<String>,
}

/// One verdict of one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SpokenRule {
    pub verdict: &'static str,
    pub rule: String,
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<ConstraintsView>,
}

/// Constraints under the names that rules use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConstraintsView {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_runtime_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_artifact_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<bool>,
}

impl From<&Constraints> for ConstraintsView {
    fn from(constraints: &Constraints) -> Self {
        let Constraints { max_runtime, max_retries, max_artifact_bytes, max_concurrent, sandbox, network } =
            *constraints;
        let max_runtime_ms = max_runtime.map(|Millis(millis)| millis);
        Self { max_runtime_ms, max_retries, max_artifact_bytes, max_concurrent, sandbox, network }
    }
}

impl Rules {
    /// Asks about a job and tells all that was said.
    pub fn explain(&self, facts: &JobFacts<'_>, now: Millis) -> Explanation {
        let heard = self.hear(facts, now, self.job_extent());
        let decision = self.decision(heard.answer, now);
        let (until, constraints) = match &decision.verdict {
            Verdict::Throttle(until) => (Some(Timestamp(*until)), None),
            Verdict::AllowWith(constraints) => (None, Some(constraints.into())),
            Verdict::RequireApproval => (None, decision.constraints.as_deref().map(Into::into)),
            Verdict::Allow | Verdict::Deny => (None, None),
        };
        Explanation {
            policy: self.version(),
            verdict: decision.verdict.as_str(),
            rule: decision.rule,
            message: decision.message,
            until,
            constraints,
            keep_original: false,
            spoke: heard.spoken.into_iter().map(Into::into).collect(),
            printed: heard.printed.into_iter().map(cut).collect(),
        }
    }

    /// Asks about a result and tells all that was said.
    pub fn explain_output(&self, facts: &OutputFacts<'_>, now: Millis) -> Explanation {
        let (spoken, (weighed, keep_original), printed) = self.hear_output(facts, now);
        Explanation {
            policy: self.version(),
            verdict: weighed.verdict.as_str(),
            rule: weighed.rule,
            message: weighed.message,
            until: None,
            constraints: None,
            keep_original,
            spoke: spoken.into_iter().map(Into::into).collect(),
            printed: printed.into_iter().map(cut).collect(),
        }
    }
}

impl From<Spoken<JobVerdict>> for SpokenRule {
    fn from(said: Spoken<JobVerdict>) -> Self {
        let verdict = said.verdict.as_str();
        let (for_ms, constraints) = match &said.verdict {
            JobVerdict::Throttle(Millis(wait)) => (Some(*wait), None),
            JobVerdict::Constrain(constraints) => (None, Some(constraints.into())),
            JobVerdict::Allow | JobVerdict::RequireApproval | JobVerdict::Deny => (None, None),
        };
        Self { verdict, rule: said.rule, reason: said.reason, for_ms, constraints }
    }
}

impl From<Spoken<ResultVerdict>> for SpokenRule {
    fn from(said: Spoken<ResultVerdict>) -> Self {
        let verdict = said.verdict.as_str();
        Self { verdict, rule: said.rule, reason: said.reason, for_ms: None, constraints: None }
    }
}
