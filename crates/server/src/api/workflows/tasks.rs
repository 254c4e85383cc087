//! The tasks of a workflow: all of them, page by page, or one with its result.

use std::sync::Arc;

use axum::Json as JsonBody;
use axum::extract::State as Shared;
use model::job::Job;
use model::json::Json;
use model::time::Timestamp;
use model::view::{Page, TaskKind, TaskView, is_hidden};
use model::workflow::{Place, TaskRecord, TaskState, Workflow};
use serde_json::json;

use super::view::Describer;
use super::{blocking, load, load_plan, parse_id};
use crate::api::list::{Parameters, bad};
use crate::api::path::Path;
use crate::api::problem::{Fault, FlowFault, Refused};
use crate::api::{App, Core};
use crate::reads::{self, flows};

/// How many tasks and items one request looks at; a page may be short for it, and says where to go on.
const LOOKED_AT_MAX: usize = 20_000;

pub(crate) async fn page(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    parameters: Parameters,
) -> Result<JsonBody<Page<TaskView>>, Refused> {
    let core = app.core()?;
    let id = parse_id(&id)?;
    let page = blocking(move || {
        let workflow = load(&core, id)?;
        read_page(&core, &workflow, &parameters)
    });
    page.await.map(JsonBody)
}

fn read_page(core: &Core, workflow: &Workflow, parameters: &Parameters) -> Result<Page<TaskView>, Refused> {
    let limit = parameters.limit()?;
    let states: Option<Vec<TaskState>> = match parameters.text("state") {
        Some(text) => {
            let states: Result<_, _> = text.split(',').map(str::parse).collect();
            Some(states.map_err(|error: model::workflow::UnknownState| bad("state", error.to_string()))?)
        }
        None => None,
    };
    let after = parameters.text("cursor").map(parse_cursor).transpose()?;
    let describer = Describer::new(core, workflow, load_plan(core, workflow.id)?);
    let mut walk = Walk::begin(&describer, after)?;
    let mut items = Vec::new();
    let mut last = None;
    for _ in 0..LOOKED_AT_MAX {
        let Some((place, record)) = walk.next(&describer)? else { return Ok(Page { items, next_cursor: None }) };
        last = Some(place);
        let state = record.as_ref().map_or(TaskState::Waiting, |record| record.state);
        if states.as_ref().is_none_or(|states| states.contains(&state)) {
            items.extend(describer.task(place, record.as_ref())?);
        }
        if items.len() == limit {
            break;
        }
    }
    Ok(Page { items, next_cursor: last.map(cursor) })
}

/// Goes through all tasks, whether they have begun or not, each before those of its items that have.
struct Walk<'a> {
    rows: flows::Rows<'a>,
    ahead: Option<(Place, TaskRecord)>,
    next_task: u32,
}

impl<'a> Walk<'a> {
    fn begin(describer: &Describer<'a>, after: Option<Place>) -> Result<Self, Refused> {
        let mut rows = describer.rows();
        if let Some(after) = after {
            rows.skip_to(describer.workflow.id, after);
        }
        let mut walk = Self { ahead: rows.next()?, rows, next_task: after.map_or(0, |after| after.task + 1) };
        if walk.ahead.as_ref().is_some_and(|(place, _)| Some(*place) == after) {
            walk.ahead = walk.rows.next()?;
        }
        Ok(walk)
    }

    fn next(&mut self, describer: &Describer<'_>) -> Result<Option<(Place, Option<TaskRecord>)>, Refused> {
        if let Some((place, record)) = self.ahead.take_if(|(place, _)| place.task < self.next_task) {
            self.ahead = self.rows.next()?;
            return Ok(Some((place, Some(record))));
        }
        if self.next_task as usize >= describer.plan.tasks.len() {
            return Ok(None);
        }
        let place = Place::of(self.next_task);
        self.next_task += 1;
        let record = self.ahead.take_if(|(at, _)| *at == place).map(|(_, record)| record);
        if record.is_some() {
            self.ahead = self.rows.next()?;
        }
        Ok(Some((place, record)))
    }
}

/// Cursors are opaque to clients: the last place that was looked at.
fn cursor(place: Place) -> String {
    format!("t{:x}-{:x}", place.task, place.item.map_or(0, |item| u64::from(item) + 1))
}

fn parse_cursor(text: &str) -> Result<Place, Refused> {
    let hex = |part: &str| u64::from_str_radix(part, 16).ok().filter(|_| part.bytes().all(|b| b.is_ascii_hexdigit()));
    let parts = text.strip_prefix('t').and_then(|rest| rest.split_once('-'));
    let place = parts.and_then(|(task, item)| {
        let task = u32::try_from(hex(task)?).ok().filter(|task| *task < u32::MAX)?;
        let item = hex(item)?.checked_sub(1).map(u32::try_from).transpose().ok()?;
        Some(Place { task, item })
    });
    place.ok_or_else(|| Refused::saying(Fault::InvalidCursor, format!("`{text}` is not a cursor")).at("cursor"))
}

pub(crate) async fn one(
    Shared(app): Shared<Arc<App>>,
    Path((id, name)): Path<(String, String)>,
    parameters: Parameters,
) -> Result<JsonBody<TaskView>, Refused> {
    let core = app.core()?;
    let id = parse_id(&id)?;
    let item = parameters.number("item", u64::from(u32::MAX - 1))?.map(|item| item as u32);
    let shown = blocking(move || {
        let workflow = load(&core, id)?;
        let describer = Describer::new(&core, &workflow, load_plan(&core, id)?);
        let unknown = |detail: String| Refused::saying(FlowFault::UnknownTask.into(), detail);
        let number = describer.plan.task(&name).ok_or_else(|| unknown(format!("{id} has no task `{name}`")))?;
        let place = Place { task: number, item };
        let record = flows::task(core.store.as_ref(), describer.shard(), id, place)?;
        if record.is_none() && item.is_some() {
            return Err(unknown(format!("no such item of `{name}` has begun")));
        }
        let shown = describer.task(place, record.as_ref())?;
        let mut shown = shown.ok_or_else(|| unknown(format!("{id} has no task `{name}`")))?;
        if let Some(record) = &record {
            add_outcome(&describer, record, &mut shown)?;
            // What does the very same as another has its result from there.
            if let (None, Some(leader), true) = (&shown.result, record.merged_into, record.state.is_terminal())
                && let Some(leader) = flows::task(core.store.as_ref(), describer.shard(), id, leader)?
            {
                add_outcome(&describer, &leader, &mut shown)?;
            }
        }
        Ok(shown)
    });
    shown.await.map(JsonBody)
}

/// Adds what has come of a task: the result that it hands on, as far as anybody may see it.
fn add_outcome(describer: &Describer<'_>, record: &TaskRecord, shown: &mut TaskView) -> Result<(), Refused> {
    let store = describer.core.store.as_ref();
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
            let child = flows::workflow(store, describer.shard(), child)?;
            child.and_then(|child| child.result)
        }
        (None, None, None) => None,
    };
    Ok(())
}

/// Of a task that waited for a person's word, the word is the result.
fn result_of(job: &Job, kind: TaskKind) -> Option<Json> {
    match (kind, &job.approval) {
        (TaskKind::Approval, Some(word)) => {
            Some(Json::of(&json!({"approved_by": word.by, "comment": word.comment, "at": Timestamp(word.at)})))
        }
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
        for place in [Place::of(0), Place::of(99_999), Place::item(7, 0), Place::item(7, u32::MAX - 1)] {
            assert_eq!(parse_cursor(&cursor(place)).unwrap(), place);
        }
        for bad in ["", "t", "t1", "t1-", "t-1", "tffffffff-0", "t1-fffffffff", "t+1-1", "x1-1"] {
            assert!(parse_cursor(bad).is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_as_a_cursor_ends_without_a_panic(text in ".{0,30}") {
            let _ = parse_cursor(&text);
        }
    }
}
