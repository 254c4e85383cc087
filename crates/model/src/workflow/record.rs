//! What is kept of a workflow.

use std::collections::BTreeMap;

use bytes::Bytes;
use minicbor::{Decode, Encode};

use super::{TaskState, WorkflowState};
use crate::id::{JobId, QueueId, ScheduleId, WorkflowId};
use crate::job::Usage;
use crate::json::Json;
use crate::limits;
use crate::reason::Reason;
use crate::spec::Digest;
use crate::state::State;
use crate::time::Millis;

/// A task of a workflow, or one item of it. The number of a task is its place in the definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Place {
    #[n(0)]
    pub task: u32,
    /// With `for_each`: the place of the item in its list, from 0.
    #[n(1)]
    pub item: Option<u32>,
}

impl Place {
    pub fn of(task: u32) -> Self {
        Self { task, item: None }
    }

    pub fn item(task: u32, item: u32) -> Self {
        Self { task, item: Some(item) }
    }
}

/// What a job belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Origin {
    #[n(0)]
    pub workflow: WorkflowId,
    #[n(1)]
    pub place: Place,
    /// It undoes what the task has done.
    #[n(2)]
    pub compensation: bool,
}

/// How many tasks are in each state, in the order of [`TaskState::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(transparent)]
pub struct Tally(#[n(0)] pub [u32; 10]);

impl Tally {
    /// All of them waiting.
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

    /// Those that have begun and not ended.
    pub fn live(&self) -> u32 {
        TaskState::ALL.into_iter().filter(|state| state.is_live()).map(|state| self.of(state)).sum()
    }

    pub fn add(&mut self, state: TaskState, count: u32) {
        self.0[usize::from(state.code())] += count;
    }

    pub fn shift(&mut self, from: TaskState, to: TaskState) {
        let count = &mut self.0[usize::from(from.code())];
        debug_assert!(*count > 0, "more tasks leave {from} than there are");
        *count = count.saturating_sub(1);
        self.0[usize::from(to.code())] += 1;
    }
}

/// What comes after a workflow's live tasks have stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum AfterStop {
    #[n(0)]
    Cancelled,
    #[n(1)]
    Failed,
    /// What was done is undone, and then it has failed.
    #[n(2)]
    RollBackAndFail,
    /// What was done is undone, and then it is cancelled.
    #[n(3)]
    RollBackAndCancel,
}

impl AfterStop {
    pub fn rolls_back(self) -> bool {
        matches!(self, Self::RollBackAndFail | Self::RollBackAndCancel)
    }

    /// The state in the end.
    pub fn end(self) -> WorkflowState {
        match self {
            Self::Cancelled | Self::RollBackAndCancel => WorkflowState::Cancelled,
            Self::Failed | Self::RollBackAndFail => WorkflowState::Failed,
        }
    }
}

/// How far a rollback has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum RollbackState {
    #[n(0)]
    RollingBack,
    #[n(1)]
    RolledBack,
    /// Some of it could not be undone: the dead letters say what.
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

/// The undoing of what a workflow has done.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Rollback {
    #[n(0)]
    pub state: RollbackState,
    #[n(1)]
    pub began_at: Millis,
    #[n(2)]
    pub ended_at: Option<Millis>,
    /// How many steps there are to undo.
    #[n(3)]
    pub total: u32,
    #[n(4)]
    pub undone: u32,
    #[n(5)]
    pub failed: u32,
}

/// Where the undoing of one step is.
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

/// The undoing of one step.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Compensation {
    #[n(0)]
    pub state: CompensationState,
    /// Absent where a sub-workflow undoes its own steps.
    #[n(1)]
    pub job: Option<JobId>,
    #[n(2)]
    pub at: Millis,
}

/// How far a running task says it is.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Progress {
    #[n(0)]
    pub percent: u8,
    #[n(1)]
    pub message: Option<String>,
    #[n(2)]
    pub at: Millis,
}

/// One task that has begun, or one item of it.
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
    /// The sub-workflow that it has started.
    #[n(4)]
    pub child: Option<WorkflowId>,
    /// Kept here where a template reads it; else it stands in the job's record.
    #[n(5)]
    pub result: Option<Json>,
    #[n(6)]
    pub reason: Option<Reason>,
    /// Counts the ends of what can be undone, from 1: it is undone in the opposite order. 0: nothing to undo.
    #[cbor(n(7), skip_if = "is_zero")]
    pub order: u32,
    /// When a delay is over, or when a signal has been waited for long enough.
    #[n(8)]
    pub due: Option<Millis>,
    /// The task that does the very same.
    #[n(9)]
    pub merged_into: Option<Place>,
    /// Names what it does, for those that would do the very same.
    #[n(10)]
    pub merge_key: Option<Digest>,
    #[n(11)]
    pub compensation: Option<Box<Compensation>>,
    /// The case of a switch that held; one more than the last: none.
    #[n(12)]
    pub chosen: Option<u32>,
    /// With `for_each`: how many items there are.
    #[n(13)]
    pub items: Option<u32>,
    /// How its job ended.
    #[n(14)]
    pub job_state: Option<State>,
    #[n(15)]
    pub progress: Option<Box<Progress>>,
    /// With `for_each` after other tasks: the list as it was. What becomes of their results later does not change it.
    #[n(16)]
    pub list: Option<Json>,
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
        }
    }
}

/// What happened to a workflow as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Note {
    #[n(0)]
    pub at: Millis,
    #[n(1)]
    pub kind: NoteKind,
    #[n(2)]
    pub by: Option<Box<str>>,
    #[n(3)]
    pub place: Option<Place>,
    #[n(4)]
    pub text: Option<String>,
}

macro_rules! notes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// What a note is about.
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
    /// The text is its name.
    Signalled = 4, "signalled";
    /// It goes back to this task; without one, to what had not succeeded.
    Rerun = 5, "rerun";
    /// This task's failure stops the workflow.
    Stopping = 6, "stopping";
    RollbackBegan = 7, "rollback_began";
    RollbackEnded = 8, "rollback_ended";
    /// The result of this task was taken out of circulation after it had succeeded. What had begun after it went on.
    QuarantinedLate = 9, "quarantined_late";
    Released = 10, "released";
    /// An epoch was reached.
    EpochReached = 11, "epoch_reached";
    TimedOut = 12, "timed_out";
    Ended = 13, "ended";
    /// Parts of this task's result were removed after it had succeeded.
    RedactedLate = 14, "redacted_late";
}

/// The schedule that has started a workflow, and for which moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct FromSchedule {
    #[n(0)]
    pub id: ScheduleId,
    #[n(1)]
    pub slot: Millis,
}

/// What the jobs of a workflow have used, each counted once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Totals {
    #[n(0)]
    pub cpu: Millis,
    /// The largest of any job.
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

/// A workflow.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Workflow {
    #[n(0)]
    pub id: WorkflowId,
    /// Where its jobs stand in line.
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
    /// When it entered its state.
    #[n(6)]
    pub since: Millis,
    /// Counts its runs: 1, and one more for each time it was run again from one of its tasks.
    #[n(7)]
    pub run: u32,
    #[n(8)]
    pub submitter: Option<Box<str>>,
    /// The task that has started it as a sub-workflow.
    #[n(9)]
    pub parent: Option<(WorkflowId, Place)>,
    #[n(10)]
    pub schedule: Option<FromSchedule>,
    #[n(11)]
    pub tasks: Tally,
    /// The items of its tasks that run for each of a list.
    #[n(12)]
    pub items: Tally,
    #[n(13)]
    pub totals: Totals,
    /// The newest [`TaskRecord::order`].
    #[n(14)]
    pub last_order: u32,
    /// Tasks of later epochs wait.
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
    /// What it has come to.
    #[n(21)]
    pub result: Option<Json>,
    #[n(22)]
    pub deadline: Option<Millis>,
    #[n(23)]
    pub labels: BTreeMap<String, String>,
    /// The number of the next signal.
    #[n(24)]
    pub next_signal: u32,
    /// How deep it is nested: 0 for one that was started from outside.
    #[n(25)]
    pub depth: u32,
    /// It is being taken off the records, and nothing brings it back.
    #[cbor(n(26), default)]
    pub removing: bool,
}

impl Workflow {
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

/// What a workflow was started with; written once.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct WorkflowSpec {
    /// Names the definition: the same definition, the same digest.
    #[n(0)]
    pub digest: Digest,
    /// The definition as JSON.
    #[cbor(n(1), with = "plain_bytes")]
    pub definition: Bytes,
    /// Every input with its value.
    #[n(2)]
    pub inputs: Json,
}

/// A signal that has come and that no task has taken yet.
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
