//! Words of runners that could not be taken, for an operator to look at.

use std::sync::Arc;

use axum::Json as JsonBody;
use axum::extract::State as Shared;
use model::batch::Keyspace;
use model::codec;
use model::parked::ParkedWord;
use model::view::{Page, ParkedView};
use store::{Order, Range, Store};

use super::App;
use super::list::Parameters;
use super::problem::Refused;
use crate::error::Error;

/// A shard keeps no more of them than this.
const EACH_MAX: usize = 1_000;

/// All that are kept, the newest of each shard first.
pub(crate) async fn list(Shared(app): Shared<Arc<App>>, _: Parameters) -> Result<JsonBody<Page<ParkedView>>, Refused> {
    let read = move || {
        let core = app.core()?;
        let mut items = Vec::new();
        for shard in core.shards.all() {
            for (_, value) in core.store.scan(shard, Keyspace::Parked, Range::all(), Order::Descending, EACH_MAX)? {
                let word: ParkedWord =
                    codec::decode(&value).map_err(|source| Error::Record { shard: shard.0, source })?;
                items.push(ParkedView::from(word));
            }
        }
        Ok(Page { items, next_cursor: None })
    };
    let page = tokio::task::spawn_blocking(read).await.map_err(|error| Error::Panicked(error.to_string()))?;
    page.map(JsonBody)
}
