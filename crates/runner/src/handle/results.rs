//! Stores results that stay unacknowledged, off the threads that send and receive messages.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::{Handle, Inner};
use crate::outbox::{Outbox, OutboxUsage};

/// A result that is not acknowledged within this time is stored.
const STORE_AFTER: Duration = Duration::from_millis(200);

/// Longest wait of a stopping runner for its results to be stored.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// A request to store all results now. Answered when that was tried.
pub(super) type Flush = oneshot::Sender<()>;

pub(super) async fn store(inner: Weak<Inner>, mut outbox: Outbox, mut flush_requests: mpsc::UnboundedReceiver<Flush>) {
    loop {
        let flush = tokio::select! {
            () = tokio::time::sleep(STORE_AFTER) => None,
            Some(flush) = flush_requests.recv() => Some(flush),
        };
        let Some(inner) = inner.upgrade() else { return };
        if flush.is_some() {
            outbox.mark_due(&inner.state.lock().links);
        }
        outbox = match store_due(&inner, outbox).await {
            Ok(outbox) => outbox,
            Err(error) => return inner.give_up_outbox(&error),
        };
        outbox.mark_due(&inner.state.lock().links);
        inner.note_outbox(&outbox);
        if let Some(flush) = flush {
            // Fails if nobody waits for it any more.
            let _ = flush.send(());
        }
    }
}

/// Stores what was marked as due before.
async fn store_due(inner: &Arc<Inner>, mut outbox: Outbox) -> Result<Outbox, tokio::task::JoinError> {
    let chunk = outbox.collect(&inner.state.lock().links);
    if !outbox.is_due(&chunk) {
        return Ok(outbox);
    }
    let inner = inner.clone();
    let storing = tokio::task::spawn_blocking(move || {
        outbox.store(chunk, |outbox| outbox.collect(&inner.state.lock().links));
        outbox
    });
    storing.await
}

impl Inner {
    fn note_outbox(&self, outbox: &Outbox) {
        let refusal = outbox.refusal();
        let mut state = self.state.lock();
        state.outbox_usage = Some(outbox.usage());
        let has_changed = state.admission.outbox_refusal() != refusal.as_deref();
        drop(state);
        if has_changed {
            self.change_admission(|admission| admission.set_outbox_refusal(refusal));
        }
    }

    /// A panic is a bug. The runner delivers its results but takes no new work.
    fn give_up_outbox(&self, error: &tokio::task::JoinError) {
        tracing::error!(%error, "storing results panicked: no new work until the server is restarted");
        let refusal = Some(format!("storing results failed ({error}): restart the server"));
        self.change_admission(|admission| admission.set_outbox_refusal(refusal));
    }
}

impl Handle {
    /// Results in the durable outbox; `None` if the runner has none.
    pub fn outbox_usage(&self) -> Option<OutboxUsage> {
        self.0.state.lock().outbox_usage
    }

    /// Stores all results that are not acknowledged.
    pub(super) async fn flush_outbox(&self) {
        let Some(flushes) = &self.0.flushes else { return };
        let (flush, flushed) = oneshot::channel();
        if flushes.send(flush).is_ok() {
            // Fails if the outbox was given up, or if its disk hangs.
            let _ = tokio::time::timeout(FLUSH_TIMEOUT, flushed).await;
        }
    }
}
