//! Stores large results of workflow tasks as blobs, before the ends of their attempts are recorded.

use blobs::Blobs;
use bytes::Bytes;
use model::id::Epoch;
use model::job::SpilledResult;
use model::json::Json;
use model::message::AttemptRef;

use crate::inbox::{Inbox, Message};

/// Stores large results in the background of a shard.
pub(crate) struct ResultSpiller {
    pub blobs: Blobs,
    pub tasks: tokio::runtime::Handle,
    /// Inbox of the shard.
    pub inbox: Inbox,
}

impl ResultSpiller {
    /// Stores a result. The shard gets a message with the outcome.
    pub fn spill(&self, epoch: Epoch, attempt_ref: AttemptRef, result: &Json) {
        let content = Bytes::copy_from_slice(result.as_bytes());
        let (blobs, inbox) = (self.blobs.clone(), self.inbox.clone());
        self.tasks.spawn(async move {
            let bytes = content.len() as u64;
            let spilled = blobs.put(content).await.map(|blob| SpilledResult { blob, bytes });
            // After a restart of the shard the runner sends the end of the attempt again.
            let spilled = spilled.map_err(|error| error.to_string());
            let _ = inbox.post(Message::Spilled { epoch, attempt_ref, spilled });
        });
    }
}
