//! What there is to draw of a workflow.

use std::collections::BTreeMap;
use std::time::Duration;

use model::id::WorkflowId;
use model::state::State;
use model::view::{ReasonView, RollbackView, TaskKind, TaskView, WorkflowView};
use model::workflow::{TaskState, WorkflowState};

use super::{Bar, Branch, Counts, Mark, Urgency, count, counted};
use crate::duration;
use crate::paint::Tone;

/// Of the items of a task, at most this many have a line of their own.
const ITEMS_MAX: usize = 5;
/// Sub-workflows are drawn to this depth.
const DEPTH_MAX: usize = 4;

/// What is known of the sub-workflows.
pub type Children = BTreeMap<WorkflowId, WorkflowView>;

/// A workflow, ready to be drawn.
#[derive(Debug, Clone)]
pub struct Whole {
    pub id: WorkflowId,
    pub name: String,
    pub state: String,
    pub tone: Tone,
    pub took: Duration,
    pub tally: String,
    pub remarks: Vec<(Tone, String)>,
    pub branches: Vec<Branch>,
    /// Tasks of which no more than their number is known.
    pub rest: Counts,
}

impl Whole {
    /// `age` is how long ago the server has said it.
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
            remarks: remarks(view),
            branches,
            rest,
        }
    }
}

/// What is to be said about the workflow as a whole.
fn remarks(view: &WorkflowView) -> Vec<(Tone, String)> {
    let mut remarks = Vec::new();
    if let Some(reason) = &view.reason {
        let tone = if view.state == WorkflowState::Failed { Tone::Bad } else { Tone::Plain };
        remarks.push((tone, reason_words(reason)));
    }
    if view.state == WorkflowState::Paused {
        remarks.push((Tone::Plain, format!("nothing new begins until `outlast workflows resume {}`", view.id)));
    }
    if let Some(rollback) = &view.rollback {
        remarks.push(rollback_words(rollback));
    }
    if view.run > 1 {
        remarks.push((Tone::Quiet, format!("run {}", view.run)));
    }
    remarks
}

fn rollback_words(rollback: &RollbackView) -> (Tone, String) {
    let RollbackView { state, total, undone, failed, .. } = rollback;
    let failures =
        if *failed > 0 { format!(", {failed} could not be undone: see `outlast dlq`") } else { String::new() };
    let tone = match (rollback.ended_at, *failed) {
        (_, 1..) => Tone::Bad,
        (None, 0) => Tone::Busy,
        (Some(_), 0) => Tone::Plain,
    };
    (tone, format!("{}: {undone} of {total} steps undone{failures}", state.replace('_', " ")))
}

/// The lines of its tasks, and how many tasks are not shown in which state.
fn of_workflow(view: &WorkflowView, children: &Children, age: Duration, depth: usize) -> (Vec<Branch>, Counts) {
    let tasks = view.tasks.as_deref().unwrap_or_default();
    let uncounted = Uncounted::new(view, tasks);
    let lines = tasks.iter().map(|task| (task, of_task(task, &uncounted, children, age, depth)));
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

/// A line for each epoch, in the order in which they are met.
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

fn of_task(task: &TaskView, uncounted: &Uncounted, children: &Children, age: Duration, depth: usize) -> Branch {
    let (state, mark, tone, urgency) = task_word(task);
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
            count(&mut counts, state.as_str(), shown + uncounted.of(task, state));
        }
        let done = counts.iter().filter(|(state, _)| is_terminal(state)).map(|(_, number)| number).sum::<u64>();
        let done = if task.state == TaskState::Succeeded { u64::from(total) } else { done };
        branch.bar = Some(Bar { done, total: total.into() });
        counts.retain(|(state, _)| !["waiting", "succeeded"].contains(state));
        let parts = [counted(&counts), branch.note];
        branch.note = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
        let lines = items.iter().filter(|item| wants_a_line(item));
        let mut below: Vec<Branch> = lines.map(|item| of_task(item, uncounted, children, age, depth)).collect();
        for hidden in below.split_off(below.len().min(ITEMS_MAX)) {
            count(&mut branch.rest, hidden.state, 1);
        }
        branch.below = below;
    } else if let Some(child) = task.child.and_then(|id| children.get(&id)).filter(|_| depth < DEPTH_MAX) {
        (branch.below, branch.rest) = of_workflow(child, children, age, depth + 1);
    }
    branch
}

/// An item that somebody should look at; the others are in the bar.
fn wants_a_line(item: &TaskView) -> bool {
    match item.state {
        TaskState::Failed | TaskState::Quarantined => true,
        TaskState::Waiting
        | TaskState::Running
        | TaskState::Sleeping
        | TaskState::Listening
        | TaskState::Merged
        | TaskState::Succeeded
        | TaskState::Skipped
        | TaskState::Cancelled => is_asking(item),
    }
}

fn is_terminal(state: &str) -> bool {
    state.parse::<TaskState>().is_ok_and(TaskState::is_terminal)
}

/// Items that the server did not show one by one. Where that is so for one task only, their states are known all the
/// same: those of all items less those that are shown.
struct Uncounted {
    task: Option<String>,
    states: [u64; TaskState::ALL.len()],
}

impl Uncounted {
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

/// How long a task has taken, or takes so far.
pub fn elapsed(task: &TaskView, age: Duration) -> Option<Duration> {
    let known = Duration::from_millis(task.duration_ms?);
    // What never began took no time.
    let began = task.state != TaskState::Waiting && task.state != TaskState::Skipped;
    began.then_some(if task.state.is_live() { known + age } else { known })
}

fn is_asking(task: &TaskView) -> bool {
    task.state.is_live() && task.job_state == Some(State::ApprovalRequired)
}

/// Where a task is: in a word, as a sign, in a tone, and how much it matters.
pub fn task_word(task: &TaskView) -> (&'static str, Mark, Tone, Urgency) {
    if is_asking(task) {
        return ("approval", Mark::Asking, Tone::Busy, Urgency::Live);
    }
    let word = task.state.as_str();
    let tone = Tone::of_task(task.state);
    match task.state {
        TaskState::Waiting => (word, Mark::Waiting, tone, Urgency::Other),
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
            | None => (word, Mark::Busy, tone, Urgency::Live),
        },
        TaskState::Sleeping | TaskState::Listening | TaskState::Merged => (word, Mark::Resting, tone, Urgency::Live),
        TaskState::Succeeded => (word, Mark::Good, tone, Urgency::Other),
        TaskState::Failed | TaskState::Quarantined => (word, Mark::Bad, tone, Urgency::Failed),
        TaskState::Skipped => (word, Mark::Skipped, tone, Urgency::Other),
        TaskState::Cancelled => (word, Mark::Cancelled, tone, Urgency::Other),
    }
}

/// What there is to say about a task beside its state.
pub fn task_note(task: &TaskView) -> String {
    let mut parts = Vec::new();
    if let (true, Some(job)) = (is_asking(task), task.job) {
        parts.push(format!("outlast approvals approve {job} --reason …"));
    } else if let Some(reason) = task.reason.as_ref().filter(|_| task.state != TaskState::Succeeded) {
        parts.push(reason_words(reason));
    }
    if let Some(undoing) = &task.compensation {
        parts.push(match undoing.state.as_str() {
            "running" => "is being undone".to_owned(),
            "done" => "undone".to_owned(),
            other => format!("undoing it: {other}"),
        });
    }
    if task.state.is_live() {
        parts.extend(live_note(task));
    }
    if let Some(other) = &task.merged_into {
        let item = other.item.map(|item| format!("[{item}]")).unwrap_or_default();
        parts.push(format!("the same as {}{item}", other.task));
    }
    if let Some(chosen) = &task.chosen {
        parts.push(if chosen.is_empty() { "no case held".to_owned() } else { format!("→ {}", chosen.join(", ")) });
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
        TaskState::Listening => Some("for a signal".to_owned()),
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
pub fn reason_words(reason: &ReasonView) -> String {
    let code = reason.code.replace('_', " ");
    match &reason.message {
        Some(message) => {
            let first = message.lines().next().unwrap_or_default();
            format!("{code}: {first}")
        }
        None => code,
    }
}

/// How a workflow has ended, in one line: state, duration, what it has used.
pub fn ended_words(view: &WorkflowView) -> String {
    let took = duration::show(Duration::from_millis(view.duration_ms));
    let usage = view.usage;
    let jobs = if usage.jobs == 1 { "1 job".to_owned() } else { format!("{} jobs", usage.jobs) };
    format!("{} {} in {took}, {jobs}, {:.2}s cpu", view.name, view.state, usage.cpu_seconds)
}
