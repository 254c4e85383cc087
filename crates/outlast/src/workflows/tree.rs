//! A workflow as a tree of lines: its tasks, the items of those that run for each of a list, and its sub-workflows.
//!
//! [`branches`] says what there is to draw, [`fit`] leaves out what a small terminal has no room for, [`mod@draw`] makes
//! lines of the rest. All of it is a function of what the server said: nothing here looks at a clock or a terminal.

mod branches;
mod draw;
#[cfg(test)]
pub mod example;
mod fit;
mod line;
#[cfg(test)]
mod tests;

pub use branches::{Children, Whole, elapsed, ended_words, reason_words, task_note, task_word};
pub use draw::{Look, draw};
pub use line::width_of;

use std::time::Duration;

use crate::paint::Tone;

/// One line of a tree, and the lines below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    pub mark: Mark,
    pub name: String,
    /// One word for where it is.
    pub state: &'static str,
    pub tone: Tone,
    pub took: Option<Duration>,
    pub bar: Option<Bar>,
    pub note: String,
    pub urgency: Urgency,
    pub below: Vec<Branch>,
    /// What is below it and not drawn: how many in which state.
    pub rest: Counts,
}

/// The sign before a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    Waiting,
    Busy,
    /// For a moment, a signal, or another task.
    Resting,
    /// Somebody is asked.
    Asking,
    Good,
    Bad,
    Skipped,
    Cancelled,
    /// A group of tasks.
    Group,
}

/// What is drawn first where there is not room for everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    Failed,
    Live,
    Other,
}

/// How many of a list are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bar {
    pub done: u64,
    pub total: u64,
}

/// How many are in each state, without those that nobody is in.
pub type Counts = Vec<(&'static str, u64)>;

/// One more in a state.
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
