//! Records of workflows, tasks and schedules.
//!
//! A workflow's record is small and rewritten with every step. Its spec is stored once, under a key of its own. Every
//! started task, and every started item of a `for_each` task, has a record of its own.

mod record;
mod schedule;
mod states;

pub use record::{
    AfterStop, Compensation, CompensationState, FromSchedule, Note, NoteKind, Origin, Progress, Rollback,
    RollbackState, Signal, Tally, TaskKey, TaskRecord, Totals, UnconfirmedAttempt, Workflow, WorkflowSpec,
};
pub use schedule::{CatchUp, Overlap, Schedule, ScheduleSpec};
pub use states::{TaskState, UnknownState, WorkflowState};
