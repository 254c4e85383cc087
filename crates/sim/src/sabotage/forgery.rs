//! Commits that no owner would ever make.

use engine::Gate;
use model::audit::Head;
use model::batch::{Batch, Keyspace};
use model::codec;
use model::dead_letter::{DeadLetter, is_dead};
use model::id::{Attempt, Incarnation, JobId, RunnerId};
use model::job::{AttemptRecord, Job, StateAt};
use model::key::{self, Day, KeyEntry, Made};
use model::message::Ticket;
use model::queue::Queue;
use model::reason::{Reason, ReasonCode};
use model::state::State;
use model::time::Millis;
use model::verdict::{Approval, Decision, PolicyVersion, Verdict};
use store::{Key, Order, Range, Store};

use super::Sabotage;
use crate::invariants::{limits_of, redacted_of, result_of};
use crate::operators::version_of;
use crate::world::World;

/// A shard to be betrayed.
struct Victim<'a> {
    world: &'a World,
    shard: usize,
}

impl World {
    /// A batch that breaks the rule, if there is anything to break it with.
    pub(super) fn forgery(&self, sabotage: Sabotage, shard: usize) -> Option<Batch> {
        let victim = Victim { world: self, shard };
        match sabotage {
            Sabotage::LoseJob => victim.lose_job(),
            Sabotage::ReviveCancelled => victim.revive_cancelled(),
            Sabotage::ChangeResult => victim.change_result(),
            Sabotage::RetryTooOften => victim.retry_too_often(),
            Sabotage::StartEarly => start(victim.find(is(State::Blocked))?, Millis(1)),
            Sabotage::StartUnapproved => victim.start_unapproved(),
            Sabotage::Miscount => victim.miscount(),
            Sabotage::MoveAttempt => victim.move_attempt(),
            Sabotage::WriteBehind => made(|batch| batch.put(Keyspace::Meta, b"forged", b"forged")),
            Sabotage::ReuseKey => victim.reuse_key(),
            Sabotage::StartUnderOldRules => victim.start_under_old_rules(),
            Sabotage::InventDecision => victim.invent_decision(),
            Sabotage::InventApproval => victim.invent_approval(),
            Sabotage::LiftLimits => victim.lift_limits(),
            Sabotage::RetryBeyondLimits => victim.retry_beyond_limits(),
            Sabotage::ShowHeld => victim.show_held(),
            Sabotage::ReleaseUnasked => victim.release_unasked(),
            Sabotage::InventFinding => victim.invent_finding(),
            Sabotage::ShowOriginal => victim.show_original(),
            Sabotage::LoseLetter => victim.lose_letter(),
            Sabotage::AddLetter => victim.add_letter(),
            Sabotage::ChangeEntry => victim.change_entry(),
            Sabotage::RemoveEntry => victim.remove_entry(),
            Sabotage::ForgetEnd => victim.forget_end(),
            Sabotage::CancelUnnoted => victim.cancel_unnoted(),
            Sabotage::Flow(sabotage) => self.flow_forgery(sabotage, shard),
            Sabotage::RunDenied
            | Sabotage::IgnoreFence
            | Sabotage::AnswerFirst
            | Sabotage::DeafShards
            | Sabotage::ForgetTheLiving
            | Sabotage::StartTwice
            | Sabotage::ForgetLimits
            | Sabotage::NeverScan
            | Sabotage::NeverSignal => None,
        }
    }
}

impl Victim<'_> {
    fn find(&self, fits: impl Fn(&Job) -> bool) -> Option<Job> {
        let known = self.world.ledger.jobs.values().filter(|known| !known.removed).map(|known| &known.record);
        let owner = |job: &Job| usize::from(self.world.plan.shards.owner(job.id.slot()).0);
        known.filter(|job| owner(job) == self.shard).find(|job| fits(job)).cloned()
    }

    /// The rules that are in force there.
    fn rules(&self) -> Option<PolicyVersion> {
        version_of(self.gate()?)
    }

    fn gate(&self) -> Option<Gate> {
        self.world.hosts[self.shard].processes.last().map(|process| process.shard.setup().gate)
    }

    fn lose_job(&self) -> Option<Batch> {
        let job = self.find(|job| !job.state.is_terminal())?;
        made(|batch| batch.delete(Keyspace::Live, &job.id.key()))
    }

    fn revive_cancelled(&self) -> Option<Batch> {
        let job = entering(self.find(is(State::Cancelled))?, State::Scheduled);
        made(|batch| {
            batch.delete(Keyspace::Done, &job.id.key());
            put(Keyspace::Live, &job, batch);
        })
    }

    fn change_result(&self) -> Option<Batch> {
        let job = Job { result: None, ..self.find(is(State::Succeeded))? };
        made(|batch| put(Keyspace::Done, &job, batch))
    }

    fn retry_too_often(&self) -> Option<Batch> {
        let mut job = self.find(is(State::Scheduled))?;
        job.retries = job.max_retries + 1;
        made(|batch| put(Keyspace::Live, &job, batch))
    }

    fn start_unapproved(&self) -> Option<Batch> {
        let current = self.rules()?;
        let job = self.find(|job| job.state == State::ApprovalRequired && is_decided_by(job, current))?;
        let at = job.eligible_at;
        start(job, at)
    }

    fn miscount(&self) -> Option<Batch> {
        let job = self.find(|_| true)?;
        let shard = self.world.shard_id(self.shard);
        let bytes = self.world.store.get(shard, Keyspace::Queues, &job.queue.key()).ok()??;
        let mut queue: Queue = codec::decode(&bytes).ok()?;
        queue.counters.active += 1;
        made(|batch| batch.put_with(Keyspace::Queues, &queue.id.key(), |buffer| codec::encode_into(&queue, buffer)))
    }

    fn move_attempt(&self) -> Option<Batch> {
        let mut job = self.find(is(State::Running))?;
        job.last_attempt_mut()?.runner = RunnerId(99);
        made(|batch| put(Keyspace::Live, &job, batch))
    }

    fn reuse_key(&self) -> Option<Batch> {
        let job = self.find(|job| job.key.is_some() && !job.state.is_terminal())?;
        let other = Made::Job { id: JobId(job.id.0 + 1), seq: job.seq };
        let entry = KeyEntry { digest: job.digest, at: job.created_at, made: other };
        let place = key::idempotency(Day::of(job.created_at), job.key?);
        made(|batch| batch.put_with(Keyspace::Keys, &place, |buffer| codec::encode_into(&entry, buffer)))
    }

    fn start_under_old_rules(&self) -> Option<Batch> {
        let current = self.rules()?;
        let old = |decision: &Decision| decision.policy != Some(current) && decision.verdict == Verdict::Allow;
        let job = self.find(|job| is_new(job) && job.last_decision().is_some_and(old))?;
        let at = job.eligible_at;
        start(job, at)
    }

    fn invent_decision(&self) -> Option<Batch> {
        let policy = Some(self.rules()?);
        let mut job = self.find(is_new)?;
        let (verdict, rule) = (Verdict::Allow, "forged".to_owned());
        job.decisions.push(Decision { at: Millis(1), verdict, rule, message: None, policy, constraints: None });
        let at = job.eligible_at;
        start(job, at)
    }

    fn invent_approval(&self) -> Option<Batch> {
        let mut job = self.find(is(State::ApprovalRequired))?;
        let rule = job.last_decision()?.rule.clone();
        let (by, digest) = ("nobody".to_owned(), job.digest);
        job.approval = Some(Box::new(Approval { at: Millis(1), by, approved: true, comment: None, digest, rule }));
        made(|batch| put(Keyspace::Live, &job, batch))
    }

    fn lift_limits(&self) -> Option<Batch> {
        let current = self.rules()?;
        let limited = |decision: &Decision| matches!(decision.verdict, Verdict::AllowWith(_));
        let job =
            self.find(|job| is_new(job) && is_decided_by(job, current) && job.last_decision().is_some_and(limited))?;
        let at = job.eligible_at;
        start(Job { constraints: None, ..job }, at)
    }

    fn retry_beyond_limits(&self) -> Option<Batch> {
        let max = |job: &Job| job.last_decision().and_then(limits_of).and_then(|limits| limits.max_retries);
        let fits = |job: &Job| !job.state.is_terminal() && max(job).is_some_and(|max| max < job.max_retries);
        let mut job = self.find(fits)?;
        job.retries = max(&job)? + 1;
        made(|batch| put(Keyspace::Live, &job, batch))
    }

    fn show_held(&self) -> Option<Batch> {
        let job = entering(self.find(is(State::Scanning))?, State::Succeeded);
        made(|batch| {
            batch.delete(Keyspace::Live, &job.id.key());
            put(Keyspace::Done, &job, batch);
        })
    }

    fn release_unasked(&self) -> Option<Batch> {
        let job = entering(self.find(is(State::Quarantined))?, State::Succeeded);
        made(|batch| {
            batch.delete(Keyspace::DeadLetters, &job.id.key());
            put(Keyspace::Done, &job, batch);
        })
    }

    fn invent_finding(&self) -> Option<Batch> {
        let mut job = self.find(is(State::Succeeded))?;
        let mut decision = self.world.scanner.content(ticket_of(&job)).decision;
        decision.message = Some("forged".to_owned());
        job.output_decisions.get_or_insert_default().push(decision);
        made(|batch| put(Keyspace::Done, &job, batch))
    }

    fn show_original(&self) -> Option<Batch> {
        let mut job = self.find(|job| job.result == Some(redacted_of(ticket_of(job))))?;
        job.result = Some(result_of(ticket_of(&job)));
        made(|batch| put(Keyspace::Done, &job, batch))
    }

    fn lose_letter(&self) -> Option<Batch> {
        let job = self.find(|job| is_dead(job.state))?;
        made(|batch| batch.delete(Keyspace::DeadLetters, &job.id.key()))
    }

    fn add_letter(&self) -> Option<Batch> {
        let job = self.find(is(State::Succeeded))?;
        let letter = DeadLetter::new(&job, String::new(), String::new());
        made(|batch| batch.put_with(Keyspace::DeadLetters, &job.id.key(), |buffer| codec::encode_into(&letter, buffer)))
    }

    /// The newest entries of the audit log, newest first.
    fn entries(&self) -> Option<Vec<(Key, bytes::Bytes)>> {
        let shard = self.world.shard_id(self.shard);
        self.world.store.scan(shard, Keyspace::Audit, Range::all(), Order::Descending, 1).ok()
    }

    fn change_entry(&self) -> Option<Batch> {
        let entries = self.entries()?;
        let (place, entry) = entries.first()?;
        made(|batch| batch.put(Keyspace::Audit, place, entry))
    }

    fn remove_entry(&self) -> Option<Batch> {
        let entries = self.entries()?;
        let (place, _) = entries.first()?;
        made(|batch| batch.delete(Keyspace::Audit, place))
    }

    fn forget_end(&self) -> Option<Batch> {
        let entries = self.entries()?;
        entries.first()?;
        let write = |buffer: &mut Vec<u8>| codec::encode_into(&Head::START, buffer);
        made(|batch| batch.put_with(Keyspace::Meta, key::META_AUDIT, write))
    }

    fn cancel_unnoted(&self) -> Option<Batch> {
        let mut job = entering(self.find(is(State::Running))?, State::Cancelling);
        job.reason = Some(Reason::new(ReasonCode::CancelRequested));
        made(|batch| put(Keyspace::Live, &job, batch))
    }
}

pub(super) fn made(write: impl FnOnce(&mut Batch)) -> Option<Batch> {
    let mut batch = Batch::new();
    write(&mut batch);
    Some(batch)
}

fn is(state: State) -> impl Fn(&Job) -> bool {
    move |job| job.state == state
}

/// It waits for its first attempt.
fn is_new(job: &Job) -> bool {
    matches!(job.state, State::Pending | State::Scheduled) && job.attempt == Attempt::NONE
}

fn is_decided_by(job: &Job, rules: PolicyVersion) -> bool {
    job.last_decision().is_some_and(|decision| decision.policy == Some(rules))
}

fn ticket_of(job: &Job) -> Ticket {
    Ticket { job: job.id, attempt: job.attempt }
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
    made(|batch| put(Keyspace::Live, &job, batch))
}
