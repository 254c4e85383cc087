//! Terminal colours. Disabled in pipes and with `NO_COLOR`.

use std::io::IsTerminal;

use model::state::State;
use model::workflow::{TaskState, WorkflowState};

/// Style of a text.
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

/// Applies styles if colours are enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paint {
    colours: bool,
}

impl Paint {
    pub const NONE: Self = Self { colours: false };

    pub fn for_stdout() -> Self {
        Self { colours: std::io::stdout().is_terminal() && colours_allowed() }
    }

    pub fn for_stderr() -> Self {
        Self { colours: std::io::stderr().is_terminal() && colours_allowed() }
    }

    pub fn apply(self, tone: Tone, text: &str) -> String {
        match (self.colours, tone) {
            (false, _) | (_, Tone::Plain) => text.to_owned(),
            (true, _) => format!("{}{text}\x1b[0m", tone.code()),
        }
    }
}

fn colours_allowed() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Replaces control characters, so that untrusted text cannot control the terminal.
pub fn sanitize(text: &str) -> String {
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
    fn untrusted_escape_sequences_do_not_reach_the_terminal() {
        assert_eq!(sanitize("a\x1b[31mb\nc"), "a·[31mb·c");
    }
}
