//! Tasks of a workflow: pages of all, or one with its result.

use std::sync::Arc;

use ::api::{Page, TaskKind, TaskView, is_hidden};
use axum::Json as JsonBody;
use axum::extract::State as Shared;
use model::job::Job;
use model::json::Json;
use model::time::Timestamp;
use model::workflow::{TaskKey, TaskRecord, TaskState, Workflow};
use serde_json::json;
use shard::reads::{self, workflows};

use super::view::Describer;
use super::{load, load_plan, parse_id};
use crate::api::parameters::Parameters;
use crate::api::path::Path;
use crate::api::problem::{ProblemKind, Refused};
use crate::api::{App, Core};

/// Tasks and items read for one page. A page may be short because of it; its cursor continues there.
const READ_MAX: usize = 20_000;

pub(crate) async fn page(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    parameters: Parameters,
) -> Result<JsonBody<Page<TaskView>>, Refused> {
    let core = app.core()?;
    let id = parse_id(&id)?;
    let page = core.read(move |core| {
        let workflow = load(core, id)?;
        read_page(core, &workflow, &parameters)
    });
    page.await.map(JsonBody)
}

fn read_page(core: &Core, workflow: &Workflow, parameters: &Parameters) -> Result<Page<TaskView>, Refused> {
    let limit = parameters.limit()?;
    let states: Option<Vec<TaskState>> = parameters.states()?;
    let after = parameters.text("cursor").map(parse_cursor).transpose()?;
    let describer = Describer::new(core, workflow, load_plan(core, workflow.id)?);
    let mut walk = Walk::begin(&describer, after)?;
    let mut items = Vec::new();
    let mut last = None;
    for _ in 0..READ_MAX {
        let Some((task_key, record)) = walk.next(&describer)? else { return Ok(Page { items, next_cursor: None }) };
        last = Some(task_key);
        let state = record.as_ref().map_or(TaskState::Waiting, |record| record.state);
        if states.as_ref().is_none_or(|states| states.contains(&state)) {
            items.extend(describer.task(task_key, record.as_ref())?);
        }
        if items.len() == limit {
            break;
        }
    }
    Ok(Page { items, next_cursor: last.map(cursor) })
}

/// Iterates over all tasks, started or not, each followed by its started items.
struct Walk<'a> {
    rows: workflows::Rows<'a>,
    ahead: Option<(TaskKey, TaskRecord)>,
    next_task: u32,
}

impl<'a> Walk<'a> {
    fn begin(describer: &Describer<'a>, after: Option<TaskKey>) -> Result<Self, Refused> {
        let mut rows = describer.rows();
        if let Some(after) = after {
            rows.skip_to(describer.workflow.id, after);
        }
        let mut walk = Self { ahead: rows.next_row()?, rows, next_task: after.map_or(0, |after| after.task + 1) };
        if walk.ahead.as_ref().is_some_and(|(task_key, _)| Some(*task_key) == after) {
            walk.ahead = walk.rows.next_row()?;
        }
        Ok(walk)
    }

    fn next(&mut self, describer: &Describer<'_>) -> Result<Option<(TaskKey, Option<TaskRecord>)>, Refused> {
        if let Some((task_key, record)) = self.ahead.take_if(|(task_key, _)| task_key.task < self.next_task) {
            self.ahead = self.rows.next_row()?;
            return Ok(Some((task_key, Some(record))));
        }
        if self.next_task as usize >= describer.plan.tasks.len() {
            return Ok(None);
        }
        let task_key = TaskKey::of(self.next_task);
        self.next_task += 1;
        let record = self.ahead.take_if(|(at, _)| *at == task_key).map(|(_, record)| record);
        if record.is_some() {
            self.ahead = self.rows.next_row()?;
        }
        Ok(Some((task_key, record)))
    }
}

/// Cursors are opaque to clients: the last task or item that was read.
fn cursor(task_key: TaskKey) -> String {
    format!("t{:x}-{:x}", task_key.task, task_key.item.map_or(0, |item| u64::from(item) + 1))
}

fn parse_cursor(text: &str) -> Result<TaskKey, Refused> {
    let hex = |part: &str| u64::from_str_radix(part, 16).ok().filter(|_| part.bytes().all(|b| b.is_ascii_hexdigit()));
    let parts = text.strip_prefix('t').and_then(|rest| rest.split_once('-'));
    let task_key = parts.and_then(|(task, item)| {
        let task = u32::try_from(hex(task)?).ok().filter(|task| *task < u32::MAX)?;
        let item = hex(item)?.checked_sub(1).map(u32::try_from).transpose().ok()?;
        Some(TaskKey { task, item })
    });
    task_key.ok_or_else(|| Refused::cursor(text))
}

pub(crate) async fn one(
    Shared(app): Shared<Arc<App>>,
    Path((id, name)): Path<(String, String)>,
    parameters: Parameters,
) -> Result<JsonBody<TaskView>, Refused> {
    let core = app.core()?;
    let id = parse_id(&id)?;
    let item = parameters.number("item", u64::from(u32::MAX - 1))?.map(|item| item as u32);
    let shown = core.read(move |core| {
        let workflow = load(core, id)?;
        let describer = Describer::new(core, &workflow, load_plan(core, id)?);
        let unknown = |detail: String| Refused::detailed(ProblemKind::UnknownTask, detail);
        let number = describer.plan.task(&name).ok_or_else(|| unknown(format!("{id} has no task `{name}`")))?;
        let task_key = TaskKey { task: number, item };
        let record = workflows::task(core.store(), describer.shard(), id, task_key)?;
        if record.is_none() && item.is_some() {
            return Err(unknown(format!("the task `{name}` has no such started item")));
        }
        let shown = describer.task(task_key, record.as_ref())?;
        let mut shown = shown.ok_or_else(|| unknown(format!("{id} has no task `{name}`")))?;
        if let Some(record) = &record {
            add_outcome(&describer, record, &mut shown)?;
            // A merged task has the result of the task it was merged into.
            if let (None, Some(leader), true) = (&shown.result, record.merged_into, record.state.is_terminal())
                && let Some(leader) = workflows::task(core.store(), describer.shard(), id, leader)?
            {
                add_outcome(&describer, &leader, &mut shown)?;
            }
        }
        Ok(shown)
    });
    shown.await.map(JsonBody)
}

/// Adds the result of a task, unless it is withheld.
fn add_outcome(describer: &Describer<'_>, record: &TaskRecord, shown: &mut TaskView) -> Result<(), Refused> {
    let store = describer.core.store();
    let job = match record.job {
        Some(job) => reads::job(store, describer.shard(), job)?,
        None => None,
    };
    if let Some(job) = &job {
        shown.job_state = Some(job.state);
        shown.attempts = Some(job.attempt.0);
    }
    if record.state == TaskState::Quarantined || job.as_ref().is_some_and(is_hidden) {
        return Ok(());
    }
    shown.result = match (&record.result, &job, record.child) {
        (Some(result), _, _) => Some(result.clone()),
        (None, Some(job), _) => result_of(job, shown.kind),
        (None, None, Some(child)) => {
            let child = workflows::workflow(store, describer.shard(), child)?;
            child.and_then(|child| child.result)
        }
        (None, None, None) => None,
    };
    Ok(())
}

/// The result of an approval task is the approval itself.
fn result_of(job: &Job, kind: TaskKind) -> Option<Json> {
    match (kind, &job.approval) {
        (TaskKind::Approval, Some(approval)) => Some(Json::of(
            &json!({"approved_by": approval.by, "comment": approval.comment, "at": Timestamp(approval.at)}),
        )),
        (TaskKind::Approval, None) => None,
        (TaskKind::Job | TaskKind::Workflow | TaskKind::Delay | TaskKind::WaitFor | TaskKind::Switch, _) => {
            job.result.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_its_text() {
        for task_key in [TaskKey::of(0), TaskKey::of(99_999), TaskKey::item(7, 0), TaskKey::item(7, u32::MAX - 1)] {
            assert_eq!(parse_cursor(&cursor(task_key)).unwrap(), task_key);
        }
        for bad in ["", "t", "t1", "t1-", "t-1", "tffffffff-0", "t1-fffffffff", "t+1-1", "x1-1"] {
            assert!(parse_cursor(bad).is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn parsing_any_text_as_a_cursor_does_not_panic(text in ".{0,30}") {
            let _ = parse_cursor(&text);
        }
    }
}
