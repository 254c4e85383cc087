//! Model of a drawing, common to all formats.

use std::collections::BTreeMap;

use super::{NEEDS_DRAWN_MAX, TASKS_DRAWN_MAX};
use crate::plan::{Plan, Task, TaskWork};

/// Drawn part of a plan.
pub(super) struct Picture<'a> {
    pub(super) name: &'a str,
    /// In the order of the definition: the index of a box is the number of its task.
    pub(super) boxes: Vec<TaskBox<'a>>,
    pub(super) arrows: Vec<Arrow>,
    pub(super) epochs: Vec<&'a str>,
    pub(super) tasks_omitted: usize,
    pub(super) needs_omitted: usize,
}

/// Box of a task.
pub(super) struct TaskBox<'a> {
    pub(super) name: &'a str,
    pub(super) kind: WorkKind<'a>,
    pub(super) epoch: usize,
    /// Whether it has `for_each`.
    pub(super) is_repeated: bool,
    /// Whether it has `when`.
    pub(super) is_conditional: bool,
    pub(super) has_compensation: bool,
}

/// Kind of a task's work, as far as a drawing shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkKind<'a> {
    Job,
    Workflow { name: &'a str },
    Delay,
    Approval,
    WaitFor { signal: &'a str },
    Switch,
}

/// Arrow from a needed task to its dependent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arrow {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Cases in which a switch selects the dependent.
    pub(super) case: Option<String>,
}

impl<'a> Picture<'a> {
    pub(super) fn of(plan: &'a Plan) -> Self {
        let drawn = &plan.tasks[..plan.tasks.len().min(TASKS_DRAWN_MAX)];
        let is_drawn = |task: u32| usize::try_from(task).is_ok_and(|task| task < drawn.len());
        let mut cases = cases(drawn);
        let mut arrows = Vec::new();
        let mut needs_omitted = 0;
        for (to, task) in drawn.iter().enumerate() {
            for from in task.needs.iter().copied().filter(|from| is_drawn(*from)).map(index) {
                if arrows.len() < NEEDS_DRAWN_MAX {
                    arrows.push(Arrow { from, to, case: cases.remove(&(from, to)) });
                } else {
                    needs_omitted += 1;
                }
            }
        }
        Self {
            name: &plan.name,
            boxes: drawn.iter().map(|task| TaskBox::of(plan, task)).collect(),
            arrows,
            epochs: plan.epochs.iter().map(|name| &**name).collect(),
            tasks_omitted: plan.tasks.len() - drawn.len(),
            needs_omitted,
        }
    }

    /// Note about omitted tasks and needs.
    pub(super) fn omitted_note(&self) -> Option<String> {
        let count = |count: usize, what: &str| format!("{count} more {what}{}", if count == 1 { "" } else { "s" });
        match (self.tasks_omitted, self.needs_omitted) {
            (0, 0) => None,
            (tasks, 0) => Some(format!("not drawn: {}", count(tasks, "task"))),
            (0, needs) => Some(format!("not drawn: {}", count(needs, "need"))),
            (tasks, needs) => Some(format!("not drawn: {} and {}", count(tasks, "task"), count(needs, "need"))),
        }
    }
}

impl<'a> TaskBox<'a> {
    fn of(plan: &'a Plan, task: &'a Task) -> Self {
        let kind = match &task.work {
            TaskWork::Job(_) => WorkKind::Job,
            TaskWork::Workflow { child, .. } => {
                WorkKind::Workflow { name: plan.children.get(index(*child)).map_or("", |child| &child.name) }
            }
            TaskWork::Delay(_) => WorkKind::Delay,
            TaskWork::Approval { .. } => WorkKind::Approval,
            TaskWork::WaitFor { signal } => WorkKind::WaitFor { signal },
            TaskWork::Switch(_) => WorkKind::Switch,
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

    /// Description of the work.
    pub(super) fn detail(&self) -> String {
        let mut detail = match self.kind {
            WorkKind::Job => "job".to_owned(),
            WorkKind::Workflow { name } => format!("workflow {name}"),
            WorkKind::Delay => "delay".to_owned(),
            WorkKind::Approval => "approval".to_owned(),
            WorkKind::WaitFor { signal } => format!("waits for {signal}"),
            WorkKind::Switch => "switch".to_owned(),
        };
        if self.is_repeated {
            detail.push_str(", for each");
        }
        if self.is_conditional {
            detail.push_str(", conditional");
        }
        detail
    }
}

/// Names of the cases that lead from a switch to a task.
fn cases(tasks: &[Task]) -> BTreeMap<(usize, usize), String> {
    let mut cases: BTreeMap<(usize, usize), String> = BTreeMap::new();
    for (from, task) in tasks.iter().enumerate() {
        let TaskWork::Switch(branches) = &task.work else { continue };
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
    usize::try_from(number).expect("a task number fits into usize, because the tasks are in memory")
}
