//! The receiving half of a link.

use std::fmt;
use std::sync::Arc;
use std::vec;

use bytes::Bytes;
use tonic::{Code, Status, Streaming};

use super::{CloseReason, Shared};
use crate::proto::Frame;
use crate::refusal::Refusal;

/// Receives envelopes in the order in which the peer sent them. Dropping it closes the link.
pub struct Receiver {
    shared: Arc<Shared>,
    incoming: Streaming<Frame>,
    received: vec::IntoIter<Bytes>,
}

impl Receiver {
    pub(super) fn new(shared: Arc<Shared>, incoming: Streaming<Frame>) -> Self {
        Self { shared, incoming, received: Vec::new().into_iter() }
    }

    /// The next envelope, or the reason why there is none. Cancel safe.
    pub async fn recv(&mut self) -> Result<Bytes, CloseReason> {
        loop {
            if let Some(envelope) = self.received.next() {
                return Ok(envelope);
            }
            let reason = match self.incoming.message().await {
                Ok(Some(Frame { hello: None, envelopes })) => {
                    self.received = envelopes.into_iter();
                    continue;
                }
                Ok(Some(_)) => CloseReason::Protocol("a second hello".to_owned()),
                Ok(None) => CloseReason::ClosedByPeer,
                Err(status) => self.reason(&status).await,
            };
            self.shared.close(reason);
            return Err(self.shared.closed().await);
        }
    }

    async fn reason(&self, status: &Status) -> CloseReason {
        if let Some(refusal) = Refusal::from_status(status) {
            return CloseReason::Refused(refusal);
        }
        let protocol = || CloseReason::Protocol(status.message().to_owned());
        // tonic: the message is too large.
        if status.code() == Code::OutOfRange {
            return protocol();
        }
        match (self.shared.cause().await, status.code()) {
            (Some(CloseReason::Local), Code::Internal) => protocol(),
            (Some(reason), _) => reason,
            // The peer reset the stream: it dropped its receiver.
            (None, Code::Cancelled | Code::Unknown) => CloseReason::ClosedByPeer,
            (None, _) => protocol(),
        }
    }
}

/// The peer learns that nobody reads any more.
impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.close(CloseReason::Local);
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}
