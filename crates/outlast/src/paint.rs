//! Colour, used sparingly, and only where a person looks: never in a pipe, never with `NO_COLOR`.

use std::io::IsTerminal;

use model::state::State;
use model::workflow::{TaskState, WorkflowState};

/// What a text is to look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    #[default]
    Plain,
    Strong,
    Quiet,
    Good,
    Bad,
    Busy,
}

impl Tone {
    pub fn of_state(state: State) -> Self {
        match state {
            State::Succeeded => Self::Good,
            State::Failed | State::TimedOut | State::Denied | State::Quarantined | State::Abandoned => Self::Bad,
            State::Dispatched | State::Running | State::Cancelling | State::Scanning => Self::Busy,
            State::Pending | State::Blocked | State::ApprovalRequired | State::Scheduled => Self::Plain,
            State::Cancelled => Self::Quiet,
        }
    }

    pub fn of_workflow(state: WorkflowState) -> Self {
        match state {
            WorkflowState::Succeeded => Self::Good,
            WorkflowState::Failed => Self::Bad,
            WorkflowState::Running | WorkflowState::Stopping | WorkflowState::RollingBack => Self::Busy,
            WorkflowState::Paused => Self::Plain,
            WorkflowState::Cancelled => Self::Quiet,
        }
    }

    pub fn of_task(state: TaskState) -> Self {
        match state {
            TaskState::Succeeded => Self::Good,
            TaskState::Failed | TaskState::Quarantined => Self::Bad,
            TaskState::Running | TaskState::Sleeping | TaskState::Listening | TaskState::Merged => Self::Busy,
            TaskState::Waiting | TaskState::Skipped | TaskState::Cancelled => Self::Quiet,
        }
    }

    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "\x1b[1m",
            Self::Quiet => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Bad => "\x1b[31m",
            Self::Busy => "\x1b[36m",
        }
    }
}

/// Knows whether there is colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paint {
    colours: bool,
}

impl Paint {
    pub const NONE: Self = Self { colours: false };

    pub fn for_stdout() -> Self {
        Self { colours: std::io::stdout().is_terminal() && wanted() }
    }

    pub fn for_stderr() -> Self {
        Self { colours: std::io::stderr().is_terminal() && wanted() }
    }

    pub fn apply(self, tone: Tone, text: &str) -> String {
        match (self.colours, tone) {
            (false, _) | (_, Tone::Plain) => text.to_owned(),
            (true, _) => format!("{}{text}\x1b[0m", tone.code()),
        }
    }
}

fn wanted() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Takes away what a text of unknown origin could do to a terminal.
pub fn tame(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '·' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_surrounds_the_text_or_is_absent() {
        assert_eq!(Paint { colours: true }.apply(Tone::Good, "ok"), "\x1b[32mok\x1b[0m");
        assert_eq!(Paint { colours: true }.apply(Tone::Plain, "ok"), "ok");
        assert_eq!(Paint::NONE.apply(Tone::Good, "ok"), "ok");
    }

    #[test]
    fn escape_sequences_of_others_do_not_reach_the_terminal() {
        assert_eq!(tame("a\x1b[31mb\nc"), "a·[31mb·c");
    }
}
