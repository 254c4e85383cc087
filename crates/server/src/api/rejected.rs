//! Rejected messages of runners.

use std::sync::Arc;

use ::api::{Page, RejectedMessageView};
use axum::Json as JsonBody;
use axum::extract::State as Shared;
use model::batch::Keyspace;
use model::codec;
use model::rejected::RejectedMessage;
use store::{Order, Range};

use super::App;
use super::parameters::Parameters;
use super::problem::Refused;
use crate::error::Error;

/// Limit of retained messages per shard.
const PER_SHARD_MAX: usize = 1_000;

/// All retained messages, the newest of each shard first.
pub(crate) async fn list(
    Shared(app): Shared<Arc<App>>,
    _: Parameters,
) -> Result<JsonBody<Page<RejectedMessageView>>, Refused> {
    let core = app.core()?;
    let page = core.read(|core| {
        let mut items = Vec::new();
        for shard in core.shards.all() {
            let found =
                core.store().scan(shard, Keyspace::RejectedMessages, Range::all(), Order::Descending, PER_SHARD_MAX)?;
            for (_, value) in found {
                let message: RejectedMessage = codec::decode(&value).map_err(|source| Error::record(shard, source))?;
                items.push(RejectedMessageView::from(message));
            }
        }
        Ok(Page::whole(items))
    });
    page.await.map(JsonBody)
}
