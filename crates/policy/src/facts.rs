//! Facts about jobs and results, and the `input` document of the rules.

use std::collections::BTreeMap;

use model::spec::JobSpec;
use model::time::{Millis, Timestamp};
use model::verdict::Phase;
use serde::{Deserialize, Serialize};

/// A job to be checked.
#[derive(Debug, Clone)]
pub struct JobFacts<'a> {
    pub spec: &'a JobSpec,
    /// Absent if unknown.
    pub submitter: Option<&'a str>,
    /// Name of its queue, if it has one.
    pub queue: Option<String>,
}

impl<'a> JobFacts<'a> {
    /// A job without submitter and queue.
    pub fn of(spec: &'a JobSpec) -> Self {
        Self { spec, submitter: None, queue: None }
    }
}

/// A result to be checked, with its job.
#[derive(Debug, Clone)]
pub struct OutputFacts<'a> {
    pub job: JobFacts<'a>,
    pub phase: Phase,
    pub outcome: &'a OutcomeFacts,
    /// Findings of the content scan. Empty in the metadata phase.
    pub findings: &'a [FindingFacts],
}

/// Metadata of a result.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OutcomeFacts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    pub cpu_ms: u64,
    pub memory_peak_bytes: u64,
    pub result_bytes: u64,
    pub log_bytes: u64,
    pub artifacts: Vec<ArtifactFacts>,
}

/// A file in the job's outputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactFacts {
    pub path: String,
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// A key, a password, a token.
    Secret,
    /// Personal data.
    Personal,
}

/// Matches of one pattern in one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindingFacts {
    /// Name of the pattern.
    pub pattern: String,
    pub kind: FindingKind,
    /// `result`, `log` or the path of an artifact.
    pub place: String,
    pub count: u32,
}

/// The `input` of `package outlast.job`.
#[derive(Serialize)]
pub(crate) struct JobDocument<'a> {
    job: &'a JobSpec,
    tenant: &'a str,
    topic: &'a str,
    labels: &'a BTreeMap<String, String>,
    requires: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    submitter: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<&'a str>,
    time: Time,
}

impl<'a> JobDocument<'a> {
    pub fn new(facts: &'a JobFacts<'_>, now: Millis) -> Self {
        let JobFacts { spec, submitter, queue } = facts;
        Self {
            job: spec,
            tenant: &spec.tenant,
            topic: &spec.topic,
            labels: &spec.labels,
            requires: &spec.requires,
            submitter: *submitter,
            queue: queue.as_deref(),
            time: Time(now),
        }
    }
}

/// The `input` of `package outlast.output`.
#[derive(Serialize)]
pub(crate) struct OutputDocument<'a> {
    #[serde(flatten)]
    job: JobDocument<'a>,
    phase: Phase,
    outcome: &'a OutcomeFacts,
    findings: &'a [FindingFacts],
}

impl<'a> OutputDocument<'a> {
    pub fn new(facts: &'a OutputFacts<'_>, now: Millis) -> Self {
        let OutputFacts { job, phase, outcome, findings } = facts;
        Self { job: JobDocument::new(job, now), phase: *phase, outcome, findings }
    }
}

/// The `input.time` object, in UTC.
struct Time(Millis);

const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
const MINUTE_MS: u64 = 60 * 1000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;
/// The Unix epoch was a Thursday, three days after a Monday.
const FIRST_WEEKDAY: u64 = 3;

impl Serialize for Time {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let Millis(now) = self.0;
        let weekday = WEEKDAYS[usize::try_from((now / DAY_MS + FIRST_WEEKDAY) % 7).unwrap_or(0)];
        let mut time = serializer.serialize_struct("Time", 5)?;
        time.serialize_field("unix_ms", &now)?;
        time.serialize_field("rfc3339", &Timestamp(self.0))?;
        time.serialize_field("weekday", weekday)?;
        time.serialize_field("hour", &(now % DAY_MS / HOUR_MS))?;
        time.serialize_field("minute", &(now % HOUR_MS / MINUTE_MS))?;
        time.end()
    }
}
