//! Looking up and listing schedules.

use std::sync::Arc;

use ::api::{Page, ScheduleView};
use model::batch::Keyspace;
use model::id::{ScheduleId, ShardId};
use model::key;
use model::workflow::Schedule;
use shard::reads::merge::Records;
use shard::reads::workflows;
use store::{Order, Range};

use super::view;
use crate::api::Core;
use crate::api::pages::{self, CursorForm};
use crate::api::parameters::Parameters;
use crate::api::problem::{ProblemKind, Refused};

/// Schedules read at once: each includes its definition.
const CHUNK: usize = 100;

/// Limit of tenants with a schedule of one name on a shard: as many as a shard has schedules.
const SAME_NAME_MAX: usize = 10_000;

fn records(core: &Core) -> Records<'_, ScheduleId> {
    Records::new(core.store(), &[Keyspace::Schedules], Order::Ascending).chunks_of(CHUNK)
}

/// The schedule with an id or a name.
pub(super) async fn schedule(core: &Arc<Core>, reference: &str, parameters: &Parameters) -> Result<Schedule, Refused> {
    let found = if reference.starts_with(ScheduleId::PREFIX) {
        let id: ScheduleId = reference.parse().map_err(|error: model::id::ParseIdError| {
            Refused::detailed(ProblemKind::InvalidId, error.to_string()).at("schedule")
        })?;
        core.read(move |core| Ok(workflows::schedule(core.store(), core.shard_of(id.slot()), id)?)).await?
    } else {
        by_name(core, reference, parameters.text("tenant")).await?
    };
    found.ok_or_else(|| {
        let detail = format!("there is no schedule `{reference}`; it may have been removed");
        Refused::detailed(ProblemKind::UnknownSchedule, detail)
    })
}

/// The schedule of a name, of one tenant or of all.
pub(super) async fn by_name(core: &Arc<Core>, name: &str, tenant: Option<&str>) -> Result<Option<Schedule>, Refused> {
    let (name, tenant) = (name.to_owned(), tenant.map(str::to_owned));
    let found = core.read(move |core| {
        let mut found: Option<Schedule> = None;
        for (shard, id) in with_name(core, &name)? {
            // A schedule may be removed between the two reads.
            let Some(schedule) = workflows::schedule(core.store(), shard, id)? else { continue };
            if tenant.as_ref().is_some_and(|tenant| *tenant != schedule.tenant) {
                continue;
            }
            if let Some(other) = found.replace(schedule) {
                let detail = format!("`{}` and another tenant have a schedule `{name}`: give the tenant", other.tenant);
                return Err(Refused::parameter("tenant", detail));
            }
        }
        Ok(found)
    });
    found.await
}

/// The schedules of a name, from the index. Blocks on the store.
fn with_name(core: &Core, name: &str) -> Result<Vec<(ShardId, ScheduleId)>, Refused> {
    let range = Range::prefix(&key::schedules_named(name));
    let mut found = Vec::new();
    for shard in core.shards.all() {
        let rows = core.store().scan(shard, Keyspace::Meta, range, Order::Ascending, SAME_NAME_MAX)?;
        found.extend(rows.iter().filter_map(|(key, _)| Some((shard, key::schedule_of_name(key)?))));
    }
    Ok(found)
}

/// A page, oldest first. Blocks on the store.
pub(super) fn page(core: &Core, parameters: &Parameters) -> Result<Page<ScheduleView>, Refused> {
    let tenant = parameters.text("tenant");
    pages::page(core, records(core), parameters, CursorForm::Id, |shard, _, value| {
        let schedule: Schedule = workflows::decode(shard, value)?;
        Ok(tenant.is_none_or(|tenant| tenant == schedule.tenant).then(|| view(&schedule)))
    })
}
