//! What a user asks for: one job.

use std::collections::BTreeMap;

use bytes::Bytes;
use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::codec::{self, DecodeError};
use crate::id::QueueId;
use crate::json::Json;
use crate::limits;
use crate::queue::QueueRef;
use crate::time::{Millis, Timestamp};

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
}

impl Lane {
    pub const ALL: [Self; 2] = [Self::Process, Self::Echo];

    /// Whether an attempt that ended because its server was restarted may start again without using a budget:
    /// it lived inside the server and cannot have been the cause.
    pub fn restarts_free_of_charge(self) -> bool {
        match self {
            Self::Echo => true,
            Self::Process => false,
        }
    }
}

/// A program and what it is given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessRun {
    #[n(0)]
    pub command: Vec<String>,
    #[n(1)]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[n(2)]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stdin: String,
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

/// What is to be run.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Run {
    #[n(0)]
    Process(#[n(0)] ProcessRun),
    #[n(1)]
    Echo(#[n(0)] EchoRun),
}

impl Run {
    pub fn lane(&self) -> Lane {
        match self {
            Self::Process(_) => Lane::Process,
            Self::Echo(_) => Lane::Echo,
        }
    }
}

/// How far a process is kept from its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
pub enum Sandbox {
    #[n(0)]
    Strict,
    #[n(1)]
    Standard,
    #[n(2)]
    None,
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
        }
    }

    /// Whether everything in it keeps its limits; the first thing that does not.
    pub fn validate(&self) -> Result<(), Invalid> {
        name("topic", &self.topic)?;
        name("tenant", &self.tenant)?;
        duration("timeout_ms", self.timeout_ms)?;
        if self.timeout_ms == Some(0) {
            return Err(Invalid::new("timeout_ms", "with 0 no attempt could ever end in time".to_owned()));
        }
        if let Some(retries) = self.max_retries.filter(|retries| *retries > limits::RETRIES_MAX) {
            return Err(Invalid::new(
                "max_retries",
                format!("{retries} retries are too many: at most {}", limits::RETRIES_MAX),
            ));
        }
        if let Some(key) = &self.idempotency_key {
            validate_key(key)?;
        }
        if self.labels.len() > limits::LABELS_MAX {
            return Err(Invalid::new(
                "labels",
                format!("{} labels are too many: at most {}", self.labels.len(), limits::LABELS_MAX),
            ));
        }
        for (label, value) in &self.labels {
            name("labels", label)?;
            if value.len() > limits::LABEL_VALUE_BYTES_MAX {
                return Err(Invalid::new(
                    "labels",
                    format!("the value of `{label}` is longer than {} bytes", limits::LABEL_VALUE_BYTES_MAX),
                ));
            }
        }
        match &self.run {
            Run::Echo(echo) => duration("run.echo.delay_ms", Some(echo.delay_ms)),
            Run::Process(process) => self.validate_process(process),
        }
    }

    fn validate_process(&self, process: &ProcessRun) -> Result<(), Invalid> {
        match self.sandbox {
            Some(Sandbox::None) => {}
            Some(Sandbox::Strict | Sandbox::Standard) | None => {
                return Err(Invalid::unsupported(
                    "sandbox",
                    "this version cannot isolate a process yet: say `\"sandbox\": \"none\"` to run it with the server's own rights".to_owned(),
                ));
            }
        }
        let field = "run.process.command";
        match process.command.first() {
            None => return Err(Invalid::new(field, "the command is empty: name at least a program".to_owned())),
            Some(program) if program.is_empty() => {
                return Err(Invalid::new(field, "the program's name is empty".to_owned()));
            }
            Some(_) => {}
        }
        if process.command.len() > limits::COMMAND_ARGS_MAX {
            return Err(Invalid::new(field, format!("more than {} arguments", limits::COMMAND_ARGS_MAX)));
        }
        if process.command.iter().any(|argument| argument.contains('\0')) {
            return Err(Invalid::new(field, "an argument contains a zero byte".to_owned()));
        }
        if process.env.len() > limits::ENV_VARS_MAX {
            return Err(Invalid::new("run.process.env", format!("more than {} variables", limits::ENV_VARS_MAX)));
        }
        let bad_variable =
            |(key, value): (&String, &String)| key.is_empty() || key.contains(['=', '\0']) || value.contains('\0');
        if process.env.iter().any(bad_variable) {
            let message = "a variable's name is empty or contains `=`, or a zero byte is in it".to_owned();
            return Err(Invalid::new("run.process.env", message));
        }
        Ok(())
    }

    /// The bytes that are kept, and the few values that scheduling reads all the time. Which queue the job is in
    /// stands in its record: how it was named, perhaps by a secret token, is nobody's business later.
    pub fn pack(mut self) -> PackedSpec {
        self.queue = None;
        let bytes = Bytes::from(codec::encode(&self));
        PackedSpec {
            digest: Digest::of(&bytes),
            lane: self.run.lane(),
            priority: self.priority,
            timeout: self.timeout_ms.map(Millis),
            deadline: self.deadline.map(|time| time.0),
            not_before: self.not_before.map(|time| time.0),
            max_retries: self.max_retries,
            key: self.idempotency_key.as_ref().map(|key| KeyHash::of(&self.tenant, key)),
            tenant: self.tenant,
            bytes,
        }
    }
}

/// The `run` of an encoded spec, without reading the rest.
pub fn decode_run(spec: &[u8]) -> Result<Run, DecodeError> {
    let malformed = |error: minicbor::decode::Error| DecodeError::Malformed(error.to_string());
    let mut decoder = minicbor::Decoder::new(spec);
    decoder.array().map_err(malformed)?;
    // Topic, queue, tenant and priority stand before it.
    for _ in 0..4 {
        decoder.skip().map_err(malformed)?;
    }
    decoder.decode().map_err(malformed)
}

/// Whether a text may be an idempotency key.
pub fn validate_key(key: &str) -> Result<(), Invalid> {
    if key.is_empty() || key.len() > limits::IDEMPOTENCY_KEY_BYTES_MAX {
        let message = format!(
            "an idempotency key has 1 to {} bytes, this one has {}",
            limits::IDEMPOTENCY_KEY_BYTES_MAX,
            key.len()
        );
        return Err(Invalid::new("idempotency_key", message));
    }
    Ok(())
}

/// Whether a text may name a topic, tenant, tag or label.
pub fn name(field: &'static str, text: &str) -> Result<(), Invalid> {
    if text.is_empty() {
        return Err(Invalid::new(field, "it is empty".to_owned()));
    }
    if text.len() > limits::NAME_BYTES_MAX {
        return Err(Invalid::new(field, format!("it has {} bytes: at most {}", text.len(), limits::NAME_BYTES_MAX)));
    }
    if text.chars().any(char::is_control) {
        return Err(Invalid::new(field, "it contains control characters".to_owned()));
    }
    Ok(())
}

fn duration(field: &'static str, value: Option<u64>) -> Result<(), Invalid> {
    match value {
        Some(millis) if Millis(millis) > limits::DURATION_MAX => {
            Err(Invalid::new(field, format!("{millis} ms is longer than a year: at most {}", limits::DURATION_MAX.0)))
        }
        Some(_) | None => Ok(()),
    }
}

/// A value that cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: {message}")]
pub struct Invalid {
    /// The path of the value in the request.
    pub field: &'static str,
    pub message: String,
    /// The contract knows it, this version does not do it.
    pub unsupported: bool,
}

impl Invalid {
    pub fn new(field: &'static str, message: String) -> Self {
        Self { field, message, unsupported: false }
    }

    pub fn unsupported(field: &'static str, message: String) -> Self {
        Self { field, message, unsupported: true }
    }
}

/// Names the content of a job: the same job, the same digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Digest(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 16]);

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        Self(half(blake3::hash(bytes)))
    }

    /// The digest of the same content in a queue: however the queue was named, and different in each.
    pub fn within(mut self, queue: QueueId) -> Self {
        for (byte, other) in self.0.iter_mut().zip(queue.key()) {
            *byte ^= other;
        }
        self
    }
}

/// Names an idempotency key of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct KeyHash(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 16]);

impl KeyHash {
    pub fn of(tenant: &str, key: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(tenant.as_bytes());
        // No tenant's name contains a control character, so this keeps (`a`, `bc`) and (`ab`, `c`) apart.
        hasher.update(&[0]);
        hasher.update(key.as_bytes());
        Self(half(hasher.finalize()))
    }

    /// A number to route by.
    pub fn number(self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

fn half(hash: blake3::Hash) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&hash.as_bytes()[..16]);
    half
}

/// A validated spec on its way into a shard: encoded once, outside the shard's own thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedSpec {
    pub bytes: Bytes,
    pub digest: Digest,
    pub lane: Lane,
    pub priority: Priority,
    pub timeout: Option<Millis>,
    pub deadline: Option<Millis>,
    pub not_before: Option<Millis>,
    pub max_retries: Option<u32>,
    pub key: Option<KeyHash>,
    pub tenant: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(command: &[&str]) -> JobSpec {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        let mut spec = JobSpec::new(Run::Process(ProcessRun { command, ..ProcessRun::default() }));
        spec.sandbox = Some(Sandbox::None);
        spec
    }

    #[test]
    fn a_spec_survives_storage_and_json() {
        let text = r#"{"run":{"echo":{"value":{"a":[1,2]},"delay_ms":5}},"priority":"batch","labels":{"x":"y"},
                       "not_before":"2026-01-01T00:00:00Z","max_retries":2}"#;
        let spec: JobSpec = serde_json::from_str(text).unwrap();
        assert_eq!(codec::decode::<JobSpec>(&spec.clone().pack().bytes).unwrap(), spec);
        let shown = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<JobSpec>(&shown).unwrap(), spec);
    }

    #[test]
    fn the_run_is_found_in_an_encoded_spec() {
        let spec = process(&["echo", "hi"]);
        assert_eq!(decode_run(&spec.clone().pack().bytes).unwrap(), spec.run);
        assert!(decode_run(&[]).is_err());
    }

    #[test]
    fn names_are_accepted_up_to_their_limit() {
        let mut spec = process(&["true"]);
        spec.topic = "x".repeat(limits::NAME_BYTES_MAX);
        assert_eq!(spec.validate(), Ok(()));
        spec.topic.push('x');
        assert_eq!(spec.validate().unwrap_err().field, "topic");
    }

    #[test]
    fn durations_and_retries_have_limits() {
        let mut spec = process(&["true"]);
        spec.timeout_ms = Some(limits::DURATION_MAX.0);
        spec.max_retries = Some(limits::RETRIES_MAX);
        assert_eq!(spec.validate(), Ok(()));
        spec.timeout_ms = Some(limits::DURATION_MAX.0 + 1);
        assert_eq!(spec.validate().unwrap_err().field, "timeout_ms");
        spec.timeout_ms = None;
        spec.max_retries = Some(limits::RETRIES_MAX + 1);
        assert_eq!(spec.validate().unwrap_err().field, "max_retries");
    }

    #[test]
    fn a_process_says_that_it_wants_no_sandbox() {
        let mut spec = process(&["true"]);
        spec.sandbox = None;
        let refused = spec.validate().unwrap_err();
        assert!(refused.unsupported);
        assert_eq!(refused.field, "sandbox");
    }

    #[test]
    fn a_digest_tells_queues_apart_but_not_how_they_were_named() {
        let mut spec = process(&["true"]);
        let plain = spec.clone().pack();
        spec.queue = Some(QueueRef::Id(QueueId(7)));
        let packed = spec.pack();
        assert_eq!((packed.digest, &packed.bytes), (plain.digest, &plain.bytes));
        assert_ne!(packed.digest.within(QueueId(7)), packed.digest.within(QueueId(8)));
    }

    #[test]
    fn keys_of_two_tenants_differ() {
        assert_ne!(KeyHash::of("a", "bc"), KeyHash::of("ab", "c"));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_as_a_stored_spec_end_without_a_panic(bytes: Vec<u8>) {
            let _ = codec::decode::<JobSpec>(&bytes);
        }

        #[test]
        fn any_text_as_a_spec_ends_without_a_panic(text in ".{0,200}") {
            let _ = serde_json::from_str::<JobSpec>(&text);
        }
    }
}
