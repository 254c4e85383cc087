//! Tenants with their live jobs and limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::api::{Page, TenantLimitsView, TenantView};
use axum::Json as JsonBody;
use axum::extract::State as Shared;
use engine::TenantLimits;

use super::parameters::Parameters;
use super::problem::Refused;
use super::{App, Core, queues};

/// Tenants with live jobs or limits, by name.
pub(crate) async fn list(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<TenantView>>, Refused> {
    let core = app.core()?;
    let page = core.read(move |core| {
        let limit = parameters.limit()?;
        let after = parameters.text("cursor");
        let settings = core.policy.settings();
        let known = live_jobs(core)?;
        let mut items = known.into_iter().filter(|(tenant, _)| after.is_none_or(|after| tenant.as_str() > after));
        let page: Vec<TenantView> = items
            .by_ref()
            .take(limit)
            .map(|(tenant, live)| TenantView { live, limits: limits(settings.tenant(&tenant)), tenant })
            .collect();
        let next_cursor = items.next().and_then(|_| page.last().map(|last| last.tenant.clone()));
        Ok(Page { items: page, next_cursor })
    });
    page.await.map(JsonBody)
}

fn limits(limits: TenantLimits) -> TenantLimitsView {
    let TenantLimits { max_running, max_live, submits_per_second } = limits;
    TenantLimitsView { max_running, max_live, submits_per_second }
}

/// Number of live jobs by tenant, from the counters of the queues. Tenants with limits are always included.
fn live_jobs(core: &Core) -> Result<BTreeMap<String, u64>, Refused> {
    let mut live: BTreeMap<String, u64> = core.policy.settings().tenants.keys().map(|name| (name.clone(), 0)).collect();
    queues::for_each(core, |queue| {
        if queue.counters.active > 0 {
            *live.entry(queue.tenant).or_default() += queue.counters.active;
        }
    })?;
    Ok(live)
}
