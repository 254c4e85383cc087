//! History of a workflow and its tasks, by time.

use std::sync::Arc;

use ::api::{ReasonView, WorkflowEventView, WorkflowHistoryView};
use axum::Json as JsonBody;
use axum::extract::State as Shared;
use model::time::{Millis, Timestamp};
use model::workflow::{Note, TaskKey, TaskRecord, TaskState, Workflow};

use super::view::Describer;
use super::{load, load_plan, parse_id};
use crate::api::parameters::Parameters;
use crate::api::path::Path;
use crate::api::problem::Refused;
use crate::api::{App, Core};

/// Limit of tasks and items read.
const ROWS_MAX: usize = 200_000;

pub(crate) async fn history(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    parameters: Parameters,
) -> Result<JsonBody<WorkflowHistoryView>, Refused> {
    let core = app.core()?;
    let id = parse_id(&id)?;
    let limit = parameters.limit()?;
    let seen = parameters.text("cursor").map(parse_cursor).transpose()?.unwrap_or_default();
    let history = core.read(move |core| {
        let workflow = load(core, id)?;
        let (events, incomplete) = events(core, &workflow)?;
        let all = events.len();
        let items: Vec<_> = events.into_iter().skip(seen).take(limit).collect();
        let shown = seen.saturating_add(items.len());
        Ok(WorkflowHistoryView {
            id,
            state: workflow.state,
            items,
            notes_dropped: workflow.notes_dropped,
            incomplete,
            next_cursor: (shown < all).then(|| cursor(shown)),
        })
    });
    history.await.map(JsonBody)
}

/// All events, oldest first, and whether there were too many tasks to read.
fn events(core: &Core, workflow: &Workflow) -> Result<(Vec<WorkflowEventView>, bool), Refused> {
    let plan = load_plan(core, workflow.id).ok();
    let describer = plan.map(|plan| Describer::new(core, workflow, plan));
    let name = |task: u32| describer.as_ref().map(|describer| describer.name(task));
    let mut events: Vec<WorkflowEventView> = workflow.notes.iter().map(|note| of_note(note, &name)).collect();
    let mut incomplete = false;
    if let Some(describer) = &describer {
        let mut rows = describer.rows();
        let mut read = 0;
        while let Some((task_key, record)) = rows.next_row()? {
            if read == ROWS_MAX {
                incomplete = true;
                break;
            }
            read += 1;
            of_task(&describer.name(task_key.task), task_key, &record, &mut events);
        }
    }
    events.sort_by_key(|event| (event.at, rank(event)));
    Ok((events, incomplete))
}

/// Order of events of the same time: first those of tasks, in the order of the definition, then those of the workflow.
fn rank(event: &WorkflowEventView) -> u8 {
    match event.kind.as_str() {
        "task_began" | "task_ended" => 1,
        "stopping" => 2,
        "rollback_began" => 3,
        "compensation" => 4,
        "rollback_ended" => 5,
        "ended" => 6,
        _ => 0,
    }
}

fn event(kind: &str, at: Millis) -> WorkflowEventView {
    WorkflowEventView {
        at: Timestamp(at),
        kind: kind.to_owned(),
        task: None,
        item: None,
        state: None,
        reason: None,
        by: None,
        text: None,
        job: None,
    }
}

fn of_note(note: &Note, name: &impl Fn(u32) -> Option<String>) -> WorkflowEventView {
    WorkflowEventView {
        task: note.task_key.and_then(|task_key| name(task_key.task)),
        item: note.task_key.and_then(|task_key| task_key.item),
        by: note.by.as_deref().map(str::to_owned),
        text: note.text.clone(),
        ..event(note.kind.as_str(), note.at)
    }
}

fn of_task(name: &str, task_key: TaskKey, record: &TaskRecord, events: &mut Vec<WorkflowEventView>) {
    let of_place =
        |event: WorkflowEventView| WorkflowEventView { task: Some(name.to_owned()), item: task_key.item, ..event };
    // A task that was skipped or cancelled before its start has only an end.
    let never_began = matches!(record.state, TaskState::Skipped | TaskState::Cancelled)
        && record.job.is_none()
        && record.child.is_none()
        && record.ended_at == Some(record.began_at);
    if !never_began {
        let job = record.job.filter(|_| record.merged_into.is_none());
        events.push(of_place(WorkflowEventView { job, ..event("task_began", record.began_at) }));
    }
    if let Some(ended_at) = record.ended_at {
        events.push(of_place(WorkflowEventView {
            state: Some(record.state.as_str().to_owned()),
            reason: record.reason.as_ref().map(ReasonView::from),
            job: record.job,
            ..event("task_ended", ended_at)
        }));
    }
    if let Some(compensation) = &record.compensation {
        events.push(of_place(WorkflowEventView {
            state: Some(compensation.state.as_str().to_owned()),
            job: compensation.job,
            ..event("compensation", compensation.at)
        }));
    }
}

/// Cursors are opaque to clients: the number of returned events. New events are appended.
fn cursor(seen: usize) -> String {
    format!("h{seen:x}")
}

fn parse_cursor(text: &str) -> Result<usize, Refused> {
    let digits = text.strip_prefix('h').filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    let seen = digits.and_then(|digits| usize::from_str_radix(digits, 16).ok());
    seen.ok_or_else(|| Refused::cursor(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_its_text() {
        assert_eq!(parse_cursor(&cursor(1_000)).unwrap(), 1_000);
        for bad in ["", "h", "h-1", "h+1", "1", "hffffffffffffffffff"] {
            assert!(parse_cursor(bad).is_err(), "{bad}");
        }
    }
}
