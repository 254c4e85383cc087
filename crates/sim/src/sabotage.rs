//! Deliberate violations, to test that the invariants detect them. Used by tests only.

mod forgery;
mod workflows;

use model::id::{Attempt, Epoch};
use model::message::{AttemptRef, RunnerMessage, Session, ShardMessage, ToRunner};
use model::state::State;
use model::time::Millis;
use store::{FencingToken, Store};

pub use workflows::WorkflowSabotage;

use crate::host::Process;
use crate::invariants::Checked;
use crate::ledger::Commit;
use crate::runner::AttemptPhase;
use crate::world::{Event, Inbound, World, trace};

/// A violation in the middle of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// Deletes the record of a live job.
    LoseJob,
    /// Schedules a cancelled job again.
    RestartCancelled,
    /// Changes the result of an ended job.
    ChangeResult,
    /// Exceeds the retry budget.
    RetryTooOften,
    /// Starts a delayed job early.
    StartEarly,
    /// Starts a job without its approval.
    StartUnapproved,
    /// Dispatches a denied job.
    RunDenied,
    /// Increments a counter of a queue.
    MiscountQueue,
    /// Writes to the store without an observed commit.
    WriteWithoutCommit,
    /// Lets a stale owner commit.
    IgnoreFencing,
    /// Lets an owner without anything to commit answer unconfirmed.
    AnswerUnconfirmed,
    /// Performs effects before a commit that then fails.
    EffectsBeforeCommit,
    /// Creates a second job with the same key.
    ReuseKey,
    /// Drops all messages of runners.
    DropRunnerMessages,
    /// Drops the in-flight attempts from the registrations of restarted runners.
    ClearRegisteredAttempts,
    /// Moves an attempt to another runner.
    MoveAttempt,
    /// Starts an attempt twice.
    StartTwice,
    /// Starts a job on the decision of an old policy version.
    StartUnderOldPolicy,
    /// Records an allow decision that the policy never issued.
    ForgeDecision,
    /// Records an approval that nobody gave.
    ForgeApproval,
    /// Starts a job without the constraints of its decision.
    DropConstraints,
    /// Dispatches a job without its constraints.
    DispatchWithoutConstraints,
    /// Exceeds the retry limit of the policy.
    RetryBeyondConstraints,
    /// Shows a result that waits for its scan.
    ShowUnscanned,
    /// Releases a quarantined result without a request.
    ReleaseWithoutRequest,
    /// Records a scan decision that the scanner never issued.
    ForgeScanDecision,
    /// Shows the original of a redacted result.
    ShowOriginal,
    /// Never answers scan requests.
    NeverScan,
    /// Deletes a dead letter.
    LoseDeadLetter,
    /// Adds a dead letter for a succeeded job.
    AddDeadLetter,
    /// Overwrites an entry of the audit log.
    OverwriteAuditEntry,
    /// Removes an entry of the audit log.
    RemoveAuditEntry,
    /// Removes the oldest entry of the audit log before its retention, with a signed checkpoint.
    ShortenAuditEarly,
    /// Changes the checkpoint of the audit log.
    ChangeAuditCheckpoint,
    /// Resets the stored head of the audit log.
    ResetAuditHead,
    /// Cancels a job without an audit entry.
    CancelWithoutAuditEntry,
    /// Runners and spawners let attempts go on whose lease has run out.
    IgnoreLeases,
    /// Never sends the signals that workflows wait for.
    NeverSignal,
    Workflow(WorkflowSabotage),
    Cluster(ClusterSabotage),
}

/// A violation in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterSabotage {
    /// Declares nodes lost that run and can be reached.
    DeclareReachableLost,
    /// Tells the shards that reachable runners are lost, without a decision about their nodes.
    GiveUpReachable,
    /// Never acts on a lost node.
    IgnoreDeaths,
    /// Does not wait for the next server process of a node.
    WaitForNobody,
    /// Takes a second result of a job.
    TakeSecondResult,
}

impl World {
    /// Commits the violation, or retries later if there is no fitting record yet.
    pub(crate) fn do_sabotage(&mut self) -> Checked {
        let Some(sabotage) = self.sabotage else { return Ok(()) };
        if self.is_healed() {
            return Ok(());
        }
        match sabotage {
            Sabotage::IgnoreFencing | Sabotage::AnswerUnconfirmed => {
                self.after(0, Event::StartShard { shard: 0 });
                return Ok(());
            }
            Sabotage::EffectsBeforeCommit
            | Sabotage::DropRunnerMessages
            | Sabotage::ClearRegisteredAttempts
            | Sabotage::DispatchWithoutConstraints
            | Sabotage::NeverScan
            | Sabotage::IgnoreLeases
            | Sabotage::NeverSignal => return Ok(()),
            Sabotage::StartTwice => self.start_twice(),
            Sabotage::RunDenied => self.run_denied(),
            Sabotage::LoseJob
            | Sabotage::RestartCancelled
            | Sabotage::ChangeResult
            | Sabotage::RetryTooOften
            | Sabotage::StartEarly
            | Sabotage::StartUnapproved
            | Sabotage::MiscountQueue
            | Sabotage::WriteWithoutCommit
            | Sabotage::MoveAttempt
            | Sabotage::ReuseKey
            | Sabotage::StartUnderOldPolicy
            | Sabotage::ForgeDecision
            | Sabotage::ForgeApproval
            | Sabotage::DropConstraints
            | Sabotage::RetryBeyondConstraints
            | Sabotage::ShowUnscanned
            | Sabotage::ReleaseWithoutRequest
            | Sabotage::ForgeScanDecision
            | Sabotage::ShowOriginal
            | Sabotage::LoseDeadLetter
            | Sabotage::AddDeadLetter
            | Sabotage::OverwriteAuditEntry
            | Sabotage::RemoveAuditEntry
            | Sabotage::ShortenAuditEarly
            | Sabotage::ChangeAuditCheckpoint
            | Sabotage::ResetAuditHead
            | Sabotage::CancelWithoutAuditEntry
            | Sabotage::Cluster(ClusterSabotage::TakeSecondResult)
            | Sabotage::Workflow(_) => self.forge(sabotage)?,
            Sabotage::Cluster(ClusterSabotage::DeclareReachableLost) => self.declare_reachable_nodes_lost()?,
            Sabotage::Cluster(ClusterSabotage::GiveUpReachable) => self.give_up_reachable_runners(),
            Sabotage::Cluster(ClusterSabotage::IgnoreDeaths | ClusterSabotage::WaitForNobody) => return Ok(()),
        }
        self.after(100, Event::Sabotage);
        Ok(())
    }

    /// Commits a forged batch in the owner's name.
    fn forge(&mut self, sabotage: Sabotage) -> Checked {
        for shard in 0..self.hosts.len() {
            let Some(batch) = self.forgery(sabotage, shard) else { continue };
            let Some(owner) = self.hosts[shard].processes.last() else { continue };
            let (process, epoch, now) = (owner.number, owner.owner.epoch(), owner.owner.shard().now());
            let settings = owner.settings().to_vec();
            let id = self.shard_id(shard);
            trace!(self, "sabotage of shard {shard}: {sabotage:?}");
            let Some(mut token) = self.store.stolen_token(id) else { continue };
            if self.store.commit(&mut token, &batch).is_ok() && sabotage != Sabotage::WriteWithoutCommit {
                let dispatched = std::collections::BTreeMap::new();
                let (batch, settings, dispatched) = (&batch, &settings[..], &dispatched);
                let commit = Commit { shard: id, epoch, process, batch, now, settings, dispatched };
                self.observe(commit)?;
            }
        }
        Ok(())
    }

    fn run_denied(&mut self) {
        let denied = self.ledger.jobs.values().find(|known| known.record.state == State::Denied);
        let Some(job) = denied.map(|known| known.record.id) else { return };
        let shard = usize::from(self.scenario.shards.owner(job.slot()).0);
        let message = ToRunner::Message {
            session: Session { epoch: Epoch(u64::MAX), number: self.now },
            sequence: 1,
            heard: Millis(u64::MAX),
            message: ShardMessage::Run {
                attempt_ref: AttemptRef { job, attempt: Attempt(1) },
                valid_for: Millis(1),
                spec: bytes::Bytes::new(),
                constraints: None,
                lease: None,
            },
        };
        for runner in 0..self.runners.len() {
            let incarnation = self.runners[runner].incarnation;
            self.after(0, Event::ToRunner { runner, incarnation, shard, message: message.clone() });
        }
    }

    /// With fencing ignored, the token of the newest owner.
    pub(crate) fn stolen_token(&self, shard: usize) -> Option<FencingToken> {
        match self.sabotage {
            Some(Sabotage::IgnoreFencing) => self.store.stolen_token(self.shard_id(shard)),
            Some(_) | None => None,
        }
    }

    /// A process is about to crash before its commit.
    pub(crate) fn sabotage_before_commit(&mut self, shard: usize, process: &mut Process) -> Checked {
        if self.sabotage == Some(Sabotage::EffectsBeforeCommit) {
            for effect in std::mem::take(&mut process.owner.step().effects) {
                self.perform(shard, process, effect)?;
            }
        }
        Ok(())
    }

    /// Marks a started attempt as waiting and starts it again.
    fn start_twice(&mut self) {
        for index in 0..self.runners.len() {
            let incarnation = self.runners[index].incarnation;
            let links = &mut self.runners[index].links;
            let started = links.iter_mut().find_map(|(shard, link)| {
                let (attempt_ref, _) = link.in_flight().find(|(_, it)| *it.value() == AttemptPhase::Started)?;
                *link.get_mut(attempt_ref)? = AttemptPhase::Waiting;
                Some((*shard, attempt_ref))
            });
            if let Some((shard, attempt_ref)) = started {
                self.after(0, Event::AttemptStarts { runner: index, incarnation, shard, attempt_ref });
            }
        }
    }

    /// The message as sent to a runner.
    pub(crate) fn sabotaged_message(&self, mut message: ToRunner) -> ToRunner {
        if self.sabotage == Some(Sabotage::DispatchWithoutConstraints)
            && let ToRunner::Message { message: ShardMessage::Run { constraints, .. }, .. } = &mut message
        {
            *constraints = None;
        }
        message
    }

    /// Whether scan requests are never answered.
    pub(crate) fn scans_disabled(&self) -> bool {
        self.sabotage == Some(Sabotage::NeverScan)
    }

    /// Whether the awaited signals are never sent.
    pub(crate) fn signals_disabled(&self) -> bool {
        self.sabotage == Some(Sabotage::NeverSignal)
    }

    /// The input as delivered to a shard; `None` if it is dropped.
    pub(crate) fn sabotaged_inbound(&self, mut inbound: Inbound) -> Option<Inbound> {
        match (self.sabotage, &mut inbound) {
            (Some(Sabotage::DropRunnerMessages), Inbound::RunnerFrame(_)) => return None,
            (Some(Sabotage::ClearRegisteredAttempts), Inbound::RunnerFrame(frame)) => {
                for message in frame.messages.iter_mut().filter(|message| message.sequence == 1) {
                    if let RunnerMessage::Register { in_flight, .. } = &mut message.message {
                        in_flight.clear();
                    }
                }
            }
            _ => {}
        }
        Some(inbound)
    }
}
