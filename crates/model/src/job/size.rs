//! Upper bound of the size of a job's record, so that commits can be kept below the store's limit.

use super::{Artifact, Job};
use crate::json::Json;

/// Everything of fixed size, and the names of lists.
const FIXED_BYTES: usize = 400;
const STATE_BYTES: usize = 16;
const ATTEMPT_BYTES: usize = 220;
const DECISION_BYTES: usize = 160;
const FINDING_BYTES: usize = 32;

fn text(text: Option<&String>) -> usize {
    text.map_or(0, String::len)
}

fn json(json: Option<&Json>) -> usize {
    json.map_or(0, |json| json.as_bytes().len())
}

fn artifacts(artifacts: &[Artifact]) -> usize {
    artifacts.iter().map(Artifact::record_bytes).sum()
}

impl Job {
    /// Upper bound of the size of the record. A large spec has a key of its own and is not counted.
    pub fn record_bytes(&self) -> usize {
        let spec = if self.has_large_spec() { 0 } else { self.spec.len() };
        let attempts = self.attempts.iter().map(|attempt| ATTEMPT_BYTES + text(attempt.message.as_ref()));
        let decisions = self.decisions.iter();
        let decisions = decisions.map(|it| DECISION_BYTES + it.rule.len() + text(it.message.as_ref()));
        FIXED_BYTES
            + spec
            + self.states.len() * STATE_BYTES
            + attempts.sum::<usize>()
            + decisions.sum::<usize>()
            + json(self.result.as_ref())
            + self.reason.as_ref().map_or(0, |reason| text(reason.message.as_ref()))
            + if self.is_plain() { 0 } else { self.rare_bytes() }
    }

    /// Whether it has none of the parts that most jobs do not have.
    fn is_plain(&self) -> bool {
        self.approval.is_none()
            && self.output_decisions.is_none()
            && self.original.is_none()
            && self.constraints.is_none()
            && self.artifacts.is_none()
            && self.submitter.is_none()
    }

    /// Parts that most jobs do not have.
    fn rare_bytes(&self) -> usize {
        let approval = self.approval.as_ref().map_or(0, |approval| {
            DECISION_BYTES + approval.by.len() + approval.rule.len() + text(approval.comment.as_ref())
        });
        let output = self.output_decisions.iter().flat_map(|decisions| decisions.iter());
        let output = output.map(|it| {
            let findings = it.findings.iter().map(|found| FINDING_BYTES + found.pattern.len() + found.place.len());
            DECISION_BYTES + it.rule.len() + text(it.message.as_ref()) + findings.sum::<usize>()
        });
        let original = self
            .original
            .as_ref()
            .map_or(0, |original| DECISION_BYTES + json(original.result.as_ref()) + artifacts(&original.artifacts));
        let constraints = if self.constraints.is_some() { DECISION_BYTES } else { 0 };
        approval
            + output.sum::<usize>()
            + original
            + constraints
            + self.artifacts.as_ref().map_or(0, |own| artifacts(own))
            + self.submitter.as_ref().map_or(0, |name| name.len())
    }
}
