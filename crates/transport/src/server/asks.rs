//! Requests of the control node to a runner, on streams that the runner opened.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use model::id::NodeId;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::bytes_stream::ByteStream;
use crate::hello::ProcessNonce;
use crate::limits::{ASKS_MAX, NAME_BYTES_MAX};
use crate::link::Sender;
use crate::proto::Ask;
use crate::refusal::{Refusal, RefusalKind};

/// Parts of an answer that are read ahead.
const PARTS_AHEAD_MAX: usize = 4;

/// One part of an answer. Without an end it is incomplete.
pub(super) enum Part {
    Data(Bytes),
    End,
    Refused(Refusal),
}

struct Pending {
    node: NodeId,
    answer: mpsc::Sender<Part>,
}

/// The asks of all connected nodes.
#[derive(Clone, Default)]
pub(super) struct Asks {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Asks for nodes whose stream is not open yet.
    unopened: Mutex<HashMap<(NodeId, ProcessNonce), mpsc::Receiver<Ask>>>,
    pending: Mutex<HashMap<u64, Pending>>,
    last_id: AtomicU64,
}

impl Asks {
    /// The requests of a new link. Its process opens the stream of asks next.
    pub(super) fn connect(&self, node: NodeId, process: ProcessNonce, link: Sender) -> PeerRequests {
        let (asks, stream) = mpsc::channel(ASKS_MAX);
        self.shared.unopened.lock().insert((node, process), stream);
        let (shared, closed) = (self.shared.clone(), link.clone());
        tokio::spawn(async move {
            closed.closed().await;
            shared.unopened.lock().remove(&(node, process));
        });
        PeerRequests { node, asks, link, shared: self.shared.clone() }
    }

    /// The asks for a process, once per link.
    pub(super) fn open(&self, node: NodeId, process: ProcessNonce) -> Result<mpsc::Receiver<Ask>, Refusal> {
        let stream = self.shared.unopened.lock().remove(&(node, process));
        stream.ok_or_else(|| Refusal::invalid("the stream of requests needs a link, and can be opened once"))
    }

    /// Where the answer to an ask goes. `None` if nobody waits for it any more.
    pub(super) fn answer(&self, node: NodeId, ask: u64) -> Option<mpsc::Sender<Part>> {
        let mut pending = self.shared.pending.lock();
        if pending.get(&ask)?.node != node {
            return None;
        }
        pending.remove(&ask).map(|pending| pending.answer)
    }
}

/// Sends requests to one connected node.
#[derive(Clone)]
pub struct PeerRequests {
    node: NodeId,
    asks: mpsc::Sender<Ask>,
    link: Sender,
    shared: Arc<Shared>,
}

impl PeerRequests {
    /// Sends a request. `first_part` is the time until the answer begins. Dropping the answer cancels it.
    pub async fn call(&self, method: &str, body: Bytes, first_part: Duration) -> Result<ByteStream, Refusal> {
        if method.len() > NAME_BYTES_MAX || body.len() > crate::limits::ENVELOPE_BYTES_MAX {
            return Err(Refusal::invalid("the request is too large"));
        }
        let id = self.shared.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (answer, mut parts) = mpsc::channel(PARTS_AHEAD_MAX);
        {
            let mut pending = self.shared.pending.lock();
            if pending.values().filter(|pending| pending.node == self.node).count() >= ASKS_MAX {
                return Err(Refusal::new(RefusalKind::Busy, format!("{} has too many open requests", self.node)));
            }
            pending.insert(id, Pending { node: self.node, answer });
        }
        let _registered = Registered { id, shared: self.shared.clone() };
        let ask = Ask { id, method: method.to_owned(), body };
        let failed = |text: String| Refusal::new(RefusalKind::Failed, text);
        let first = async {
            self.asks.send(ask).await.map_err(|_| failed(format!("{} is not connected", self.node)))?;
            Ok::<_, Refusal>(parts.recv().await)
        };
        let first = tokio::select! {
            first = timeout(first_part, first) => first,
            reason = self.link.closed() => return Err(failed(format!("the link to {}: {reason}", self.node))),
        };
        let first = first.map_err(|_| failed(format!("{} did not answer `{method}` in time", self.node)))??;
        Ok(content(first, parts))
    }
}

/// The content of an answer, whose first part was received.
fn content(first: Option<Part>, parts: mpsc::Receiver<Part>) -> ByteStream {
    let first = first.unwrap_or_else(incomplete);
    stream::unfold(Some((Some(first), parts)), |state| async move {
        let (first, mut parts) = state?;
        let part = match first {
            Some(part) => part,
            None => parts.recv().await.unwrap_or_else(incomplete),
        };
        match part {
            Part::Data(data) => Some((Ok(data), Some((None, parts)))),
            Part::End => None,
            Part::Refused(refusal) => Some((Err(refusal), None)),
        }
    })
    .boxed()
}

fn incomplete() -> Part {
    Part::Refused(Refusal::new(RefusalKind::Failed, "the connection ended before the answer was complete"))
}

/// Forgets an ask that nobody waits for.
struct Registered {
    id: u64,
    shared: Arc<Shared>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.pending.lock().remove(&self.id);
    }
}

impl fmt::Debug for PeerRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerRequests").field("node", &self.node).finish_non_exhaustive()
    }
}
