//! A workflow with its first tasks.

use std::sync::Arc;

use ::api::{TaskView, WorkflowView};
use axum::Json as JsonBody;
use axum::extract::State as Shared;
use model::workflow::{TaskKey, TaskRecord, Workflow};
use shard::reads::workflows::Rows;

use super::start::when_ended;
use super::view::{self, Describer};
use super::{load, load_plan, parse_id, shard_of};
use crate::api::parameters::Parameters;
use crate::api::path::Path;
use crate::api::problem::Refused;
use crate::api::{App, Core};

/// Limit of shown tasks, in the order of the definition.
const TASKS_SHOWN_MAX: usize = 1_000;
/// Limit of shown items per task.
const ITEMS_SHOWN_MAX: usize = 100;

pub(crate) async fn show(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    parameters: Parameters,
) -> Result<JsonBody<WorkflowView>, Refused> {
    let core = app.core()?;
    let id = parse_id(&id)?;
    let with_tasks = parameters.text("tasks").is_none() || parameters.flag("tasks")?;
    let mut workflow = core.read(move |core| load(core, id)).await?;
    if let (Some(wait), false) = (parameters.wait()?, workflow.state.is_terminal()) {
        let ended = core.inbox(shard_of(&core, id)).watch_workflow(id)?;
        workflow = when_ended(&app, &core, id, ended, wait).await?;
    }
    let shown = core.read(move |core| {
        let mut shown = view::of(core, &workflow)?;
        if with_tasks {
            add_tasks(core, &workflow, &mut shown)?;
        }
        Ok(shown)
    });
    Ok(JsonBody(shown.await?))
}

fn add_tasks(core: &Core, workflow: &Workflow, shown: &mut WorkflowView) -> Result<(), Refused> {
    // Without the definition the tasks are unknown; the rest is shown.
    let Ok(plan) = load_plan(core, workflow.id) else { return Ok(()) };
    let describer = Describer::new(core, workflow, plan);
    let total = describer.plan.tasks.len();
    let mut tasks = Vec::with_capacity(total.min(TASKS_SHOWN_MAX));
    let mut reader = Reader { rows: describer.rows(), next: None };
    for number in 0..total.min(TASKS_SHOWN_MAX) as u32 {
        tasks.extend(reader.task(&describer, number)?);
    }
    shown.tasks_left_out = (total - tasks.len()) as u32;
    shown.tasks = Some(tasks);
    Ok(())
}

/// Reads rows in order, task by task.
struct Reader<'a> {
    rows: Rows<'a>,
    next: Option<(TaskKey, TaskRecord)>,
}

impl Reader<'_> {
    /// The next row, if it belongs to this task.
    fn take(&mut self, task: u32) -> Result<Option<(TaskKey, TaskRecord)>, Refused> {
        if self.next.is_none() {
            self.next = self.rows.next_row()?;
        }
        Ok(self.next.take_if(|(task_key, _)| task_key.task <= task))
    }

    fn task(&mut self, describer: &Describer<'_>, task: u32) -> Result<Option<TaskView>, Refused> {
        let (mut record, mut items) = (None, Vec::new());
        while let Some((task_key, row)) = self.take(task)? {
            match task_key.item {
                None => record = Some(row),
                Some(_) if items.len() < ITEMS_SHOWN_MAX => items.extend(describer.task(task_key, Some(&row))?),
                // There may be very many: the others are skipped without reading.
                Some(_) => self.rows.skip_to(describer.workflow.id, TaskKey::of(task + 1)),
            }
        }
        let Some(mut shown) = describer.task(TaskKey::of(task), record.as_ref())? else { return Ok(None) };
        if let Some(total) = shown.items_total {
            if items.len() == ITEMS_SHOWN_MAX {
                shown.items_left_out = total.saturating_sub(items.len() as u32);
            }
            shown.items = Some(items);
        }
        Ok(Some(shown))
    }
}
