//! Streams of bytes: the content of an object, or an answer.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use tonic::{Status, Streaming};

use crate::limits::CHUNK_BYTES_MAX;
use crate::proto::Chunk;
use crate::refusal::Refusal;

/// Content to be sent. An error ends it.
pub type ByteStream = BoxStream<'static, Result<Bytes, Refusal>>;

/// Chunks of at most [`CHUNK_BYTES_MAX`], without empty ones.
pub(crate) fn chunks(content: ByteStream) -> impl Stream<Item = Result<Bytes, Refusal>> + Send {
    content.flat_map(|part| {
        let split: Vec<_> = match part {
            Ok(mut bytes) => {
                let mut split = Vec::with_capacity(bytes.len().div_ceil(CHUNK_BYTES_MAX));
                while !bytes.is_empty() {
                    split.push(Ok(bytes.split_to(bytes.len().min(CHUNK_BYTES_MAX))));
                }
                split
            }
            Err(refusal) => vec![Err(refusal)],
        };
        stream::iter(split)
    })
}

/// Text of the error for a content without its end.
pub(crate) const INCOMPLETE: &str = "the peer cancelled the transfer before its end";

pub(crate) type ChunkStream = Pin<Box<dyn Stream<Item = Result<Chunk, Status>> + Send>>;

pub(crate) fn to_chunk_stream(content: ByteStream) -> ChunkStream {
    let data = chunks(content).map(|part| match part {
        Ok(data) => Ok(Chunk { data, is_end: false }),
        Err(refusal) => Err(refusal.to_status()),
    });
    let end = stream::once(async { Ok(Chunk { data: Bytes::new(), is_end: true }) });
    Box::pin(data.chain(end))
}

/// What is received. An incomplete content ends with an error.
pub(crate) fn received<E>(
    chunks: Streaming<Chunk>,
    error: impl Fn(Status) -> E + Send + 'static,
) -> BoxStream<'static, Result<Bytes, E>> {
    // `None` after the end or an error.
    stream::unfold(Some((chunks, error)), |state| async move {
        let (mut chunks, error) = state?;
        match chunks.message().await {
            Ok(Some(Chunk { is_end: true, .. })) => None,
            Ok(Some(Chunk { data, is_end: false })) => Some((Ok(data), Some((chunks, error)))),
            Ok(None) => Some((Err(error(Status::unavailable(INCOMPLETE))), None)),
            Err(status) => Some((Err(error(status)), None)),
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn content_is_split_at_the_limit() {
        let content = [CHUNK_BYTES_MAX + 1, 0, CHUNK_BYTES_MAX].map(|bytes| Ok(Bytes::from(vec![7; bytes])));
        let sizes: Vec<_> = chunks(stream::iter(content).boxed()).map(|part| part.unwrap().len()).collect().await;
        assert_eq!(sizes, [CHUNK_BYTES_MAX, 1, CHUNK_BYTES_MAX]);
    }
}
