//! Deciding about jobs: cancel, retry, retract, release, remove.

use anyhow::Result;
use model::view::JobView;

use crate::context::Context;
use crate::ids;

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

/// All of them, one after the other.
pub async fn each(act: Act, texts: &[String], context: &Context) -> Result<u8> {
    crate::each::each(
        texts,
        context,
        async |text: &str| one(act, text, context).await,
        |job| format!("{} {}\n", job.id, job.state),
    )
    .await
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
