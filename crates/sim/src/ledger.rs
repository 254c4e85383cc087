//! The ledger: all committed records, decoded from the batches and independent of the store. The invariants check
//! everything against it.

mod audit;
mod changes;
mod failover;
pub mod workflows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use engine::{ApprovalDecision, Config, Settings, TenantLimits};
use model::audit::Action;
use model::batch::{Batch, Keyspace, Op, ops};
use model::codec;
use model::dead_letter::{DeadLetter, is_dead};
use model::id::{Attempt, Epoch, Incarnation, JobId, QueueId, RunnerId, ShardId, WorkflowId};
use model::job::Job;
use model::key::{self, CreatedObject, KeyEntry};
use model::message::{AttemptRef, RunnerCursor};
use model::partition::partition_of;
use model::queue::{Counters, Queue, QueueState};
use model::spec::{JobSpec, KeyHash, decode_owner};
use model::state::State;
use model::time::Millis;
use model::workflow::Schedule;
use store::{ModelStore, Order, Range, Store};

use crate::coverage::Coverage;
use crate::invariants::{self, Checked, DispatchSnapshot, Violation};
use crate::policy::Policy;
use crate::scanner::Scanner;
use audit::AuditLogs;
use changes::{count_start, count_states, is_adoption, lost_attempt, new_result};
use failover::Losses;
use workflows::{Tables, TouchedWorkflows, Workflows};

/// A job that was ever committed.
#[derive(Debug)]
pub struct KnownJob {
    /// Newest version, also after its removal.
    pub record: Job,
    pub removed: bool,
    /// As accepted. A policy may only lower it.
    max_retries: u32,
    not_before: Option<Millis>,
}

#[derive(Debug, Default)]
struct KnownQueue {
    record: Option<Queue>,
    /// All its jobs by newest state, including removed ones.
    counted: Counters,
    on_runner: u32,
}

/// A landed batch.
#[derive(Debug, Clone, Copy)]
pub struct Commit<'a> {
    pub shard: ShardId,
    pub epoch: Epoch,
    pub process: u64,
    pub batch: &'a Batch,
    /// Engine time of the flush.
    pub now: Millis,
    /// Settings in force during the round, in order.
    pub settings: &'a [Arc<Settings>],
    /// Attempts dispatched in the round.
    pub dispatched: &'a BTreeMap<AttemptRef, DispatchSnapshot>,
}

/// What a commit is checked against.
#[derive(Debug, Clone, Copy)]
pub struct CheckContext<'a> {
    pub config: &'a Config,
    /// The same for all topics.
    pub dispatch_tries_max: u32,
    pub tenants: &'a BTreeMap<String, TenantLimits>,
    pub policy: &'a Policy,
    pub scanner: &'a Scanner,
}

/// A running attempt that a shard gave up as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostAttempt {
    pub attempt_ref: AttemptRef,
    pub runner: RunnerId,
    /// From the previous record.
    pub incarnation: Incarnation,
}

type Table = BTreeMap<Vec<u8>, Bytes>;

#[derive(Debug, Default)]
pub struct Ledger {
    pub jobs: BTreeMap<JobId, KnownJob>,
    /// Jobs with a removal request.
    pub removal_requested: BTreeSet<JobId>,
    /// Dead letters of compensations without a job, that were ever committed.
    pub compensation_letters: BTreeMap<JobId, WorkflowId>,
    queues: BTreeMap<QueueId, KnownQueue>,
    tables: BTreeMap<(ShardId, Keyspace), Table>,
    newest_epochs: BTreeMap<ShardId, Epoch>,
    owners: BTreeMap<(ShardId, Epoch), u64>,
    keys: BTreeMap<(ShardId, KeyHash), KeyEntry>,
    /// No clock jumps, so keys expire everywhere at the same time.
    clocks_agree: bool,
    /// Attempts given up by the newest commit.
    pub lost_attempts: Vec<LostAttempt>,
    /// Results recorded by the newest commit, with the runner of their attempt.
    pub results: Vec<(AttemptRef, RunnerId)>,
    /// Attempts adopted by a newer incarnation of their runner.
    adopted: BTreeSet<AttemptRef>,
    /// Attempts whose job was abandoned, together with their runner.
    pub abandoned: BTreeSet<AttemptRef>,
    pub audit: AuditLogs,
    pub workflows: Workflows,
    /// Usage of tenants over all shards.
    tenant_usage: BTreeMap<String, TenantUsage>,
    pub losses: Losses,
    /// All answers of approvers, by job.
    approvals: BTreeMap<JobId, Vec<ApprovalDecision>>,
}

/// Jobs of a tenant, according to the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantUsage {
    pub running: i64,
    pub live: i64,
}

impl TenantUsage {
    fn of(job: &Job) -> Self {
        Self { running: i64::from(job.state.is_on_runner()), live: i64::from(!job.state.is_terminal()) }
    }
}

/// Objects touched by a commit.
#[derive(Debug, Default)]
struct Touched {
    jobs: BTreeSet<JobId>,
    queues: BTreeSet<QueueId>,
    workflows: TouchedWorkflows,
    /// The first dispatched job of each queue.
    dispatched: BTreeMap<QueueId, JobId>,
}

fn unreadable(what: &str) -> Violation {
    Violation { invariant: "records_can_be_read", detail: what.to_owned() }
}

impl Ledger {
    pub fn new(clocks_agree: bool) -> Self {
        Self { clocks_agree, ..Self::default() }
    }

    /// A process has opened a shard.
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

    /// Applies a landed commit and checks everything it touches.
    pub fn observe(&mut self, commit: Commit<'_>, context: CheckContext<'_>, coverage: &mut Coverage) -> Checked {
        let newest = self.newest_epoch(commit.shard);
        let owner = self.owners.get(&(commit.shard, commit.epoch)).copied();
        let epochs = (commit.epoch, newest);
        invariants::invariant_only_the_owner_commits(commit.shard, epochs, (commit.process, owner))?;
        self.apply(commit, context, coverage)
    }

    /// Applies a commit of the owner.
    pub fn apply(&mut self, commit: Commit<'_>, context: CheckContext<'_>, coverage: &mut Coverage) -> Checked {
        self.losses.record(commit);
        let mut touched = Touched::default();
        self.lost_attempts.clear();
        self.results.clear();
        self.audit.begin_commit();
        let config = context.config;
        for op in ops(commit.batch.as_bytes()) {
            match op.map_err(|error| unreadable(&error.to_string()))? {
                Op::Put { keyspace, key, value } => {
                    if keyspace == Keyspace::Audit {
                        self.audit.verify(commit.shard, key, value, coverage)?;
                    }
                    let partition = partition_of(keyspace, key, value);
                    invariants::invariant_records_belong_to_their_shard(
                        commit.shard,
                        config.shards,
                        keyspace,
                        partition,
                    )?;
                    self.put(commit.shard, (keyspace, key), value, config, &mut touched)?
                }
                Op::Delete { keyspace, key } => self.delete(commit, (keyspace, key), config, &mut touched)?,
                Op::Event { .. } => coverage.count("events emitted"),
            }
        }
        self.audit
            .check_end(commit.shard, self.get(commit.shard, Keyspace::Meta, key::META_AUDIT).map(Bytes::as_ref))?;
        self.check_audit_start(commit, config, coverage)?;
        let (jobs, queues) = self.audit.subjects();
        touched.jobs.extend(jobs);
        touched.queues.extend(queues);
        let touched_workflows = std::mem::take(&mut touched.workflows);
        let tables = Tables { shard: commit.shard, all: &self.tables };
        let changed = self.workflows.apply(&touched_workflows, &tables)?;
        for id in std::mem::take(&mut touched.jobs) {
            self.observe_job(id, commit, context, (&mut touched, coverage))?;
        }
        for id in &touched.queues {
            self.observe_queue(commit.shard, *id, &touched)?;
        }
        self.workflows.check(&changed, commit.now, config.retention, coverage)?;
        let tables = Tables { shard: commit.shard, all: &self.tables };
        let audit = &self.audit;
        self.workflows.check_schedules(&touched_workflows, &changed, &tables, |name| audit.is_pause_changed(name))?;
        // A home that has lost its record of a grant, or a holder that has lost the end of a job, exceeds the limit.
        let tenants = context.tenants.iter().filter(|_| !self.losses.is_uneven);
        for (tenant, limits) in tenants {
            let usage = self.tenant_usage.get(tenant).copied().unwrap_or_default();
            invariants::invariant_tenants_stay_within_their_limits(tenant, *limits, usage)?;
        }
        invariants::invariant_policy_changes_have_one_audit_entry(commit.settings, self.audit.policy_changes())
    }

    /// Records a request for an operation on a job.
    pub fn record_request(&mut self, job: JobId, action: Action) {
        if let Action::Removed | Action::DeadLetterPurged = action {
            self.removal_requested.insert(job);
        }
        self.audit.record_request(job, action);
    }

    /// Records an answer of an approver.
    pub fn record_approval(&mut self, job: JobId, answer: &ApprovalDecision) {
        self.approvals.entry(job).or_default().push(answer.clone());
    }

    fn put(
        &mut self,
        shard: ShardId,
        (keyspace, key): (Keyspace, &[u8]),
        value: &[u8],
        config: &Config,
        touched: &mut Touched,
    ) -> Checked {
        mark_touched(keyspace, key, touched);
        if keyspace == Keyspace::Keys {
            let entry: KeyEntry = codec::decode(value).map_err(|error| unreadable(&error.to_string()))?;
            let hash = key_hash(key).ok_or_else(|| unreadable("a key of the keys keyspace is invalid"))?;
            let before = self.keys.insert((shard, hash), entry);
            invariants::invariant_a_key_creates_one_object(before.as_ref(), &entry, config.key_lifetime)?;
            let home = config.shards.owner(hash.slot());
            // A home that has lost its record of a claim cannot know that the key is in use.
            if home != shard && self.clocks_agree && !self.losses.is_uneven {
                invariants::invariant_keys_are_claimed(shard, &entry, self.keys.get(&(home, hash)))?;
            }
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
        mark_touched(keyspace, key, touched);
        if keyspace == Keyspace::Audit {
            self.audit.remove(commit.shard, key)?;
        }
        let removed = self.tables.entry((commit.shard, keyspace)).or_default().remove(key);
        if let (Keyspace::Keys, Some(value)) = (keyspace, removed) {
            let entry: KeyEntry = codec::decode(&value).map_err(|error| unreadable(&error.to_string()))?;
            if entry.at + config.key_lifetime > commit.now {
                let detail = format!("{entry:?} was deleted at {}, before its expiry", commit.now.0);
                return Err(Violation { invariant: "invariant_a_key_creates_one_object", detail });
            }
            // Expired, possibly by a clock that jumped ahead: the key may be used again.
            if let Some(hash) = key_hash(key) {
                self.keys.remove(&(commit.shard, hash));
            }
        }
        Ok(())
    }

    /// Checks the entries of the audit log that the commit removes.
    fn check_audit_start(&mut self, commit: Commit<'_>, config: &Config, coverage: &mut Coverage) -> Checked {
        let table = |keyspace| self.tables.get(&(commit.shard, keyspace));
        let stored = table(Keyspace::Meta).and_then(|table| table.get(key::META_AUDIT_START)).map(Bytes::as_ref);
        let entries = table(Keyspace::Audit).into_iter().flatten().map(|(key, value)| (key.as_slice(), value.as_ref()));
        self.audit.check_start((commit.shard, commit.now), (stored, entries), config, coverage)
    }

    fn get(&self, shard: ShardId, keyspace: Keyspace, key: &[u8]) -> Option<&Bytes> {
        self.tables.get(&(shard, keyspace))?.get(key)
    }

    /// The current record of a job, from the keyspace of live or of ended jobs.
    fn read_job(&self, shard: ShardId, id: JobId) -> Result<Option<Job>, Violation> {
        let live = self.get(shard, Keyspace::Live, &id.key());
        let done = self.get(shard, Keyspace::Done, &id.key());
        let (bytes, is_live) = match (live, done) {
            (None, None) => return Ok(None),
            (Some(bytes), None) => (bytes, true),
            (None, Some(bytes)) => (bytes, false),
            (Some(_), Some(_)) => {
                return Err(unreadable(&format!("{id} is in the keyspaces of live and of ended jobs")));
            }
        };
        let mut job = Job::decode(bytes).map_err(|error| unreadable(&error.to_string()))?;
        if job.lacks_spec() {
            let spec = self.get(shard, Keyspace::Spec, &id.key());
            job.spec = spec.cloned().ok_or_else(|| unreadable(&format!("the spec of {id} is missing")))?;
        }
        if job.state.is_terminal() == is_live {
            return Err(unreadable(&format!("{id} is {} but in the wrong keyspace", job.state)));
        }
        Ok(Some(job))
    }

    fn observe_job(
        &mut self,
        id: JobId,
        commit: Commit<'_>,
        context: CheckContext<'_>,
        (touched, coverage): (&mut Touched, &mut Coverage),
    ) -> Checked {
        let Some(job) = self.read_job(commit.shard, id)? else {
            self.check_compensation_letter(commit.shard, id)?;
            return self.observe_removal(id, commit.now, context.config, coverage);
        };
        let before = self.jobs.get(&id);
        count_states(before.map(|known| &known.record), &job, coverage);
        let (max_retries, not_before) = match before {
            Some(known) => (known.max_retries, known.not_before),
            None => {
                invariants::invariant_lost_ids_are_not_issued_again(&job, &self.losses.jobs)?;
                self.check_new_job(commit.shard, &job)?
            }
        };
        let record = before.map(|known| &known.record);
        if let Some(record) = record {
            invariants::invariant_terminal_is_final(record, &job)?;
            invariants::invariant_an_attempt_stays_with_its_runner(record, &job)?;
            invariants::invariant_one_result_is_taken(&job)?;
            self.lost_attempts.extend(lost_attempt(record, &job));
            if job.state == State::Abandoned {
                self.abandoned.insert(AttemptRef { job: id, attempt: job.attempt });
            }
            if is_adoption(record, &job) {
                coverage.count("attempts adopted");
                self.adopted.insert(AttemptRef { job: id, attempt: job.attempt });
            }
            if job.state == State::Succeeded && self.adopted.remove(&AttemptRef { job: id, attempt: job.attempt }) {
                coverage.count("results of adopted attempts");
            }
        }
        self.results.extend(new_result(record, &job));
        invariants::invariant_retry_budgets_hold(record, &job, max_retries)?;
        invariants::invariant_nothing_starts_early(&job, not_before)?;
        invariants::invariant_dispatch_tries_stay_within_their_limit(&job, context.dispatch_tries_max)?;
        self.check_policies(record, &job, commit, context, coverage)?;
        self.check_dead_letter(commit.shard, id, Some(&job))?;
        invariants::invariant_every_operation_has_one_audit_entry(record, &job, &self.audit.of_job(id))?;
        touched.queues.insert(job.queue);
        invariants::invariant_cordoned_runners_get_no_attempts(record, &job, commit.settings)?;
        if job.attempt > record.map_or(Attempt::NONE, |record| record.attempt) {
            touched.dispatched.entry(job.queue).or_insert(id);
        }
        let was = record.map_or(TenantUsage::default(), TenantUsage::of);
        self.workflows.job_changed(record, &job, self.compensation_letters.contains_key(&id))?;
        self.count(record.map(|record| record.state), &job);
        self.update_usage(was, &job)?;
        self.jobs.insert(id, KnownJob { record: job, removed: false, max_retries, not_before });
        Ok(())
    }

    /// Updates the usage of the job's tenant.
    fn update_usage(&mut self, was: TenantUsage, job: &Job) -> Checked {
        let is = TenantUsage::of(job);
        if was != is {
            let (_, tenant) = decode_owner(&job.spec).map_err(|error| unreadable(&error.to_string()))?;
            let usage = self.tenant_usage.entry(tenant).or_default();
            usage.running += is.running - was.running;
            usage.live += is.live - was.live;
        }
        Ok(())
    }

    /// Checks the input and output policy of a job.
    fn check_policies(
        &self,
        before: Option<&Job>,
        job: &Job,
        commit: Commit<'_>,
        CheckContext { policy, scanner, .. }: CheckContext<'_>,
        coverage: &mut Coverage,
    ) -> Checked {
        invariants::invariant_decisions_come_from_the_policy(before, job, policy)?;
        let approvals = self.approvals.get(&job.id).map_or(&[][..], Vec::as_slice);
        invariants::invariant_approvals_come_from_approvers(before, job, approvals)?;
        invariants::invariant_retries_stay_within_constraints(before, job)?;
        let first = before.map_or(Attempt::NONE, |before| before.attempt).next();
        for attempt in first.0..=job.attempt.0 {
            let attempt_ref = AttemptRef { job: job.id, attempt: Attempt(attempt) };
            // An attempt without a snapshot is checked against the record itself.
            let mode = commit.settings.last().map_or(engine::PolicyMode::Disabled, |settings| settings.policy);
            let snapshot = commit.dispatched.get(&attempt_ref).cloned();
            let snapshot = snapshot.unwrap_or_else(|| DispatchSnapshot::new(mode, job));
            invariants::invariant_starts_follow_the_policy_in_force(job, attempt_ref, &snapshot, policy)?;
            invariants::invariant_starts_have_their_constraints(job, attempt_ref, &snapshot)?;
            count_start(job, &snapshot, coverage);
        }
        invariants::invariant_output_decisions_come_from_the_scanner(before, job, commit.settings, scanner)?;
        invariants::invariant_shown_results_are_allowed(before, job, commit.settings, scanner)?;
        invariants::invariant_unredacted_results_stay_hidden(job, scanner)?;
        invariants::invariant_results_are_of_the_newest_attempt(job, scanner)
    }

    fn dead_letter(&self, shard: ShardId, id: JobId) -> Result<Option<DeadLetter>, Violation> {
        let letter = self.get(shard, Keyspace::DeadLetters, &id.key());
        letter.map(|bytes| codec::decode(bytes)).transpose().map_err(|error| unreadable(&error.to_string()))
    }

    fn check_dead_letter(&self, shard: ShardId, id: JobId, record: Option<&Job>) -> Checked {
        let letter = self.dead_letter(shard, id)?;
        invariants::invariant_failed_jobs_have_a_dead_letter(id, record, letter.as_ref())
    }

    /// Checks a dead letter without a job: that of a compensation, if any.
    fn check_compensation_letter(&mut self, shard: ShardId, id: JobId) -> Checked {
        let letter = self.dead_letter(shard, id)?;
        if let Some(compensation) = letter.as_ref().and_then(|letter| letter.compensation.as_ref()) {
            self.compensation_letters.insert(id, compensation.workflow);
        }
        let Some(workflow) = self.compensation_letters.get(&id) else {
            return invariants::invariant_failed_jobs_have_a_dead_letter(id, None, letter.as_ref());
        };
        let expected = self.workflows.known.get(workflow).and_then(|workflow| workflow.has_dead_letter(id));
        invariants::invariant_unsubmitted_compensations_have_a_dead_letter(id, expected, letter.as_ref())
    }

    /// Number of shown results that wait for their scan.
    pub fn open_scans(&self) -> usize {
        self.tables.iter().filter(|((_, keyspace), _)| *keyspace == Keyspace::Scans).map(|(_, table)| table.len()).sum()
    }

    /// Checks the key of a new job. Returns its retry budget and `not_before`.
    fn check_new_job(&self, shard: ShardId, job: &Job) -> Result<(u32, Option<Millis>), Violation> {
        let spec: JobSpec = job.decode_spec().map_err(|error| unreadable(&error.to_string()))?;
        if let Some(hash) = job.key {
            let made = self.keys.get(&(shard, hash)).map(|entry| entry.made);
            if made != Some(CreatedObject::Job { id: job.id, seq: job.seq }) {
                let detail = format!("{} was created with a key that refers to {made:?}", job.id);
                return Err(Violation { invariant: "invariant_a_key_creates_one_object", detail });
            }
        }
        Ok((job.max_retries, spec.not_before.map(|time| time.0)))
    }

    fn observe_removal(&mut self, id: JobId, now: Millis, config: &Config, coverage: &mut Coverage) -> Checked {
        let Some(known) = self.jobs.get_mut(&id).filter(|known| !known.removed) else { return Ok(()) };
        known.removed = true;
        let requested = self.removal_requested.contains(&id);
        coverage.count(if requested { "jobs removed on request" } else { "jobs removed by retention" });
        let has_dead_letter = is_dead(known.record.state);
        let retention =
            if has_dead_letter { config.retention.max(config.dead_letter_retention) } else { config.retention };
        invariants::invariant_no_job_is_removed_early(&known.record, requested, now, retention)?;
        let due = known.record.ended_at().is_some_and(|ended| ended + retention < now);
        invariants::invariant_removals_have_one_audit_entry(&known.record, due, &self.audit.of_job(id))
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
        let entries = self.audit.of_queue(id);
        invariants::invariant_queue_operations_have_one_audit_entry(id, state_before, state_after, &entries)?;
        let Some(queue) = &known.record else { return Ok(()) };
        invariants::invariant_counters_equal_a_recount(queue, &known.counted)?;
        let began = touched.dispatched.get(&id).copied().filter(|_| was_cancelled);
        invariants::invariant_queues_stay_within_their_limits(queue, known.on_runner, began)
    }

    /// The newest incarnation of a runner on record of a shard.
    pub fn newest_incarnation(&self, shard: ShardId, runner: RunnerId) -> Option<Incarnation> {
        let bytes = self.get(shard, Keyspace::Runners, &model::key::runner(runner))?;
        codec::decode::<RunnerCursor>(bytes).ok().map(|cursor| cursor.incarnation)
    }

    /// Number of records of a keyspace over all shards.
    pub fn count_of(&self, kind: Keyspace) -> usize {
        self.tables.iter().filter(|((_, keyspace), _)| *keyspace == kind).map(|(_, table)| table.len()).sum()
    }

    pub fn has_queue(&self, id: QueueId) -> bool {
        self.queues.contains_key(&id)
    }

    /// Whether the index of names contains exactly the queues with tokens and the schedules of a shard.
    fn names_are_indexed(&self, shard: ShardId) -> bool {
        let rows = |keyspace| self.tables.get(&(shard, keyspace)).into_iter().flatten();
        let queues = rows(Keyspace::Queues).filter_map(|(_, value)| {
            let queue: Queue = codec::decode(value).ok()?;
            Some(key::queue_token(queue.token?).to_vec())
        });
        let schedules = rows(Keyspace::Schedules).filter_map(|(_, value)| {
            let schedule: Schedule = codec::decode(value).ok()?;
            Some(key::schedule_name(&schedule.name, schedule.id).to_vec())
        });
        let expected: BTreeSet<Vec<u8>> = queues.chain(schedules).collect();
        let is_name = |key: &&Vec<u8>| key.first().is_some_and(|first| !first.is_ascii_lowercase());
        let indexed: BTreeSet<Vec<u8>> = rows(Keyspace::Meta).map(|(key, _)| key).filter(is_name).cloned().collect();
        indexed == expected
    }

    /// The first difference between the committed records and the store.
    pub fn difference(&self, store: &ModelStore, shard: ShardId) -> Option<String> {
        if !self.names_are_indexed(shard) {
            return Some(format!("shard {shard}: the index of names differs from queues and schedules"));
        }
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
                    "shard {shard}, {}: the store has {has} records, {committed} were committed, or a record differs",
                    keyspace.name()
                ));
            }
        }
        None
    }
}

fn mark_touched(keyspace: Keyspace, key: &[u8], touched: &mut Touched) {
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
        | Keyspace::RejectedMessages
        | Keyspace::Definitions
        | Keyspace::ByDefinition
        | Keyspace::LateUpdates => {}
        Keyspace::Workflows
        | Keyspace::WorkflowsDone
        | Keyspace::WorkflowSpecs
        | Keyspace::Tasks
        | Keyspace::Signals
        | Keyspace::Schedules => touched.workflows.mark(keyspace, key),
    }
}

/// The hash at the end of a key of the keys keyspace.
fn key_hash(key: &[u8]) -> Option<KeyHash> {
    Some(KeyHash(key.get(2..)?.try_into().ok()?))
}
