//! Records of workflows and their tasks.

use std::collections::BTreeMap;

use bytes::Bytes;
use minicbor::{Decode, Encode};

use super::{TaskState, WorkflowState};
use crate::id::{Attempt, Incarnation, JobId, QueueId, RunnerId, ScheduleId, WorkflowId};
use crate::job::Usage;
use crate::json::Json;
use crate::limits;
use crate::reason::Reason;
use crate::spec::Digest;
use crate::state::State;
use crate::time::Millis;

/// A task of a workflow, or an item of it. Tasks are numbered in the order of the definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct TaskKey {
    #[n(0)]
    pub task: u32,
    /// With `for_each`: index of the item, from 0.
    #[n(1)]
    pub item: Option<u32>,
}

impl TaskKey {
    pub fn of(task: u32) -> Self {
        Self { task, item: None }
    }

    pub fn item(task: u32, item: u32) -> Self {
        Self { task, item: Some(item) }
    }
}

/// The workflow task of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Origin {
    #[n(0)]
    pub workflow: WorkflowId,
    #[n(1)]
    pub task_key: TaskKey,
    /// The job is the task's compensation.
    #[n(2)]
    pub compensation: bool,
}

/// Number of tasks by state, in the order of [`TaskState::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(transparent)]
pub struct Tally(#[n(0)] pub [u32; 10]);

impl Tally {
    /// `total` waiting tasks.
    pub fn waiting(total: u32) -> Self {
        let mut tally = Self::default();
        tally.0[usize::from(TaskState::Waiting.code())] = total;
        tally
    }

    pub fn of(&self, state: TaskState) -> u32 {
        self.0[usize::from(state.code())]
    }

    pub fn total(&self) -> u32 {
        self.0.iter().sum()
    }

    /// Number of tasks that have started and not ended.
    pub fn live(&self) -> u32 {
        TaskState::ALL.into_iter().filter(|state| state.is_live()).map(|state| self.of(state)).sum()
    }

    pub fn add(&mut self, state: TaskState, count: u32) {
        self.0[usize::from(state.code())] += count;
    }

    pub fn shift(&mut self, from: TaskState, to: TaskState) {
        let count = &mut self.0[usize::from(from.code())];
        debug_assert!(*count > 0, "no task is counted as {from}");
        *count = count.saturating_sub(1);
        self.0[usize::from(to.code())] += 1;
    }
}

/// What follows when the live tasks of a stopping workflow have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum AfterStop {
    #[n(0)]
    Cancelled,
    #[n(1)]
    Failed,
    /// Rollback, then failed.
    #[n(2)]
    RollBackAndFail,
    /// Rollback, then cancelled.
    #[n(3)]
    RollBackAndCancel,
}

impl AfterStop {
    pub fn rolls_back(self) -> bool {
        matches!(self, Self::RollBackAndFail | Self::RollBackAndCancel)
    }

    /// The terminal state.
    pub fn end(self) -> WorkflowState {
        match self {
            Self::Cancelled | Self::RollBackAndCancel => WorkflowState::Cancelled,
            Self::Failed | Self::RollBackAndFail => WorkflowState::Failed,
        }
    }
}

/// State of a rollback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum RollbackState {
    #[n(0)]
    RollingBack,
    #[n(1)]
    RolledBack,
    /// Some compensations failed: see the dead letters.
    #[n(2)]
    PartiallyRolledBack,
}

impl RollbackState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RollingBack => "rolling_back",
            Self::RolledBack => "rolled_back",
            Self::PartiallyRolledBack => "partially_rolled_back",
        }
    }
}

/// Rollback of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Rollback {
    #[n(0)]
    pub state: RollbackState,
    #[n(1)]
    pub began_at: Millis,
    #[n(2)]
    pub ended_at: Option<Millis>,
    /// Number of tasks and items to compensate.
    #[n(3)]
    pub total: u32,
    #[n(4)]
    pub compensated: u32,
    #[n(5)]
    pub failed: u32,
}

/// State of a compensation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum CompensationState {
    #[n(0)]
    Running,
    #[n(1)]
    Done,
    #[n(2)]
    Failed,
}

impl CompensationState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

/// Compensation of a task or item.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Compensation {
    #[n(0)]
    pub state: CompensationState,
    /// Absent for a sub-workflow, which rolls itself back, and for a job that could not be rendered.
    #[n(1)]
    pub job: Option<JobId>,
    #[n(2)]
    pub at: Millis,
    /// Dead letter of a job that could not be rendered. If it is retried, the job gets this id.
    #[n(3)]
    pub dead_letter: Option<JobId>,
}

/// An attempt that was given up and may still run. A rollback waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct UnconfirmedAttempt {
    #[n(0)]
    pub job: JobId,
    #[n(1)]
    pub attempt: Attempt,
    #[n(2)]
    pub runner: RunnerId,
    #[n(3)]
    pub incarnation: Incarnation,
}

/// Progress reported by a running task.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Progress {
    #[n(0)]
    pub percent: u8,
    #[n(1)]
    pub message: Option<String>,
    #[n(2)]
    pub at: Millis,
}

/// Record of a started task or item.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct TaskRecord {
    #[n(0)]
    pub state: TaskState,
    #[n(1)]
    pub began_at: Millis,
    #[n(2)]
    pub ended_at: Option<Millis>,
    #[n(3)]
    pub job: Option<JobId>,
    /// The sub-workflow started by the task.
    #[n(4)]
    pub child: Option<WorkflowId>,
    /// Present if a template reads it; otherwise it is only in the job's record.
    #[n(5)]
    pub result: Option<Json>,
    #[n(6)]
    pub reason: Option<Reason>,
    /// Completion order of tasks with a compensation, from 1. A rollback goes in reverse. 0: nothing to compensate.
    #[cbor(n(7), skip_if = "is_zero")]
    pub order: u32,
    /// End of a delay, or timeout of a wait for a signal.
    #[n(8)]
    pub due: Option<Millis>,
    /// The task whose identical work this task shares.
    #[n(9)]
    pub merged_into: Option<TaskKey>,
    /// Digest of the task's work. Tasks with the same digest share one execution.
    #[n(10)]
    pub merge_key: Option<Digest>,
    #[n(11)]
    pub compensation: Option<Box<Compensation>>,
    /// Index of the chosen case of a switch; the number of cases if none matched.
    #[n(12)]
    pub chosen: Option<u32>,
    /// With `for_each`: number of items.
    #[n(13)]
    pub items: Option<u32>,
    /// Terminal state of the job.
    #[n(14)]
    pub job_state: Option<State>,
    #[n(15)]
    pub progress: Option<Box<Progress>>,
    /// With `for_each` after other tasks: the evaluated list. Later changes to their results do not affect it.
    #[n(16)]
    pub list: Option<Json>,
    /// Attempts of its job, or of its compensation, that were given up and may still run. Absent instead of empty.
    #[n(17)]
    pub unconfirmed: Option<Box<Vec<UnconfirmedAttempt>>>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl TaskRecord {
    pub fn new(state: TaskState, now: Millis) -> Self {
        Self {
            state,
            began_at: now,
            ended_at: None,
            job: None,
            child: None,
            result: None,
            reason: None,
            order: 0,
            due: None,
            merged_into: None,
            merge_key: None,
            compensation: None,
            chosen: None,
            items: None,
            job_state: None,
            progress: None,
            list: None,
            unconfirmed: None,
        }
    }
}

/// History entry of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Note {
    #[n(0)]
    pub at: Millis,
    #[n(1)]
    pub kind: NoteKind,
    #[n(2)]
    pub by: Option<Box<str>>,
    #[n(3)]
    pub task_key: Option<TaskKey>,
    #[n(4)]
    pub text: Option<String>,
}

macro_rules! notes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// Kind of a history entry.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
        #[cbor(index_only)]
        pub enum NoteKind {
            $($(#[$doc])* #[n($number)] $name,)*
        }

        impl NoteKind {
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

notes! {
    Started = 0, "started";
    Paused = 1, "paused";
    Resumed = 2, "resumed";
    CancelRequested = 3, "cancel_requested";
    /// The text is the name of the signal.
    Signalled = 4, "signalled";
    /// Rerun from this task; without one, from the tasks that had not succeeded.
    Rerun = 5, "rerun";
    /// The workflow stops because this task failed.
    Stopping = 6, "stopping";
    RollbackBegan = 7, "rollback_began";
    RollbackEnded = 8, "rollback_ended";
    /// The result of this task was quarantined after its success. Dependent tasks that had started went on.
    QuarantinedLate = 9, "quarantined_late";
    Released = 10, "released";
    EpochReached = 11, "epoch_reached";
    TimedOut = 12, "timed_out";
    Ended = 13, "ended";
    /// The result of this task was redacted after its success.
    RedactedLate = 14, "redacted_late";
}

/// The schedule that started a workflow, and the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct FromSchedule {
    #[n(0)]
    pub id: ScheduleId,
    #[n(1)]
    pub slot: Millis,
}

/// Total resource usage of a workflow's jobs, each counted once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Totals {
    #[n(0)]
    pub cpu: Millis,
    /// Maximum over all jobs.
    #[n(1)]
    pub memory_peak_bytes: u64,
    #[n(2)]
    pub jobs: u64,
    #[n(3)]
    pub attempts: u64,
}

impl Totals {
    pub fn add(&mut self, usage: Usage) {
        self.cpu = self.cpu + usage.cpu;
        self.memory_peak_bytes = self.memory_peak_bytes.max(usage.memory_peak_bytes);
    }
}

/// Record of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Workflow {
    #[n(0)]
    pub id: WorkflowId,
    /// The queue of its jobs.
    #[n(1)]
    pub queue: QueueId,
    #[n(2)]
    pub name: String,
    #[n(3)]
    pub tenant: String,
    #[n(4)]
    pub state: WorkflowState,
    #[n(5)]
    pub created_at: Millis,
    /// Time of entering the current state.
    #[n(6)]
    pub since: Millis,
    /// Number of runs: 1, plus one for each rerun.
    #[n(7)]
    pub run: u32,
    #[n(8)]
    pub submitter: Option<Box<str>>,
    /// The task that started the workflow as a sub-workflow.
    #[n(9)]
    pub parent: Option<(WorkflowId, TaskKey)>,
    #[n(10)]
    pub schedule: Option<FromSchedule>,
    #[n(11)]
    pub tasks: Tally,
    /// Items of `for_each` tasks.
    #[n(12)]
    pub items: Tally,
    #[n(13)]
    pub totals: Totals,
    /// The newest [`TaskRecord::order`].
    #[n(14)]
    pub last_order: u32,
    /// Current epoch. Tasks of later epochs wait.
    #[n(15)]
    pub epoch: u32,
    #[n(16)]
    pub reason: Option<Reason>,
    #[n(17)]
    pub after_stop: Option<AfterStop>,
    #[n(18)]
    pub rollback: Option<Rollback>,
    #[n(19)]
    pub notes: Vec<Note>,
    #[n(20)]
    pub notes_dropped: u32,
    /// Result of the workflow.
    #[n(21)]
    pub result: Option<Json>,
    #[n(22)]
    pub deadline: Option<Millis>,
    #[n(23)]
    pub labels: BTreeMap<String, String>,
    /// Number of the next signal.
    #[n(24)]
    pub next_signal: u32,
    /// Nesting depth as a sub-workflow; 0 for a top-level workflow.
    #[n(25)]
    pub depth: u32,
    /// Removal is in progress and cannot be undone.
    #[cbor(n(26), default)]
    pub removing: bool,
    /// Digest of its definition, if that is stored by its digest. Absent in records of version 0.1.
    #[n(27)]
    pub definition: Option<Digest>,
}

impl Workflow {
    /// Upper bound of the size of the record.
    pub fn record_bytes(&self) -> usize {
        const FIXED_BYTES: usize = 400;
        const NOTE_BYTES: usize = 64;
        let text = |text: Option<&String>| text.map_or(0, String::len);
        let name = |name: Option<&Box<str>>| name.map_or(0, |name| name.len());
        let notes = self.notes.iter().map(|note| NOTE_BYTES + name(note.by.as_ref()) + text(note.text.as_ref()));
        let labels = self.labels.iter().map(|(name, value)| 16 + name.len() + value.len());
        FIXED_BYTES
            + self.name.len()
            + self.tenant.len()
            + name(self.submitter.as_ref())
            + self.reason.as_ref().map_or(0, |reason| text(reason.message.as_ref()))
            + self.result.as_ref().map_or(0, |result| result.as_bytes().len())
            + notes.sum::<usize>()
            + labels.sum::<usize>()
    }

    pub fn note(&mut self, note: Note) {
        if self.notes.len() >= limits::HISTORY_ENTRIES_MAX {
            self.notes.remove(limits::HISTORY_ENTRIES_MAX / 2);
            self.notes_dropped += 1;
        }
        self.notes.push(note);
    }

    pub fn enter(&mut self, state: WorkflowState, now: Millis) {
        self.state = state;
        self.since = now;
    }

    pub fn ended_at(&self) -> Option<Millis> {
        self.state.is_terminal().then_some(self.since)
    }
}

/// Definition and inputs of a workflow. Written once.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct WorkflowSpec {
    /// Digest of the definition.
    #[n(0)]
    pub digest: Digest,
    /// Definition as JSON. Empty: stored by its digest. Not empty in records of version 0.1.
    #[cbor(n(1), with = "plain_bytes")]
    pub definition: Bytes,
    /// All inputs with their values.
    #[n(2)]
    pub inputs: Json,
}

/// An unconsumed signal.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Signal {
    #[n(0)]
    pub name: String,
    #[n(1)]
    pub payload: Json,
    #[n(2)]
    pub at: Millis,
    #[n(3)]
    pub by: Option<Box<str>>,
}

mod plain_bytes {
    use bytes::Bytes;
    use minicbor::{Decoder, Encoder};

    pub fn encode<C, W: minicbor::encode::Write>(
        bytes: &Bytes,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.bytes(bytes)?;
        Ok(())
    }

    pub fn decode<'b, C>(d: &mut Decoder<'b>, _: &mut C) -> Result<Bytes, minicbor::decode::Error> {
        Ok(Bytes::copy_from_slice(d.bytes()?))
    }
}
