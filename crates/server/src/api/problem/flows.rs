//! What can be wrong with workflows and schedules.

use axum::http::StatusCode;
use engine::Refusal;
use model::view::DiagnosticView;
use workflow::Diagnostics;
use workflow::cron::CronError;

use super::{Fault, Refused};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlowFault {
    InvalidDefinition,
    InvalidInputs,
    InvalidSchedule,
    UnknownWorkflow,
    UnknownTask,
    UnknownSchedule,
    /// Its state does not allow that.
    State,
    NothingToRerun,
    PartOfWorkflow,
    JobOfWorkflow,
    TooManySignals,
    ScheduleNameTaken,
    TooManySchedules,
    NoProgress,
}

impl FlowFault {
    /// The status, the stable code, and what it is called.
    pub fn facts(self) -> (StatusCode, &'static str, &'static str) {
        use StatusCode as S;
        match self {
            Self::InvalidDefinition => (S::BAD_REQUEST, "invalid_definition", "The definition has problems"),
            Self::InvalidInputs => (S::BAD_REQUEST, "invalid_inputs", "The inputs are not those of the definition"),
            Self::InvalidSchedule => (S::BAD_REQUEST, "invalid_schedule", "The schedule cannot be kept"),
            Self::UnknownWorkflow => (S::NOT_FOUND, "unknown_workflow", "There is no such workflow"),
            Self::UnknownTask => (S::NOT_FOUND, "unknown_task", "The workflow has no such task"),
            Self::UnknownSchedule => (S::NOT_FOUND, "unknown_schedule", "There is no such schedule"),
            Self::State => (S::CONFLICT, "workflow_state", "The workflow's state does not allow that"),
            Self::NothingToRerun => (S::CONFLICT, "nothing_to_rerun", "Everything has succeeded"),
            Self::PartOfWorkflow => (S::CONFLICT, "part_of_workflow", "The workflow is part of another"),
            Self::JobOfWorkflow => (S::CONFLICT, "job_of_workflow", "The job belongs to a workflow"),
            Self::TooManySignals => (S::TOO_MANY_REQUESTS, "too_many_signals", "Too many signals wait in the workflow"),
            Self::ScheduleNameTaken => (S::CONFLICT, "schedule_name_taken", "There is a schedule of this name"),
            Self::TooManySchedules => (S::TOO_MANY_REQUESTS, "too_many_schedules", "There are too many schedules"),
            Self::NoProgress => (S::CONFLICT, "no_progress", "The job is no running task of a workflow"),
        }
    }

    pub fn retry_after_secs(self) -> Option<u64> {
        match self {
            Self::TooManySignals => Some(1),
            Self::InvalidDefinition
            | Self::InvalidInputs
            | Self::InvalidSchedule
            | Self::UnknownWorkflow
            | Self::UnknownTask
            | Self::UnknownSchedule
            | Self::State
            | Self::NothingToRerun
            | Self::PartOfWorkflow
            | Self::JobOfWorkflow
            | Self::ScheduleNameTaken
            | Self::TooManySchedules
            | Self::NoProgress => None,
        }
    }
}

impl From<FlowFault> for Fault {
    fn from(fault: FlowFault) -> Self {
        Self::Flow(fault)
    }
}

/// The fault in a refusal about workflows or schedules.
pub(super) fn fault_of(refusal: &Refusal) -> Fault {
    Fault::Flow(match refusal {
        Refusal::UnknownWorkflow(_) => FlowFault::UnknownWorkflow,
        Refusal::WorkflowState { .. } => FlowFault::State,
        Refusal::UnknownTask { .. } => FlowFault::UnknownTask,
        Refusal::NothingToRerun => FlowFault::NothingToRerun,
        Refusal::PartOfWorkflow(_) => FlowFault::PartOfWorkflow,
        Refusal::JobOfWorkflow(_) => FlowFault::JobOfWorkflow,
        Refusal::TooManySignals { .. } => FlowFault::TooManySignals,
        Refusal::UnknownSchedule(_) => FlowFault::UnknownSchedule,
        Refusal::ScheduleNameTaken { .. } => FlowFault::ScheduleNameTaken,
        Refusal::TooManySchedules { .. } => FlowFault::TooManySchedules,
        Refusal::NoProgress => FlowFault::NoProgress,
        _ => return Fault::Internal,
    })
}

impl Refused {
    /// Everything that is wrong with a definition, or with the inputs to it; the first stands for all.
    pub fn diagnosed(fault: FlowFault, diagnostics: &Diagnostics) -> Self {
        let views: Vec<DiagnosticView> = diagnostics
            .0
            .iter()
            .map(|diagnostic| DiagnosticView {
                code: diagnostic.code.to_owned(),
                field: diagnostic.field.clone(),
                message: diagnostic.message.clone(),
                line: diagnostic.line,
                column: diagnostic.column,
                suggestion: diagnostic.suggestion.clone(),
            })
            .collect();
        let first = views.first();
        let place = first.and_then(|first| first.line).map(|line| format!("line {line}: ")).unwrap_or_default();
        let message = first.map(|first| first.message.as_str()).unwrap_or_default();
        let more = match views.len() + diagnostics.more() {
            0 | 1 => String::new(),
            all => format!(" (and {} more)", all - 1),
        };
        let field = first.map(|first| first.field.clone()).filter(|field| !field.is_empty());
        let detail = format!("{place}{message}{more}");
        Self { diagnostics: views, field, ..Self::saying(fault.into(), detail) }
    }

    /// A cron expression or a time zone that cannot be read.
    pub fn untimely(error: &CronError) -> Self {
        let field = match error {
            CronError::UnknownZone { .. } => "timezone",
            CronError::TooLong { .. }
            | CronError::FieldCount { .. }
            | CronError::Field { .. }
            | CronError::UnknownName { .. }
            | CronError::Never { .. } => "cron",
        };
        Self::saying(FlowFault::InvalidSchedule.into(), error.to_string()).at(field)
    }
}
