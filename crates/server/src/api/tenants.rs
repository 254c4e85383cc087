//! Tenants: what they have under way and what they may have.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json as JsonBody;
use axum::extract::State as Shared;
use engine::TenantLimits;
use model::batch::Keyspace;
use model::view::{Page, TenantLimitsView, TenantView};
use store::{Order, Range, Store};

use super::list::Parameters;
use super::problem::Refused;
use super::{App, Core, queues};
use crate::error::Error;

/// How many queues are in memory at once.
const CHUNK: usize = 500;

/// Every tenant that has work or limits of its own, by name.
pub(crate) async fn list(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<TenantView>>, Refused> {
    let read = move || {
        let core = app.core()?;
        let limit = parameters.limit()?;
        let after = parameters.text("cursor");
        let setup = core.policy.setup();
        let known = live_jobs(&core)?;
        let mut items = known.into_iter().filter(|(tenant, _)| after.is_none_or(|after| tenant.as_str() > after));
        let page: Vec<TenantView> = items
            .by_ref()
            .take(limit)
            .map(|(tenant, live)| TenantView { live, limits: limits(setup.tenant(&tenant)), tenant })
            .collect();
        let next_cursor = items.next().and_then(|_| page.last().map(|last| last.tenant.clone()));
        Ok(JsonBody(Page { items: page, next_cursor }))
    };
    tokio::task::spawn_blocking(read).await.map_err(|error| Error::Panicked(error.to_string()))?
}

fn limits(limits: TenantLimits) -> TenantLimitsView {
    let TenantLimits { max_running, max_live, submits_per_second } = limits;
    TenantLimitsView { max_running, max_live, submits_per_second }
}

/// How many jobs of each tenant have not ended, as its queues count them; tenants with limits are always there.
fn live_jobs(core: &Core) -> Result<BTreeMap<String, u64>, Refused> {
    let mut live: BTreeMap<String, u64> = core.policy.setup().tenants.keys().map(|name| (name.clone(), 0)).collect();
    for shard in core.shards.all() {
        let mut range = Range::all();
        loop {
            let found = core.store.scan(shard, Keyspace::Queues, range, Order::Ascending, CHUNK)?;
            for (_, value) in &found {
                let queue = queues::decode(shard, value)?;
                if queue.counters.active > 0 {
                    *live.entry(queue.tenant).or_default() += queue.counters.active;
                }
            }
            match found.last() {
                Some((last, _)) if found.len() == CHUNK => range = Range::all().after(last),
                Some(_) | None => break,
            }
        }
    }
    Ok(live)
}
