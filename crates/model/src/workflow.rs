//! Workflows: durable graphs of tasks, as records.
//!
//! A workflow's own record is small and changes with every step of it. What it was started with stands beside it, once.
//! Every task, and every item of a task that runs for each of a list, has a row of its own as soon as it has begun.

mod record;
mod schedule;
mod states;

pub use record::{
    AfterStop, Compensation, CompensationState, FromSchedule, Note, NoteKind, Origin, Place, Progress, Rollback,
    RollbackState, Signal, Tally, TaskRecord, Totals, Workflow, WorkflowSpec,
};
pub use schedule::{CatchUp, Overlap, Schedule, ScheduleSpec};
pub use states::{TaskState, UnknownState, WorkflowState};
