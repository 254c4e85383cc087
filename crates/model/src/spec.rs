//! What a user asks for: one job.

mod packed;
mod validate;
mod wants;

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
pub use validate::{Invalid, name, relative_path, validate_key};
pub use wants::{Wants, decode_wants};

/// Which of the waiting jobs goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
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

/// What kind of slot of a runner a job needs. Echo jobs cost next to nothing and must not wait behind processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Lane {
    #[n(0)]
    Process,
    #[n(1)]
    Echo,
    #[n(2)]
    Wasm,
}

impl Lane {
    pub const ALL: [Self; 3] = [Self::Process, Self::Echo, Self::Wasm];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Echo => "echo",
            Self::Wasm => "wasm",
        }
    }

    /// Whether an attempt that ended because its server was restarted may start again without using a budget:
    /// it lived inside the server and cannot have been the cause.
    pub fn restarts_free_of_charge(self) -> bool {
        match self {
            Self::Echo | Self::Wasm => true,
            Self::Process => false,
        }
    }
}

/// A program and what it is given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessRun {
    /// The program and its arguments; with a function, what is added to the function's own command.
    #[n(0)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    #[n(1)]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[n(2)]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stdin: String,
    /// The registered bundle whose files it finds in its place.
    #[n(3)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerId>,
    /// One of the commands that the bundle names.
    #[n(4)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
}

/// How an echo job is to fail, for tests and demonstrations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
pub enum EchoFailure {
    /// Uses retries.
    #[n(0)]
    Error,
    /// Ends the job at once.
    #[n(1)]
    Fatal,
}

/// Returns its value, after a delay if one is given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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

/// A WebAssembly component with `wasi:cli/run`, and what it is given.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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

/// What is to be run.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Run {
    #[n(0)]
    Process(#[n(0)] ProcessRun),
    #[n(1)]
    Echo(#[n(0)] EchoRun),
    #[n(2)]
    Wasm(#[n(0)] WasmRun),
}

impl Run {
    pub fn lane(&self) -> Lane {
        match self {
            Self::Process(_) => Lane::Process,
            Self::Echo(_) => Lane::Echo,
            Self::Wasm(_) => Lane::Wasm,
        }
    }

    /// The blob that it is made of, if it is made of one.
    pub fn component(&self) -> Option<BlobId> {
        match self {
            Self::Process(_) | Self::Echo(_) => None,
            Self::Wasm(wasm) => Some(wasm.component),
        }
    }
}

/// How far a process is kept from its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
pub enum Sandbox {
    #[n(0)]
    Strict,
    /// What a job gets that does not say.
    #[default]
    #[n(1)]
    Standard,
    #[n(2)]
    None,
}

impl Sandbox {
    /// Of two the one that keeps a process further from its host.
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

/// How much one attempt may use. Absent means: as much as its node gives to anyone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Of all its processes together, on all cores.
    #[n(0)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    #[n(1)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Processes and threads at once.
    #[n(2)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// What is kept of its output, and what it may leave in files that `outputs` names.
    #[n(3)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    #[n(4)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// A budget of instructions: the same for the same work, on any machine.
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

/// A job as it is asked for: the body of a submit, and what is kept of it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    /// How long one attempt may run.
    #[n(5)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// When the job must have ended, whatever it takes.
    #[n(6)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    #[n(7)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// Absent: the queue's.
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
    /// Files that it finds in its working directory, by their path there.
    #[cbor(n(12), skip_if = "BTreeMap::is_empty")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, BlobId>,
    /// Which of the files it leaves behind are kept: globs over paths in its working directory.
    #[cbor(n(13), skip_if = "Vec::is_empty")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
    #[cbor(n(14), skip_if = "Limits::is_empty")]
    #[serde(default, skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// Capabilities that the runner, or one of its pools, must have.
    #[cbor(n(15), skip_if = "Vec::is_empty")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
}

impl JobSpec {
    /// An otherwise ordinary job that does `run`.
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
        }
    }

    /// Every blob that it refers to. As long as the job is on record they must be kept.
    pub fn blobs(&self) -> impl Iterator<Item = BlobId> + '_ {
        self.run.component().into_iter().chain(self.inputs.values().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn a_spec_survives_storage_and_json() {
        for text in [
            r#"{"run":{"echo":{"value":{"a":[1,2]},"delay_ms":5}},"priority":"batch","labels":{"x":"y"},
                "not_before":"2026-01-01T00:00:00Z","max_retries":2}"#,
            r#"{"run":{"process":{"command":["-v"],"worker":"w_000102030405060708090a0b0c0d0e0f","function":"main"}},
                "sandbox":"strict","outputs":["out/**"],"limits":{"memory_bytes":1024,"pids":5}}"#,
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
    fn a_spec_names_all_its_blobs() {
        let (component, input) = (BlobId::of(b"component"), BlobId::of(b"input"));
        let wasm = WasmRun { component, args: Vec::new(), env: BTreeMap::new(), stdin: String::new() };
        let mut spec = JobSpec::new(Run::Wasm(wasm));
        spec.inputs.insert("in".to_owned(), input);
        assert_eq!(spec.blobs().collect::<Vec<_>>(), [component, input]);
        assert_eq!(JobSpec::new(Run::Echo(EchoRun::default())).blobs().count(), 0);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_as_a_stored_spec_end_without_a_panic(bytes: Vec<u8>) {
            let _ = codec::decode::<JobSpec>(&bytes);
            let _ = decode_task(&bytes);
            let _ = decode_run(&bytes);
            let _ = decode_blobs(&bytes);
        }

        #[test]
        fn any_text_as_a_spec_ends_without_a_panic(text in ".{0,200}") {
            let _ = serde_json::from_str::<JobSpec>(&text);
        }
    }
}
