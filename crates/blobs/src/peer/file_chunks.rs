//! Stream of a file's bytes, read ahead on blocking threads.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};

use crate::Error;
use crate::blocking::blocking;
use crate::limits::CHUNK_BYTES;

/// Chunks read before they are requested.
const READ_AHEAD: usize = 2;

/// Reads a range in chunks. `file` may own more than the file, for example its removal.
pub(super) fn read<F: AsRef<File> + Clone + Send + 'static>(
    file: F,
    range: Range<u64>,
) -> impl Stream<Item = Result<Bytes, Error>> + Send + 'static {
    let starts = range.clone().step_by(CHUNK_BYTES);
    stream::iter(starts)
        .map(move |start| {
            let (file, end) = (file.clone(), range.end.min(start + CHUNK_BYTES as u64));
            blocking(move || {
                let chunk = read_exact(file.as_ref(), start..end);
                chunk.map_err(|error| Error::Storage { action: "read an object", reason: error.to_string() })
            })
        })
        .buffered(READ_AHEAD)
}

fn read_exact(file: &File, range: Range<u64>) -> io::Result<Bytes> {
    // At most a chunk, so the conversion cannot fail.
    let mut chunk = vec![0; usize::try_from(range.end - range.start).map_err(io::Error::other)?];
    file.read_exact_at(&mut chunk, range.start)?;
    Ok(chunk.into())
}
