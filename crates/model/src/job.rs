//! The record of a job: everything that is known of it, as it is kept on disk.

use bytes::Bytes;
use minicbor::{Decode, Decoder, Encode, Encoder};
use serde::{Deserialize, Serialize};

use crate::blob::{BlobId, named_in};
use crate::codec::{self, DecodeError};
use crate::id::{Attempt, Incarnation, JobId, QueueId, RunnerId};
use crate::json::Json;
use crate::limits;
use crate::reason::Reason;
use crate::spec::{Digest, JobSpec, KeyHash, Lane, PackedSpec, Priority, decode_blobs};
use crate::state::State;
use crate::time::Millis;
use crate::verdict::{Approval, Constraints, Decision, OutputDecision};
use crate::workflow::Origin;

/// The newest layout of a job's record that this version writes and reads.
pub const RECORD_VERSION: u8 = 1;

/// A state and when it was entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct StateAt {
    #[n(0)]
    pub state: State,
    #[n(1)]
    pub at: Millis,
}

/// How an attempt ended, as its runner tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum End {
    #[n(0)]
    Succeeded,
    /// It failed and may be tried again.
    #[n(1)]
    Error,
    /// It failed and trying again is pointless.
    #[n(2)]
    Fatal,
    /// It could not be run, through no fault of its own.
    #[n(3)]
    Infrastructure,
    /// It was stopped because someone asked: a cancel, a retract, a node that drains.
    #[n(4)]
    Stopped,
    /// The runner had no room and never started it.
    #[n(5)]
    Busy,
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
        }
    }
}

/// What an attempt used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Usage {
    #[n(0)]
    pub cpu: Millis,
    #[n(1)]
    pub memory_peak_bytes: u64,
}

/// The output of an attempt, kept as a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
pub struct LogRef {
    #[n(0)]
    pub blob: BlobId,
    #[n(1)]
    pub bytes: u64,
}

/// A file that a job left behind and its `outputs` asked for.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
pub struct Artifact {
    /// In the job's working directory.
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
    /// About what a record takes to say so.
    pub fn record_bytes(&self) -> usize {
        self.path.len() + 48
    }

    /// How many of them a record may keep, from the first. Fewer than all are too many: a runner that finds so many
    /// says so instead of its job's success, since a result of which a part is missing is none.
    pub fn fitting(artifacts: &[Self]) -> usize {
        let mut bytes = 0;
        let fits = |artifact: &&Self| {
            bytes += artifact.record_bytes();
            bytes <= limits::ARTIFACTS_RECORD_BYTES_MAX
        };
        artifacts.iter().take(limits::ARTIFACTS_MAX).take_while(fits).count()
    }
}

/// Everything a runner tells of an attempt's end.
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
    /// What the policy says of it, as far as that can be said at once. Its runner does not know.
    #[n(8)]
    pub policy: Option<Box<OutputDecision>>,
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
        }
    }

    /// About how much of it goes into the job's record.
    pub fn record_bytes(&self) -> usize {
        let result = self.result.as_ref().map_or(0, |result| result.as_bytes().len());
        result + self.artifacts.iter().map(Artifact::record_bytes).sum::<usize>()
    }
}

/// One try at a job.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct AttemptRecord {
    #[n(0)]
    pub attempt: Attempt,
    #[n(1)]
    pub runner: RunnerId,
    /// Of the runner, as far as it is known: one that finds the attempt when it comes back adopts it.
    #[n(2)]
    pub incarnation: Incarnation,
    #[n(3)]
    pub dispatched_at: Millis,
    #[n(4)]
    pub started_at: Option<Millis>,
    #[n(5)]
    pub ended_at: Option<Millis>,
    /// Absent while it runs, and when nobody knows how it ended.
    #[n(6)]
    pub end: Option<End>,
    #[n(7)]
    pub exit_code: Option<i32>,
    #[n(8)]
    pub signal: Option<i32>,
    #[n(9)]
    pub usage: Option<Usage>,
    #[n(10)]
    pub message: Option<String>,
    #[n(11)]
    pub log: Option<Box<LogRef>>,
    /// Why this runner. Absent where there was no other.
    #[n(12)]
    pub placement: Option<Box<Placement>>,
}

/// Why an attempt went where it went: how it stood with all runners that were known then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode, Serialize, Deserialize)]
pub struct Placement {
    /// The load of the chosen one, in thousandths: attempts in hand + cpu + gpu.
    #[n(0)]
    pub score_milli: u64,
    /// The job had asked for this very runner.
    #[n(1)]
    pub preferred: bool,
    /// Could have taken it.
    #[n(2)]
    pub available: u32,
    /// Were fit for it, and full or overloaded.
    #[n(3)]
    pub busy: u32,
    /// Do not belong to a pool that the job may use.
    #[n(4)]
    pub other_pool: u32,
    #[n(5)]
    pub lack_capability: u32,
    #[n(6)]
    pub other_labels: u32,
}

impl AttemptRecord {
    /// An attempt that was just given to a runner.
    pub fn new(attempt: Attempt, runner: RunnerId, incarnation: Incarnation, dispatched_at: Millis) -> Self {
        Self {
            attempt,
            runner,
            incarnation,
            dispatched_at,
            started_at: None,
            ended_at: None,
            end: None,
            exit_code: None,
            signal: None,
            usage: None,
            message: None,
            log: None,
            placement: None,
        }
    }
}

/// A job: its spec and all that has happened to it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Job {
    #[n(0)]
    pub id: JobId,
    #[n(1)]
    pub queue: QueueId,
    /// Its number within its queue.
    #[n(2)]
    pub seq: u64,
    #[n(3)]
    pub state: State,
    /// The newest attempt; words of an older one change nothing.
    #[n(4)]
    pub attempt: Attempt,
    #[n(5)]
    pub priority: Priority,
    #[n(6)]
    pub lane: Lane,
    #[n(7)]
    pub created_at: Millis,
    /// Not to be looked at before: its own delay, a backoff, a throttle.
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
    /// How often its runner was lost or could not run it.
    #[n(13)]
    pub infrastructure_failures: u32,
    /// Its runner was asked to give it back; it is placed again once the runner has.
    #[n(14)]
    pub retracting: bool,
    /// A success is shown only after the content scan.
    #[n(15)]
    pub hold_until_scanned: bool,
    /// The encoded [`JobSpec`]. On disk it is empty when it is too large and stands beside the record.
    #[cbor(n(16), with = "inline_spec")]
    pub spec: Bytes,
    #[n(17)]
    pub digest: Digest,
    #[n(18)]
    pub key: Option<KeyHash>,
    #[n(19)]
    pub states: Vec<StateAt>,
    /// How many states were dropped from the middle of `states`.
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
    /// The files that came with the result.
    /// Absent rather than empty: most jobs have none, and there may be very many of them in memory.
    #[n(28)]
    pub artifacts: Option<Box<Vec<Artifact>>>,
    /// Who submitted it, as far as the server was told.
    #[n(29)]
    pub submitter: Option<Box<str>>,
    /// What the policy said of its results.
    #[n(30)]
    pub output_decisions: Option<Box<Vec<OutputDecision>>>,
    /// How often it was looked for a runner and none was there that could ever take it.
    #[cbor(n(31), skip_if = "is_zero")]
    pub dispatch_tries: u32,
    /// The result as it was before the policy had parts of it removed, if the policy has it kept.
    #[n(32)]
    pub original: Option<Box<Original>>,
    /// The task of a workflow that it does or undoes.
    #[n(33)]
    pub origin: Option<Box<Origin>>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// What a redacted copy has replaced.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Original {
    #[n(0)]
    pub result: Option<Json>,
    #[cbor(n(1), skip_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    #[n(2)]
    pub log: Option<LogRef>,
}

/// A copy of a result without what the policy does not let out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redacted {
    pub result: Option<Json>,
    pub artifacts: Vec<Artifact>,
    pub log: Option<LogRef>,
    /// Whether the original stays on record.
    pub keep_original: bool,
}

/// What the scan of a result's content has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    pub decision: OutputDecision,
    /// With [`crate::verdict::OutputVerdict::Redact`]. Without a copy the result is quarantined instead.
    pub redacted: Option<Redacted>,
}

/// What a new job takes from its queue and its moment.
#[derive(Debug, Clone, Copy)]
pub struct Birth {
    pub id: JobId,
    pub queue: QueueId,
    pub seq: u64,
    pub now: Millis,
    pub queue_max_retries: u32,
    /// No attempt may run longer than this.
    pub runtime_max: Option<Millis>,
}

impl Job {
    /// A job as it is right after it was accepted: blocked if its time has not come, else pending.
    pub fn new(birth: Birth, spec: PackedSpec) -> Self {
        let eligible_at = spec.not_before.unwrap_or(birth.now);
        let state = if eligible_at > birth.now { State::Blocked } else { State::Pending };
        Self {
            id: birth.id,
            queue: birth.queue,
            seq: birth.seq,
            state,
            attempt: Attempt::NONE,
            priority: spec.priority,
            lane: spec.lane,
            created_at: birth.now,
            eligible_at,
            timeout: [spec.timeout, birth.runtime_max].into_iter().flatten().min(),
            deadline: spec.deadline,
            max_retries: spec.max_retries.unwrap_or(birth.queue_max_retries),
            retries: 0,
            infrastructure_failures: 0,
            retracting: false,
            hold_until_scanned: false,
            spec: spec.bytes,
            digest: spec.digest,
            key: spec.key,
            // Most jobs pass four states; room for them spares growing the list twice.
            states: {
                let mut states = Vec::with_capacity(4);
                states.push(StateAt { state, at: birth.now });
                states
            },
            states_dropped: 0,
            attempts: Vec::new(),
            attempts_dropped: 0,
            reason: None,
            result: None,
            decisions: Vec::new(),
            approval: None,
            constraints: None,
            artifacts: None,
            submitter: None,
            output_decisions: None,
            dispatch_tries: 0,
            original: None,
            origin: None,
        }
    }

    pub fn encode_into(&self, buffer: &mut Vec<u8>) {
        buffer.push(RECORD_VERSION);
        codec::encode_into(self, buffer);
    }

    /// Reads a record. When [`Job::lacks_spec`], the spec stands beside it.
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

    /// The files that came with the result.
    pub fn artifacts(&self) -> &[Artifact] {
        self.artifacts.as_deref().map_or(&[], Vec::as_slice)
    }

    /// Every blob that is needed as long as the job is on record: what its spec, which must be there, refers to, its
    /// files and the output of its attempts. The result of a task of a workflow is a blob where it is large, and may
    /// name others for the tasks that come after.
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

    pub fn has_large_spec(&self) -> bool {
        self.spec.len() > limits::INLINE_SPEC_BYTES_MAX
    }

    pub fn lacks_spec(&self) -> bool {
        self.spec.is_empty()
    }

    /// When the current state was entered.
    pub fn since(&self) -> Millis {
        self.states.last().map_or(self.created_at, |last| last.at)
    }

    /// When it ended, if it has.
    pub fn ended_at(&self) -> Option<Millis> {
        self.state.is_terminal().then(|| self.since())
    }

    /// The newest attempt's record.
    pub fn last_attempt(&self) -> Option<&AttemptRecord> {
        self.attempts.last()
    }

    pub fn last_attempt_mut(&mut self) -> Option<&mut AttemptRecord> {
        self.attempts.last_mut()
    }

    /// The runner that has the current attempt in hand.
    pub fn runner(&self) -> Option<(RunnerId, Incarnation)> {
        let last = self.last_attempt().filter(|_| self.state.is_on_runner())?;
        Some((last.runner, last.incarnation))
    }

    /// Whether the runner that has it in hand was asked to let go of it.
    pub fn is_to_stop(&self) -> bool {
        self.state == State::Cancelling || self.retracting
    }

    /// How long an attempt may run: what the job asked for, and no more than the policy allows.
    pub fn runtime_limit(&self) -> Option<Millis> {
        let allowed = self.constraints.as_ref().and_then(|constraints| constraints.max_runtime);
        [self.timeout, allowed].into_iter().flatten().min()
    }

    /// How many retries it has: what the job asked for, and no more than the policy allows.
    pub fn retry_limit(&self) -> u32 {
        let allowed = self.constraints.as_ref().and_then(|constraints| constraints.max_retries);
        allowed.map_or(self.max_retries, |allowed| allowed.min(self.max_retries))
    }

    /// The newest word of the policy.
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
                && matches!(attempt.end, Some(End::Error | End::Infrastructure | End::Stopped) | None)
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
        // Most jobs need one attempt: no room for more until there are more.
        self.attempts.reserve_exact(1);
        self.attempts.push(record);
    }
}

/// Encodes a small spec with its record and leaves a large one out.
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

    pub fn decode<'b, C>(d: &mut Decoder<'b>, _: &mut C) -> Result<Bytes, minicbor::decode::Error> {
        Ok(Bytes::copy_from_slice(d.bytes()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{EchoRun, Run};

    fn job(value: &str) -> Job {
        let echo = EchoRun { value: Json::of(&value), ..EchoRun::default() };
        let birth = Birth {
            id: JobId(1),
            queue: QueueId(2),
            seq: 3,
            now: Millis(4),
            queue_max_retries: limits::RETRIES_DEFAULT,
            runtime_max: None,
        };
        Job::new(birth, JobSpec::new(Run::Echo(echo)).pack())
    }

    fn stored(job: &Job) -> Vec<u8> {
        let mut bytes = Vec::new();
        job.encode_into(&mut bytes);
        bytes
    }

    #[test]
    fn a_record_survives_storage() {
        let job = job("small");
        assert_eq!(Job::decode(&stored(&job)).unwrap(), job);
    }

    #[test]
    fn a_large_spec_stands_beside_its_record() {
        let mut large = job(&"x".repeat(limits::INLINE_SPEC_BYTES_MAX));
        assert!(large.has_large_spec());
        let read = Job::decode(&stored(&large)).unwrap();
        assert!(read.lacks_spec());
        large.spec = Bytes::new();
        assert_eq!(read, large);
    }

    #[test]
    fn a_newer_record_is_named_as_such() {
        let mut bytes = stored(&job("x"));
        bytes[0] = RECORD_VERSION + 1;
        assert!(Job::decode(&bytes).unwrap_err().to_string().contains("newer version"));
    }

    #[test]
    fn a_long_life_keeps_its_first_and_newest_states() {
        let mut job = job("x");
        for at in 0..1000 {
            job.enter(State::Scheduled, Millis(at));
        }
        assert_eq!(job.states.len(), limits::HISTORY_ENTRIES_MAX);
        assert_eq!(job.states_dropped as usize, 1001 - limits::HISTORY_ENTRIES_MAX);
        assert_eq!(job.states[0].state, State::Pending);
        assert_eq!(job.since(), Millis(999));
    }

    /// Fields that a later version adds at the end are skipped, fields that an earlier one lacked are absent.
    #[test]
    fn readers_of_neighbouring_versions_understand_each_other() {
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
    fn a_record_names_all_its_blobs() {
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
    fn the_result_of_a_task_of_a_workflow_keeps_the_blobs_that_it_names() {
        let mut job = job("x");
        job.result = Some(Json::of(&serde_json::json!({"blob": BlobId::of(b"large"), "bytes": 5})));
        assert_eq!(job.blobs().unwrap(), []);
        let place = crate::workflow::Place::of(0);
        let workflow = crate::id::WorkflowId(1);
        job.origin = Some(Box::new(Origin { workflow, place, compensation: false }));
        assert_eq!(job.blobs().unwrap(), [BlobId::of(b"large")]);
    }

    #[test]
    fn a_record_keeps_artifacts_up_to_their_number_and_size() {
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
        fn any_bytes_as_a_record_end_without_a_panic(mut bytes: Vec<u8>) {
            if let Some(first) = bytes.first_mut() {
                *first = RECORD_VERSION;
            }
            let _ = Job::decode(&bytes);
        }

        #[test]
        fn a_damaged_record_ends_without_a_panic(at in 0usize..150, value: u8) {
            let mut bytes = stored(&job("some value"));
            let at = at % bytes.len();
            bytes[at] = value;
            let _ = Job::decode(&bytes);
        }
    }
}
