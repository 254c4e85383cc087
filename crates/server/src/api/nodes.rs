//! The nodes of this cluster, which today is one: what it runs, and what protects its host from that.

use std::sync::Arc;

use axum::Json as JsonBody;
use axum::extract::State as Shared;
use model::view::{CapacityView, NodeView, Page, ProtectionView};
use runner::Kept;

use super::list::Parameters;
use super::path::Path;
use super::problem::{Fault, Refused};
use super::{App, Core};

pub(crate) async fn list(Shared(app): Shared<Arc<App>>, _: Parameters) -> Result<JsonBody<Page<NodeView>>, Refused> {
    let core = app.core()?;
    Ok(JsonBody(Page { items: vec![view(&core)], next_cursor: None }))
}

pub(crate) async fn show(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    _: Parameters,
) -> Result<JsonBody<NodeView>, Refused> {
    let core = app.core()?;
    let shown = view(&core);
    if shown.id.to_string() != id {
        return Err(Refused::saying(Fault::UnknownNode, format!("there is no node `{id}`")).at("id"));
    }
    Ok(JsonBody(shown))
}

fn view(core: &Core) -> NodeView {
    let shards = u32::from(core.shards.count());
    let capacity = core.runner.capacity();
    let protections = core.runner.protections().kept.into_iter().map(|(name, kept)| match kept {
        Kept::By { means } => ProtectionView { name, in_force: true, how: means },
        Kept::Missing { why } => ProtectionView { name, in_force: false, how: why },
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
