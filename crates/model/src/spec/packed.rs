//! Encoded specs, as they are stored and sent: encoded once, decoded in parts.

use std::collections::BTreeMap;

use bytes::Bytes;
use minicbor::decode::Error;
use minicbor::{Decode, Decoder, Encode};

use super::{ExecutorKind, JobSpec, Limits, Priority, Requirements, Run, Sandbox};
use crate::blob::BlobId;
use crate::codec::{self, DecodeError};
use crate::id::{QueueId, Slot};
use crate::time::Millis;
use crate::verdict::Constraints;

impl JobSpec {
    /// Encodes the spec and extracts the values that scheduling needs. The queue is left out: the job's record has its
    /// id, and the reference may be a secret token, which must not be stored.
    pub fn pack(mut self) -> PackedSpec {
        self.queue = None;
        // A copy without spare capacity: it stays in memory as long as the job is live.
        let bytes = Bytes::copy_from_slice(&codec::encode(&self));
        PackedSpec {
            digest: Digest::of(&bytes),
            executor: self.run.executor(),
            priority: self.priority,
            timeout: self.timeout_ms.map(Millis),
            deadline: self.deadline.map(|time| time.0),
            not_before: self.not_before.map(|time| time.0),
            max_retries: self.max_retries,
            exclusive: self.exclusive,
            key: self.idempotency_key.as_ref().map(|key| KeyHash::of(&self.tenant, key)),
            requirements: Requirements::take(&mut self),
            tenant: self.tenant,
            bytes,
        }
    }
}

/// Decodes only the `run` of an encoded spec: all that an echo job needs.
pub fn decode_run(spec: &[u8]) -> Result<Run, DecodeError> {
    let malformed = |error: Error| DecodeError::Malformed(error.to_string());
    let mut decoder = Decoder::new(spec);
    decoder.array().map_err(malformed)?;
    // Skips topic, queue, tenant and priority.
    for _ in 0..4 {
        decoder.skip().map_err(malformed)?;
    }
    decoder.decode().map_err(malformed)
}

/// Decodes only the topic of an encoded spec.
pub fn decode_topic(spec: &[u8]) -> Result<&str, DecodeError> {
    let malformed = |error: Error| DecodeError::Malformed(error.to_string());
    let mut decoder = Decoder::new(spec);
    decoder.array().map_err(malformed)?;
    decoder.str().map_err(malformed)
}

/// Decodes only topic and tenant of an encoded spec.
pub fn decode_owner(spec: &[u8]) -> Result<(String, String), DecodeError> {
    #[derive(Decode)]
    struct Owner {
        #[n(0)]
        topic: String,
        #[n(2)]
        tenant: String,
    }
    let Owner { topic, tenant } = codec::decode(spec)?;
    Ok((topic, tenant))
}

/// The part of a spec that a runner needs. Field numbers are those of [`JobSpec`].
#[derive(Debug, Clone, PartialEq, Eq, Decode)]
pub struct Task {
    #[n(0)]
    pub topic: String,
    #[n(2)]
    pub tenant: String,
    #[n(4)]
    pub run: Run,
    /// Timeout of the spec. The shard enforces it; a policy may have shortened it.
    #[n(5)]
    pub timeout_ms: Option<u64>,
    #[cbor(n(10), decode_with = "sandbox_or_standard", default)]
    pub sandbox: Sandbox,
    #[cbor(n(12), default)]
    pub inputs: BTreeMap<String, BlobId>,
    #[cbor(n(13), default)]
    pub outputs: Vec<String>,
    #[cbor(n(14), default)]
    pub limits: Limits,
    /// The policy forbids network access.
    #[cbor(skip)]
    pub without_network: bool,
}

impl Task {
    /// Applies the policy's constraints.
    pub fn constrain(&mut self, constraints: &Constraints) {
        if let Some(least) = constraints.sandbox {
            self.sandbox = self.sandbox.stricter(least);
        }
        if constraints.network == Some(false) {
            self.without_network = true;
            // Without a sandbox the process has the server's rights: network access could not be prevented.
            self.sandbox = self.sandbox.stricter(Sandbox::Standard);
        }
        if let Some(most) = constraints.max_artifact_bytes {
            self.limits.output_bytes = Some(self.limits.output_bytes.map_or(most, |asked| asked.min(most)));
        }
    }
}

fn sandbox_or_standard<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Sandbox, Error> {
    Ok(d.decode::<Option<Sandbox>>()?.unwrap_or_default())
}

pub fn decode_task(spec: &[u8]) -> Result<Task, DecodeError> {
    codec::decode(spec)
}

/// [`JobSpec::blobs`] of an encoded spec. Specs without blobs, the common case, are not fully decoded.
pub fn decode_blobs(spec: &[u8]) -> Result<Vec<BlobId>, DecodeError> {
    #[derive(Decode)]
    struct Blobs {
        #[n(4)]
        run: Run,
        #[cbor(n(12), default)]
        inputs: BTreeMap<String, BlobId>,
    }
    if !may_have_blobs(spec).map_err(|error| DecodeError::Malformed(error.to_string()))? {
        return Ok(Vec::new());
    }
    let blobs: Blobs = codec::decode(spec)?;
    Ok(blobs.run.component().into_iter().chain(blobs.inputs.into_values()).collect())
}

/// Cheap check of the field count and the executor.
fn may_have_blobs(spec: &[u8]) -> Result<bool, Error> {
    let mut decoder = Decoder::new(spec);
    let fields = decoder.array()?;
    // `inputs` is the thirteenth field.
    if fields.is_none_or(|fields| fields > 12) {
        return Ok(true);
    }
    for _ in 0..4 {
        decoder.skip()?;
    }
    decoder.array()?;
    let wasm = 2;
    Ok(decoder.u32()? == wasm)
}

/// Content hash of a spec: equal specs have equal digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Digest(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 16]);

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        Self(half(blake3::hash(bytes)))
    }

    /// Digest of the spec within a queue. Independent of whether the queue was given by id or token.
    pub fn within(mut self, queue: QueueId) -> Self {
        for (byte, other) in self.0.iter_mut().zip(queue.key()) {
            *byte ^= other;
        }
        self
    }
}

/// Hash of a tenant's idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct KeyHash(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 16]);

impl KeyHash {
    pub fn of(tenant: &str, key: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(tenant.as_bytes());
        // Separator: tenant names have no control characters, so (`a`, `bc`) and (`ab`, `c`) hash differently.
        hasher.update(&[0]);
        hasher.update(key.as_bytes());
        Self(half(hasher.finalize()))
    }

    /// The slot whose owner is the key's home.
    pub fn slot(self) -> Slot {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        Slot::of(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }
}

fn half(hash: blake3::Hash) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&hash.as_bytes()[..16]);
    half
}

/// A validated spec, encoded outside the shard's thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedSpec {
    pub bytes: Bytes,
    pub digest: Digest,
    pub executor: ExecutorKind,
    pub priority: Priority,
    pub timeout: Option<Millis>,
    pub deadline: Option<Millis>,
    pub not_before: Option<Millis>,
    pub max_retries: Option<u32>,
    pub exclusive: bool,
    pub key: Option<KeyHash>,
    pub tenant: String,
    pub requirements: Requirements,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::QueueRef;
    use crate::spec::{EchoRun, ProcessRun, WasmRun};

    fn process() -> JobSpec {
        JobSpec::new(Run::Process(ProcessRun { command: vec!["true".to_owned()], ..ProcessRun::default() }))
    }

    fn wasm() -> JobSpec {
        let component = BlobId::of(b"component");
        JobSpec::new(Run::Wasm(WasmRun { component, args: Vec::new(), env: BTreeMap::new(), stdin: String::new() }))
    }

    #[test]
    fn the_run_is_decoded_without_the_rest() {
        let spec = process();
        assert_eq!(decode_run(&spec.clone().pack().bytes).unwrap(), spec.run);
        assert!(decode_run(&[]).is_err());
    }

    #[test]
    fn a_task_has_the_fields_of_its_spec() {
        let mut spec = process();
        let task = decode_task(&spec.clone().pack().bytes).unwrap();
        assert_eq!((task.sandbox, task.inputs.len(), task.limits), (Sandbox::Standard, 0, Limits::default()));
        spec.topic = "t".to_owned();
        spec.tenant = "u".to_owned();
        spec.timeout_ms = Some(7);
        spec.labels.insert("not".to_owned(), "needed".to_owned());
        spec.limits.pids = Some(3);
        // Absent and present sandbox, followed by present fields.
        for sandbox in [None, Some(Sandbox::Strict)] {
            spec.sandbox = sandbox;
            spec.inputs.insert("in".to_owned(), BlobId::of(b"x"));
            spec.outputs = vec!["*".to_owned()];
            let task = decode_task(&spec.clone().pack().bytes).unwrap();
            assert_eq!((task.topic.as_str(), task.tenant.as_str(), task.timeout_ms), ("t", "u", Some(7)));
            assert_eq!((task.run, task.sandbox), (spec.run.clone(), sandbox.unwrap_or_default()));
            assert_eq!(
                (task.inputs, task.outputs, task.limits),
                (spec.inputs.clone(), spec.outputs.clone(), spec.limits)
            );
        }
    }

    #[test]
    fn blobs_of_an_encoded_spec_are_those_of_the_spec() {
        let echo = JobSpec::new(Run::Echo(EchoRun::default()));
        let mut keyed = process();
        keyed.idempotency_key = Some("k".to_owned());
        let mut with_inputs = process();
        with_inputs.inputs.insert("in".to_owned(), BlobId::of(b"x"));
        let mut limited = process();
        limited.limits.pids = Some(1);
        let mut both = wasm();
        both.inputs.insert("in".to_owned(), BlobId::of(b"x"));
        for spec in [echo, keyed, with_inputs, limited, wasm(), both] {
            let expected: Vec<BlobId> = spec.blobs().collect();
            assert_eq!(decode_blobs(&spec.pack().bytes).unwrap(), expected);
        }
        assert!(decode_blobs(&[]).is_err());
    }

    #[test]
    fn a_digest_depends_on_the_queue_and_not_on_its_reference() {
        let mut spec = process();
        let plain = spec.clone().pack();
        spec.queue = Some(QueueRef::Id(QueueId(7)));
        let packed = spec.pack();
        assert_eq!((packed.digest, &packed.bytes), (plain.digest, &plain.bytes));
        assert_ne!(packed.digest.within(QueueId(7)), packed.digest.within(QueueId(8)));
    }

    #[test]
    fn idempotency_keys_of_two_tenants_differ() {
        assert_ne!(KeyHash::of("a", "bc"), KeyHash::of("ab", "c"));
    }
}
