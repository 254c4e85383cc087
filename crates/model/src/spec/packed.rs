//! A spec in the form in which it is kept and sent: encoded once, read in parts.

use std::collections::BTreeMap;

use bytes::Bytes;
use minicbor::decode::Error;
use minicbor::{Decode, Decoder, Encode};

use super::{JobSpec, Lane, Limits, Priority, Run, Sandbox, Wants};
use crate::blob::BlobId;
use crate::codec::{self, DecodeError};
use crate::id::QueueId;
use crate::time::Millis;
use crate::verdict::Constraints;

impl JobSpec {
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
            wants: Wants::take(&mut self),
            tenant: self.tenant,
            bytes,
        }
    }
}

/// The `run` of an encoded spec, without reading the rest: all that an echo job needs.
pub fn decode_run(spec: &[u8]) -> Result<Run, DecodeError> {
    let malformed = |error: Error| DecodeError::Malformed(error.to_string());
    let mut decoder = Decoder::new(spec);
    decoder.array().map_err(malformed)?;
    // Topic, queue, tenant and priority stand before it.
    for _ in 0..4 {
        decoder.skip().map_err(malformed)?;
    }
    decoder.decode().map_err(malformed)
}

/// The topic of an encoded spec, without reading the rest.
pub fn decode_topic(spec: &[u8]) -> Result<&str, DecodeError> {
    let malformed = |error: Error| DecodeError::Malformed(error.to_string());
    let mut decoder = Decoder::new(spec);
    decoder.array().map_err(malformed)?;
    decoder.str().map_err(malformed)
}

/// The topic and the tenant of an encoded spec.
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

/// What a runner needs of a spec: the same fields under the same numbers, and none of the others.
#[derive(Debug, Clone, PartialEq, Eq, Decode)]
pub struct Task {
    #[n(0)]
    pub topic: String,
    #[n(2)]
    pub tenant: String,
    #[n(4)]
    pub run: Run,
    /// What the job asked for. The shard keeps watch over it, and a policy may have shortened it.
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
    /// The policy has taken the network away from it.
    #[cbor(skip)]
    pub without_network: bool,
}

impl Task {
    /// Narrows what it asks for to what the policy allows.
    pub fn constrain(&mut self, constraints: &Constraints) {
        if let Some(least) = constraints.sandbox {
            self.sandbox = self.sandbox.stricter(least);
        }
        if constraints.network == Some(false) {
            self.without_network = true;
            // Nothing can be kept from a process that runs with the rights of the server itself.
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

/// [`JobSpec::blobs`] of an encoded spec. Most jobs have none, and that is found out without reading them.
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

/// By the number of its fields, and by what it runs.
fn may_have_blobs(spec: &[u8]) -> Result<bool, Error> {
    let mut decoder = Decoder::new(spec);
    let fields = decoder.array()?;
    // Inputs are the thirteenth.
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
    pub wants: Wants,
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
    fn the_run_is_found_in_an_encoded_spec() {
        let spec = process();
        assert_eq!(decode_run(&spec.clone().pack().bytes).unwrap(), spec.run);
        assert!(decode_run(&[]).is_err());
    }

    #[test]
    fn a_runner_reads_what_concerns_it() {
        let mut spec = process();
        let task = decode_task(&spec.clone().pack().bytes).unwrap();
        assert_eq!((task.sandbox, task.inputs.len(), task.limits), (Sandbox::Standard, 0, Limits::default()));
        spec.topic = "t".to_owned();
        spec.tenant = "u".to_owned();
        spec.timeout_ms = Some(7);
        spec.labels.insert("not".to_owned(), "needed".to_owned());
        spec.limits.pids = Some(3);
        // A sandbox that is absent, and one that is not, before fields that are there.
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
    fn blobs_are_found_in_an_encoded_spec() {
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
    fn a_digest_tells_queues_apart_but_not_how_they_were_named() {
        let mut spec = process();
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
}
