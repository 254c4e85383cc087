//! Deciding about jobs: cancel, retry, retract, remove.

use anyhow::{Context as _, Result};
use model::id::JobId;
use model::view::JobView;

use crate::context::Context;
use crate::{exit, ids, output};

#[derive(Debug, Clone, Copy)]
pub enum Act {
    Cancel,
    Retry,
    Retract,
    Remove,
}

/// One after the other; the first that fails ends it, and is named where there are several.
pub async fn each(act: Act, texts: &[String], context: &Context) -> Result<u8> {
    // All of them are looked at before anything is done.
    let ids: Vec<JobId> = texts.iter().map(|text| ids::job(text)).collect::<Result<_>>()?;
    let mut jobs = Vec::new();
    for id in &ids {
        let job = one(act, *id, context).await;
        let job = if ids.len() > 1 { job.with_context(|| id.to_string())? } else { job? };
        match job {
            Some(job) if context.printer.is_for_people() => {
                output::write(format!("{} {}\n", job.id, job.state).as_bytes())?;
            }
            Some(job) => jobs.push(job),
            None if context.printer.is_for_people() => output::write(format!("{id} removed\n").as_bytes())?,
            None => {}
        }
    }
    match &jobs[..] {
        [] => {}
        [job] if ids.len() == 1 => context.printer.print(job, |_, _| String::new())?,
        jobs => context.printer.print(&jobs, |_, _| String::new())?,
    }
    Ok(exit::DONE)
}

/// The job as it is now; nothing if it is gone.
async fn one(act: Act, id: JobId, context: &Context) -> Result<Option<JobView>> {
    let client = &context.client;
    Ok(match act {
        Act::Cancel => Some(client.cancel(id).await?),
        Act::Retry => Some(client.retry(id).await?),
        Act::Retract => Some(client.retract(id).await?),
        Act::Remove => {
            client.remove_job(id).await?;
            None
        }
    })
}
