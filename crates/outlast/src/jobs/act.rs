//! Deciding about jobs: cancel, retry, retract, release, remove.

use anyhow::Result;
use model::view::JobView;

use crate::context::Context;
use crate::{exit, ids, output};

#[derive(Debug, Clone, Copy)]
pub enum Act {
    Cancel,
    Retry,
    Retract,
    Release,
    Remove,
    /// The dead letter, and the job with it.
    Purge,
}

/// All of them, one after the other: what fails is reported and does not keep the others from being done. The exit
/// code is the highest of all.
pub async fn each(act: Act, texts: &[String], context: &Context) -> Result<u8> {
    let mut jobs = Vec::new();
    let mut worst = exit::DONE;
    for text in texts {
        match one(act, text, context).await {
            Ok(Some(job)) if context.printer.is_for_people() => {
                output::write(format!("{} {}\n", job.id, job.state).as_bytes())?;
            }
            Ok(Some(job)) => jobs.push(job),
            Ok(None) if context.printer.is_for_people() => output::write(format!("{text} removed\n").as_bytes())?,
            Ok(None) => {}
            Err(error) => {
                // Among several it must be clear which one is meant, and many errors say so themselves.
                let is_named = texts.len() == 1 || error.to_string().contains(text);
                let error = if is_named { error } else { error.context(text.clone()) };
                worst = worst.max(exit::complain(&error));
            }
        }
    }
    match &jobs[..] {
        [] => {}
        [job] if texts.len() == 1 => context.printer.print(job, |_, _| String::new())?,
        jobs => context.printer.print(&jobs, |_, _| String::new())?,
    }
    Ok(worst)
}

/// The job as it is now; nothing if it is gone.
async fn one(act: Act, text: &str, context: &Context) -> Result<Option<JobView>> {
    let id = ids::job(text)?;
    let client = &context.client;
    Ok(match act {
        Act::Cancel => Some(client.cancel(id).await?),
        Act::Retry => Some(client.retry(id).await?),
        Act::Retract => Some(client.retract(id).await?),
        Act::Release => Some(client.release(id).await?),
        Act::Purge => {
            client.purge_letter(id).await?;
            None
        }
        Act::Remove => {
            client.remove_job(id).await?;
            None
        }
    })
}
