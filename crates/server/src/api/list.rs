//! Pages of jobs: parameters and views. Which jobs a page has is decided in [`shard::reads::jobs`].

use ::api::{JobView, Page};
use shard::reads::jobs::{Filter, Listed, Reader};

use super::pages::CursorForm;
use super::parameters::Parameters;
use super::problem::Refused;
use super::workflows::view::complete_origin;
use super::{Core, jobs, queues};

/// Blocks on the store if a queue is given.
pub(crate) fn filter(core: &Core, parameters: &Parameters) -> Result<Filter, Refused> {
    let queue = match parameters.queue()? {
        Some(reference) => Some(queues::load(core, reference)?.id),
        None => None,
    };
    Ok(Filter {
        states: parameters.states()?,
        queue,
        topic: parameters.text("topic").map(str::to_owned),
        tenant: parameters.text("tenant").map(str::to_owned),
    })
}

/// A page of jobs. Blocks on the store.
pub(crate) fn page(core: &Core, filter: &Filter, parameters: &Parameters) -> Result<Page<JobView>, Refused> {
    let cursor = CursorForm::Short;
    let before = cursor.read(parameters)?;
    let page = Reader::new(core.store(), core.shards, filter).page(before, parameters.limit()?)?;
    let items: Result<_, Refused> = page.jobs.into_iter().map(|listed| view(core, listed)).collect();
    Ok(Page { items: items?, next_cursor: page.next.map(|id| cursor.text(id)) })
}

fn view(core: &Core, Listed { job, spec }: Listed) -> Result<JobView, Refused> {
    let mut shown = JobView::new(&job, spec);
    jobs::add_usage(core, &job, &mut shown);
    complete_origin(core, job.origin.as_deref(), shown.origin.as_mut())?;
    Ok(shown)
}
