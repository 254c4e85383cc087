//! Finding schedules: by id, by name, and all of them.

use std::sync::Arc;

use model::batch::Keyspace;
use model::id::{ScheduleId, ShardId};
use model::view::{Page, ScheduleView};
use model::workflow::Schedule;
use store::{Key, Order, Range, Store};

use super::view;
use crate::api::Core;
use crate::api::list::{Parameters, bad};
use crate::api::problem::{Fault, FlowFault, Refused};
use crate::error::Error;
use crate::reads::flows;

/// How many are read at once: each has its definition with it.
const CHUNK: usize = 100;

/// What a request calls by its id or by its name.
pub(super) async fn schedule(core: &Arc<Core>, reference: &str, parameters: &Parameters) -> Result<Schedule, Refused> {
    let found = if reference.starts_with(ScheduleId::PREFIX) {
        let id: ScheduleId = reference.parse().map_err(|error: model::id::ParseIdError| {
            Refused::saying(Fault::InvalidId, error.to_string()).at("schedule")
        })?;
        flows::schedule(core.store.as_ref(), core.shard_of(id.slot()), id)?
    } else {
        by_name(core, reference, parameters.text("tenant")).await?
    };
    found.ok_or_else(|| {
        let detail = format!("there is no schedule `{reference}`; it may have been removed");
        Refused::saying(FlowFault::UnknownSchedule.into(), detail)
    })
}

/// The only one of a name, of one tenant or of all.
pub(super) async fn by_name(core: &Arc<Core>, name: &str, tenant: Option<&str>) -> Result<Option<Schedule>, Refused> {
    let (core, name, tenant) = (core.clone(), name.to_owned(), tenant.map(str::to_owned));
    let look = move || {
        let mut found: Option<Schedule> = None;
        for shard in core.shards.all() {
            let mut range = Range::all();
            while let Some((last, schedules)) = read(&core, shard, range)? {
                range = Range::all().after(&Key::new(&last.key()));
                let is_meant = |schedule: &Schedule| {
                    schedule.name == name && tenant.as_ref().is_none_or(|tenant| *tenant == schedule.tenant)
                };
                for schedule in schedules.into_iter().filter(is_meant) {
                    if let Some(other) = found.replace(schedule) {
                        let detail =
                            format!("`{}` and another tenant have a schedule `{name}`: say whose", other.tenant);
                        return Err(bad("tenant", detail));
                    }
                }
            }
        }
        Ok(found)
    };
    tokio::task::spawn_blocking(look).await.map_err(|error| Error::Panicked(error.to_string()))?
}

/// Some schedules of a shard and the last of them; nothing at the end.
fn read(core: &Core, shard: ShardId, range: Range) -> Result<Option<(ScheduleId, Vec<Schedule>)>, Error> {
    let page = core.store.scan(shard, Keyspace::Schedules, range, Order::Ascending, CHUNK)?;
    let schedules: Vec<Schedule> =
        page.iter().map(|(_, value)| flows::decode(shard, value)).collect::<Result<_, _>>()?;
    Ok(schedules.last().map(|last| last.id).map(|last| (last, schedules)))
}

/// One page of all, the oldest first. Blocking: it reads the store.
pub(super) fn page(core: &Core, parameters: &Parameters) -> Result<Page<ScheduleView>, Refused> {
    let limit = parameters.limit()?;
    let tenant = parameters.text("tenant");
    let after: Option<ScheduleId> = parameters.text("cursor").map(parse_cursor).transpose()?;
    let mut items: Vec<ScheduleView> = Vec::new();
    for shard in core.shards.all() {
        let mut range = after.map_or_else(Range::all, |id| Range::all().after(&Key::new(&id.key())));
        let mut of_shard = 0;
        while of_shard < limit
            && let Some((last, schedules)) = read(core, shard, range)?
        {
            range = Range::all().after(&Key::new(&last.key()));
            let wanted = schedules.iter().filter(|schedule| tenant.is_none_or(|tenant| tenant == schedule.tenant));
            let wanted: Vec<ScheduleView> = wanted.take(limit - of_shard).map(view).collect();
            of_shard += wanted.len();
            items.extend(wanted);
        }
    }
    items.sort_by_key(|schedule| schedule.id);
    let more = items.len() >= limit;
    items.truncate(limit);
    let next_cursor = items.last().filter(|_| more).map(|last| last.id.to_string());
    Ok(Page { items, next_cursor })
}

fn parse_cursor(text: &str) -> Result<ScheduleId, Refused> {
    text.parse().map_err(|_| Refused::saying(Fault::InvalidCursor, format!("`{text}` is not a cursor")).at("cursor"))
}
