//! A link: envelopes in both directions between two nodes, in order.
//!
//! [`Sender`] has a queue that is bounded in bytes; all waiting envelopes leave together in one frame. [`Receiver`]
//! reads from the connection only what its user takes. A stalled user thus stalls the peer's queue and no memory grows.
//! Either half knows at once when the link is closed, and why.

mod queue;
mod receiver;
mod sender;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tonic::Streaming;

use crate::hello::Hello;
use crate::proto::Frame;
use crate::refusal::Refusal;
use crate::wire::{End, Wire};

pub(crate) use queue::Outgoing;
pub use receiver::Receiver;
pub use sender::{SendError, Sender, TrySendError};

use queue::Queue;

/// Between the end of a stream and the end of its connection, if that is the cause.
const CAUSE_TIMEOUT: Duration = Duration::from_millis(200);

/// Why a link is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloseReason {
    /// This side closed it.
    Local,
    /// The peer closed it.
    ClosedByPeer,
    /// The peer closed it with a refusal.
    Refused(Refusal),
    /// The connection broke: the peer was killed, or the network reset the connection.
    Reset(String),
    /// The peer did not answer keep-alive pings.
    KeepAliveTimeout,
    /// The peer violated the protocol.
    Protocol(String),
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("closed by this node"),
            Self::ClosedByPeer => f.write_str("closed by the peer"),
            Self::Refused(refusal) => write!(f, "closed by the peer: {refusal}"),
            Self::Reset(text) => write!(f, "the connection broke: {text}"),
            Self::KeepAliveTimeout => f.write_str("the peer did not answer keep-alive pings"),
            Self::Protocol(text) => write!(f, "the peer violated the protocol: {text}"),
        }
    }
}

impl From<End> for CloseReason {
    fn from(end: End) -> Self {
        match end {
            End::Orderly => Self::ClosedByPeer,
            End::Broken(fault) => Self::Reset(fault.text),
            End::KeepAliveTimeout => Self::KeepAliveTimeout,
            End::Local => Self::Local,
        }
    }
}

/// Progress of a link towards its end.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Open,
    /// The outgoing stream ended. The cause may be the connection.
    Ending,
    Closed(CloseReason),
}

/// What both halves and the outgoing stream share.
struct Shared {
    queue: Queue,
    state: watch::Sender<State>,
    wire: Wire,
}

impl Shared {
    /// The first reason counts.
    fn close(&self, reason: CloseReason) {
        self.state.send_if_modified(|state| match state {
            State::Open | State::Ending => {
                *state = State::Closed(reason);
                true
            }
            State::Closed(_) => false,
        });
        self.queue.close();
    }

    /// The outgoing stream was dropped: the link cannot be used any more.
    fn outgoing_ended(&self) {
        match self.wire.end() {
            Some(end) => self.close(end.into()),
            None => {
                self.state.send_if_modified(|state| {
                    let is_open = *state == State::Open;
                    if is_open {
                        *state = State::Ending;
                    }
                    is_open
                });
                self.queue.close();
            }
        }
    }

    /// The reason, if the link is closed.
    fn closed_reason(&self) -> Option<CloseReason> {
        match &*self.state.borrow() {
            State::Open => None,
            State::Ending => Some(CloseReason::ClosedByPeer),
            State::Closed(reason) => Some(reason.clone()),
        }
    }

    /// Waits until the link is closed.
    async fn closed(&self) -> CloseReason {
        let mut state = self.state.subscribe();
        let is_ending = state.wait_for(|state| *state != State::Open).await.is_ok_and(|state| *state == State::Ending);
        if is_ending {
            self.close(self.cause().await.unwrap_or(CloseReason::ClosedByPeer));
        }
        self.closed_reason().unwrap_or(CloseReason::Local)
    }

    /// The end of the connection, if it is the cause of the end of a stream.
    async fn cause(&self) -> Option<CloseReason> {
        timeout(CAUSE_TIMEOUT, self.wire.ended()).await.ok().map(CloseReason::from)
    }
}

/// The outgoing half of a link that is being opened.
pub(crate) struct Opening {
    shared: Arc<Shared>,
}

impl Opening {
    /// The stream to be sent begins with the hello.
    pub(crate) fn new(hello: &Hello, queue_bytes_max: usize, wire: Wire) -> (Self, Outgoing) {
        let (state, _) = watch::channel(State::Open);
        let shared = Arc::new(Shared { queue: Queue::new(queue_bytes_max), state, wire });
        let outgoing = Outgoing::new(shared.clone(), Frame { hello: Some(hello.to_proto()), envelopes: Vec::new() });
        (Self { shared }, outgoing)
    }

    /// The halves of the link, after the peer's hello was read.
    pub(crate) fn finish(self, incoming: Streaming<Frame>) -> (Sender, Receiver) {
        (Sender::new(self.shared.clone()), Receiver::new(self.shared, incoming))
    }
}
