//! Views of workflows and tasks: records with the names of their definition.

use std::cell::Cell;
use std::sync::Arc;

use ::api::{OriginView, TaskKind, TaskRefView, TaskView, WorkflowView};
use model::id::ShardId;
use model::json::Json;
use model::time::Millis;
use model::workflow::{TaskKey, TaskRecord, TaskState, Workflow};
use shard::reads::{self, workflows};
use workflow::Plan;
use workflow::plan::TaskWork;

use super::shard_of;
use crate::api::Core;
use crate::api::problem::Refused;
use crate::clock;
use crate::error::Error;

/// Limit of job states looked up for one response.
const JOBS_LOOKED_UP_MAX: usize = 2_000;

/// View of a workflow with known definition and inputs.
pub(crate) fn with_definition(workflow: &Workflow, plan: &Plan, inputs: Json) -> WorkflowView {
    let epoch = plan.epochs.get(workflow.epoch as usize).map(|name| name.to_string());
    WorkflowView { inputs: Some(inputs), epoch, ..WorkflowView::new(workflow, clock::now()) }
}

/// View of a workflow whose definition cannot be read. One that has not ended is suspended.
fn unreadable(workflow: &Workflow, why: &str) -> WorkflowView {
    let suspended = (!workflow.state.is_terminal()).then(|| format!("its definition cannot be read: {why}"));
    WorkflowView { suspended, ..WorkflowView::new(workflow, clock::now()) }
}

/// View of a workflow without its tasks. Blocks on the store.
pub(crate) fn of(core: &Core, workflow: &Workflow) -> Result<WorkflowView, Refused> {
    let (store, shard) = (core.store(), shard_of(core, workflow.id));
    let mut shown = match workflows::spec(store, shard, workflow.id)? {
        Some(spec) => match core.plans.load(store, shard, &spec)? {
            Ok(plan) => {
                core.plans.map_workflow(workflow.id, spec.digest);
                with_definition(workflow, &plan, spec.inputs)
            }
            Err(error) => WorkflowView { inputs: Some(spec.inputs), ..unreadable(workflow, &error.to_string()) },
        },
        None => unreadable(workflow, "it is missing"),
    };
    if let (Some(shown), Some((parent, task_key))) = (&mut shown.parent, workflow.parent) {
        shown.task = name_of(core, parent, task_key)?;
    }
    Ok(shown)
}

/// The name of a task, if the definition of its workflow exists. Blocks on the store.
fn name_of(core: &Core, workflow: model::id::WorkflowId, task_key: TaskKey) -> Result<Option<String>, Error> {
    let plan = core.plans.of_workflow(core.store(), shard_of(core, workflow), workflow)?;
    Ok(plan.and_then(|plan| Some(plan.tasks.get(task_key.task as usize)?.name.to_string())))
}

/// Adds the name of the task to the origin of a job. Blocks on the store if there is one.
pub(crate) fn complete_origin(
    core: &Core,
    origin: Option<&model::workflow::Origin>,
    shown: Option<&mut OriginView>,
) -> Result<(), Error> {
    if let (Some(origin), Some(shown)) = (origin, shown) {
        shown.task = name_of(core, origin.workflow, origin.task_key)?;
    }
    Ok(())
}

/// Builds views of the tasks of a workflow. Blocks on the store.
pub(super) struct Describer<'a> {
    pub core: &'a Core,
    pub workflow: &'a Workflow,
    pub plan: Arc<Plan>,
    now: Millis,
    lookups_left: Cell<usize>,
}

impl<'a> Describer<'a> {
    pub fn new(core: &'a Core, workflow: &'a Workflow, plan: Arc<Plan>) -> Self {
        Self { core, workflow, plan, now: clock::now(), lookups_left: Cell::new(JOBS_LOOKED_UP_MAX) }
    }

    pub fn shard(&self) -> ShardId {
        shard_of(self.core, self.workflow.id)
    }

    pub fn rows(&self) -> workflows::Rows<'a> {
        workflows::Rows::new(self.core.store(), self.shard(), self.workflow.id)
    }

    pub fn name(&self, task: u32) -> String {
        self.plan.tasks.get(task as usize).map(|task| task.name.to_string()).unwrap_or_default()
    }

    /// View of a task or item; without a record it has not started. None for a number that is not in the definition.
    pub fn task(&self, task_key: TaskKey, record: Option<&TaskRecord>) -> Result<Option<TaskView>, Refused> {
        let Some(task) = self.plan.tasks.get(task_key.task as usize) else { return Ok(None) };
        let mut shown = TaskView::new(&task.name, kind_of(&task.work), TaskState::Waiting);
        shown.item = task_key.item;
        shown.epoch = self.plan.epochs.get(task.epoch as usize).map(|name| name.to_string());
        // Items have the same needs as their task; repeating them would only be long.
        if task_key.item.is_none() {
            shown.needs = task.needs.iter().map(|need| self.name(*need)).collect();
        }
        let Some(record) = record else { return Ok(Some(shown)) };
        let mut shown = shown.with_record(record, self.now);
        shown.merged_into = record.merged_into.map(|into| TaskRefView { task: self.name(into.task), item: into.item });
        shown.chosen = match (&task.work, record.chosen) {
            (TaskWork::Switch(cases), Some(chosen)) => {
                let then = cases.get(chosen as usize).map(|case| case.then.as_ref()).unwrap_or_default();
                Some(then.iter().map(|task| self.name(*task)).collect())
            }
            (_, _) => None,
        };
        if let (Some(job), None, Some(left)) = (record.job, record.job_state, self.lookups_left.get().checked_sub(1)) {
            self.lookups_left.set(left);
            let job = reads::job(self.core.store(), self.shard(), job)?;
            shown.job_state = job.map(|job| job.state);
        }
        Ok(Some(shown))
    }
}

fn kind_of(work: &TaskWork) -> TaskKind {
    match work {
        TaskWork::Job(_) => TaskKind::Job,
        TaskWork::Workflow { .. } => TaskKind::Workflow,
        TaskWork::Delay(_) => TaskKind::Delay,
        TaskWork::Approval { .. } => TaskKind::Approval,
        TaskWork::WaitFor { .. } => TaskKind::WaitFor,
        TaskWork::Switch(_) => TaskKind::Switch,
    }
}
