//! A workflow as a tree of lines: tasks, items and sub-workflows.
//!
//! [`branches`] builds the tree, [`fit`] shortens it to the height of the terminal, [`mod@draw`] renders the lines. All
//! functions are pure: nothing here reads a clock or a terminal.

mod branches;
mod draw;
#[cfg(test)]
pub mod example;
mod fit;
mod line;
#[cfg(test)]
mod tests;

pub use branches::{Children, WorkflowTree, describe_reason, elapsed, end_summary, task_label, task_note};
pub use draw::{DrawOptions, draw};
pub use line::width_of;

use std::time::Duration;

use crate::paint::Tone;

/// A line of the tree with the lines below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    pub mark: Mark,
    pub name: String,
    /// State label.
    pub state: &'static str,
    pub tone: Tone,
    pub took: Option<Duration>,
    pub bar: Option<Bar>,
    pub note: String,
    pub urgency: Urgency,
    pub below: Vec<Branch>,
    /// Counts per state of the branches below it that are not drawn.
    pub rest: Counts,
}

/// Symbol before a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    Waiting,
    Busy,
    /// Waits for a time, a signal or another task.
    Suspended,
    ApprovalRequired,
    Good,
    Bad,
    Skipped,
    Cancelled,
    /// An epoch.
    Group,
}

/// Drawing priority if the terminal is too small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    Failed,
    Live,
    Other,
}

/// Progress of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bar {
    pub done: u64,
    pub total: u64,
}

/// Non-zero counts per state.
pub type Counts = Vec<(&'static str, u64)>;

/// Adds to the count of a state.
fn count(counts: &mut Counts, state: &'static str, more: u64) {
    match counts.iter_mut().find(|(name, _)| *name == state) {
        Some((_, number)) => *number += more,
        None if more > 0 => counts.push((state, more)),
        None => {}
    }
}

fn total(counts: &Counts) -> u64 {
    counts.iter().map(|(_, number)| number).sum()
}

/// `12 waiting, 3 succeeded`.
pub fn counted(counts: &[(&'static str, u64)]) -> String {
    counts.iter().map(|(state, number)| format!("{number} {state}")).collect::<Vec<_>>().join(", ")
}
