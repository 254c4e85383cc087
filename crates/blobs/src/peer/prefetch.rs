//! Pieces received ahead of their consumer.
//!
//! A task receives from the network while a blocking thread hashes and writes. Small pieces are gathered, since every
//! piece costs the consumer a system call.

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;

use crate::Error;
use crate::limits::PIECE_BYTES_MAX;

/// Pieces in the channel. Bounds memory.
const PIECES_AHEAD_MAX: usize = 8;

/// A last error follows the pieces received before it. Without an error, the end is the end of the content.
pub(crate) type Pieces = mpsc::Receiver<Result<Bytes, Error>>;

pub(super) fn channel() -> (Sender, Pieces) {
    let (sender, pieces) = mpsc::channel(PIECES_AHEAD_MAX);
    (Sender { gathered: BytesMut::new(), sender }, pieces)
}

/// The consumer is gone.
#[derive(Debug)]
pub(super) struct Gone;

pub(super) struct Sender {
    gathered: BytesMut,
    sender: mpsc::Sender<Result<Bytes, Error>>,
}

impl Sender {
    pub async fn piece(&mut self, piece: Bytes) -> Result<(), Gone> {
        if self.gathered.is_empty() && piece.len() >= PIECE_BYTES_MAX {
            return self.send(Ok(piece)).await;
        }
        self.gathered.extend_from_slice(&piece);
        if self.gathered.len() >= PIECE_BYTES_MAX { self.flush().await } else { Ok(()) }
    }

    pub async fn flush(&mut self) -> Result<(), Gone> {
        match self.gathered.is_empty() {
            true => Ok(()),
            false => {
                let gathered = self.gathered.split().freeze();
                self.send(Ok(gathered)).await
            }
        }
    }

    /// The pieces before the error reach the consumer.
    pub async fn error(mut self, error: Error) -> Result<(), Gone> {
        self.flush().await?;
        self.send(Err(error)).await
    }

    async fn send(&mut self, piece: Result<Bytes, Error>) -> Result<(), Gone> {
        self.sender.send(piece).await.map_err(|_| Gone)
    }

    /// Clone of the channel, to await its end while `self` is in use.
    pub fn watch(&self) -> mpsc::Sender<Result<Bytes, Error>> {
        self.sender.clone()
    }
}
