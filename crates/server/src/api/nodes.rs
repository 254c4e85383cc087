//! Nodes of the cluster, currently one: capacity and protections.

use std::sync::Arc;

use ::api::{CapacityView, NodeView, Page, ProtectionView};
use axum::Json as JsonBody;
use axum::extract::State as Shared;
use runner::Enforcement;

use super::parameters::Parameters;
use super::path::Path;
use super::problem::{ProblemKind, Refused};
use super::{App, Core};

pub(crate) async fn list(Shared(app): Shared<Arc<App>>, _: Parameters) -> Result<JsonBody<Page<NodeView>>, Refused> {
    let core = app.core()?;
    Ok(JsonBody(Page::whole(vec![view(&core)])))
}

pub(crate) async fn show(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    _: Parameters,
) -> Result<JsonBody<NodeView>, Refused> {
    let core = app.core()?;
    let shown = view(&core);
    if shown.id.to_string() != id {
        return Err(Refused::detailed(ProblemKind::UnknownNode, format!("there is no node `{id}`")).at("id"));
    }
    Ok(JsonBody(shown))
}

fn view(core: &Core) -> NodeView {
    let shards = u32::from(core.shards.count());
    let capacity = core.runner.capacity();
    let protections = core.runner.protections().entries.into_iter().map(|(name, enforcement)| match enforcement {
        Enforcement::Active { mechanism } => ProtectionView { name, in_force: true, how: mechanism },
        Enforcement::Missing { reason } => ProtectionView { name, in_force: false, how: reason },
    });
    NodeView {
        id: core.node,
        incarnation: core.runner.incarnation().0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        capacity: CapacityView {
            process: capacity.process * shards,
            wasm: capacity.wasm * shards,
            echo: capacity.echo * shards,
        },
        memory_available_bytes: runner::pressure::available_memory(),
        protections: protections.collect(),
    }
}
