//! Forged commits that violate a rule.

use engine::PolicyMode;
use model::audit::{self, Action, AuditEntry, Checkpoint, Head, SignedCheckpoint};
use model::batch::{Batch, Keyspace};
use model::codec;
use model::dead_letter::{DeadLetter, is_dead};
use model::id::{Attempt, Incarnation, JobId, RunnerId, SLOTS};
use model::job::{AttemptRecord, End, Job, StateAt};
use model::key::{self, CreatedObject, Day, KeyEntry};
use model::message::AttemptRef;
use model::queue::Queue;
use model::reason::{Reason, ReasonCode};
use model::state::State;
use model::time::Millis;
use model::verdict::{Approval, Decision, PolicyVersion, Verdict};
use store::{Key, Order, Range, Store};

use super::Sabotage;
use crate::invariants::{constraints_of, redacted_of, result_of};
use crate::operators::version_of;
use crate::signer;
use crate::world::World;

/// The shard of a forged commit.
struct ForgeryTarget<'a> {
    world: &'a World,
    shard: usize,
}

impl World {
    /// A batch that violates the rule, if the shard has a fitting record.
    pub(super) fn forgery(&self, sabotage: Sabotage, shard: usize) -> Option<Batch> {
        let target = ForgeryTarget { world: self, shard };
        match sabotage {
            Sabotage::LoseJob => target.lose_job(),
            Sabotage::RestartCancelled => target.restart_cancelled(),
            Sabotage::ChangeResult => target.change_result(),
            Sabotage::RetryTooOften => target.retry_too_often(),
            Sabotage::StartEarly => start(target.find(is(State::Blocked))?, Millis(1)),
            Sabotage::StartUnapproved => target.start_unapproved(),
            Sabotage::MiscountQueue => target.miscount_queue(),
            Sabotage::MoveAttempt => target.move_attempt(),
            Sabotage::WriteWithoutCommit => batch_with(|batch| batch.put(Keyspace::Meta, b"forged", b"forged")),
            Sabotage::ReuseKey => target.reuse_key(),
            Sabotage::StartUnderOldPolicy => target.start_under_old_policy(),
            Sabotage::ForgeDecision => target.forge_decision(),
            Sabotage::ForgeApproval => target.forge_approval(),
            Sabotage::DropConstraints => target.drop_constraints(),
            Sabotage::RetryBeyondConstraints => target.retry_beyond_constraints(),
            Sabotage::ShowUnscanned => target.show_unscanned(),
            Sabotage::ReleaseWithoutRequest => target.release_without_request(),
            Sabotage::ForgeScanDecision => target.forge_scan_decision(),
            Sabotage::ShowOriginal => target.show_original(),
            Sabotage::LoseDeadLetter => target.lose_dead_letter(),
            Sabotage::AddDeadLetter => target.add_dead_letter(),
            Sabotage::OverwriteAuditEntry => target.overwrite_audit_entry(),
            Sabotage::RemoveAuditEntry => target.remove_audit_entry(),
            Sabotage::ShortenAuditEarly => target.shorten_audit_early(),
            Sabotage::ChangeAuditCheckpoint => target.change_audit_checkpoint(),
            Sabotage::ResetAuditHead => target.reset_audit_head(),
            Sabotage::CancelWithoutAuditEntry => target.cancel_without_audit_entry(),
            Sabotage::Workflow(sabotage) => self.workflow_forgery(sabotage, shard),
            Sabotage::Cluster(_) => target.take_second_result(),
            Sabotage::RunDenied
            | Sabotage::IgnoreFencing
            | Sabotage::AnswerUnconfirmed
            | Sabotage::EffectsBeforeCommit
            | Sabotage::DropRunnerMessages
            | Sabotage::ClearRegisteredAttempts
            | Sabotage::StartTwice
            | Sabotage::DispatchWithoutConstraints
            | Sabotage::NeverScan
            | Sabotage::IgnoreLeases
            | Sabotage::NeverSignal => None,
        }
    }
}

impl ForgeryTarget<'_> {
    fn find(&self, fits: impl Fn(&Job) -> bool) -> Option<Job> {
        let known = self.world.ledger.jobs.values().filter(|known| !known.removed).map(|known| &known.record);
        let owner = |job: &Job| usize::from(self.world.scenario.shards.owner(job.id.slot()).0);
        known.filter(|job| owner(job) == self.shard).find(|job| fits(job)).cloned()
    }

    /// The policy version in force on the shard.
    fn policy_version(&self) -> Option<PolicyVersion> {
        version_of(self.policy()?)
    }

    fn policy(&self) -> Option<PolicyMode> {
        self.world.hosts[self.shard].processes.last().map(|process| process.owner.shard().settings().policy)
    }

    fn lose_job(&self) -> Option<Batch> {
        let job = self.find(|job| !job.state.is_terminal())?;
        batch_with(|batch| batch.delete(Keyspace::Live, &job.id.key()))
    }

    fn restart_cancelled(&self) -> Option<Batch> {
        let job = entering(self.find(is(State::Cancelled))?, State::Scheduled);
        batch_with(|batch| {
            batch.delete(Keyspace::Done, &job.id.key());
            put(Keyspace::Live, &job, batch);
        })
    }

    fn change_result(&self) -> Option<Batch> {
        let job = Job { result: None, ..self.find(is(State::Succeeded))? };
        batch_with(|batch| put(Keyspace::Done, &job, batch))
    }

    fn take_second_result(&self) -> Option<Batch> {
        let mut job = self.find(|job| !job.state.is_terminal() && job.attempts.len() > 1)?;
        job.attempts.iter_mut().for_each(|attempt| attempt.end = Some(End::Succeeded));
        batch_with(|batch| put(Keyspace::Live, &job, batch))
    }

    fn retry_too_often(&self) -> Option<Batch> {
        let mut job = self.find(is(State::Scheduled))?;
        job.retries = job.max_retries + 1;
        batch_with(|batch| put(Keyspace::Live, &job, batch))
    }

    fn start_unapproved(&self) -> Option<Batch> {
        let current = self.policy_version()?;
        // Without an attempt: `start` forges attempt 1, which must not violate the invariant of growing numbers.
        let waits = |job: &Job| job.state == State::ApprovalRequired && job.attempt == Attempt::NONE;
        let job = self.find(|job| waits(job) && is_decided_by(job, current))?;
        let at = job.eligible_at;
        start(job, at)
    }

    fn miscount_queue(&self) -> Option<Batch> {
        let job = self.find(|_| true)?;
        let shard = self.world.shard_id(self.shard);
        let bytes = self.world.store.get(shard, Keyspace::Queues, &job.queue.key()).ok()??;
        let mut queue: Queue = codec::decode(&bytes).ok()?;
        queue.counters.active += 1;
        batch_with(|batch| {
            batch.put_with(Keyspace::Queues, &queue.id.key(), |buffer| codec::encode_into(&queue, buffer))
        })
    }

    fn move_attempt(&self) -> Option<Batch> {
        let mut job = self.find(is(State::Running))?;
        job.last_attempt_mut()?.runner = RunnerId(99);
        batch_with(|batch| put(Keyspace::Live, &job, batch))
    }

    fn reuse_key(&self) -> Option<Batch> {
        let job = self.find(|job| job.key.is_some() && !job.state.is_terminal())?;
        let other = CreatedObject::Job { id: JobId(job.id.0 + u64::from(SLOTS)), seq: job.seq };
        let entry = KeyEntry { digest: job.digest, at: job.created_at, made: other };
        let key = key::idempotency(Day::of(job.created_at), job.key?);
        batch_with(|batch| batch.put_with(Keyspace::Keys, &key, |buffer| codec::encode_into(&entry, buffer)))
    }

    fn start_under_old_policy(&self) -> Option<Batch> {
        let current = self.policy_version()?;
        let old = |decision: &Decision| decision.policy != Some(current) && decision.verdict == Verdict::Allow;
        let job = self.find(|job| is_new(job) && job.last_decision().is_some_and(old))?;
        let at = job.eligible_at;
        start(job, at)
    }

    fn forge_decision(&self) -> Option<Batch> {
        let policy = Some(self.policy_version()?);
        let mut job = self.find(is_new)?;
        let (verdict, rule) = (Verdict::Allow, "forged".to_owned());
        job.decisions.push(Decision { at: Millis(1), verdict, rule, message: None, policy, constraints: None });
        let at = job.eligible_at;
        start(job, at)
    }

    fn forge_approval(&self) -> Option<Batch> {
        let mut job = self.find(is(State::ApprovalRequired))?;
        let rule = job.last_decision()?.rule.clone();
        let (by, digest) = ("nobody".to_owned(), job.digest);
        job.approval = Some(Box::new(Approval { at: Millis(1), by, approved: true, comment: None, digest, rule }));
        batch_with(|batch| put(Keyspace::Live, &job, batch))
    }

    fn drop_constraints(&self) -> Option<Batch> {
        let current = self.policy_version()?;
        let limited = |decision: &Decision| matches!(decision.verdict, Verdict::AllowWith(_));
        let job =
            self.find(|job| is_new(job) && is_decided_by(job, current) && job.last_decision().is_some_and(limited))?;
        let at = job.eligible_at;
        start(Job { constraints: None, ..job }, at)
    }

    fn retry_beyond_constraints(&self) -> Option<Batch> {
        let max = |job: &Job| job.last_decision().and_then(constraints_of).and_then(|limits| limits.max_retries);
        let fits = |job: &Job| !job.state.is_terminal() && max(job).is_some_and(|max| max < job.max_retries);
        let mut job = self.find(fits)?;
        job.retries = max(&job)? + 1;
        batch_with(|batch| put(Keyspace::Live, &job, batch))
    }

    fn show_unscanned(&self) -> Option<Batch> {
        let job = entering(self.find(is(State::Scanning))?, State::Succeeded);
        batch_with(|batch| {
            batch.delete(Keyspace::Live, &job.id.key());
            put(Keyspace::Done, &job, batch);
        })
    }

    fn release_without_request(&self) -> Option<Batch> {
        let job = entering(self.find(is(State::Quarantined))?, State::Succeeded);
        batch_with(|batch| {
            batch.delete(Keyspace::DeadLetters, &job.id.key());
            put(Keyspace::Done, &job, batch);
        })
    }

    fn forge_scan_decision(&self) -> Option<Batch> {
        let mut job = self.find(is(State::Succeeded))?;
        let mut decision = self.world.scanner.content_scan(attempt_of(&job)).decision;
        decision.message = Some("forged".to_owned());
        job.output_decisions.get_or_insert_default().push(decision);
        batch_with(|batch| put(Keyspace::Done, &job, batch))
    }

    fn show_original(&self) -> Option<Batch> {
        let mut job = self.find(|job| job.result == Some(redacted_of(attempt_of(job))))?;
        job.result = Some(result_of(attempt_of(&job)));
        batch_with(|batch| put(Keyspace::Done, &job, batch))
    }

    fn lose_dead_letter(&self) -> Option<Batch> {
        let job = self.find(|job| is_dead(job.state))?;
        batch_with(|batch| batch.delete(Keyspace::DeadLetters, &job.id.key()))
    }

    fn add_dead_letter(&self) -> Option<Batch> {
        let job = self.find(is(State::Succeeded))?;
        let letter = DeadLetter::new(&job, String::new(), String::new());
        batch_with(|batch| {
            batch.put_with(Keyspace::DeadLetters, &job.id.key(), |buffer| codec::encode_into(&letter, buffer))
        })
    }

    /// The newest entry of the audit log.
    fn newest_audit_entry(&self) -> Option<Vec<(Key, bytes::Bytes)>> {
        let shard = self.world.shard_id(self.shard);
        self.world.store.scan(shard, Keyspace::Audit, Range::all(), Order::Descending, 1).ok()
    }

    fn overwrite_audit_entry(&self) -> Option<Batch> {
        let entries = self.newest_audit_entry()?;
        let (key, entry) = entries.first()?;
        batch_with(|batch| batch.put(Keyspace::Audit, key, entry))
    }

    fn remove_audit_entry(&self) -> Option<Batch> {
        let entries = self.newest_audit_entry()?;
        let (key, _) = entries.first()?;
        batch_with(|batch| batch.delete(Keyspace::Audit, key))
    }

    fn metadata(&self, name: &[u8]) -> Option<bytes::Bytes> {
        self.world.store.get(self.world.shard_id(self.shard), Keyspace::Meta, name).ok()?
    }

    /// All but the age of the removed entry is in order.
    fn shorten_audit_early(&self) -> Option<Batch> {
        let shard = self.world.shard_id(self.shard);
        let oldest = self.world.store.scan(shard, Keyspace::Audit, Range::all(), Order::Ascending, 1).ok()?;
        let (entry_key, stored) = oldest.first()?;
        let (link, entry) = audit::decode(stored).ok()?;
        let now = self.world.hosts[self.shard].processes.last()?.owner.shard().now();
        let is_old = |retention: Millis| entry.at + retention < now;
        if self.world.scenario.config(shard).audit_retention.is_some_and(is_old) {
            return None;
        }
        let mut head: Head = codec::decode(&self.metadata(key::META_AUDIT)?).ok()?;
        let signed = signer::sign(Checkpoint { shard, number: entry.number, link, at: now });
        let mut about = AuditEntry { at: now, ..AuditEntry::of(Action::AuditShortened) };
        batch_with(|batch| {
            batch.delete(Keyspace::Audit, entry_key);
            batch.put_with(Keyspace::Meta, key::META_AUDIT_START, |buffer| codec::encode_into(&signed, buffer));
            let next = key::audit(head.number + 1);
            batch.put_with(Keyspace::Audit, &next, |buffer| head.append(&mut about, buffer));
            batch.put_with(Keyspace::Meta, key::META_AUDIT, |buffer| codec::encode_into(&head, buffer));
        })
    }

    fn change_audit_checkpoint(&self) -> Option<Batch> {
        let mut signed: SignedCheckpoint = codec::decode(&self.metadata(key::META_AUDIT_START)?).ok()?;
        signed.checkpoint.at = signed.checkpoint.at + Millis(1);
        let write = |buffer: &mut Vec<u8>| codec::encode_into(&signed, buffer);
        batch_with(|batch| batch.put_with(Keyspace::Meta, key::META_AUDIT_START, write))
    }

    fn reset_audit_head(&self) -> Option<Batch> {
        let entries = self.newest_audit_entry()?;
        entries.first()?;
        let write = |buffer: &mut Vec<u8>| codec::encode_into(&Head::START, buffer);
        batch_with(|batch| batch.put_with(Keyspace::Meta, key::META_AUDIT, write))
    }

    fn cancel_without_audit_entry(&self) -> Option<Batch> {
        let mut job = entering(self.find(is(State::Running))?, State::Cancelling);
        job.reason = Some(Reason::new(ReasonCode::CancelRequested));
        batch_with(|batch| put(Keyspace::Live, &job, batch))
    }
}

pub(super) fn batch_with(write: impl FnOnce(&mut Batch)) -> Option<Batch> {
    let mut batch = Batch::new();
    write(&mut batch);
    Some(batch)
}

fn is(state: State) -> impl Fn(&Job) -> bool {
    move |job| job.state == state
}

/// Waits for its first attempt.
fn is_new(job: &Job) -> bool {
    matches!(job.state, State::Pending | State::Scheduled) && job.attempt == Attempt::NONE
}

fn is_decided_by(job: &Job, version: PolicyVersion) -> bool {
    job.last_decision().is_some_and(|decision| decision.policy == Some(version))
}

fn attempt_of(job: &Job) -> AttemptRef {
    AttemptRef { job: job.id, attempt: job.attempt }
}

fn entering(mut job: Job, state: State) -> Job {
    job.state = state;
    job.states.push(StateAt { state, at: job.since() });
    job
}

fn put(keyspace: Keyspace, job: &Job, batch: &mut Batch) {
    batch.put_with(keyspace, &job.id.key(), |buffer| job.encode_into(buffer));
}

fn start(mut job: Job, at: Millis) -> Option<Batch> {
    job.attempt = Attempt(1);
    let record = AttemptRecord::new(Attempt(1), RunnerId(1), Incarnation(1), at);
    job.attempts.push(AttemptRecord { ended_at: Some(at), ..record });
    batch_with(|batch| put(Keyspace::Live, &job, batch))
}
