//! Lists of workflows: newest first, filtered, in pages.

use std::sync::Arc;

use ::api::{Page, WorkflowView};
use axum::Json as JsonBody;
use axum::extract::State as Shared;
use model::batch::Keyspace;
use model::id::{QueueId, ScheduleId, ShardId, WorkflowId};
use model::workflow::{Workflow, WorkflowState};
use shard::reads::merge::{MergeReader, READ_MAX, Records};
use shard::reads::workflows;
use store::Order;

use crate::api::pages::CursorForm;
use crate::api::parameters::Parameters;
use crate::api::problem::{ProblemKind, Refused};
use crate::api::{App, Core};
use crate::clock;

pub(crate) async fn list(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<WorkflowView>>, Refused> {
    let core = app.core()?;
    core.read(move |core| page(core, &Filter::from(core, &parameters)?, &parameters)).await.map(JsonBody)
}

#[derive(Debug, Default)]
struct Filter {
    states: Option<Vec<WorkflowState>>,
    name: Option<String>,
    tenant: Option<String>,
    queue: Option<QueueId>,
    schedule: Option<ScheduleId>,
    /// Includes sub-workflows.
    children: bool,
}

impl Filter {
    /// Blocks on the store if a queue is given by its token.
    fn from(core: &Core, parameters: &Parameters) -> Result<Self, Refused> {
        let schedule = parameters.text("schedule").map(|text| {
            let parsed: Result<ScheduleId, _> = text.parse();
            parsed.map_err(|error| Refused::detailed(ProblemKind::InvalidId, error.to_string()).at("schedule"))
        });
        Ok(Self {
            states: parameters.states()?,
            name: parameters.text("name").map(str::to_owned),
            tenant: parameters.text("tenant").map(str::to_owned),
            queue: parameters.queue_id(core)?,
            schedule: schedule.transpose()?,
            children: parameters.flag("children")?,
        })
    }

    fn accepts(&self, workflow: &Workflow) -> bool {
        !workflow.removing
            && (self.children || workflow.parent.is_none())
            && self.states.as_ref().is_none_or(|states| states.contains(&workflow.state))
            && self.name.as_ref().is_none_or(|name| *name == workflow.name)
            && self.tenant.as_ref().is_none_or(|tenant| *tenant == workflow.tenant)
            && self.queue.is_none_or(|queue| queue == workflow.queue)
            && self.schedule.is_none_or(|schedule| workflow.schedule.is_some_and(|from| from.id == schedule))
    }
}

/// A page, newest first. Blocks on the store.
fn page(core: &Core, filter: &Filter, parameters: &Parameters) -> Result<Page<WorkflowView>, Refused> {
    let cursor = CursorForm::Short;
    let before = cursor.read(parameters)?;
    let keyspaces = &[Keyspace::Workflows, Keyspace::WorkflowsDone];
    let records = Records::<WorkflowId>::new(core.store(), keyspaces, Order::Descending);
    let shards: Vec<ShardId> = match filter.queue {
        Some(queue) => vec![core.shard_of(queue.slot())],
        None => core.shards.all().collect(),
    };
    let mut reader = MergeReader::new(records, shards.into_iter().map(|shard| (shard, before)));
    let now = clock::now();
    let (items, next) = reader.take(parameters.limit()?, READ_MAX, |shard, (_, value)| {
        let workflow: Workflow = workflows::decode(shard, &value)?;
        Ok::<_, Refused>(filter.accepts(&workflow).then(|| WorkflowView::new(&workflow, now)))
    })?;
    Ok(Page { items, next_cursor: next.map(|id| cursor.text(id)) })
}
