//! Workflows: start, show, act.

mod graph;
mod history;
mod listing;
mod operate;
mod show;
mod start;
mod tasks;
pub(crate) mod view;

use std::sync::Arc;

use bytes::Bytes;
use model::id::{ShardId, WorkflowId};
use model::workflow::Workflow;
use shard::reads::workflows;
use workflow::Plan;

use super::Core;
use super::problem::{ProblemKind, Refused};

pub(crate) use graph::{definition, graph, schema};
pub(crate) use history::history;
pub(crate) use listing::list;
pub(crate) use operate::{cancel, pause, progress, remove, rerun, resume, signal};
pub(crate) use show::show;
pub(crate) use start::{StartRequest, created, start, text_of, validate};
pub(crate) use tasks::{one as task, page as tasks};

pub(crate) fn parse_id(text: &str) -> Result<WorkflowId, Refused> {
    text.parse()
        .map_err(|error: model::id::ParseIdError| Refused::detailed(ProblemKind::InvalidId, error.to_string()).at("id"))
}

pub(crate) fn shard_of(core: &Core, id: WorkflowId) -> ShardId {
    core.shard_of(id.slot())
}

/// Blocks on the store.
pub(crate) fn load(core: &Core, id: WorkflowId) -> Result<Workflow, Refused> {
    workflows::workflow(core.store(), shard_of(core, id), id)?.ok_or_else(|| unknown(id))
}

fn unknown(id: WorkflowId) -> Refused {
    let detail = format!("there is no workflow {id}; it may have been removed");
    Refused::detailed(ProblemKind::UnknownWorkflow, detail)
}

/// The definition of a workflow as JSON. Blocks on the store.
fn load_definition(core: &Core, id: WorkflowId) -> Result<Bytes, Refused> {
    let (store, shard) = (core.store(), shard_of(core, id));
    let spec = workflows::spec(store, shard, id)?.ok_or_else(|| unknown(id))?;
    if !spec.definition.is_empty() {
        return Ok(spec.definition);
    }
    workflows::definition(store, shard, spec.digest)?.ok_or_else(|| unknown(id))
}

/// The plan of a workflow. Blocks on the store.
fn load_plan(core: &Core, id: WorkflowId) -> Result<Arc<Plan>, Refused> {
    let plan = core.plans.of_workflow(core.store(), shard_of(core, id), id)?;
    plan.ok_or_else(|| {
        let detail = format!("the definition of {id} is missing or not readable by this version");
        Refused::detailed(ProblemKind::Internal, detail)
    })
}
