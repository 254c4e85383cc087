//! Job specs: the input of a submit.

mod packed;
mod requirements;
mod validate;

use std::collections::BTreeMap;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::blob::{BlobId, WorkerId};
use crate::json::Json;
use crate::queue::QueueRef;
use crate::time::Timestamp;

pub use packed::{
    Digest, KeyHash, PackedSpec, Task, decode_blobs, decode_owner, decode_run, decode_task, decode_topic,
};
pub use requirements::{EXCLUSIVE_CAPABILITY, Requirements, decode_requirements};
pub use validate::{Invalid, name, relative_path, validate_key};

/// Priority class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Priority {
    #[n(0)]
    Critical,
    #[default]
    #[n(1)]
    Interactive,
    #[n(2)]
    Batch,
}

impl Priority {
    pub const ALL: [Self; 3] = [Self::Critical, Self::Interactive, Self::Batch];
}

/// Executor of a job. Runners have separate slots per executor: cheap echo jobs must not wait behind processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum ExecutorKind {
    #[n(0)]
    Process,
    #[n(1)]
    Echo,
    #[n(2)]
    Wasm,
}

impl ExecutorKind {
    pub const ALL: [Self; 3] = [Self::Process, Self::Echo, Self::Wasm];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Echo => "echo",
            Self::Wasm => "wasm",
        }
    }

    /// Whether an attempt that was lost in a restart of its server uses no retry budget. True for executors inside the
    /// server process, whose attempts cannot have caused the restart.
    pub fn restarts_free_of_charge(self) -> bool {
        match self {
            Self::Echo | Self::Wasm => true,
            Self::Process => false,
        }
    }
}

/// A program with its arguments, environment and standard input.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ProcessRun {
    /// Program and arguments. With `function`: arguments appended to the function's command.
    #[n(0)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    #[n(1)]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[n(2)]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stdin: String,
    /// Worker whose files are available in `worker/`.
    #[n(3)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerId>,
    /// Function of the worker.
    #[n(4)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
}

/// Failure of an echo job, for tests and demonstrations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum EchoFailure {
    /// The job is retried.
    #[n(0)]
    Error,
    /// The job fails without a retry.
    #[n(1)]
    Fatal,
}

/// Returns `value` after `delay_ms`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EchoRun {
    #[n(0)]
    #[serde(default)]
    pub value: Json,
    #[n(1)]
    #[serde(default)]
    pub delay_ms: u64,
    #[n(2)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<EchoFailure>,
}

/// A WebAssembly component that exports `wasi:cli/run`, with its arguments, environment and standard input.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WasmRun {
    #[n(0)]
    pub component: BlobId,
    #[n(1)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    #[n(2)]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[n(3)]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stdin: String,
}

/// What a job runs: one of the executors with its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Run {
    #[n(0)]
    Process(#[n(0)] ProcessRun),
    #[n(1)]
    Echo(#[n(0)] EchoRun),
    #[n(2)]
    Wasm(#[n(0)] WasmRun),
}

impl Run {
    pub fn executor(&self) -> ExecutorKind {
        match self {
            Self::Process(_) => ExecutorKind::Process,
            Self::Echo(_) => ExecutorKind::Echo,
            Self::Wasm(_) => ExecutorKind::Wasm,
        }
    }

    /// Blob of the WebAssembly component.
    pub fn component(&self) -> Option<BlobId> {
        match self {
            Self::Process(_) | Self::Echo(_) => None,
            Self::Wasm(wasm) => Some(wasm.component),
        }
    }
}

/// Isolation level of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Sandbox {
    #[n(0)]
    Strict,
    /// The default.
    #[default]
    #[n(1)]
    Standard,
    #[n(2)]
    None,
}

impl Sandbox {
    /// The stricter of two levels.
    pub fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Strict, _) | (_, Self::Strict) => Self::Strict,
            (Self::Standard, _) | (_, Self::Standard) => Self::Standard,
            (Self::None, Self::None) => Self::None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Standard => "standard",
            Self::None => "none",
        }
    }
}

/// Resource limits of one attempt. Absent: the node's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Limits {
    /// CPU time of all processes of the attempt, on all cores.
    #[n(0)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    #[n(1)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Maximum number of processes and threads at a time.
    #[n(2)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Maximum total size of the files in `outputs/`.
    #[n(3)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    #[n(4)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// WebAssembly instruction budget. Deterministic: the same work uses the same fuel on any machine.
    #[n(5)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
}

impl Limits {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn default_name() -> String {
    "default".to_owned()
}

/// Spec of a job: the body of a submit, and its stored form.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobSpec {
    #[n(0)]
    #[serde(default = "default_name")]
    pub topic: String,
    #[n(1)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueRef>,
    #[n(2)]
    #[serde(default = "default_name")]
    pub tenant: String,
    #[n(3)]
    #[serde(default)]
    pub priority: Priority,
    #[n(4)]
    pub run: Run,
    /// Maximum run time of one attempt.
    #[n(5)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Time by which the job must have ended, retries included.
    #[n(6)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    #[n(7)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// Absent: the queue's value.
    #[n(8)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    #[n(9)]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[n(10)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    #[n(11)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Input blobs by path below `inputs/`.
    #[cbor(n(12), skip_if = "BTreeMap::is_empty")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, BlobId>,
    /// Globs over paths below `outputs/`: the files to store as artifacts.
    #[cbor(n(13), skip_if = "Vec::is_empty")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
    #[cbor(n(14), skip_if = "Limits::is_empty")]
    #[serde(default, skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// Required capabilities of the runner or one of its pools.
    #[cbor(n(15), skip_if = "Vec::is_empty")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// No two attempts run at the same time, whatever fails: an attempt is killed when its lease runs out, and the next
    /// one starts only after that.
    #[cbor(n(16), skip_if = "is_false")]
    #[serde(default, skip_serializing_if = "is_false")]
    pub exclusive: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl JobSpec {
    /// A spec with defaults for everything but `run`.
    pub fn new(run: Run) -> Self {
        Self {
            topic: default_name(),
            queue: None,
            tenant: default_name(),
            priority: Priority::default(),
            run,
            timeout_ms: None,
            deadline: None,
            not_before: None,
            max_retries: None,
            labels: BTreeMap::new(),
            sandbox: None,
            idempotency_key: None,
            inputs: BTreeMap::new(),
            outputs: Vec::new(),
            limits: Limits::default(),
            requires: Vec::new(),
            exclusive: false,
        }
    }

    /// All blobs that the spec refers to. They must be retained as long as the job is on record.
    pub fn blobs(&self) -> impl Iterator<Item = BlobId> + '_ {
        self.run.component().into_iter().chain(self.inputs.values().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn a_spec_round_trips_through_storage_and_json() {
        for text in [
            r#"{"run":{"echo":{"value":{"a":[1,2]},"delay_ms":5}},"priority":"batch","labels":{"x":"y"},
                "not_before":"2026-01-01T00:00:00Z","max_retries":2}"#,
            r#"{"run":{"process":{"command":["-v"],"worker":"w_000102030405060708090a0b0c0d0e0f","function":"main"}},
                "sandbox":"strict","outputs":["out/**"],"limits":{"memory_bytes":1024,"pids":5},"exclusive":true}"#,
            &format!(
                r#"{{"run":{{"wasm":{{"component":"{0}","args":["a"]}}}},"inputs":{{"a/b":"{0}"}}}}"#,
                BlobId::of(b"x")
            ),
        ] {
            let spec: JobSpec = serde_json::from_str(text).unwrap();
            assert_eq!(spec.validate(), Ok(()));
            assert_eq!(codec::decode::<JobSpec>(&spec.clone().pack().bytes).unwrap(), spec);
            let shown = serde_json::to_string(&spec).unwrap();
            assert_eq!(serde_json::from_str::<JobSpec>(&shown).unwrap(), spec);
        }
    }

    #[test]
    fn a_spec_lists_all_its_blobs() {
        let (component, input) = (BlobId::of(b"component"), BlobId::of(b"input"));
        let wasm = WasmRun { component, args: Vec::new(), env: BTreeMap::new(), stdin: String::new() };
        let mut spec = JobSpec::new(Run::Wasm(wasm));
        spec.inputs.insert("in".to_owned(), input);
        assert_eq!(spec.blobs().collect::<Vec<_>>(), [component, input]);
        assert_eq!(JobSpec::new(Run::Echo(EchoRun::default())).blobs().count(), 0);
    }

    proptest::proptest! {
        #[test]
        fn decoding_any_bytes_as_a_spec_does_not_panic(bytes: Vec<u8>) {
            let _ = codec::decode::<JobSpec>(&bytes);
            let _ = decode_task(&bytes);
            let _ = decode_run(&bytes);
            let _ = decode_blobs(&bytes);
        }

        #[test]
        fn parsing_any_text_as_a_spec_does_not_panic(text in ".{0,200}") {
            let _ = serde_json::from_str::<JobSpec>(&text);
        }
    }
}
