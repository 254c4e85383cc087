//! What of a plan is drawn, whichever way.

use std::collections::BTreeMap;

use super::{NEEDS_DRAWN_MAX, TASKS_DRAWN_MAX};
use crate::plan::{Act, Plan, Task};

/// The part of a plan that is drawn.
pub(super) struct Picture<'a> {
    pub(super) name: &'a str,
    /// In the order of the definition: the place of a box is the number of its task.
    pub(super) boxes: Vec<TaskBox<'a>>,
    pub(super) arrows: Vec<Arrow>,
    pub(super) epochs: Vec<&'a str>,
    pub(super) tasks_left_out: usize,
    pub(super) needs_left_out: usize,
}

/// A task as it is drawn.
pub(super) struct TaskBox<'a> {
    pub(super) name: &'a str,
    pub(super) kind: Kind<'a>,
    pub(super) epoch: usize,
    /// It runs once for each item of a list.
    pub(super) is_repeated: bool,
    /// It runs only if its condition holds.
    pub(super) is_conditional: bool,
    pub(super) has_compensation: bool,
}

/// What a task does, as far as a drawing shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    Job,
    Workflow { name: &'a str },
    Delay,
    Approval,
    WaitFor { signal: &'a str },
    Switch,
}

/// One task needs another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arrow {
    pub(super) from: usize,
    pub(super) to: usize,
    /// The cases in which a switch lets the other run.
    pub(super) case: Option<String>,
}

impl<'a> Picture<'a> {
    pub(super) fn of(plan: &'a Plan) -> Self {
        let drawn = &plan.tasks[..plan.tasks.len().min(TASKS_DRAWN_MAX)];
        let is_drawn = |task: u32| usize::try_from(task).is_ok_and(|task| task < drawn.len());
        let mut cases = cases(drawn);
        let mut arrows = Vec::new();
        let mut needs_left_out = 0;
        for (to, task) in drawn.iter().enumerate() {
            for from in task.needs.iter().copied().filter(|from| is_drawn(*from)).map(index) {
                if arrows.len() < NEEDS_DRAWN_MAX {
                    arrows.push(Arrow { from, to, case: cases.remove(&(from, to)) });
                } else {
                    needs_left_out += 1;
                }
            }
        }
        Self {
            name: &plan.name,
            boxes: drawn.iter().map(|task| TaskBox::of(plan, task)).collect(),
            arrows,
            epochs: plan.epochs.iter().map(|name| &**name).collect(),
            tasks_left_out: plan.tasks.len() - drawn.len(),
            needs_left_out,
        }
    }

    /// What the reader should know about parts that are not drawn.
    pub(super) fn left_out(&self) -> Option<String> {
        let count = |count: usize, what: &str| format!("{count} more {what}{}", if count == 1 { "" } else { "s" });
        match (self.tasks_left_out, self.needs_left_out) {
            (0, 0) => None,
            (tasks, 0) => Some(format!("not drawn: {}", count(tasks, "task"))),
            (0, needs) => Some(format!("not drawn: {}", count(needs, "need"))),
            (tasks, needs) => Some(format!("not drawn: {} and {}", count(tasks, "task"), count(needs, "need"))),
        }
    }
}

impl<'a> TaskBox<'a> {
    fn of(plan: &'a Plan, task: &'a Task) -> Self {
        let kind = match &task.act {
            Act::Job(_) => Kind::Job,
            Act::Workflow { child, .. } => {
                Kind::Workflow { name: plan.children.get(index(*child)).map_or("", |child| &child.name) }
            }
            Act::Delay(_) => Kind::Delay,
            Act::Approval { .. } => Kind::Approval,
            Act::WaitFor { signal } => Kind::WaitFor { signal },
            Act::Switch(_) => Kind::Switch,
        };
        Self {
            name: &task.name,
            kind,
            epoch: index(task.epoch),
            is_repeated: task.for_each.is_some(),
            is_conditional: task.when.is_some(),
            has_compensation: task.compensation.is_some(),
        }
    }

    /// What it does, in words.
    pub(super) fn words(&self) -> String {
        let mut words = match self.kind {
            Kind::Job => "job".to_owned(),
            Kind::Workflow { name } => format!("workflow {name}"),
            Kind::Delay => "delay".to_owned(),
            Kind::Approval => "approval".to_owned(),
            Kind::WaitFor { signal } => format!("waits for {signal}"),
            Kind::Switch => "switch".to_owned(),
        };
        if self.is_repeated {
            words.push_str(", for each");
        }
        if self.is_conditional {
            words.push_str(", conditional");
        }
        words
    }
}

/// Which cases of a switch lead to which task.
fn cases(tasks: &[Task]) -> BTreeMap<(usize, usize), String> {
    let mut cases: BTreeMap<(usize, usize), String> = BTreeMap::new();
    for (from, task) in tasks.iter().enumerate() {
        let Act::Switch(branches) = &task.act else { continue };
        for (number, branch) in (1..).zip(branches) {
            let name = if branch.when.is_some() { format!("case {number}") } else { "otherwise".to_owned() };
            for to in branch.then.iter().copied().map(index).filter(|to| *to < tasks.len()) {
                let text = cases.entry((from, to)).or_default();
                let separator = if text.is_empty() { "" } else { ", " };
                text.push_str(separator);
                text.push_str(&name);
            }
        }
    }
    cases
}

fn index(number: u32) -> usize {
    usize::try_from(number).expect("a task's number fits, since the tasks are in memory")
}
