//! Reader of attempt logs: from the file that a spawner appends to, or from the blob it is stored as.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use minicbor::{Decode, Encode};
use model::message::AttemptRef;
use model::time::Millis;
pub use spawner::log::Stream;
use spawner::log::{HEADER_BYTES, Header};

/// Bytes per disk read.
const READ_BYTES: usize = 256 * 1024;

/// Log file of an attempt, until its end is committed.
pub fn path(logs: &Path, attempt_ref: AttemptRef) -> PathBuf {
    // Two levels, so that no directory has millions of entries.
    logs.join(format!("{:03}", attempt_ref.job.0 / 7 % 512))
        .join(format!("{}.{}.log", attempt_ref.job, attempt_ref.attempt))
}

/// Attempt of a log file.
pub fn attempt_of(file: &Path) -> Option<AttemptRef> {
    let name = file.file_name()?.to_str()?.strip_suffix(".log")?;
    let (job, attempt) = name.rsplit_once('.')?;
    Some(AttemptRef { job: job.parse().ok()?, attempt: model::id::Attempt(attempt.parse().ok()?) })
}

/// Creates the log file of an attempt.
pub fn create(path: &Path) -> io::Result<File> {
    match File::create(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            File::create(path)
        }
        created => created,
    }
}

/// Chunk of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogChunk {
    pub stream: Stream,
    pub at: Millis,
    pub bytes: Bytes,
    /// Bytes of this stream before this chunk, stored or not.
    pub before: u64,
    /// Bytes between the previous chunk and this one that were not stored.
    pub missing: u64,
}

/// Position of a reader in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Position {
    #[n(0)]
    in_file: u64,
    /// Bytes of stdout and stderr before it, stored or not.
    #[n(1)]
    in_streams: [u64; 2],
}

/// Reads a log that may still be written to.
#[derive(Debug)]
pub struct Reader {
    file: File,
    /// Position of the first byte in the buffer.
    position: u64,
    buffer: BytesMut,
    /// Bytes of each stream read or skipped so far.
    stream_offsets: [u64; 2],
}

impl Reader {
    /// `None` if there is no file yet.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        Self::open_at(path, Position::default())
    }

    /// Continues at the position of an earlier reader of the same file. `None` if there is no file.
    pub fn open_at(path: &Path, Position { in_file, in_streams }: Position) -> io::Result<Option<Self>> {
        match File::open(path) {
            Ok(file) => Ok(Some(Self { file, position: in_file, buffer: BytesMut::new(), stream_offsets: in_streams })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn position(&self) -> Position {
        Position { in_file: self.position, in_streams: self.stream_offsets }
    }

    /// Next complete chunk, or `None` if there is none yet.
    #[expect(clippy::should_implement_trait, reason = "not an iterator: after None there may be more")]
    pub fn next(&mut self) -> io::Result<Option<LogChunk>> {
        loop {
            let Some(bytes) = self.buffer.first_chunk::<HEADER_BYTES>() else {
                if !self.fill(HEADER_BYTES)? {
                    return Ok(None);
                }
                continue;
            };
            if bytes[0] == 0 {
                if !self.skip_hole()? {
                    return Ok(None);
                }
                continue;
            }
            let header = Header::from_bytes(bytes).ok_or_else(damaged)?;
            let end = HEADER_BYTES + header.len as usize;
            if self.buffer.len() < end && !self.fill(end)? {
                return Ok(None);
            }
            if let Some(chunk) = self.take(header)? {
                return Ok(Some(chunk));
            }
        }
    }

    fn take(&mut self, header: Header) -> io::Result<Option<LogChunk>> {
        let start = self.position;
        let chunk = self.buffer.split_to(HEADER_BYTES + header.len as usize).freeze();
        self.position += chunk.len() as u64;
        if !self.is_intact(start)? {
            return Ok(None);
        }
        let offset = &mut self.stream_offsets[header.stream.index()];
        let missing = header.before.saturating_sub(*offset);
        *offset = header.before.saturating_add(u64::from(header.len));
        Ok(Some(LogChunk {
            stream: header.stream,
            at: Millis(header.at),
            bytes: chunk.slice(HEADER_BYTES..),
            before: header.before,
            missing,
        }))
    }

    /// Whether the writer has not punched a hole over the chunk just read.
    fn is_intact(&self, start: u64) -> io::Result<bool> {
        let mut first = [0];
        Ok(self.file.read_at(&mut first, start)? == 1 && first[0] != 0)
    }

    /// Reads until the buffer has the wanted number of bytes; `false` if the file has fewer.
    fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        while self.buffer.len() < wanted {
            let old = self.buffer.len();
            self.buffer.resize(old + READ_BYTES.max(wanted - old), 0);
            let read = self.file.read_at(&mut self.buffer[old..], self.position + old as u64);
            self.buffer.truncate(old + *read.as_ref().unwrap_or(&0));
            if read? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Skips to the first byte after a hole.
    fn skip_hole(&mut self) -> io::Result<bool> {
        if let Some(offset) = self.buffer.iter().position(|byte| *byte != 0) {
            self.position += offset as u64;
            let _ = self.buffer.split_to(offset);
            return Ok(true);
        }
        let after = self.position + self.buffer.len() as u64;
        self.position = match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(after)) {
            Ok(data) => data,
            // No data after the hole yet.
            Err(rustix::io::Errno::NXIO) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        self.buffer.clear();
        self.fill(1)
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the log file is damaged")
}

/// Whether the file has a hole.
pub(crate) fn has_hole(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let end = file.metadata()?.len();
    Ok(end > 0 && rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0))? < end)
}

/// Beginning of an attempt's standard output.
pub(crate) fn read_stdout(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut stdout = Vec::new();
    let Some(mut reader) = Reader::open(path)? else { return Ok(stdout) };
    while stdout.len() < bytes_max
        && let Some(chunk) = reader.next()?
    {
        if chunk.stream == Stream::Stdout {
            let room = bytes_max - stdout.len();
            stdout.extend_from_slice(&chunk.bytes[..chunk.bytes.len().min(room)]);
        }
    }
    Ok(stdout)
}

/// Content of a log without its hole, for storage as a blob. Loads all of it into memory.
pub(crate) fn compact(path: &Path) -> io::Result<Bytes> {
    let mut content = BytesMut::new();
    let Some(mut reader) = Reader::open(path)? else { return Ok(content.freeze()) };
    while let Some(chunk) = reader.next()? {
        chunk.encode(&mut content);
    }
    Ok(content.freeze())
}

impl LogChunk {
    /// Appends the chunk in the format of the file.
    pub fn encode(&self, content: &mut BytesMut) {
        let len = self.bytes.len() as u32;
        let header = Header { stream: self.stream, len, at: self.at.0, before: self.before };
        content.extend_from_slice(&header.to_bytes());
        content.extend_from_slice(&self.bytes);
    }
}

/// Decodes encoded chunks that follow a position in their log.
pub fn decode_chunks(mut encoded: Bytes, after: Position) -> io::Result<Vec<LogChunk>> {
    let (mut chunks, mut seen) = (Vec::new(), after.in_streams);
    while !encoded.is_empty() {
        let header = encoded.first_chunk::<HEADER_BYTES>().and_then(Header::from_bytes).ok_or_else(damaged)?;
        let end = HEADER_BYTES + header.len as usize;
        if encoded.len() < end {
            return Err(damaged());
        }
        let bytes = encoded.split_to(end).slice(HEADER_BYTES..);
        let seen = &mut seen[header.stream.index()];
        let missing = header.before.saturating_sub(*seen);
        *seen = header.before.saturating_add(u64::from(header.len));
        chunks.push(LogChunk { stream: header.stream, at: Millis(header.at), bytes, before: header.before, missing });
    }
    Ok(chunks)
}

#[cfg(test)]
mod tests {
    use model::id::{Attempt, JobId};
    use spawner::log::Writer;

    use super::*;

    fn written(head: u64, tail: u64, chunks: usize) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let file = path(dir.path(), AttemptRef { job: JobId(5), attempt: Attempt(1) });
        let mut writer = Writer::new(create(&file).unwrap().into(), head, tail);
        for number in 0..chunks {
            let text = format!("{number:07}\n").repeat(1000);
            let stream = if number % 2 == 0 { Stream::Stdout } else { Stream::Stderr };
            writer.write(stream, text.as_bytes(), number as u64).unwrap();
        }
        (dir, file)
    }

    fn all(reader: &mut Reader) -> Vec<LogChunk> {
        std::iter::from_fn(|| reader.next().unwrap()).collect()
    }

    #[test]
    fn written_output_is_read_back() {
        let (_dir, file) = written(1 << 20, 1 << 20, 10);
        let chunks = all(&mut Reader::open(&file).unwrap().unwrap());
        assert_eq!(chunks.len(), 10);
        assert_eq!((chunks[3].stream, chunks[3].at, chunks[3].missing), (Stream::Stderr, Millis(3), 0));
        assert_eq!(chunks[3].before, 8000);
    }

    #[test]
    fn a_hole_is_reported_in_bytes_and_survives_compaction() {
        let (dir, file) = written(100_000, 100_000, 1000);
        let chunks = all(&mut Reader::open(&file).unwrap().unwrap());
        assert!(chunks.len() < 300, "{}", chunks.len());
        let stored: u64 = chunks.iter().map(|chunk| chunk.bytes.len() as u64).sum();
        let missing: u64 = chunks.iter().map(|chunk| chunk.missing).sum();
        assert_eq!(stored + missing, 8_000_000);
        assert!(chunks[0].bytes.starts_with(b"0000000\n") && chunks.last().unwrap().bytes.starts_with(b"0000999\n"));
        assert!(has_hole(&file).unwrap());
        assert_eq!(read_stdout(&file, 10).unwrap(), b"0000000\n00");
        let blob = dir.path().join("blob");
        std::fs::write(&blob, compact(&file).unwrap()).unwrap();
        let again = all(&mut Reader::open(&blob).unwrap().unwrap());
        let parts = |chunks: &[LogChunk]| {
            chunks.iter().map(|p| (p.stream, p.at, p.bytes.clone(), p.missing)).collect::<Vec<_>>()
        };
        assert_eq!(parts(&again), parts(&chunks));
    }

    #[test]
    fn a_log_is_read_in_parts_over_a_network() {
        let (_dir, file) = written(100_000, 100_000, 1000);
        let whole = all(&mut Reader::open(&file).unwrap().unwrap());
        let (mut parts, mut position) = (Vec::new(), Position::default());
        loop {
            let mut reader = Reader::open_at(&file, position).unwrap().unwrap();
            let mut encoded = BytesMut::new();
            for chunk in std::iter::from_fn(|| reader.next().unwrap()).take(3) {
                chunk.encode(&mut encoded);
            }
            if encoded.is_empty() {
                break;
            }
            parts.extend(decode_chunks(encoded.freeze(), position).unwrap());
            position = reader.position();
        }
        assert_eq!(parts, whole);
        assert!(decode_chunks(Bytes::from_static(b"not a chunk at all, whatever it is"), position).is_err());
    }

    #[test]
    fn an_attempt_is_parsed_from_its_log_file_name() {
        let attempt_ref = AttemptRef { job: JobId(5), attempt: Attempt(12) };
        assert_eq!(attempt_of(&path(Path::new("/x"), attempt_ref)), Some(attempt_ref));
        assert_eq!(attempt_of(Path::new("/x/y.log")), None);
    }

    proptest::proptest! {
        #[test]
        fn reading_arbitrary_bytes_does_not_panic(bytes: Vec<u8>) {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("x");
            std::fs::write(&file, &bytes).unwrap();
            let mut reader = Reader::open(&file).unwrap().unwrap();
            while let Ok(Some(_)) = reader.next() {}
        }
    }
}
