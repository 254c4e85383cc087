//! Reader of one stored blob from a file or a connection, with verification.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use model::blob::BlobId;

use tokio::sync::mpsc::error::TryRecvError;

use crate::Error;
use crate::blocking::blocking;
use crate::damaged_blobs::DamagedBlobs;
use crate::format::{HEADER_BYTES, Header};
use crate::limits::PIECE_BYTES_MAX;
use crate::peer::Pieces;
use crate::storage::{Object, ObjectStream, Payload};
use crate::unpack::{Step, Unpacker};

/// Pieces unpacked per blocking call; a dropped caller is noticed between calls.
const PIECES_PER_CALL: usize = 64;

pub(crate) struct Reader {
    id: BlobId,
    source: Source,
    input: Bytes,
    unpacker: Unpacker,
    /// `None` for content received from a peer, which may have been damaged on the way.
    damaged: Option<Arc<DamagedBlobs>>,
}

enum Source {
    File(File),
    Stream(ObjectStream),
    Pieces(Pieces),
    Ended,
}

impl Reader {
    pub async fn open(
        id: BlobId,
        object: Object,
        plain_bytes_max: u64,
        damaged: &Arc<DamagedBlobs>,
    ) -> Result<Self, Error> {
        let stored_bytes = object.stored_bytes;
        let (source, input) = match object.payload {
            Payload::File(mut file, path) => {
                blocking(move || {
                    let mut start = Vec::with_capacity(HEADER_BYTES);
                    let read = (&mut file).take(HEADER_BYTES as u64).read_to_end(&mut start);
                    read.map_err(Error::io("read", &path))?;
                    Ok((Source::File(file), start.into()))
                })
                .await?
            }
            Payload::Stream(mut stream) => {
                let mut start = BytesMut::new();
                while start.len() < HEADER_BYTES
                    && let Some(more) = stream.next().await
                {
                    start.extend_from_slice(&more?);
                }
                (Source::Stream(stream), start.freeze())
            }
            Payload::Pieces(mut pieces) => {
                let mut start = pieces.recv().await.transpose()?.unwrap_or_default();
                // Rarely more than one piece, so that the first is not copied.
                while start.len() < HEADER_BYTES
                    && let Some(more) = pieces.recv().await
                {
                    start = [start, more?].concat().into();
                }
                (Source::Pieces(pieces), start)
            }
        };
        let damaged = match &source {
            Source::Pieces(_) => None,
            Source::File(_) | Source::Stream(_) | Source::Ended => Some(Arc::clone(damaged)),
        };
        let header = record(damaged.as_ref(), id, Header::decode(&input, stored_bytes, id))?;
        let unpacker = Unpacker::new(id, header, plain_bytes_max)?;
        Ok(Self { id, source, input: input.slice(HEADER_BYTES..), unpacker, damaged })
    }

    pub fn plain_bytes(&self) -> u64 {
        self.unpacker.header().plain_bytes
    }

    /// The next piece and the reader for the rest; `None` after the last piece of verified content.
    pub async fn next(mut self) -> Result<Option<(Bytes, Self)>, Error> {
        loop {
            self.wait_for_input().await?;
            let (back, step) = blocking(move || {
                let step = self.step()?;
                Ok((self, step))
            })
            .await?;
            self = back;
            match step {
                Step::Piece(piece) => return Ok(Some((piece.into(), self))),
                Step::Done => return Ok(None),
                Step::NeedsInput => {}
            }
        }
    }

    /// Passes all pieces to `write` on a blocking thread.
    pub async fn drain<S: Send + 'static>(
        mut self,
        mut sink: S,
        write: fn(&mut S, &[u8]) -> Result<(), Error>,
    ) -> Result<S, Error> {
        loop {
            self.wait_for_input().await?;
            let (back, done);
            (back, sink, done) = blocking(move || {
                for _ in 0..PIECES_PER_CALL {
                    match self.step()? {
                        Step::Piece(piece) => write(&mut sink, &piece)?,
                        Step::NeedsInput => break,
                        Step::Done => return Ok((self, sink, true)),
                    }
                }
                Ok((self, sink, false))
            })
            .await?;
            if done {
                return Ok(sink);
            }
            self = back;
        }
    }

    /// Awaits data from a connection. Files are read in `step`.
    async fn wait_for_input(&mut self) -> Result<(), Error> {
        if !self.input.is_empty() {
            return Ok(());
        }
        let more = match &mut self.source {
            Source::Stream(stream) => stream.next().await,
            Source::Pieces(pieces) => pieces.recv().await,
            Source::File(_) | Source::Ended => return Ok(()),
        };
        match more.transpose()? {
            Some(more) => self.input = more,
            None => self.source = Source::Ended,
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Step, Error> {
        let step = self.try_step();
        record(self.damaged.as_ref(), self.id, step)
    }

    fn try_step(&mut self) -> Result<Step, Error> {
        loop {
            match self.unpacker.step(&mut self.input)? {
                Step::NeedsInput => {}
                step @ (Step::Piece(_) | Step::Done) => return Ok(step),
            }
            match &mut self.source {
                Source::Stream(_) => return Ok(Step::NeedsInput),
                // What has arrived meanwhile is unpacked without a change of threads.
                Source::Pieces(pieces) => match pieces.try_recv() {
                    Ok(more) => self.input = more?,
                    Err(TryRecvError::Empty) => return Ok(Step::NeedsInput),
                    Err(TryRecvError::Disconnected) => self.source = Source::Ended,
                },
                Source::Ended => return Err(self.unpacker.truncated()),
                Source::File(file) => {
                    let mut more = Vec::with_capacity(PIECE_BYTES_MAX);
                    let read = file.take(PIECE_BYTES_MAX as u64).read_to_end(&mut more);
                    read.map_err(|error| Error::Storage { action: "read an object", reason: error.to_string() })?;
                    if more.is_empty() {
                        self.source = Source::Ended;
                    }
                    self.input = more.into();
                }
            }
        }
    }
}

fn record<T>(damaged: Option<&Arc<DamagedBlobs>>, id: BlobId, result: Result<T, Error>) -> Result<T, Error> {
    match damaged {
        Some(damaged) => damaged.record(id, result),
        None => result,
    }
}
