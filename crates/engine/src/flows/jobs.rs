//! The jobs of workflows: how they come in and what their ends mean.

use model::id::{JobId, QueueId, WorkflowId};
use model::job::Job;
use model::json::Json;
use model::machine::Event;
use model::queue::QueueState;
use model::reason::{Reason, ReasonCode};
use model::spec::PackedSpec;
use model::state::State;
use model::time::Timestamp;
use model::verdict::{Decision, Verdict};
use model::workflow::{AfterStop, Origin, Place, TaskState};
use serde_json::json;

use super::settle::End;
use super::work::Did;
use crate::shard::Shard;
use crate::step::Step;

/// The rule in the name of which a task asks for a person's word.
pub(super) const APPROVAL_RULE: &str = "workflow_approval";

impl Shard {
    /// Begins the job of a place. With a message it waits for a person's word first.
    pub(super) fn begin_job(
        &mut self,
        id: WorkflowId,
        place: Place,
        spec: PackedSpec,
        approval: Option<String>,
        step: &mut Step,
    ) -> Did {
        let Some(job) = self.enter_flow_job(id, place, spec, false, step) else { return Did::NoRoom };
        let now = self.now;
        if let Some(flow) = self.flows.touch(id)
            && let Some(row) = flow.enter(place, TaskState::Running, now)
        {
            row.job = Some(job);
        }
        self.dirty_bytes += super::flush::ROW_BYTES;
        self.tell_task(id, place, step);
        match approval {
            None => self.ask_policy(job, step),
            Some(message) => {
                let decision = Decision {
                    at: now,
                    verdict: Verdict::RequireApproval,
                    rule: APPROVAL_RULE.to_owned(),
                    message: Some(message),
                    policy: None,
                    constraints: None,
                };
                let noted = decision.clone();
                if self.fire(job, Event::Verdict(decision), step).is_ok() {
                    self.note_decision(job, &noted, step);
                }
            }
        }
        Did::It
    }

    /// Makes a job of a workflow and files it; nobody has been asked about it yet. None: there is no room for it now.
    pub(super) fn enter_flow_job(
        &mut self,
        id: WorkflowId,
        place: Place,
        spec: PackedSpec,
        compensation: bool,
        step: &mut Step,
    ) -> Option<JobId> {
        let flow = self.flows.map.get(&id)?;
        let submitter = flow.record.submitter.clone();
        if self.jobs.len() >= self.config.live_jobs_max {
            return None;
        }
        let own = flow.record.queue;
        // What was done is undone whatever becomes of the workflow's queue.
        let queue = if compensation { self.implicit_queue(&spec.tenant, step).ok()? } else { own };
        if self.is_cancelled_queue(queue) {
            self.stop(id, AfterStop::Cancelled, Reason::new(ReasonCode::QueueCancelled), step);
            return None;
        }
        self.keep_queue(queue, id);
        if !self.admit_task(queue) {
            return None;
        }
        let origin = Origin { workflow: id, place, compensation };
        let entered = self.enter_queue(queue, spec, submitter, Some(Box::new(origin)), step);
        if entered.is_err() {
            self.dismiss(queue);
        } else {
            self.stats.submitted += 1;
        }
        entered.ok()
    }

    /// A queue that is gone comes back for the workflows in it.
    fn keep_queue(&mut self, queue: QueueId, id: WorkflowId) {
        if !self.queues.contains_key(&queue)
            && let Some(flow) = self.flows.map.get(&id)
        {
            let tenant = flow.record.tenant.clone();
            self.restore_queue_of(queue, tenant);
        }
    }

    /// A job of a workflow has entered or left a terminal state.
    pub(super) fn job_changed(&mut self, id: JobId, step: &mut Step) {
        let Some(job) = self.jobs.get(&id).map(|entry| &entry.job) else { return };
        let Some(origin) = job.origin.as_deref().copied() else { return };
        if !job.state.is_terminal() {
            return;
        }
        let word = JobWord::of(job, id);
        let Some(flow) = self.flows.map.get(&origin.workflow) else {
            return self.job_changed_late(origin, word, step);
        };
        let row = flow.row(origin.place);
        let is_current = if origin.compensation {
            flow.undoing == Some(origin.place)
                && row.and_then(|row| row.compensation.as_ref()).is_some_and(|undo| undo.job == Some(id))
        } else {
            flow.state(origin.place) == TaskState::Running && row.is_some_and(|row| row.job == Some(id))
        };
        match (is_current, origin.compensation) {
            (false, _) => self.job_changed_late(origin, word, step),
            (true, true) => {
                self.add_usage(origin.workflow, &word);
                self.undone(origin.workflow, origin.place, word.state == State::Succeeded, step);
            }
            (true, false) => {
                self.add_usage(origin.workflow, &word);
                self.settle(origin.workflow, origin.place, word.end(), step);
                // What its queue does not let run ends the whole.
                if word.reason.as_ref().is_some_and(|reason| reason.code == ReasonCode::QueueCancelled) {
                    self.stop(origin.workflow, AfterStop::Cancelled, Reason::new(ReasonCode::QueueCancelled), step);
                }
            }
        }
    }

    fn add_usage(&mut self, id: WorkflowId, word: &JobWord) {
        let Some(flow) = self.flows.touch(id) else { return };
        let totals = &mut flow.record.totals;
        totals.jobs += 1;
        totals.attempts += u64::from(word.attempts);
        totals.cpu = totals.cpu + word.usage.cpu;
        totals.memory_peak_bytes = totals.memory_peak_bytes.max(word.usage.memory_peak_bytes);
    }

    /// All workflows of a queue that was cancelled are, too, step by step.
    pub(crate) fn stop_flows_of(&mut self, queue: QueueId) {
        let mut ids: Vec<WorkflowId> =
            self.flows.map.values().filter(|flow| flow.record.queue == queue).map(|flow| flow.record.id).collect();
        ids.sort_unstable();
        self.flows.to_stop.extend(ids);
    }

    /// Whether the queue lets nothing run any more.
    pub(super) fn is_cancelled_queue(&self, queue: QueueId) -> bool {
        self.queues.get(&queue).is_some_and(|entry| entry.queue.state == QueueState::Cancelled)
    }
}

/// What the end of a job says to its workflow.
#[derive(Debug, Clone)]
pub(super) struct JobWord {
    pub job: JobId,
    pub state: State,
    pub reason: Option<Reason>,
    pub result: Option<Json>,
    pub attempts: u32,
    pub usage: model::job::Usage,
    /// An attempt had begun, and nobody knows how far it came.
    pub unknown: bool,
}

impl JobWord {
    pub fn of(job: &Job, id: JobId) -> Self {
        let mut usage = model::job::Usage::default();
        for attempt in job.attempts.iter().filter_map(|attempt| attempt.usage) {
            usage.cpu = usage.cpu + attempt.cpu;
            usage.memory_peak_bytes = usage.memory_peak_bytes.max(attempt.memory_peak_bytes);
        }
        Self {
            job: id,
            state: job.state,
            reason: job.reason.clone(),
            result: if job.state == State::Succeeded {
                word_of_approver(job).or_else(|| job.result.clone())
            } else {
                None
            },
            attempts: job.attempt.0,
            usage,
            unknown: job.state != State::Succeeded && job.last_attempt().is_some_and(|attempt| attempt.end.is_none()),
        }
    }

    /// What it means for its task.
    fn end(&self) -> End {
        let state = match self.state {
            State::Succeeded => TaskState::Succeeded,
            State::Cancelled => TaskState::Cancelled,
            State::Failed
            | State::TimedOut
            | State::Denied
            | State::Quarantined
            | State::Abandoned
            | State::Pending
            | State::Blocked
            | State::ApprovalRequired
            | State::Scheduled
            | State::Dispatched
            | State::Running
            | State::Cancelling
            | State::Scanning => TaskState::Failed,
        };
        let reason = match state {
            TaskState::Succeeded => None,
            _ => Some(self.reason.clone().unwrap_or_else(|| Reason::new(ReasonCode::JobFailed))),
        };
        End {
            result: self.result.clone(),
            reason,
            job_state: Some(self.state),
            unknown: self.unknown,
            ..End::of(state)
        }
    }
}

/// Of a task that waited for a person's word, the word is the result.
fn word_of_approver(job: &Job) -> Option<Json> {
    let approval = job.approval.as_deref().filter(|approval| approval.rule == APPROVAL_RULE)?;
    Some(Json::of(&json!({
        "approved_by": approval.by,
        "comment": approval.comment,
        "at": Timestamp(approval.at),
    })))
}
