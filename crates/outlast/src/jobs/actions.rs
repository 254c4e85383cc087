//! Actions on jobs: cancel, retry, retract, release, delete.

use anyhow::Result;
use api::JobView;

use crate::context::Context;
use crate::ids;

#[derive(Debug, Clone, Copy)]
pub enum JobAction {
    Cancel,
    Retry,
    Retract,
    Release,
    Remove,
    /// Retries the job of a dead letter, or the compensation that could not be submitted.
    RetryDeadLetter,
    /// Deletes the dead letter together with the job.
    Purge,
}

pub async fn run(action: JobAction, texts: &[String], context: &Context) -> Result<u8> {
    crate::for_each::for_each(
        texts,
        context,
        async |text: &str| run_one(action, text, context).await,
        |job| format!("{} {}\n", job.id, job.state),
    )
    .await
}

/// Returns the job, or `None` if it was deleted.
async fn run_one(action: JobAction, text: &str, context: &Context) -> Result<Option<JobView>> {
    let id = ids::job(text)?;
    let client = &context.client;
    Ok(match action {
        JobAction::Cancel => Some(client.cancel(id).await?),
        JobAction::Retry => Some(client.retry(id).await?),
        JobAction::Retract => Some(client.retract(id).await?),
        JobAction::Release => Some(client.release(id).await?),
        JobAction::RetryDeadLetter => Some(client.retry_dead_letter(id).await?),
        JobAction::Purge => {
            client.purge_dead_letter(id).await?;
            None
        }
        JobAction::Remove => {
            client.remove_job(id).await?;
            None
        }
    })
}
