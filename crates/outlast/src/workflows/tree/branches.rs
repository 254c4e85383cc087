//! Builds the tree of a workflow.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{ReasonView, RollbackView, TaskKind, TaskView, WorkflowView};
use model::id::WorkflowId;
use model::state::State;
use model::workflow::{TaskState, WorkflowState};

use super::{Bar, Branch, Counts, Mark, Urgency, count, counted};
use crate::duration;
use crate::paint::Tone;

/// Limit of items with their own line, per task.
const ITEMS_MAX: usize = 5;
/// Depth limit of sub-workflows.
const DEPTH_MAX: usize = 4;

/// Fetched sub-workflows.
pub type Children = BTreeMap<WorkflowId, WorkflowView>;

/// A workflow prepared for drawing.
#[derive(Debug, Clone)]
pub struct WorkflowTree {
    pub id: WorkflowId,
    pub name: String,
    pub state: String,
    pub tone: Tone,
    pub took: Duration,
    pub tally: String,
    pub notices: Vec<(Tone, String)>,
    pub branches: Vec<Branch>,
    /// Counts per state of the tasks that were not fetched.
    pub rest: Counts,
}

impl WorkflowTree {
    /// `age` is the time since `view` was fetched.
    pub fn new(view: &WorkflowView, children: &Children, age: Duration) -> Self {
        let (branches, rest) = of_workflow(view, children, age, 0);
        let took = Duration::from_millis(view.duration_ms);
        let ended: u32 =
            TaskState::ALL.into_iter().filter(|state| state.is_terminal()).map(|state| view.counts.of(state)).sum();
        Self {
            id: view.id,
            name: view.name.clone(),
            state: view.state.as_str().replace('_', " "),
            tone: Tone::of_workflow(view.state),
            took: if view.state.is_terminal() { took } else { took + age },
            tally: format!("{ended}/{} tasks", view.tasks_total),
            notices: notices(view),
            branches,
            rest,
        }
    }
}

/// Notices about the workflow as a whole.
fn notices(view: &WorkflowView) -> Vec<(Tone, String)> {
    let mut notices = Vec::new();
    if let Some(reason) = &view.reason {
        let tone = if view.state == WorkflowState::Failed { Tone::Bad } else { Tone::Plain };
        notices.push((tone, describe_reason(reason)));
    }
    if let Some(why) = &view.suspended {
        notices.push((Tone::Bad, format!("suspended, {why}; start the version that wrote it, or a newer one")));
    }
    if view.state == WorkflowState::Paused {
        notices.push((Tone::Plain, format!("no new tasks start until `outlast workflows resume {}`", view.id)));
    }
    if let Some(rollback) = &view.rollback {
        notices.push(describe_rollback(rollback));
    }
    if view.run > 1 {
        notices.push((Tone::Quiet, format!("run {}", view.run)));
    }
    notices
}

fn describe_rollback(rollback: &RollbackView) -> (Tone, String) {
    let RollbackView { state, total, compensated, failed, .. } = rollback;
    let failures = if *failed > 0 { format!(", {failed} failed: see `outlast dlq`") } else { String::new() };
    let tone = match (rollback.ended_at, *failed) {
        (_, 1..) => Tone::Bad,
        (None, 0) => Tone::Busy,
        (Some(_), 0) => Tone::Plain,
    };
    (tone, format!("{}: {compensated} of {total} tasks compensated{failures}", state.replace('_', " ")))
}

/// Branches of the tasks, and counts per state of the tasks that were not fetched.
fn of_workflow(view: &WorkflowView, children: &Children, age: Duration, depth: usize) -> (Vec<Branch>, Counts) {
    let tasks = view.tasks.as_deref().unwrap_or_default();
    let hidden_items = HiddenItems::new(view, tasks);
    let lines = tasks.iter().map(|task| (task, of_task(task, &hidden_items, children, age, depth)));
    let branches = if tasks.iter().any(|task| task.epoch.is_some()) {
        by_epoch(lines)
    } else {
        lines.map(|(_, branch)| branch).collect()
    };
    let mut rest = Counts::new();
    if view.tasks_left_out > 0 {
        for state in TaskState::ALL {
            let shown = tasks.iter().filter(|task| task.state == state).count();
            count(&mut rest, state.as_str(), u64::from(view.counts.of(state)).saturating_sub(shown as u64));
        }
    }
    (branches, rest)
}

/// One branch per epoch, in order.
fn by_epoch<'a>(lines: impl Iterator<Item = (&'a TaskView, Branch)>) -> Vec<Branch> {
    let mut epochs: Vec<(&str, Vec<Branch>, Bar)> = Vec::new();
    for (task, branch) in lines {
        let name = task.epoch.as_deref().unwrap_or("-");
        let at = epochs.iter().position(|(known, _, _)| *known == name).unwrap_or_else(|| {
            epochs.push((name, Vec::new(), Bar { done: 0, total: 0 }));
            epochs.len() - 1
        });
        let (_, branches, bar) = &mut epochs[at];
        branches.push(branch);
        bar.total += 1;
        bar.done += u64::from(task.state.is_terminal());
    }
    let group = |(name, below, bar): (&str, Vec<Branch>, Bar)| {
        let urgency = below.iter().map(|branch| branch.urgency).min().unwrap_or(Urgency::Other);
        let (state, tone) = match urgency {
            Urgency::Failed => ("failed", Tone::Bad),
            Urgency::Live => ("running", Tone::Busy),
            Urgency::Other if bar.done == bar.total => ("ended", Tone::Good),
            Urgency::Other => ("waiting", Tone::Quiet),
        };
        Branch {
            mark: Mark::Group,
            name: name.to_owned(),
            state,
            tone,
            took: None,
            bar: Some(bar),
            note: String::new(),
            urgency,
            below,
            rest: Counts::new(),
        }
    };
    epochs.into_iter().map(group).collect()
}

fn of_task(task: &TaskView, hidden_items: &HiddenItems, children: &Children, age: Duration, depth: usize) -> Branch {
    let (state, mark, tone, urgency) = task_label(task);
    let mut branch = Branch {
        mark,
        name: task.item.map_or_else(|| task.name.clone(), |item| format!("[{item}]")),
        state,
        tone,
        took: elapsed(task, age),
        bar: None,
        note: task_note(task),
        urgency,
        below: Vec::new(),
        rest: Counts::new(),
    };
    if let Some(total) = task.items_total {
        let items = task.items.as_deref().unwrap_or_default();
        let mut counts = Counts::new();
        for state in TaskState::ALL {
            let shown = items.iter().filter(|item| item.state == state).count() as u64;
            count(&mut counts, state.as_str(), shown + hidden_items.of(task, state));
        }
        let done = counts.iter().filter(|(state, _)| is_terminal(state)).map(|(_, number)| number).sum::<u64>();
        let done = if task.state == TaskState::Succeeded { u64::from(total) } else { done };
        branch.bar = Some(Bar { done, total: total.into() });
        counts.retain(|(state, _)| !["waiting", "succeeded"].contains(state));
        let parts = [counted(&counts), branch.note];
        branch.note = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
        let lines = items.iter().filter(|item| has_own_line(item));
        let mut below: Vec<Branch> = lines.map(|item| of_task(item, hidden_items, children, age, depth)).collect();
        for hidden in below.split_off(below.len().min(ITEMS_MAX)) {
            count(&mut branch.rest, hidden.state, 1);
        }
        branch.below = below;
    } else if let Some(child) = task.child.and_then(|id| children.get(&id)).filter(|_| depth < DEPTH_MAX) {
        (branch.below, branch.rest) = of_workflow(child, children, age, depth + 1);
    }
    branch
}

/// Whether an item needs attention. The others are only counted in the bar.
fn has_own_line(item: &TaskView) -> bool {
    match item.state {
        TaskState::Failed | TaskState::Quarantined => true,
        TaskState::Waiting
        | TaskState::Running
        | TaskState::Sleeping
        | TaskState::Listening
        | TaskState::Merged
        | TaskState::Succeeded
        | TaskState::Skipped
        | TaskState::Cancelled => needs_approval(item),
    }
}

fn is_terminal(state: &str) -> bool {
    state.parse::<TaskState>().is_ok_and(TaskState::is_terminal)
}

/// Items the server did not include. If only one task has such items, their states are still known: the counts of all
/// items less the included ones.
struct HiddenItems {
    task: Option<String>,
    states: [u64; TaskState::ALL.len()],
}

impl HiddenItems {
    fn new(view: &WorkflowView, tasks: &[TaskView]) -> Self {
        let mut cut = tasks.iter().filter(|task| task.items_left_out > 0);
        let task = match (cut.next(), cut.next()) {
            (Some(only), None) if view.tasks_left_out == 0 => Some(only.name.clone()),
            (Some(_), _) | (None, _) => None,
        };
        let states = TaskState::ALL.map(|state| {
            let items = tasks.iter().flat_map(|task| task.items.as_deref().unwrap_or_default());
            let shown = items.filter(|item| item.state == state).count() as u64;
            u64::from(view.items.of(state)).saturating_sub(shown)
        });
        Self { task, states }
    }

    fn of(&self, task: &TaskView, state: TaskState) -> u64 {
        if self.task.as_deref() == Some(&*task.name) { self.states[usize::from(state.code())] } else { 0 }
    }
}

/// Duration of a task so far.
pub fn elapsed(task: &TaskView, age: Duration) -> Option<Duration> {
    let known = Duration::from_millis(task.duration_ms?);
    // Tasks that never started have no duration.
    let started = task.state != TaskState::Waiting && task.state != TaskState::Skipped;
    started.then_some(if task.state.is_live() { known + age } else { known })
}

fn needs_approval(task: &TaskView) -> bool {
    task.state.is_live() && task.job_state == Some(State::ApprovalRequired)
}

/// State label, symbol, style and drawing priority of a task.
pub fn task_label(task: &TaskView) -> (&'static str, Mark, Tone, Urgency) {
    if needs_approval(task) {
        return ("approval", Mark::ApprovalRequired, Tone::Busy, Urgency::Live);
    }
    let label = task.state.as_str();
    let tone = Tone::of_task(task.state);
    match task.state {
        TaskState::Waiting => (label, Mark::Waiting, tone, Urgency::Other),
        TaskState::Running => match task.job_state {
            Some(State::Pending | State::Blocked | State::Scheduled) => ("queued", Mark::Waiting, tone, Urgency::Live),
            Some(
                State::ApprovalRequired
                | State::Dispatched
                | State::Running
                | State::Cancelling
                | State::Scanning
                | State::Succeeded
                | State::Failed
                | State::TimedOut
                | State::Cancelled
                | State::Denied
                | State::Quarantined
                | State::Abandoned,
            )
            | None => (label, Mark::Busy, tone, Urgency::Live),
        },
        TaskState::Sleeping | TaskState::Listening | TaskState::Merged => (label, Mark::Suspended, tone, Urgency::Live),
        TaskState::Succeeded => (label, Mark::Good, tone, Urgency::Other),
        TaskState::Failed | TaskState::Quarantined => (label, Mark::Bad, tone, Urgency::Failed),
        TaskState::Skipped => (label, Mark::Skipped, tone, Urgency::Other),
        TaskState::Cancelled => (label, Mark::Cancelled, tone, Urgency::Other),
    }
}

/// Details of a task beside its state.
pub fn task_note(task: &TaskView) -> String {
    let mut parts = Vec::new();
    if let (true, Some(job)) = (needs_approval(task), task.job) {
        parts.push(format!("outlast approvals approve {job} --reason …"));
    } else if let Some(reason) = task.reason.as_ref().filter(|_| task.state != TaskState::Succeeded) {
        parts.push(describe_reason(reason));
    }
    if let Some(compensation) = &task.compensation {
        parts.push(match compensation.state.as_str() {
            "running" => "compensating".to_owned(),
            "done" => "compensated".to_owned(),
            other => format!("compensation {other}"),
        });
    }
    if task.state.is_live() {
        parts.extend(live_note(task));
    }
    if let Some(other) = &task.merged_into {
        let item = other.item.map(|item| format!("[{item}]")).unwrap_or_default();
        parts.push(format!("merged with {}{item}", other.task));
    }
    if let Some(chosen) = &task.chosen {
        parts.push(if chosen.is_empty() { "no case matched".to_owned() } else { format!("→ {}", chosen.join(", ")) });
    }
    parts.join(", ")
}

fn live_note(task: &TaskView) -> Option<String> {
    if let Some(progress) = &task.progress {
        let message = progress.message.as_ref().map(|message| format!(" {message}")).unwrap_or_default();
        return Some(format!("{}%{message}", progress.percent));
    }
    match task.state {
        TaskState::Sleeping => task.due.map(|due| format!("until {due}")),
        TaskState::Listening => Some("waiting for a signal".to_owned()),
        TaskState::Running if task.kind == TaskKind::Workflow => task.child.map(|child| child.to_string()),
        TaskState::Running
        | TaskState::Waiting
        | TaskState::Merged
        | TaskState::Succeeded
        | TaskState::Failed
        | TaskState::Skipped
        | TaskState::Cancelled
        | TaskState::Quarantined => None,
    }
}

/// A reason in one line.
pub fn describe_reason(reason: &ReasonView) -> String {
    let code = reason.code.replace('_', " ");
    match &reason.message {
        Some(message) => {
            let first = message.lines().next().unwrap_or_default();
            format!("{code}: {first}")
        }
        None => code,
    }
}

/// Final state, duration and usage of a workflow in one line.
pub fn end_summary(view: &WorkflowView) -> String {
    let took = duration::show(Duration::from_millis(view.duration_ms));
    let usage = view.usage;
    let jobs = if usage.jobs == 1 { "1 job".to_owned() } else { format!("{} jobs", usage.jobs) };
    format!("{} {} in {took}, {jobs}, {:.2}s cpu", view.name, view.state, usage.cpu_seconds)
}
