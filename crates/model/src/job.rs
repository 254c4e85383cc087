//! Record of a job, as stored on disk.

mod attempt;
mod size;

use bytes::Bytes;
use minicbor::{Decode, Encode, Encoder};
use serde::{Deserialize, Serialize};

use crate::blob::{BlobId, named_in};
use crate::codec::{self, DecodeError};
use crate::id::{Attempt, Incarnation, JobId, QueueId, RunnerId};
use crate::json::Json;
use crate::limits;
use crate::reason::Reason;
use crate::spec::{Digest, ExecutorKind, JobSpec, KeyHash, PackedSpec, Priority, decode_blobs};
use crate::state::State;
use crate::time::Millis;
use crate::verdict::{Approval, Constraints, Decision, OutputDecision};
use crate::workflow::Origin;

pub use attempt::{AttemptRecord, NodeFailure, Placement};

/// Format version of job records.
pub const RECORD_VERSION: u8 = 1;

/// A state and when it was entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct StateAt {
    #[n(0)]
    pub state: State,
    #[n(1)]
    pub at: Millis,
}

/// End of an attempt, as reported by its runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum End {
    #[n(0)]
    Succeeded,
    /// Failure that may be retried.
    #[n(1)]
    Error,
    /// Failure that no retry can fix.
    #[n(2)]
    Fatal,
    /// The runner could not run the attempt, through no fault of the job.
    #[n(3)]
    Infrastructure,
    /// Stopped on request: cancel, retract or drain of the node.
    #[n(4)]
    Stopped,
    /// The runner had no free slot and did not start the attempt.
    #[n(5)]
    Busy,
    /// Killed because its lease ran out: the runner had not heard from the shard for too long.
    #[n(6)]
    LeaseExpired,
}

impl End {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Error => "error",
            Self::Fatal => "fatal",
            Self::Infrastructure => "infrastructure",
            Self::Stopped => "stopped",
            Self::Busy => "busy",
            Self::LeaseExpired => "lease_expired",
        }
    }
}

/// Resource usage of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Usage {
    #[n(0)]
    pub cpu: Millis,
    #[n(1)]
    pub memory_peak_bytes: u64,
}

/// Log of an attempt, stored as a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LogRef {
    #[n(0)]
    pub blob: BlobId,
    #[n(1)]
    pub bytes: u64,
}

/// A file in `outputs/` that matched a glob of the job.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Artifact {
    /// Path below `outputs/`.
    #[n(0)]
    pub path: String,
    #[n(1)]
    pub blob: BlobId,
    #[n(2)]
    pub bytes: u64,
    #[n(3)]
    pub executable: bool,
}

impl Artifact {
    /// Approximate size within a record.
    pub fn record_bytes(&self) -> usize {
        self.path.len() + 48
    }

    /// Number of leading artifacts that fit in a record. If not all fit, the runner reports a failure: an incomplete
    /// result is not a success.
    pub fn fitting(artifacts: &[Self]) -> usize {
        let mut bytes = 0;
        let fits = |artifact: &&Self| {
            bytes += artifact.record_bytes();
            bytes <= limits::ARTIFACTS_RECORD_BYTES_MAX
        };
        artifacts.iter().take(limits::ARTIFACTS_MAX).take_while(fits).count()
    }
}

/// A result that was spilled to a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(deny_unknown_fields)]
pub struct SpilledResult {
    #[n(0)]
    pub blob: BlobId,
    /// Size of the JSON in it.
    #[n(1)]
    pub bytes: u64,
}

/// How the result of a workflow task's job is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum ResultForm {
    /// In the record.
    #[n(0)]
    Inline,
    /// In a blob; the record's `result` is a reference to it, for templates.
    #[n(1)]
    Spilled(#[n(0)] SpilledResult),
}

/// Outcome of an attempt, as reported by its runner.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Outcome {
    #[n(0)]
    pub end: End,
    #[n(1)]
    pub exit_code: Option<i32>,
    #[n(2)]
    pub signal: Option<i32>,
    #[n(3)]
    pub usage: Option<Usage>,
    #[n(4)]
    pub message: Option<String>,
    #[n(5)]
    pub result: Option<Json>,
    #[n(6)]
    pub log: Option<LogRef>,
    #[cbor(n(7), skip_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// Decision of the metadata check. Added by the server, not by the runner.
    #[n(8)]
    pub policy: Option<Box<OutputDecision>>,
    /// Set if the result was spilled. `result` is a reference to the blob then.
    #[n(9)]
    pub spilled: Option<Box<SpilledResult>>,
    /// With [`End::Infrastructure`]: the node itself is at fault, and not the job, its inputs, or the server.
    #[cbor(n(10), default)]
    pub node_at_fault: bool,
}

impl Outcome {
    pub fn of(end: End) -> Self {
        Self {
            end,
            exit_code: None,
            signal: None,
            usage: None,
            message: None,
            result: None,
            log: None,
            artifacts: Vec::new(),
            policy: None,
            spilled: None,
            node_at_fault: false,
        }
    }

    /// The node could not run the attempt, and is at fault itself.
    pub fn of_node_failure(message: String) -> Self {
        Self { message: Some(message), node_at_fault: true, ..Self::of(End::Infrastructure) }
    }

    /// Approximate size within the job's record.
    pub fn record_bytes(&self) -> usize {
        let result = self.result.as_ref().map_or(0, |result| result.as_bytes().len());
        result + self.artifacts.iter().map(Artifact::record_bytes).sum::<usize>()
    }
}

/// Millions of live jobs have an attempt: a larger record would fall into the allocator's next size class.
const _: () = assert!(size_of::<AttemptRecord>() <= 128);

/// Record of a job: its spec and its history.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Job {
    #[n(0)]
    pub id: JobId,
    #[n(1)]
    pub queue: QueueId,
    /// Sequence number within the queue.
    #[n(2)]
    pub seq: u64,
    #[n(3)]
    pub state: State,
    /// The newest attempt. Messages about older ones are ignored.
    #[n(4)]
    pub attempt: Attempt,
    #[n(5)]
    pub priority: Priority,
    #[n(6)]
    pub executor: ExecutorKind,
    #[n(7)]
    pub created_at: Millis,
    /// No scheduling before this time: `not_before`, backoff or throttle.
    #[n(8)]
    pub eligible_at: Millis,
    #[n(9)]
    pub timeout: Option<Millis>,
    #[n(10)]
    pub deadline: Option<Millis>,
    #[n(11)]
    pub max_retries: u32,
    #[n(12)]
    pub retries: u32,
    /// Number of attempts that lost their runner or could not be run.
    #[n(13)]
    pub infrastructure_failures: u32,
    /// A retract is in progress. The job is scheduled again when the runner confirms the stop.
    #[n(14)]
    pub retracting: bool,
    /// A result is shown only after the content scan.
    #[n(15)]
    pub hold_until_scanned: bool,
    /// Encoded [`JobSpec`]. Empty on disk if it is large: then it has a key of its own.
    #[cbor(n(16), with = "inline_spec")]
    pub spec: Bytes,
    #[n(17)]
    pub digest: Digest,
    #[n(18)]
    pub key: Option<KeyHash>,
    #[n(19)]
    pub states: Vec<StateAt>,
    /// Number of states dropped from the middle of `states`.
    #[n(20)]
    pub states_dropped: u32,
    #[n(21)]
    pub attempts: Vec<AttemptRecord>,
    #[n(22)]
    pub attempts_dropped: u32,
    #[n(23)]
    pub reason: Option<Reason>,
    #[n(24)]
    pub result: Option<Json>,
    #[n(25)]
    pub decisions: Vec<Decision>,
    #[n(26)]
    pub approval: Option<Box<Approval>>,
    #[n(27)]
    pub constraints: Option<Box<Constraints>>,
    /// Artifacts. Absent instead of empty to save memory: most jobs have none.
    #[n(28)]
    pub artifacts: Option<Box<Vec<Artifact>>>,
    /// Submitter, if known.
    #[n(29)]
    pub submitter: Option<Box<str>>,
    /// Decisions of the output policy.
    #[n(30)]
    pub output_decisions: Option<Box<Vec<OutputDecision>>>,
    /// Number of placement tries without any runner that satisfies the requirement.
    #[cbor(n(31), skip_if = "is_zero")]
    pub dispatch_tries: u32,
    /// The result before redaction, if the policy retains it.
    #[n(32)]
    pub original: Option<Box<Original>>,
    /// The workflow task that the job runs or compensates.
    #[n(33)]
    pub origin: Option<Box<Origin>>,
    /// How the result is stored. Workflow tasks only; absent in older records.
    #[n(34)]
    pub result_form: Option<Box<ResultForm>>,
    /// No two attempts run at the same time.
    #[cbor(n(35), skip_if = "is_false")]
    pub exclusive: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The original of a redacted result.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Original {
    #[n(0)]
    pub result: Option<Json>,
    #[cbor(n(1), skip_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    #[n(2)]
    pub log: Option<LogRef>,
}

/// A redacted copy of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redacted {
    pub result: Option<Json>,
    /// Set if the result was spilled.
    pub spilled: Option<Box<SpilledResult>>,
    pub artifacts: Vec<Artifact>,
    pub log: Option<LogRef>,
    /// Whether the original stays on record.
    pub keep_original: bool,
}

/// Outcome of a content scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    pub decision: OutputDecision,
    /// Present with [`crate::verdict::OutputVerdict::Redact`]. If missing there, the result is quarantined.
    pub redacted: Option<Redacted>,
}

/// Parameters of a new job besides its spec.
#[derive(Debug, Clone, Copy)]
pub struct NewJob {
    pub id: JobId,
    pub queue: QueueId,
    pub seq: u64,
    pub now: Millis,
    pub queue_max_retries: u32,
    /// Upper bound of the attempt timeout.
    pub runtime_max: Option<Millis>,
}

impl Job {
    /// A newly accepted job: blocked until `not_before`, or pending.
    pub fn new(new_job: NewJob, spec: PackedSpec) -> Self {
        let eligible_at = spec.not_before.unwrap_or(new_job.now);
        let state = if eligible_at > new_job.now { State::Blocked } else { State::Pending };
        Self {
            id: new_job.id,
            queue: new_job.queue,
            seq: new_job.seq,
            state,
            attempt: Attempt::NONE,
            priority: spec.priority,
            executor: spec.executor,
            created_at: new_job.now,
            eligible_at,
            timeout: [spec.timeout, new_job.runtime_max].into_iter().flatten().min(),
            deadline: spec.deadline,
            max_retries: spec.max_retries.unwrap_or(new_job.queue_max_retries),
            retries: 0,
            infrastructure_failures: 0,
            retracting: false,
            hold_until_scanned: false,
            spec: spec.bytes,
            digest: spec.digest,
            key: spec.key,
            // Most jobs have four states: capacity for them avoids two reallocations.
            states: {
                let mut states = Vec::with_capacity(4);
                states.push(StateAt { state, at: new_job.now });
                states
            },
            states_dropped: 0,
            attempts: Vec::new(),
            attempts_dropped: 0,
            reason: None,
            result: None,
            result_form: None,
            decisions: Vec::new(),
            approval: None,
            constraints: None,
            artifacts: None,
            submitter: None,
            output_decisions: None,
            dispatch_tries: 0,
            original: None,
            origin: None,
            exclusive: spec.exclusive,
        }
    }

    pub fn encode_into(&self, buffer: &mut Vec<u8>) {
        buffer.push(RECORD_VERSION);
        codec::encode_into(self, buffer);
    }

    /// Decodes a record. If [`Job::lacks_spec`], the spec has a key of its own.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        match bytes.split_first() {
            None => Err(DecodeError::Truncated),
            Some((&RECORD_VERSION, rest)) => codec::decode(rest),
            Some((&version, _)) => Err(DecodeError::Unknown { what: "job record version", value: u64::from(version) }),
        }
    }

    pub fn decode_spec(&self) -> Result<JobSpec, DecodeError> {
        codec::decode(&self.spec)
    }

    pub fn artifacts(&self) -> &[Artifact] {
        self.artifacts.as_deref().map_or(&[], Vec::as_slice)
    }

    /// All blobs that must be retained as long as the job is on record: those of the spec (which must be loaded), the
    /// artifacts and the logs. For a workflow task also those named in the result: a spilled result is a blob, and a
    /// result may refer to blobs that later tasks read.
    pub fn blobs(&self) -> Result<Vec<BlobId>, DecodeError> {
        let mut blobs = decode_blobs(&self.spec)?;
        blobs.extend(self.artifacts().iter().map(|artifact| artifact.blob));
        blobs.extend(self.attempts.iter().filter_map(|attempt| attempt.log.as_ref()).map(|log| log.blob));
        if let Some(original) = &self.original {
            blobs.extend(original.artifacts.iter().map(|artifact| artifact.blob));
            blobs.extend(original.log.map(|log| log.blob));
        }
        if self.origin.is_some() {
            let original = self.original.as_ref().and_then(|original| original.result.as_ref());
            let results = [self.result.as_ref(), original].into_iter().flatten();
            blobs.extend(results.flat_map(|result| named_in(result.as_bytes())));
        }
        Ok(blobs)
    }

    /// The blob of a spilled result.
    pub fn spilled(&self) -> Option<SpilledResult> {
        match self.result_form.as_deref() {
            Some(ResultForm::Spilled(spilled)) => Some(*spilled),
            Some(ResultForm::Inline) => None,
            None => self.spilled_by_older_version(),
        }
    }

    /// Older records have no `result_form`: a blob reference whose size is in the spill range counts as spilled.
    fn spilled_by_older_version(&self) -> Option<SpilledResult> {
        self.origin.as_ref().filter(|origin| !origin.compensation)?;
        let spilled: SpilledResult = serde_json::from_slice(self.result.as_ref()?.as_bytes()).ok()?;
        let sizes = limits::TASK_RESULT_BYTES_MAX as u64 + 1..=limits::RESULT_BYTES_MAX as u64;
        sizes.contains(&spilled.bytes).then_some(spilled)
    }

    pub fn has_large_spec(&self) -> bool {
        self.spec.len() > limits::INLINE_SPEC_BYTES_MAX
    }

    pub fn lacks_spec(&self) -> bool {
        self.spec.is_empty()
    }

    /// Time of entering the current state.
    pub fn since(&self) -> Millis {
        self.states.last().map_or(self.created_at, |last| last.at)
    }

    /// Time of entering a terminal state.
    pub fn ended_at(&self) -> Option<Millis> {
        self.state.is_terminal().then(|| self.since())
    }

    /// Record of the newest attempt.
    pub fn last_attempt(&self) -> Option<&AttemptRecord> {
        self.attempts.last()
    }

    pub fn last_attempt_mut(&mut self) -> Option<&mut AttemptRecord> {
        self.attempts.last_mut()
    }

    /// The runner of the attempt in flight.
    pub fn runner(&self) -> Option<(RunnerId, Incarnation)> {
        let last = self.last_attempt().filter(|_| self.state.is_on_runner())?;
        Some((last.runner, last.incarnation))
    }

    /// The newest attempt of an exclusive job that is not in flight and whose end is unknown: it may still run.
    pub fn unconfirmed_lease(&self) -> Option<(&AttemptRecord, Millis)> {
        let last = self.last_attempt().filter(|last| !self.state.is_on_runner() && last.end.is_none())?;
        last.lease().map(|lease| (last, lease))
    }

    /// Attempts on a runner that the job was charged for since a time, although the node was at fault.
    pub fn charged_on(&self, runner: RunnerId, since: Millis) -> impl Iterator<Item = &AttemptRecord> {
        self.attempts.iter().filter(move |attempt| attempt.is_charged_on(runner, since))
    }

    /// Whether a stop of the attempt in flight was requested.
    pub fn is_to_stop(&self) -> bool {
        self.state == State::Cancelling || self.retracting
    }

    /// Attempt timeout: the smaller of the job's and the policy's.
    pub fn runtime_limit(&self) -> Option<Millis> {
        let allowed = self.constraints.as_ref().and_then(|constraints| constraints.max_runtime);
        [self.timeout, allowed].into_iter().flatten().min()
    }

    /// Retry limit: the smaller of the job's and the policy's.
    pub fn retry_limit(&self) -> u32 {
        let allowed = self.constraints.as_ref().and_then(|constraints| constraints.max_retries);
        allowed.map_or(self.max_retries, |allowed| allowed.min(self.max_retries))
    }

    /// The newest policy decision.
    pub fn last_decision(&self) -> Option<&Decision> {
        self.decisions.last()
    }

    pub fn output_decisions(&self) -> &[OutputDecision] {
        self.output_decisions.as_deref().map_or(&[], Vec::as_slice)
    }

    /// Whether an earlier attempt failed on this runner.
    pub fn failed_on(&self, runner: RunnerId) -> bool {
        self.attempts.iter().any(|attempt| {
            attempt.runner == runner
                && matches!(
                    attempt.end,
                    Some(End::Error | End::Infrastructure | End::Stopped | End::LeaseExpired) | None
                )
        })
    }

    pub(crate) fn enter(&mut self, state: State, at: Millis) {
        self.state = state;
        if self.states.len() >= limits::HISTORY_ENTRIES_MAX {
            self.states.remove(limits::HISTORY_ENTRIES_MAX / 2);
            self.states_dropped += 1;
        }
        self.states.push(StateAt { state, at });
    }

    pub(crate) fn begin_attempt(&mut self, record: AttemptRecord) {
        self.attempt = record.attempt;
        if self.attempts.len() >= limits::HISTORY_ENTRIES_MAX {
            self.attempts.remove(limits::HISTORY_ENTRIES_MAX / 2);
            self.attempts_dropped += 1;
        }
        // Most jobs need one attempt: no spare capacity.
        self.attempts.reserve_exact(1);
        self.attempts.push(record);
    }
}

/// Encodes a small spec within its record and omits a large one.
mod inline_spec {
    use super::*;

    pub fn encode<C, W: minicbor::encode::Write>(
        spec: &Bytes,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        let inline: &[u8] = if spec.len() > limits::INLINE_SPEC_BYTES_MAX { &[] } else { spec };
        e.bytes(inline)?;
        Ok(())
    }

    pub use crate::codec::shared_bytes::decode;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{EchoRun, Run};

    fn job(value: &str) -> Job {
        let echo = EchoRun { value: Json::of(&value), ..EchoRun::default() };
        let new_job = NewJob {
            id: JobId(1),
            queue: QueueId(2),
            seq: 3,
            now: Millis(4),
            queue_max_retries: limits::RETRIES_DEFAULT,
            runtime_max: None,
        };
        Job::new(new_job, JobSpec::new(Run::Echo(echo)).pack())
    }

    fn stored(job: &Job) -> Vec<u8> {
        let mut bytes = Vec::new();
        job.encode_into(&mut bytes);
        bytes
    }

    #[test]
    fn a_record_round_trips_through_storage() {
        let job = job("small");
        assert_eq!(Job::decode(&stored(&job)).unwrap(), job);
    }

    #[test]
    fn a_large_spec_is_not_part_of_its_record() {
        let mut large = job(&"x".repeat(limits::INLINE_SPEC_BYTES_MAX));
        assert!(large.has_large_spec());
        let read = Job::decode(&stored(&large)).unwrap();
        assert!(read.lacks_spec());
        large.spec = Bytes::new();
        assert_eq!(read, large);
    }

    #[test]
    fn a_record_of_a_newer_version_is_reported_as_such() {
        let mut bytes = stored(&job("x"));
        bytes[0] = RECORD_VERSION + 1;
        assert!(Job::decode(&bytes).unwrap_err().to_string().contains("newer version"));
    }

    #[test]
    fn a_long_history_retains_its_oldest_and_newest_states() {
        let mut job = job("x");
        for at in 0..1000 {
            job.enter(State::Scheduled, Millis(at));
        }
        assert_eq!(job.states.len(), limits::HISTORY_ENTRIES_MAX);
        assert_eq!(job.states_dropped as usize, 1001 - limits::HISTORY_ENTRIES_MAX);
        assert_eq!(job.states[0].state, State::Pending);
        assert_eq!(job.since(), Millis(999));
    }

    /// Fields added by a later version are skipped, fields missing in an earlier one are absent.
    #[test]
    fn adjacent_versions_read_each_others_records() {
        #[derive(Encode, Decode)]
        struct Old {
            #[n(0)]
            first: u64,
        }
        #[derive(Encode, Decode)]
        struct New {
            #[n(0)]
            first: u64,
            #[n(1)]
            added: Option<String>,
        }
        let new = codec::encode(&New { first: 1, added: Some("more".to_owned()) });
        assert_eq!(codec::decode::<Old>(&new).unwrap().first, 1);
        let old = codec::encode(&Old { first: 2 });
        let read = codec::decode::<New>(&old).unwrap();
        assert_eq!((read.first, read.added), (2, None));
    }

    fn artifact(path_bytes: usize) -> Artifact {
        Artifact { path: "x".repeat(path_bytes), blob: BlobId::of(b"x"), bytes: 1, executable: false }
    }

    #[test]
    fn a_record_lists_all_its_blobs() {
        let mut job = job("x");
        assert_eq!(job.blobs().unwrap(), []);
        job.artifacts = Some(Box::new(vec![artifact(1)]));
        let mut attempt = AttemptRecord::new(Attempt(1), RunnerId(1), Incarnation(1), Millis(1));
        attempt.log = Some(Box::new(LogRef { blob: BlobId::of(b"log"), bytes: 3 }));
        job.attempts.push(attempt);
        let mut spec = job.decode_spec().unwrap();
        spec.inputs.insert("in".to_owned(), BlobId::of(b"in"));
        job.spec = spec.pack().bytes;
        assert_eq!(job.blobs().unwrap(), [BlobId::of(b"in"), BlobId::of(b"x"), BlobId::of(b"log")]);
        assert_eq!(Job::decode(&stored(&job)).unwrap(), job);
    }

    #[test]
    fn blobs_named_in_the_result_of_a_workflow_task_are_retained() {
        let mut job = job("x");
        job.result = Some(Json::of(&serde_json::json!({"blob": BlobId::of(b"large"), "bytes": 5})));
        assert_eq!(job.blobs().unwrap(), []);
        let task_key = crate::workflow::TaskKey::of(0);
        let workflow = crate::id::WorkflowId(1);
        job.origin = Some(Box::new(Origin { workflow, task_key, compensation: false }));
        assert_eq!(job.blobs().unwrap(), [BlobId::of(b"large")]);
    }

    #[test]
    fn artifacts_of_a_record_are_limited_in_number_and_size() {
        let many = vec![artifact(1); limits::ARTIFACTS_MAX + 1];
        assert_eq!(Artifact::fitting(&many), limits::ARTIFACTS_MAX);
        let each = artifact(limits::PATH_BYTES_MAX);
        let long = vec![each.clone(); limits::ARTIFACTS_MAX];
        assert_eq!(Artifact::fitting(&long), limits::ARTIFACTS_RECORD_BYTES_MAX / each.record_bytes());
        let encoded = codec::encode(&each).len();
        assert!(encoded <= each.record_bytes(), "{encoded}");
    }

    proptest::proptest! {
        #[test]
        fn decoding_any_bytes_as_a_job_does_not_panic(mut bytes: Vec<u8>) {
            if let Some(first) = bytes.first_mut() {
                *first = RECORD_VERSION;
            }
            let _ = Job::decode(&bytes);
        }

        #[test]
        fn decoding_a_corrupt_job_does_not_panic(at in 0usize..150, value: u8) {
            let mut bytes = stored(&job("some value"));
            let at = at % bytes.len();
            bytes[at] = value;
            let _ = Job::decode(&bytes);
        }
    }
}
