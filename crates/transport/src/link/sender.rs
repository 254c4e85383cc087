//! The sending half of a link.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::queue::{QueueClosed, TryPushError};
use super::{CloseReason, Shared};
use crate::limits::ENVELOPE_BYTES_MAX;

/// Sends envelopes. Clones share the queue. The link closes when the receiver is dropped, or with [`Sender::close`].
#[derive(Clone)]
pub struct Sender {
    shared: Arc<Shared>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrySendError {
    /// The peer does not keep up. The envelope was not sent.
    #[error("the queue of the link is full")]
    Full,
    #[error(transparent)]
    Send(#[from] SendError),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    #[error("the link is closed: {0}")]
    Closed(CloseReason),
    #[error("an envelope of {bytes} bytes is too large: the maximum is {ENVELOPE_BYTES_MAX} bytes")]
    TooLarge { bytes: usize },
}

impl Sender {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Queues an envelope. It is lost if the link closes before it is sent.
    pub fn try_send(&self, envelope: Bytes) -> Result<(), TrySendError> {
        check_size(&envelope)?;
        self.shared.queue.try_push(envelope).map_err(|error| match error {
            TryPushError::Full => TrySendError::Full,
            TryPushError::Closed => TrySendError::Send(self.closed_error()),
        })
    }

    /// Queues an envelope. Waits while the queue is full.
    pub async fn send(&self, envelope: Bytes) -> Result<(), SendError> {
        check_size(&envelope)?;
        self.shared.queue.push(envelope).await.map_err(|QueueClosed| self.closed_error())
    }

    /// Bytes that wait to be sent.
    pub fn queued_bytes(&self) -> usize {
        self.shared.queue.bytes()
    }

    /// Closes the link, after all queued envelopes were sent.
    pub fn close(&self) {
        self.shared.close(CloseReason::Local);
    }

    /// Waits until no envelope is queued any more, also on a closed link.
    pub async fn flushed(&self) {
        while self.queued_bytes() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the link is closed.
    pub async fn closed(&self) -> CloseReason {
        self.shared.closed().await
    }

    fn closed_error(&self) -> SendError {
        SendError::Closed(self.shared.closed_reason().unwrap_or(CloseReason::Local))
    }
}

fn check_size(envelope: &Bytes) -> Result<(), SendError> {
    match envelope.len() {
        bytes if bytes > ENVELOPE_BYTES_MAX => Err(SendError::TooLarge { bytes }),
        _ => Ok(()),
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("queued_bytes", &self.queued_bytes()).finish_non_exhaustive()
    }
}
