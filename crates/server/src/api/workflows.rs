//! Workflows: starting them, looking at them, steering them.

mod graph;
mod history;
mod listing;
mod operate;
mod show;
mod start;
mod tasks;
pub(crate) mod view;

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use model::id::{ShardId, WorkflowId};
use model::workflow::{Workflow, WorkflowSpec};
use serde::Deserialize;
use workflow::Plan;

use super::problem::{Fault, FlowFault, Refused};
use super::{Core, body};
use crate::error::Error;
use crate::reads::flows;

pub(crate) use graph::{definition, graph, schema};
pub(crate) use history::history;
pub(crate) use listing::list;
pub(crate) use operate::{cancel, pause, progress, remove, rerun, resume, signal};
pub(crate) use show::show;
pub(crate) use start::{Ask, created, start, text_of, validate};
pub(crate) use tasks::{one as task, page as tasks};

/// The largest body of a request that steers a workflow.
const WORD_BYTES_MAX: usize = 16 * 1024;

pub(crate) fn parse_id(text: &str) -> Result<WorkflowId, Refused> {
    text.parse().map_err(|error: model::id::ParseIdError| Refused::saying(Fault::InvalidId, error.to_string()).at("id"))
}

pub(crate) fn shard_of(core: &Core, id: WorkflowId) -> ShardId {
    core.shard_of(id.slot())
}

pub(crate) fn load(core: &Core, id: WorkflowId) -> Result<Workflow, Refused> {
    flows::workflow(core.store.as_ref(), shard_of(core, id), id)?.ok_or_else(|| unknown(id))
}

fn unknown(id: WorkflowId) -> Refused {
    let detail = format!("there is no workflow {id}; it may have been removed");
    Refused::saying(FlowFault::UnknownWorkflow.into(), detail)
}

fn load_spec(core: &Core, id: WorkflowId) -> Result<WorkflowSpec, Refused> {
    flows::spec(core.store.as_ref(), shard_of(core, id), id)?.ok_or_else(|| unknown(id))
}

/// The plan that a workflow was started with.
fn load_plan(core: &Core, id: WorkflowId) -> Result<Arc<Plan>, Refused> {
    let plan = core.plans.of_workflow(core.store.as_ref(), shard_of(core, id), id)?;
    plan.ok_or_else(|| {
        let detail = format!("the definition of {id} is gone or cannot be read by this version");
        Refused::saying(Fault::Internal, detail)
    })
}

/// Reads the store away from the threads that answer requests.
async fn blocking<T: Send + 'static>(read: impl FnOnce() -> Result<T, Refused> + Send + 'static) -> Result<T, Refused> {
    tokio::task::spawn_blocking(read).await.map_err(|error| Error::Panicked(error.to_string()))?
}

/// A body may be left out; one that is there is JSON and says so.
async fn optional_word<T: Default + for<'de> Deserialize<'de>>(
    headers: &HeaderMap,
    request_body: Body,
) -> Result<T, Refused> {
    let bytes = body::read(request_body, WORD_BYTES_MAX).await?;
    if headers.contains_key(header::CONTENT_TYPE) || !bytes.is_empty() {
        body::expect_json(headers)?;
    }
    if bytes.is_empty() { Ok(T::default()) } else { body::parse(&bytes) }
}
