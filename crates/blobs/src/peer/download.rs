//! Download of a stored object that resumes where it was cut.
//!
//! The received bytes are not verified here: the reader unpacks and hashes them as they arrive, and a download with a
//! wrong byte is repeated from the beginning.

use futures_util::TryStreamExt;
use model::blob::BlobId;

use super::client::{PeerClient, Retries};
use super::prefetch::{self, Gone, Pieces, Sender};
use super::{PeerError, PeerObject, PeerStream};
use crate::Error;

impl PeerClient {
    /// The whole stored object and its size; `None` if the blob does not exist.
    pub async fn get(&self, id: BlobId) -> Result<Option<(u64, Pieces)>, Error> {
        let mut retries = self.retries();
        let Some(PeerObject { stored_bytes, content }) = self.get_from(id, 0, &mut retries).await? else {
            return Ok(None);
        };
        let (sender, pieces) = prefetch::channel();
        let download = Download { client: self.clone(), id, stored_bytes, received: 0, retries };
        tokio::spawn(async move {
            let watch = sender.watch();
            tokio::select! {
                // The only outcome besides the pieces is that nobody wants them any more.
                _ = download.run(content, sender) => {}
                () = watch.closed() => {}
            }
        });
        Ok(Some((stored_bytes, pieces)))
    }

    async fn get_from(&self, id: BlobId, offset: u64, retries: &mut Retries) -> Result<Option<PeerObject>, Error> {
        loop {
            match self.timed(self.peer.get(id, offset)).await {
                Ok(object) => return Ok(object),
                Err(error) => retries.pause(error).await.map_err(|error| error.into_error(&id))?,
            }
        }
    }
}

struct Download {
    client: PeerClient,
    id: BlobId,
    stored_bytes: u64,
    received: u64,
    retries: Retries,
}

impl Download {
    async fn run(mut self, mut content: PeerStream, mut sender: Sender) -> Result<(), Gone> {
        loop {
            let error = match self.receive(&mut content, &mut sender).await? {
                Ok(()) => return sender.flush().await,
                Err(error) => error,
            };
            match self.resume(error).await {
                Ok(rest) => content = rest,
                Err(error) => return sender.error(error).await,
            }
        }
    }

    /// Passes on pieces until the object is complete or the stream is cut.
    async fn receive(&mut self, content: &mut PeerStream, sender: &mut Sender) -> Result<Result<(), PeerError>, Gone> {
        while self.received < self.stored_bytes {
            match self.client.timed(Box::pin(content.try_next())).await {
                Ok(Some(piece)) => {
                    self.received += piece.len() as u64;
                    self.retries.progress(self.received);
                    sender.piece(piece).await?;
                }
                Ok(None) => return Ok(Err(PeerError::unreachable("a transfer ended early"))),
                Err(error) => return Ok(Err(error)),
            }
        }
        // The last item tells whether the peer found its object damaged.
        match self.client.timed(Box::pin(content.try_next())).await {
            Err(error @ PeerError::Damaged { .. }) => Ok(Err(error)),
            Ok(Some(_)) => Ok(Err(PeerError::Damaged { reason: "more bytes were received than it has".to_owned() })),
            Ok(None) | Err(_) => Ok(Ok(())),
        }
    }

    async fn resume(&mut self, error: PeerError) -> Result<PeerStream, Error> {
        self.retries.pause(error).await.map_err(|error| error.into_error(&self.id))?;
        let object = self.client.get_from(self.id, self.received, &mut self.retries).await?;
        let object = object.ok_or(Error::NotFound { id: self.id })?;
        if object.stored_bytes != self.stored_bytes {
            return Err(Error::damaged(self.id, "it was replaced while it was received"));
        }
        Ok(object.content)
    }
}
