//! Explanations: the decision with all rule verdicts, for authors of rules.

use api::ConstraintsView;
use model::reason::cut;
use model::time::{Millis, Timestamp};
use model::verdict::{PolicyVersion, Verdict};
use serde::Serialize;

use crate::facts::{JobFacts, OutputFacts};
use crate::rules::{OutputEvaluation, Rules};
use crate::verdicts::{JobVerdict, ParsedVerdict, ResultVerdict};

/// A decision with all rule verdicts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    pub policy: PolicyVersion,
    pub verdict: &'static str,
    pub rule: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// End of a throttle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Constraints on the job. They also apply after an approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<ConstraintsView>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_original: bool,
    /// Verdicts of all rules that apply.
    #[serde(rename = "spoke")]
    pub rule_verdicts: Vec<RuleVerdict>,
    /// Output of `print` in the rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub printed: Vec<String>,
}

/// One verdict of one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleVerdict {
    pub verdict: &'static str,
    pub rule: String,
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<ConstraintsView>,
}

impl Rules {
    /// Decides about a job and lists all rule verdicts.
    pub fn explain(&self, facts: &JobFacts<'_>, now: Millis) -> Explanation {
        let evaluation = self.evaluate(facts, now, self.job_extent());
        let decision = self.decision(evaluation.answer, now);
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
            rule_verdicts: evaluation.verdicts.into_iter().map(Into::into).collect(),
            printed: evaluation.printed.into_iter().map(cut).collect(),
        }
    }

    /// Decides about a result and lists all rule verdicts.
    pub fn explain_output(&self, facts: &OutputFacts<'_>, now: Millis) -> Explanation {
        let OutputEvaluation { verdicts, answer, keep_original, printed } = self.evaluate_output(facts, now);
        Explanation {
            policy: self.version(),
            verdict: answer.verdict.as_str(),
            rule: answer.rule,
            message: answer.message,
            until: None,
            constraints: None,
            keep_original,
            rule_verdicts: verdicts.into_iter().map(Into::into).collect(),
            printed: printed.into_iter().map(cut).collect(),
        }
    }
}

impl From<ParsedVerdict<JobVerdict>> for RuleVerdict {
    fn from(parsed: ParsedVerdict<JobVerdict>) -> Self {
        let verdict = parsed.verdict.as_str();
        let (for_ms, constraints) = match &parsed.verdict {
            JobVerdict::Throttle(Millis(wait)) => (Some(*wait), None),
            JobVerdict::Constrain(constraints) => (None, Some(constraints.into())),
            JobVerdict::Allow | JobVerdict::RequireApproval | JobVerdict::Deny => (None, None),
        };
        Self { verdict, rule: parsed.rule, reason: parsed.reason, for_ms, constraints }
    }
}

impl From<ParsedVerdict<ResultVerdict>> for RuleVerdict {
    fn from(parsed: ParsedVerdict<ResultVerdict>) -> Self {
        let verdict = parsed.verdict.as_str();
        Self { verdict, rule: parsed.rule, reason: parsed.reason, for_ms: None, constraints: None }
    }
}
