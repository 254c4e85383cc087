//! What has been committed, read from the batches themselves and kept apart from the store: the witness against
//! which everything else is checked.

pub mod flows;
mod story;
mod trail;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use engine::{Config, Setup, TenantLimits, Word};
use model::audit::Action;
use model::batch::{Batch, Keyspace, Op, ops};
use model::codec;
use model::dead_letter::{DeadLetter, is_dead};
use model::id::{Attempt, Epoch, Incarnation, JobId, QueueId, RunnerId, ShardId};
use model::job::Job;
use model::key::{self, KeyEntry, Made};
use model::message::{RunnerCursor, Ticket};
use model::queue::{Counters, Queue, QueueState};
use model::spec::{JobSpec, KeyHash, decode_owner};
use model::state::State;
use model::time::Millis;
use store::{ModelStore, Order, Range, Store};

use crate::coverage::Coverage;
use crate::invariants::{self, Begun, Checked, Violation};
use crate::policy::Policy;
use crate::scanner::Scanner;
use flows::{Flows, Tables, TouchedFlows};
use story::{adopts, loss, note_start, note_states};
use trail::Trail;

/// A job that was committed once.
#[derive(Debug)]
pub struct KnownJob {
    /// Its newest version, also after it was removed.
    pub record: Job,
    pub removed: bool,
    /// As it was accepted; a policy may only lower it.
    max_retries: u32,
    not_before: Option<Millis>,
}

#[derive(Debug, Default)]
struct KnownQueue {
    record: Option<Queue>,
    /// Every job it has had, by its newest state, removed or not.
    counted: Counters,
    on_runner: u32,
}

/// A batch that has landed.
#[derive(Debug, Clone, Copy)]
pub struct Commit<'a> {
    pub shard: ShardId,
    pub epoch: Epoch,
    pub process: u64,
    pub batch: &'a Batch,
    /// The engine's time when it flushed.
    pub now: Millis,
    /// What operators had said while it was in the making, in order.
    pub setups: &'a [Arc<Setup>],
    /// The attempts that were given out with it.
    pub begun: &'a BTreeMap<Ticket, Begun>,
}

/// Those whose words a commit is held against.
#[derive(Debug, Clone, Copy)]
pub struct Speakers<'a> {
    pub config: &'a Config,
    /// Of every topic.
    pub dispatch_tries_max: u32,
    pub tenants: &'a BTreeMap<String, TenantLimits>,
    pub policy: &'a Policy,
    pub scanner: &'a Scanner,
}

/// A running attempt that a shard has given up for lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    pub ticket: Ticket,
    pub runner: RunnerId,
    /// As the record had it before.
    pub incarnation: Incarnation,
}

type Table = BTreeMap<Vec<u8>, Bytes>;

#[derive(Debug, Default)]
pub struct Ledger {
    pub jobs: BTreeMap<JobId, KnownJob>,
    /// Jobs whose removal was asked for.
    pub removal_asked: BTreeSet<JobId>,
    queues: BTreeMap<QueueId, KnownQueue>,
    tables: BTreeMap<(ShardId, Keyspace), Table>,
    newest_epochs: BTreeMap<ShardId, Epoch>,
    owners: BTreeMap<(ShardId, Epoch), u64>,
    keys: BTreeMap<(ShardId, KeyHash), KeyEntry>,
    /// What the newest commit has given up.
    pub losses: Vec<Loss>,
    /// Attempts that have passed from one incarnation of their runner to the next.
    adopted: BTreeSet<Ticket>,
    pub trail: Trail,
    pub flows: Flows,
    /// What tenants have in all shards together.
    holdings: BTreeMap<String, Holding>,
    /// What people have said of jobs that wait for an approval.
    words: BTreeMap<JobId, Vec<Word>>,
}

/// What the records say a tenant has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Holding {
    pub running: i64,
    pub live: i64,
}

impl Holding {
    fn of(job: &Job) -> Self {
        Self { running: i64::from(job.state.is_on_runner()), live: i64::from(!job.state.is_terminal()) }
    }
}

/// What a commit has touched.
#[derive(Debug, Default)]
struct Touched {
    jobs: BTreeSet<JobId>,
    queues: BTreeSet<QueueId>,
    flows: TouchedFlows,
    /// The first job of each queue that was given out by this commit.
    began: BTreeMap<QueueId, JobId>,
}

fn unreadable(what: &str) -> Violation {
    Violation { invariant: "records_can_be_read", detail: what.to_owned() }
}

impl Ledger {
    /// A process has become the owner of a shard.
    pub fn opened(&mut self, shard: ShardId, epoch: Epoch, process: u64) -> Checked {
        let newest = self.newest_epochs.insert(shard, epoch).map_or(0, |newest| newest.0);
        let earlier = self.owners.insert((shard, epoch), process);
        let seen = earlier.is_some() || epoch.0 <= newest;
        let owner = if seen { earlier.or(Some(u64::MAX)) } else { Some(process) };
        invariants::invariant_only_the_owner_commits(shard, (epoch, epoch.max(Epoch(newest))), (process, owner))
    }

    pub fn newest_epoch(&self, shard: ShardId) -> Epoch {
        self.newest_epochs.get(&shard).copied().unwrap_or(Epoch(0))
    }

    /// Takes note of a commit that has landed, and checks everything it touches.
    pub fn observe(&mut self, commit: Commit<'_>, speakers: Speakers<'_>, coverage: &mut Coverage) -> Checked {
        let newest = self.newest_epoch(commit.shard);
        let owner = self.owners.get(&(commit.shard, commit.epoch)).copied();
        let epochs = (commit.epoch, newest);
        invariants::invariant_only_the_owner_commits(commit.shard, epochs, (commit.process, owner))?;
        let mut touched = Touched::default();
        self.losses.clear();
        self.trail.begin();
        let config = speakers.config;
        for op in ops(commit.batch.as_bytes()) {
            match op.map_err(|error| unreadable(&error.to_string()))? {
                Op::Put { keyspace, key, value } => {
                    if keyspace == Keyspace::Audit {
                        self.trail.follow(commit.shard, key, value, coverage)?;
                    }
                    self.put(commit.shard, (keyspace, key), value, config, &mut touched)?
                }
                Op::Delete { keyspace, key } => self.delete(commit, (keyspace, key), config, &mut touched)?,
                Op::Event { .. } => coverage.note("changes told"),
            }
        }
        self.trail
            .check_end(commit.shard, self.get(commit.shard, Keyspace::Meta, key::META_AUDIT).map(Bytes::as_ref))?;
        let (jobs, queues) = self.trail.subjects();
        touched.jobs.extend(jobs);
        touched.queues.extend(queues);
        let touched_flows = std::mem::take(&mut touched.flows);
        let tables = Tables { shard: commit.shard, all: &self.tables };
        let changed = self.flows.take(&touched_flows, &tables)?;
        for id in std::mem::take(&mut touched.jobs) {
            self.observe_job(id, commit, speakers, (&mut touched, coverage))?;
        }
        for id in &touched.queues {
            self.observe_queue(commit.shard, *id, &touched)?;
        }
        self.flows.check(&changed, commit.now, config.retention, coverage)?;
        let tables = Tables { shard: commit.shard, all: &self.tables };
        let trail = &self.trail;
        self.flows.check_schedules(&touched_flows, &changed, &tables, |name| trail.is_handled(name))?;
        for (tenant, limits) in speakers.tenants {
            let holding = self.holdings.get(tenant).copied().unwrap_or_default();
            invariants::invariant_tenants_stay_within_their_limits(tenant, *limits, holding)?;
        }
        invariants::invariant_every_policy_has_one_entry(commit.setups, self.trail.policy_changes())
    }

    /// Somebody has asked for something to be done to a job.
    pub fn note_asked(&mut self, job: JobId, action: Action) {
        if let Action::Removed | Action::LetterPurged = action {
            self.removal_asked.insert(job);
        }
        self.trail.note_asked(job, action);
    }

    /// Somebody has approved or rejected a job, or has tried to.
    pub fn note_word(&mut self, job: JobId, word: &Word) {
        self.words.entry(job).or_default().push(word.clone());
    }

    fn put(
        &mut self,
        shard: ShardId,
        (keyspace, key): (Keyspace, &[u8]),
        value: &[u8],
        config: &Config,
        touched: &mut Touched,
    ) -> Checked {
        note_touched(keyspace, key, touched);
        if keyspace == Keyspace::Keys {
            let entry: KeyEntry = codec::decode(value).map_err(|error| unreadable(&error.to_string()))?;
            let hash = key_hash(key).ok_or_else(|| unreadable("a key's key"))?;
            let before = self.keys.insert((shard, hash), entry);
            invariants::invariant_a_key_makes_one_thing(before.as_ref(), &entry, config.key_lifetime)?;
        }
        self.tables.entry((shard, keyspace)).or_default().insert(key.to_vec(), Bytes::copy_from_slice(value));
        Ok(())
    }

    fn delete(
        &mut self,
        commit: Commit<'_>,
        (keyspace, key): (Keyspace, &[u8]),
        config: &Config,
        touched: &mut Touched,
    ) -> Checked {
        note_touched(keyspace, key, touched);
        if keyspace == Keyspace::Audit {
            let detail = format!("shard {}: an entry was taken out of the audit log", commit.shard);
            return Err(Violation { invariant: "invariant_the_chain_is_unbroken", detail });
        }
        let removed = self.tables.entry((commit.shard, keyspace)).or_default().remove(key);
        if let (Keyspace::Keys, Some(value)) = (keyspace, removed) {
            let entry: KeyEntry = codec::decode(&value).map_err(|error| unreadable(&error.to_string()))?;
            if entry.at + config.key_lifetime > commit.now {
                let detail = format!("{entry:?} was forgotten at {}", commit.now.0);
                return Err(Violation { invariant: "invariant_a_key_makes_one_thing", detail });
            }
            // Its lifetime is over, if only by a clock that had jumped ahead: from now on it may stand for another.
            if let Some(hash) = key_hash(key) {
                self.keys.remove(&(commit.shard, hash));
            }
        }
        Ok(())
    }

    fn get(&self, shard: ShardId, keyspace: Keyspace, key: &[u8]) -> Option<&Bytes> {
        self.tables.get(&(shard, keyspace))?.get(key)
    }

    /// A job's record as it is now, from the one place where it may be.
    fn read_job(&self, shard: ShardId, id: JobId) -> Result<Option<Job>, Violation> {
        let live = self.get(shard, Keyspace::Live, &id.key());
        let done = self.get(shard, Keyspace::Done, &id.key());
        let (bytes, is_live) = match (live, done) {
            (None, None) => return Ok(None),
            (Some(bytes), None) => (bytes, true),
            (None, Some(bytes)) => (bytes, false),
            (Some(_), Some(_)) => return Err(unreadable(&format!("{id} is both live and done"))),
        };
        let mut job = Job::decode(bytes).map_err(|error| unreadable(&error.to_string()))?;
        if job.lacks_spec() {
            let spec = self.get(shard, Keyspace::Spec, &id.key());
            job.spec = spec.cloned().ok_or_else(|| unreadable(&format!("{id} has lost its spec")))?;
        }
        if job.state.is_terminal() == is_live {
            return Err(unreadable(&format!("{id} is {} and in the wrong place", job.state)));
        }
        Ok(Some(job))
    }

    fn observe_job(
        &mut self,
        id: JobId,
        commit: Commit<'_>,
        speakers: Speakers<'_>,
        (touched, coverage): (&mut Touched, &mut Coverage),
    ) -> Checked {
        let Some(job) = self.read_job(commit.shard, id)? else {
            self.check_letter(commit.shard, id, None)?;
            return self.observe_removal(id, commit.now, speakers.config, coverage);
        };
        let before = self.jobs.get(&id);
        note_states(before.map(|known| &known.record), &job, coverage);
        let (max_retries, not_before) = match before {
            Some(known) => (known.max_retries, known.not_before),
            None => self.observe_birth(commit.shard, &job)?,
        };
        let record = before.map(|known| &known.record);
        if let Some(record) = record {
            invariants::invariant_terminal_is_final(record, &job)?;
            invariants::invariant_an_attempt_stays_with_its_runner(record, &job)?;
            self.losses.extend(loss(record, &job));
            if adopts(record, &job) {
                coverage.note("attempts adopted");
                self.adopted.insert(Ticket { job: id, attempt: job.attempt });
            }
            if job.state == State::Succeeded && self.adopted.remove(&Ticket { job: id, attempt: job.attempt }) {
                coverage.note("results of adopted attempts");
            }
        }
        invariants::invariant_budgets_are_kept(record, &job, max_retries)?;
        invariants::invariant_nothing_starts_early(&job, not_before)?;
        invariants::invariant_the_search_for_a_runner_keeps_its_limit(&job, speakers.dispatch_tries_max)?;
        self.check_gates(record, &job, commit, speakers, coverage)?;
        self.check_letter(commit.shard, id, Some(&job))?;
        invariants::invariant_every_act_has_one_entry(record, &job, &self.trail.of_job(id))?;
        touched.queues.insert(job.queue);
        if job.attempt > record.map_or(Attempt::NONE, |record| record.attempt) {
            touched.began.entry(job.queue).or_insert(id);
        }
        let was = record.map_or(Holding::default(), Holding::of);
        self.flows.job_changed(record, &job)?;
        self.count(record.map(|record| record.state), &job);
        self.hold(was, &job)?;
        self.jobs.insert(id, KnownJob { record: job, removed: false, max_retries, not_before });
        Ok(())
    }

    /// A job has changed from holding this much of what its tenant may have. One that is removed holds nothing.
    fn hold(&mut self, was: Holding, job: &Job) -> Checked {
        let is = Holding::of(job);
        if was != is {
            let (_, tenant) = decode_owner(&job.spec).map_err(|error| unreadable(&error.to_string()))?;
            let holding = self.holdings.entry(tenant).or_default();
            holding.running += is.running - was.running;
            holding.live += is.live - was.live;
        }
        Ok(())
    }

    /// What the policy and people have to do with a job, on its way in and on its way out.
    fn check_gates(
        &self,
        before: Option<&Job>,
        job: &Job,
        commit: Commit<'_>,
        Speakers { policy, scanner, .. }: Speakers<'_>,
        coverage: &mut Coverage,
    ) -> Checked {
        invariants::invariant_decisions_are_never_invented(before, job, policy)?;
        let words = self.words.get(&job.id).map_or(&[][..], Vec::as_slice);
        invariants::invariant_approvals_are_never_invented(before, job, words)?;
        invariants::invariant_retries_stay_within_their_limits(before, job)?;
        let first = before.map_or(Attempt::NONE, |before| before.attempt).next();
        for attempt in first.0..=job.attempt.0 {
            let ticket = Ticket { job: job.id, attempt: Attempt(attempt) };
            // What nobody has seen being given out is held against the record itself.
            let gate = commit.setups.last().map_or(engine::Gate::Open, |setup| setup.gate);
            let begun = commit.begun.get(&ticket).cloned().unwrap_or_else(|| Begun::new(gate, job));
            invariants::invariant_starts_follow_the_rules_in_force(job, ticket, &begun, policy)?;
            invariants::invariant_starts_are_limited_as_decided(job, ticket, &begun)?;
            note_start(job, &begun, coverage);
        }
        invariants::invariant_output_decisions_are_never_invented(before, job, commit.setups, scanner)?;
        invariants::invariant_what_is_shown_may_be_seen(before, job, commit.setups, scanner)?;
        invariants::invariant_what_is_to_be_redacted_stays_inside(job, scanner)?;
        invariants::invariant_results_are_of_the_newest_attempt(job, scanner)
    }

    fn check_letter(&self, shard: ShardId, id: JobId, record: Option<&Job>) -> Checked {
        let letter = self.get(shard, Keyspace::DeadLetters, &id.key());
        let letter: Option<DeadLetter> =
            letter.map(|bytes| codec::decode(bytes)).transpose().map_err(|error| unreadable(&error.to_string()))?;
        invariants::invariant_what_ends_undone_leaves_a_letter(id, record, letter.as_ref())
    }

    /// Results that were shown and that nobody has looked at, although somebody should have.
    pub fn open_scans(&self) -> usize {
        self.tables.iter().filter(|((_, keyspace), _)| *keyspace == Keyspace::Scans).map(|(_, table)| table.len()).sum()
    }

    /// What a new job is held to: its retries and its time, and a key that stands for it.
    fn observe_birth(&self, shard: ShardId, job: &Job) -> Result<(u32, Option<Millis>), Violation> {
        let spec: JobSpec = job.decode_spec().map_err(|error| unreadable(&error.to_string()))?;
        if let Some(hash) = job.key {
            let made = self.keys.get(&(shard, hash)).map(|entry| entry.made);
            if made != Some(Made::Job { id: job.id, seq: job.seq }) {
                let detail = format!("{} was made under a key that stands for {made:?}", job.id);
                return Err(Violation { invariant: "invariant_a_key_makes_one_thing", detail });
            }
        }
        Ok((job.max_retries, spec.not_before.map(|time| time.0)))
    }

    fn observe_removal(&mut self, id: JobId, now: Millis, config: &Config, coverage: &mut Coverage) -> Checked {
        let Some(known) = self.jobs.get_mut(&id).filter(|known| !known.removed) else { return Ok(()) };
        known.removed = true;
        let asked = self.removal_asked.contains(&id);
        coverage.note(if asked { "removed by hand" } else { "removed by age" });
        let letter = is_dead(known.record.state);
        let retention = if letter { config.retention.max(config.dead_letter_retention) } else { config.retention };
        invariants::invariant_nothing_is_forgotten_early(&known.record, asked, now, retention)?;
        let due = known.record.ended_at().is_some_and(|ended| ended + retention < now);
        invariants::invariant_removals_have_one_entry(&known.record, due, &self.trail.of_job(id))
    }

    fn count(&mut self, before: Option<State>, job: &Job) {
        let queue = self.queues.entry(job.queue).or_default();
        if let Some(before) = before {
            let old = queue.counted.of(before);
            *old = old.saturating_sub(1);
            queue.on_runner -= u32::from(before.is_on_runner());
        }
        *queue.counted.of(job.state) += 1;
        queue.on_runner += u32::from(job.state.is_on_runner());
    }

    fn observe_queue(&mut self, shard: ShardId, id: QueueId, touched: &Touched) -> Checked {
        let bytes = self.get(shard, Keyspace::Queues, &id.key()).cloned();
        let known = self.queues.entry(id).or_default();
        let state_before = known.record.as_ref().map(|queue| queue.state);
        let was_cancelled = state_before == Some(QueueState::Cancelled);
        known.record = match bytes {
            Some(bytes) => Some(codec::decode(&bytes).map_err(|error| unreadable(&error.to_string()))?),
            None => None,
        };
        let state_after = known.record.as_ref().map(|queue| queue.state);
        let entries = self.trail.of_queue(id);
        invariants::invariant_every_act_on_a_queue_has_one_entry(id, state_before, state_after, &entries)?;
        let Some(queue) = &known.record else { return Ok(()) };
        invariants::invariant_counters_equal_a_recount(queue, &known.counted)?;
        let began = touched.began.get(&id).copied().filter(|_| was_cancelled);
        invariants::invariant_queues_keep_their_limits(queue, known.on_runner, began)
    }

    /// The newest incarnation of a runner that a shard has on record.
    pub fn heard_as(&self, shard: ShardId, runner: RunnerId) -> Option<Incarnation> {
        let bytes = self.get(shard, Keyspace::Runners, &model::key::runner(runner))?;
        codec::decode::<RunnerCursor>(bytes).ok().map(|cursor| cursor.incarnation)
    }

    /// How many records of a kind there are in all shards.
    pub fn count_of(&self, kind: Keyspace) -> usize {
        self.tables.iter().filter(|((_, keyspace), _)| *keyspace == kind).map(|(_, table)| table.len()).sum()
    }

    pub fn knows_queue(&self, id: QueueId) -> bool {
        self.queues.contains_key(&id)
    }

    /// The first difference between what was committed and what the store has.
    pub fn difference(&self, store: &ModelStore, shard: ShardId) -> Option<String> {
        for keyspace in Keyspace::ALL {
            let found = match store.scan(shard, keyspace, Range::all(), Order::Ascending, usize::MAX) {
                Ok(found) => found,
                Err(error) => return Some(error.to_string()),
            };
            let empty = Table::new();
            let expected = self.tables.get(&(shard, keyspace)).unwrap_or(&empty);
            let same = found.len() == expected.len()
                && found.iter().zip(expected).all(|((key, value), (k, v))| &key[..] == k.as_slice() && value == v);
            if !same {
                let (has, committed) = (found.len(), expected.len());
                return Some(format!(
                    "shard {shard}, {}: the store has {has} records, {committed} were committed, or one differs",
                    keyspace.name()
                ));
            }
        }
        None
    }
}

fn note_touched(keyspace: Keyspace, key: &[u8], touched: &mut Touched) {
    match keyspace {
        Keyspace::Live | Keyspace::Done | Keyspace::DeadLetters => touched.jobs.extend(JobId::from_key(key)),
        Keyspace::Queues => touched.queues.extend(QueueId::from_key(key)),
        Keyspace::Spec
        | Keyspace::ByQueue
        | Keyspace::ByState
        | Keyspace::Keys
        | Keyspace::Runners
        | Keyspace::Meta
        | Keyspace::Audit
        | Keyspace::Scans
        | Keyspace::Grants
        | Keyspace::Parked
        | Keyspace::LateWords => {}
        Keyspace::Workflows
        | Keyspace::WorkflowsDone
        | Keyspace::WorkflowSpecs
        | Keyspace::Tasks
        | Keyspace::Signals
        | Keyspace::Schedules => touched.flows.note(keyspace, key),
    }
}

/// The hash at the end of a key of the keyspace of keys.
fn key_hash(key: &[u8]) -> Option<KeyHash> {
    Some(KeyHash(key.get(2..)?.try_into().ok()?))
}
