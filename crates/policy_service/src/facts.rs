//! Facts about jobs and results, and their protocol messages.

use std::collections::BTreeMap;

use bytes::Bytes;
use model::id::JobId;
use model::limits::FINDINGS_MAX;
use model::spec::JobSpec;
use model::time::Millis;
use model::verdict::{FindingCount, Phase};

use crate::limits::ARTIFACTS_LISTED_MAX;
use crate::proto;

/// A job to be checked before it is scheduled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckFacts {
    pub job: JobId,
    pub tenant: String,
    pub submitter: Option<String>,
    pub topic: String,
    pub labels: BTreeMap<String, String>,
    pub requires: Vec<String>,
    /// The whole job, as in the body of a submit request.
    pub job_json: Bytes,
    pub now: Millis,
}

impl CheckFacts {
    pub fn of(job: JobId, spec: &JobSpec, submitter: Option<&str>, now: Millis) -> Self {
        // Infallible: a spec has only string keys and finite numbers.
        let job_json = serde_json::to_vec(spec).expect("a job spec is valid JSON");
        Self {
            job,
            tenant: spec.tenant.clone(),
            submitter: submitter.map(str::to_owned),
            topic: spec.topic.clone(),
            labels: spec.labels.clone(),
            requires: spec.requires.clone(),
            job_json: Bytes::from(job_json),
            now,
        }
    }

    pub(crate) fn request(&self) -> proto::CheckRequest {
        proto::CheckRequest {
            job_id: self.job.to_string(),
            tenant: self.tenant.clone(),
            submitter: self.submitter.clone().unwrap_or_default(),
            topic: self.topic.clone(),
            labels: self.labels.clone(),
            requires: self.requires.clone(),
            job_json: self.job_json.clone(),
            time_unix_ms: self.now.0,
        }
    }
}

/// A result to be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFacts {
    pub job: JobId,
    pub tenant: String,
    pub submitter: Option<String>,
    pub topic: String,
    pub labels: BTreeMap<String, String>,
    pub phase: Phase,
    pub outcome: Outcome,
    pub findings: Vec<Finding>,
    pub now: Millis,
}

/// Metadata of a result.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Absent unless the job was a process.
    pub exit_code: Option<i32>,
    pub cpu_ms: u64,
    pub memory_peak_bytes: u64,
    pub result_bytes: u64,
    pub log_bytes: u64,
    pub artifacts: Vec<Artifact>,
}

/// A file in the job's outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    pub path: String,
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingKind {
    Secret,
    Personal,
}

/// Matches of one pattern in one place. The matched text is not included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub kind: FindingKind,
    pub count: FindingCount,
}

impl OutputFacts {
    pub(crate) fn request(&self) -> proto::CheckOutputRequest {
        proto::CheckOutputRequest {
            job_id: self.job.to_string(),
            tenant: self.tenant.clone(),
            submitter: self.submitter.clone().unwrap_or_default(),
            topic: self.topic.clone(),
            labels: self.labels.clone(),
            phase: match self.phase {
                Phase::Metadata => proto::Phase::Metadata,
                Phase::Content => proto::Phase::Content,
            } as i32,
            outcome: Some(self.outcome.message()),
            findings: self.findings.iter().take(FINDINGS_MAX).map(Finding::message).collect(),
            time_unix_ms: self.now.0,
        }
    }

    /// Findings in the form that is recorded.
    pub(crate) fn finding_counts(&self) -> Vec<FindingCount> {
        self.findings.iter().take(FINDINGS_MAX).map(|finding| finding.count.clone()).collect()
    }
}

impl Outcome {
    fn message(&self) -> proto::Outcome {
        let listed = self.artifacts.iter().take(ARTIFACTS_LISTED_MAX);
        proto::Outcome {
            exit_code: self.exit_code,
            cpu_ms: self.cpu_ms,
            memory_peak_bytes: self.memory_peak_bytes,
            result_bytes: self.result_bytes,
            log_bytes: self.log_bytes,
            artifacts: listed
                .map(|artifact| proto::Artifact { path: artifact.path.clone(), bytes: artifact.bytes })
                .collect(),
            artifact_count: self.artifacts.len() as u64,
            artifact_bytes: self.artifacts.iter().fold(0, |sum, artifact| artifact.bytes.saturating_add(sum)),
        }
    }
}

impl Finding {
    fn message(&self) -> proto::Finding {
        proto::Finding {
            pattern: self.count.pattern.clone(),
            kind: match self.kind {
                FindingKind::Secret => proto::FindingKind::Secret,
                FindingKind::Personal => proto::FindingKind::Personal,
            } as i32,
            place: self.count.place.clone(),
            count: self.count.count,
        }
    }
}

#[cfg(test)]
mod tests {
    use model::spec::{EchoRun, Run};

    use super::*;

    #[test]
    fn a_request_has_the_whole_job_and_its_main_fields() {
        let mut spec = JobSpec::new(Run::Echo(EchoRun::default()));
        spec.topic = "reports".into();
        spec.tenant = "acme".into();
        spec.labels.insert("stage".into(), "production".into());
        spec.requires.push("gpu".into());
        let request = CheckFacts::of(JobId(7), &spec, Some("ann"), Millis(5)).request();
        assert_eq!(request.job_id, JobId(7).to_string());
        assert_eq!((request.tenant.as_str(), request.submitter.as_str()), ("acme", "ann"));
        assert_eq!((request.topic.as_str(), request.time_unix_ms), ("reports", 5));
        assert_eq!(request.labels["stage"], "production");
        assert_eq!(request.requires, ["gpu"]);
        assert_eq!(serde_json::from_slice::<JobSpec>(&request.job_json).unwrap(), spec);
    }

    #[test]
    fn artifacts_and_findings_are_truncated_and_all_artifacts_are_counted() {
        let artifact = Artifact { path: "a".into(), bytes: 3 };
        let count = FindingCount { pattern: "jwt".into(), place: "log".into(), count: 1 };
        let facts = |artifacts: usize, findings: usize| OutputFacts {
            job: JobId(7),
            tenant: String::new(),
            submitter: None,
            topic: String::new(),
            labels: BTreeMap::new(),
            phase: Phase::Content,
            outcome: Outcome { artifacts: vec![artifact.clone(); artifacts], ..Outcome::default() },
            findings: vec![Finding { kind: FindingKind::Secret, count: count.clone() }; findings],
            now: Millis(0),
        };
        for beyond in [0, 1] {
            let facts = facts(ARTIFACTS_LISTED_MAX + beyond, FINDINGS_MAX + beyond);
            let request = facts.request();
            let outcome = request.outcome.unwrap();
            assert_eq!(outcome.artifacts.len(), ARTIFACTS_LISTED_MAX);
            assert_eq!(outcome.artifact_count as usize, ARTIFACTS_LISTED_MAX + beyond);
            assert_eq!(outcome.artifact_bytes as usize, 3 * (ARTIFACTS_LISTED_MAX + beyond));
            assert_eq!(request.findings.len(), FINDINGS_MAX);
            assert_eq!(facts.finding_counts().len(), FINDINGS_MAX);
        }
    }
}
