//! What a policy is asked about, and the document that rules see of it as `input`.

use std::collections::BTreeMap;

use model::spec::JobSpec;
use model::time::{Millis, Timestamp};
use model::verdict::Phase;
use serde::{Deserialize, Serialize};

/// A job on its way in.
#[derive(Debug, Clone)]
pub struct JobFacts<'a> {
    pub spec: &'a JobSpec,
    /// Who handed it in, where that is known.
    pub submitter: Option<&'a str>,
    /// The name of the queue that it belongs to, if it has one.
    pub queue: Option<String>,
}

impl<'a> JobFacts<'a> {
    /// A job of which nothing else is known.
    pub fn of(spec: &'a JobSpec) -> Self {
        Self { spec, submitter: None, queue: None }
    }
}

/// A result on its way out, with the job that it belongs to.
#[derive(Debug, Clone)]
pub struct OutputFacts<'a> {
    pub job: JobFacts<'a>,
    pub phase: Phase,
    pub outcome: &'a OutcomeFacts,
    /// What the scanners found. Before the result itself is looked at there is nothing.
    pub findings: &'a [FindingFacts],
}

/// What is known about a result without opening it.
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

/// A file that a job left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactFacts {
    pub path: String,
    pub bytes: u64,
}

/// What sort of thing a pattern looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// A key, a password, a token.
    Secret,
    /// Data about a person.
    Personal,
}

/// How often a scanner's pattern was found in one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindingFacts {
    /// The pattern's name.
    pub pattern: String,
    pub kind: FindingKind,
    /// `result`, `log` or the path of a file.
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

/// A point in time in the words that rules need, all in UTC.
struct Time(Millis);

const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
const MINUTE_MS: u64 = 60 * 1000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;
/// The first day of 1970 was a Thursday, three days after a Monday.
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
