//! Workflows and tasks as the API shows them: records with the names that their definition gives.

use std::cell::Cell;
use std::sync::Arc;

use model::id::ShardId;
use model::json::Json;
use model::time::Millis;
use model::view::{OriginView, TaskKind, TaskRefView, TaskView, WorkflowView};
use model::workflow::{Place, TaskRecord, TaskState, Workflow};
use workflow::Plan;
use workflow::plan::Act;

use super::shard_of;
use crate::api::Core;
use crate::api::problem::Refused;
use crate::clock;
use crate::error::Error;
use crate::reads::{self, flows};

/// For so many tasks of one answer it is looked up in which state their jobs are.
const JOBS_LOOKED_UP_MAX: usize = 2_000;

/// A workflow whose definition and inputs are at hand.
pub(crate) fn with_definition(workflow: &Workflow, plan: &Plan, inputs: Json) -> WorkflowView {
    let epoch = plan.epochs.get(workflow.epoch as usize).map(|name| name.to_string());
    WorkflowView { inputs: Some(inputs), epoch, ..WorkflowView::new(workflow, clock::now()) }
}

/// A workflow with everything but its tasks. Blocking: it reads the store.
pub(crate) fn of(core: &Core, workflow: &Workflow) -> Result<WorkflowView, Refused> {
    let (store, shard) = (core.store.as_ref(), shard_of(core, workflow.id));
    let mut shown = match flows::spec(store, shard, workflow.id)? {
        Some(spec) => match core.plans.load(&spec) {
            Ok(plan) => {
                core.plans.remember(workflow.id, spec.digest);
                with_definition(workflow, &plan, spec.inputs)
            }
            Err(_) => WorkflowView { inputs: Some(spec.inputs), ..WorkflowView::new(workflow, clock::now()) },
        },
        None => WorkflowView::new(workflow, clock::now()),
    };
    if let (Some(shown), Some((parent, place))) = (&mut shown.parent, workflow.parent) {
        shown.task = name_of(core, parent, place)?;
    }
    Ok(shown)
}

/// The name of a task, if the definition of its workflow is there.
fn name_of(core: &Core, workflow: model::id::WorkflowId, place: Place) -> Result<Option<String>, Error> {
    let plan = core.plans.of_workflow(core.store.as_ref(), shard_of(core, workflow), workflow)?;
    Ok(plan.and_then(|plan| Some(plan.tasks.get(place.task as usize)?.name.to_string())))
}

/// Adds the name of its task to where a job is from.
pub(crate) fn complete_origin(
    core: &Core,
    origin: Option<&model::workflow::Origin>,
    shown: Option<&mut OriginView>,
) -> Result<(), Error> {
    if let (Some(origin), Some(shown)) = (origin, shown) {
        shown.task = name_of(core, origin.workflow, origin.place)?;
    }
    Ok(())
}

/// Makes views of the tasks of one workflow. Blocking: it reads the store.
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

    pub fn rows(&self) -> flows::Rows<'a> {
        flows::Rows::new(self.core.store.as_ref(), self.shard(), self.workflow.id)
    }

    pub fn name(&self, task: u32) -> String {
        self.plan.tasks.get(task as usize).map(|task| task.name.to_string()).unwrap_or_default()
    }

    /// A task, or an item of it. Without a record it has not begun. Nothing for a number that the definition lacks.
    pub fn task(&self, place: Place, record: Option<&TaskRecord>) -> Result<Option<TaskView>, Refused> {
        let Some(task) = self.plan.tasks.get(place.task as usize) else { return Ok(None) };
        let mut shown = TaskView::new(&task.name, kind_of(&task.act), TaskState::Waiting);
        shown.item = place.item;
        shown.epoch = self.plan.epochs.get(task.epoch as usize).map(|name| name.to_string());
        // An item needs what its task needs; to say so for each would only be long.
        if place.item.is_none() {
            shown.needs = task.needs.iter().map(|need| self.name(*need)).collect();
        }
        let Some(record) = record else { return Ok(Some(shown)) };
        let mut shown = shown.with_record(record, self.now);
        shown.merged_into = record.merged_into.map(|into| TaskRefView { task: self.name(into.task), item: into.item });
        shown.chosen = match (&task.act, record.chosen) {
            (Act::Switch(cases), Some(chosen)) => {
                let then = cases.get(chosen as usize).map(|case| case.then.as_ref()).unwrap_or_default();
                Some(then.iter().map(|task| self.name(*task)).collect())
            }
            (_, _) => None,
        };
        if let (Some(job), None, Some(left)) = (record.job, record.job_state, self.lookups_left.get().checked_sub(1)) {
            self.lookups_left.set(left);
            let job = reads::job(self.core.store.as_ref(), self.shard(), job)?;
            shown.job_state = job.map(|job| job.state);
        }
        Ok(Some(shown))
    }
}

fn kind_of(act: &Act) -> TaskKind {
    match act {
        Act::Job(_) => TaskKind::Job,
        Act::Workflow { .. } => TaskKind::Workflow,
        Act::Delay(_) => TaskKind::Delay,
        Act::Approval { .. } => TaskKind::Approval,
        Act::WaitFor { .. } => TaskKind::WaitFor,
        Act::Switch(_) => TaskKind::Switch,
    }
}
