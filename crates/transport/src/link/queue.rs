//! The outgoing queue, bounded in bytes.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::Stream;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, TryAcquireError};

use super::Shared;
use crate::limits::{BATCH_BYTES_MAX, ENVELOPE_OVERHEAD_BYTES};
use crate::proto::Frame;

pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    /// One permit per free byte.
    room: Semaphore,
    bytes_max: usize,
}

#[derive(Default)]
struct Waiting {
    envelopes: VecDeque<Bytes>,
    writer: Option<Waker>,
    is_closed: bool,
}

/// The queue takes no more envelopes.
#[derive(Debug)]
pub(super) struct QueueClosed;

#[derive(Debug)]
pub(super) enum TryPushError {
    Full,
    Closed,
}

impl Queue {
    pub(super) fn new(bytes_max: usize) -> Self {
        // An envelope of the maximal size always fits.
        let bytes_max = bytes_max.clamp(cost(crate::limits::ENVELOPE_BYTES_MAX), u32::MAX as usize >> 4);
        Self { waiting: Mutex::default(), room: Semaphore::new(bytes_max), bytes_max }
    }

    pub(super) async fn push(&self, envelope: Bytes) -> Result<(), QueueClosed> {
        let permits = self.room.acquire_many(cost(envelope.len()) as u32).await.map_err(|_| QueueClosed)?;
        permits.forget();
        self.append(envelope);
        Ok(())
    }

    pub(super) fn try_push(&self, envelope: Bytes) -> Result<(), TryPushError> {
        let permits = self.room.try_acquire_many(cost(envelope.len()) as u32).map_err(|error| match error {
            TryAcquireError::NoPermits => TryPushError::Full,
            TryAcquireError::Closed => TryPushError::Closed,
        })?;
        permits.forget();
        self.append(envelope);
        Ok(())
    }

    fn append(&self, envelope: Bytes) {
        let writer = {
            let mut waiting = self.waiting.lock();
            waiting.envelopes.push_back(envelope);
            waiting.writer.take()
        };
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes_max.saturating_sub(self.room.available_permits())
    }

    /// Takes no more envelopes. Those that wait are still sent.
    pub(super) fn close(&self) {
        self.room.close();
        let writer = {
            let mut waiting = self.waiting.lock();
            waiting.is_closed = true;
            waiting.writer.take()
        };
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    /// The next batch. `None` after the last one.
    fn poll_batch(&self, cx: &mut Context<'_>) -> Poll<Option<Vec<Bytes>>> {
        let mut waiting = self.waiting.lock();
        let (mut count, mut bytes) = (0, 0);
        for envelope in &waiting.envelopes {
            let cost = cost(envelope.len());
            if count > 0 && bytes + cost > BATCH_BYTES_MAX {
                break;
            }
            count += 1;
            bytes += cost;
        }
        if count == 0 {
            if waiting.is_closed {
                return Poll::Ready(None);
            }
            waiting.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let batch = waiting.envelopes.drain(..count).collect();
        drop(waiting);
        self.room.add_permits(bytes);
        Poll::Ready(Some(batch))
    }
}

fn cost(envelope_bytes: usize) -> usize {
    envelope_bytes + ENVELOPE_OVERHEAD_BYTES
}

/// The frames to be sent: the hello, then batches.
pub(crate) struct Outgoing {
    shared: Arc<Shared>,
    hello: Option<Frame>,
}

impl Outgoing {
    pub(super) fn new(shared: Arc<Shared>, hello: Frame) -> Self {
        Self { shared, hello: Some(hello) }
    }
}

impl Stream for Outgoing {
    type Item = Frame;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        if let Some(hello) = self.hello.take() {
            return Poll::Ready(Some(hello));
        }
        self.shared.queue.poll_batch(cx).map(|batch| batch.map(|envelopes| Frame { hello: None, envelopes }))
    }
}

/// HTTP/2 drops the stream when it or its connection ends.
impl Drop for Outgoing {
    fn drop(&mut self) {
        self.shared.outgoing_ended();
    }
}
