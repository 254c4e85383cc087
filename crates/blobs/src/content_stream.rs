//! Stream of a blob's plain content.

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::{BoxStream, try_unfold};
use futures_util::{Stream, StreamExt, TryStreamExt};

use crate::Error;
use crate::blocking::blocking;
use crate::cache::Pinned;
use crate::limits::PIECE_BYTES_MAX;
use crate::reader::Reader;

/// Stream of plain bytes. A reader that received [`Self::bytes`] bytes has received verified content: the stream of a
/// damaged blob ends with an error before its last piece.
pub struct ContentStream {
    bytes: u64,
    stream: BoxStream<'static, Result<Bytes, Error>>,
}

impl ContentStream {
    /// Length of the stream.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn whole(reader: Reader) -> Self {
        Self { bytes: reader.plain_bytes(), stream: pieces(reader).boxed() }
    }

    /// Range of a blob too large for the cache. The blob is unpacked completely, since only the whole can be verified;
    /// the last piece of the range is held back until then.
    pub(crate) fn range_of_blob(reader: Reader, range: Range<u64>) -> Self {
        let bytes = range.end - range.start;
        let stream = try_unfold((pieces(reader).boxed(), 0, None), move |(mut pieces, mut at, mut held)| {
            let range = range.clone();
            async move {
                while let Some(piece) = pieces.try_next().await? {
                    let part = overlap(at, &piece, &range);
                    at += piece.len() as u64;
                    if !part.is_empty()
                        && let Some(ready) = held.replace(part)
                    {
                        return Ok(Some((ready, (pieces, at, held))));
                    }
                }
                Ok(held.take().map(|last| (last, (pieces, at, None))))
            }
        });
        Self { bytes, stream: stream.boxed() }
    }

    /// A verified cache file, pinned while it is read.
    pub(crate) async fn whole_file(pinned: Pinned) -> Result<Self, Error> {
        let path = pinned.path().to_path_buf();
        let bytes = blocking(move || Ok(path.metadata().map_err(Error::io("read the size of", &path))?.len())).await?;
        Ok(Self::range_of_file(pinned, 0..bytes))
    }

    /// Range of a verified cache file, pinned while it is read.
    pub(crate) fn range_of_file(pinned: Pinned, range: Range<u64>) -> Self {
        let bytes = range.end - range.start;
        let stream = try_unfold((Arc::new(pinned), None, range), |(pinned, file, range)| async move {
            if range.is_empty() {
                return Ok(None);
            }
            let path: PathBuf = pinned.path().to_path_buf();
            let (piece, file) = blocking(move || read_piece(file, path, range.start, range.end)).await?;
            let rest = range.start + piece.len() as u64..range.end;
            Ok(Some((piece, (pinned, Some(file), rest))))
        });
        Self { bytes, stream: stream.boxed() }
    }
}

impl Stream for ContentStream {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.stream.poll_next_unpin(context)
    }
}

impl fmt::Debug for ContentStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContentStream").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

fn pieces(reader: Reader) -> impl Stream<Item = Result<Bytes, Error>> + Send + 'static {
    try_unfold(reader, Reader::next)
}

/// The bytes of a piece starting at `at` that lie in the range.
fn overlap(at: u64, piece: &Bytes, range: &Range<u64>) -> Bytes {
    let within = |position: u64| usize::try_from(position.saturating_sub(at)).unwrap_or(usize::MAX).min(piece.len());
    piece.slice(within(range.start)..within(range.end))
}

fn read_piece(file: Option<File>, path: PathBuf, start: u64, end: u64) -> Result<(Bytes, File), Error> {
    let file = match file {
        Some(file) => file,
        None => File::open(&path).map_err(Error::io("open", &path))?,
    };
    let bytes = usize::try_from(end - start).unwrap_or(usize::MAX).min(PIECE_BYTES_MAX);
    let mut piece = vec![0; bytes];
    file.read_exact_at(&mut piece, start).map_err(Error::io("read", &path))?;
    Ok((piece.into(), file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_selects_the_bytes_of_a_piece_within_the_range() {
        let piece = Bytes::from_static(b"0123456789");
        assert_eq!(overlap(100, &piece, &(0..50)), "");
        assert_eq!(overlap(100, &piece, &(0..103)), "012");
        assert_eq!(overlap(100, &piece, &(104..106)), "45");
        assert_eq!(overlap(100, &piece, &(107..200)), "789");
        assert_eq!(overlap(100, &piece, &(110..200)), "");
    }
}
