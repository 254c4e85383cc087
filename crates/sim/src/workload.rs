//! The workload of clients: jobs of every kind, single and in batches, with and without keys and queues.

use engine::{NewQueue, Submission};
use model::blob::BlobId;
use model::id::Slot;
use model::json::Json;
use model::limits;
use model::queue::{QueueRef, QueueToken};
use model::spec::{Digest, EchoRun, JobSpec, KeyHash, Priority, ProcessRun, Run, WasmRun};
use model::time::{Millis, Timestamp};

use crate::client::Operation;
use crate::operators::TOPICS;
use crate::rng::{Rate, Rng};
use crate::scenario::SECOND;
use crate::world::World;

const TENANTS: [&str; 3] = ["default", "north", "south"];

/// A random job. Times are relative to `now`.
fn some_job(rng: &mut Rng, now: Millis) -> JobSpec {
    let size = if rng.one_in(40) { limits::INLINE_SPEC_BYTES_MAX } else { 5 };
    let value = Json::of(&"x".repeat(size));
    let run = match rng.below(5) {
        0 | 1 => Run::Echo(EchoRun { value, ..EchoRun::default() }),
        2 => Run::Wasm(WasmRun { component: BlobId::of(b"x"), args: vec![], env: [].into(), stdin: String::new() }),
        _ => Run::Process(ProcessRun { command: vec!["true".to_owned()], ..ProcessRun::default() }),
    };
    let mut spec = JobSpec::new(run);
    // Unique content, so that the policy decides each job independently.
    spec.labels.insert("number".to_owned(), rng.next().to_string());
    spec.topic = rng.pick(&TOPICS).map_or("default", |topic| topic).to_owned();
    spec.tenant = rng.pick(&TENANTS).map_or("default", |tenant| tenant).to_owned();
    spec.priority = rng.pick(&Priority::ALL).copied().unwrap_or_default();
    if rng.one_in(4) {
        spec.timeout_ms = Some(rng.between(100, 20 * SECOND));
    }
    if rng.one_in(8) {
        spec.deadline = Some(Timestamp(now + Millis(rng.below(60 * SECOND))));
    }
    if rng.one_in(5) {
        spec.not_before = Some(Timestamp(now + Millis(rng.below(60 * SECOND))));
    }
    spec.exclusive = rng.one_in(5);
    if rng.one_in(2) {
        spec.max_retries = Some(rng.below(4) as u32);
    }
    spec
}

impl World {
    fn submission(&mut self, spec: &JobSpec) -> Submission {
        let mut submission = Submission::new(spec.clone().pack(), spec.queue);
        submission.submitter = self.rng.one_in(2).then(|| "a client".into());
        self.attach_decision(&mut submission);
        submission
    }

    fn clients_clock(&self) -> Millis {
        self.scenario.start + Millis(self.now)
    }

    /// Usually sets the queue's tenant. Jobs of other tenants are refused.
    fn put_into(&mut self, spec: &mut JobSpec, queue: QueueRef, tenant: &str) {
        spec.queue = Some(queue);
        if !self.rng.one_in(20) {
            tenant.clone_into(&mut spec.tenant);
        }
    }

    pub(crate) fn submit_one(&mut self) {
        let now = self.clients_clock();
        let keyed = self.rng.chance(self.scenario.keyed);
        let queue = if self.rng.one_in(3) { self.rng.pick(&self.clients.queues).cloned() } else { None };
        match (keyed, queue) {
            (true, None) => self.submit_keyed(),
            (_, Some((queue, tenant))) => {
                let mut spec = some_job(&mut self.rng, now);
                self.put_into(&mut spec, queue, &tenant);
                let shard = usize::from(self.scenario.shards.owner(queue.slot()).0);
                if keyed {
                    spec.idempotency_key = Some(format!("{queue} {}", self.rng.below(1_000_000)));
                }
                let jobs = vec![self.submission(&spec)];
                self.send(shard, Operation::Submit { jobs }, keyed, 0);
            }
            (false, None) => {
                let spec = some_job(&mut self.rng, now);
                let shard = self.rng.index(self.hosts.len());
                let jobs = vec![self.submission(&spec)];
                self.send(shard, Operation::Submit { jobs }, false, 0);
            }
        }
    }

    /// Submits with a key that other clients may use at the same time, usually with the same body.
    fn submit_keyed(&mut self) {
        let number = self.rng.below(self.clients.keys);
        let mut content = Rng::new(number);
        let mut spec = some_job(&mut content, self.scenario.start);
        spec.idempotency_key = Some(format!("key {number}"));
        // The same key with several queues, on several shards.
        if self.rng.one_in(2)
            && let Some((queue, tenant)) = self.rng.pick(&self.clients.queues).cloned()
        {
            spec.queue = Some(queue);
            spec.tenant = if number.is_multiple_of(2) { spec.tenant } else { tenant };
        }
        if self.rng.one_in(12) {
            spec.labels.insert("other".to_owned(), "body".to_owned());
        }
        let packed = self.submission(&spec);
        let slot = spec.queue.map_or(packed.spec.key.map_or(Slot::of(0), KeyHash::slot), |queue| queue.slot());
        let shard = usize::from(self.scenario.shards.owner(slot).0);
        // Sometimes twice in one request, or in two concurrent requests.
        let jobs = if self.rng.one_in(10) { vec![packed.clone(), packed.clone()] } else { vec![packed.clone()] };
        self.send(shard, Operation::Submit { jobs }, true, 0);
        if self.rng.one_in(6) {
            self.send(shard, Operation::Submit { jobs: vec![packed] }, true, 0);
        }
    }

    pub(crate) fn submit_many(&mut self) {
        let now = self.clients_clock();
        let shard = self.rng.index(self.hosts.len());
        let queue = self.rng.pick(&self.clients.queues).cloned();
        let queue = queue.filter(|(queue, _)| usize::from(self.scenario.shards.owner(queue.slot()).0) == shard);
        let jobs = (0..self.rng.between(2, 12))
            .map(|_| {
                let mut spec = some_job(&mut self.rng, now);
                if let Some((queue, tenant)) = &queue {
                    self.put_into(&mut spec, *queue, tenant);
                }
                self.submission(&spec)
            })
            .collect();
        self.send(shard, Operation::Submit { jobs }, false, 0);
    }

    pub(crate) fn create_queue(&mut self) {
        let key = self.rng.chance(Rate(4_000)).then(|| self.rng.below(20));
        let tenant = self.rng.pick(&TENANTS).map_or("default", |tenant| tenant);
        let hash = key.map(|key| KeyHash::of(tenant, &format!("queue {key}")));
        let slot = hash.map_or_else(|| Slot::of(self.rng.next()), KeyHash::slot);
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&self.rng.next().to_le_bytes());
        let new = NewQueue {
            token: QueueToken::new(secret, slot),
            tag: String::new(),
            tenant: tenant.to_owned(),
            max_retries: self.rng.below(4) as u32,
            max_running: self.rng.one_in(3).then(|| self.rng.between(1, 3) as u32),
            key: hash.map(|hash| (hash, Digest([1; 16]))),
        };
        let shard = usize::from(self.scenario.shards.owner(slot).0);
        let repeatable = new.key.is_some();
        self.send(shard, Operation::CreateQueue { queue: Box::new(new) }, repeatable, 0);
    }
}
