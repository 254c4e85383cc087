//! Reading back what attempts wrote: from the file that a spawner appends to, or from the blob that it became.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use model::message::Ticket;
use model::time::Millis;
pub use spawner::log::Stream;
use spawner::log::{HEADER_BYTES, Header};

/// How much is read from the disk at once.
const READ_BYTES: usize = 256 * 1024;

/// Where an attempt's output is while it runs, and until it is safe as a blob.
pub fn path(logs: &Path, ticket: Ticket) -> PathBuf {
    // Two levels, so that no directory gets millions of entries.
    logs.join(format!("{:03}", ticket.job.0 / 7 % 512)).join(format!("{}.{}.log", ticket.job, ticket.attempt))
}

/// The attempt that a file in the directory of logs belongs to.
pub fn ticket_of(file: &Path) -> Option<Ticket> {
    let name = file.file_name()?.to_str()?.strip_suffix(".log")?;
    let (job, attempt) = name.rsplit_once('.')?;
    Some(Ticket { job: job.parse().ok()?, attempt: model::id::Attempt(attempt.parse().ok()?) })
}

/// Makes the file for an attempt's output.
pub fn create(path: &Path) -> io::Result<File> {
    match File::create(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            File::create(path)
        }
        made => made,
    }
}

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub stream: Stream,
    pub at: Millis,
    pub bytes: Bytes,
    /// How many bytes of the stream came before this piece, kept or not.
    pub before: u64,
    /// So many of them, after the piece before, were not kept.
    pub missing: u64,
}

/// Reads an attempt's output while it may still be written.
#[derive(Debug)]
pub struct Reader {
    file: File,
    /// Of the first byte in the buffer.
    position: u64,
    buffer: BytesMut,
    /// How much of each stream has been read or passed over.
    seen: [u64; 2],
}

impl Reader {
    /// `None` as long as there is no file.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        match File::open(path) {
            Ok(file) => Ok(Some(Self { file, position: 0, buffer: BytesMut::new(), seen: [0; 2] })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The next whole piece, or `None` when there is none yet.
    #[expect(clippy::should_implement_trait, reason = "not an iterator: after None there may be more")]
    pub fn next(&mut self) -> io::Result<Option<Piece>> {
        loop {
            let Some(bytes) = self.buffer.first_chunk::<HEADER_BYTES>() else {
                if !self.fill(HEADER_BYTES)? {
                    return Ok(None);
                }
                continue;
            };
            if bytes[0] == 0 {
                if !self.pass_hole()? {
                    return Ok(None);
                }
                continue;
            }
            let header = Header::from_bytes(bytes).ok_or_else(damaged)?;
            let end = HEADER_BYTES + header.len as usize;
            if self.buffer.len() < end && !self.fill(end)? {
                return Ok(None);
            }
            if let Some(piece) = self.take(header)? {
                return Ok(Some(piece));
            }
        }
    }

    fn take(&mut self, header: Header) -> io::Result<Option<Piece>> {
        let start = self.position;
        let whole = self.buffer.split_to(HEADER_BYTES + header.len as usize).freeze();
        self.position += whole.len() as u64;
        if !self.is_still_there(start)? {
            return Ok(None);
        }
        let seen = &mut self.seen[header.stream.index()];
        let missing = header.before.saturating_sub(*seen);
        *seen = header.before.saturating_add(u64::from(header.len));
        Ok(Some(Piece {
            stream: header.stream,
            at: Millis(header.at),
            bytes: whole.slice(HEADER_BYTES..),
            before: header.before,
            missing,
        }))
    }

    /// The writer may have made a hole of what was just read.
    fn is_still_there(&self, start: u64) -> io::Result<bool> {
        let mut first = [0];
        Ok(self.file.read_at(&mut first, start)? == 1 && first[0] != 0)
    }

    /// Reads until there are so many bytes; `false` when there are not that many yet.
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

    /// Goes on to the first byte after a hole.
    fn pass_hole(&mut self) -> io::Result<bool> {
        if let Some(offset) = self.buffer.iter().position(|byte| *byte != 0) {
            self.position += offset as u64;
            let _ = self.buffer.split_to(offset);
            return Ok(true);
        }
        let after = self.position + self.buffer.len() as u64;
        self.position = match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(after)) {
            Ok(data) => data,
            // There is nothing behind it yet.
            Err(rustix::io::Errno::NXIO) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        self.buffer.clear();
        self.fill(1)
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the output file is damaged")
}

/// Whether a part of the file was given back.
pub(crate) fn has_hole(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let end = file.metadata()?.len();
    Ok(end > 0 && rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0))? < end)
}

/// The beginning of what an attempt wrote to its standard output.
pub(crate) fn beginning(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut stdout = Vec::new();
    let Some(mut reader) = Reader::open(path)? else { return Ok(stdout) };
    while stdout.len() < bytes_max
        && let Some(piece) = reader.next()?
    {
        if piece.stream == Stream::Stdout {
            let room = bytes_max - stdout.len();
            stdout.extend_from_slice(&piece.bytes[..piece.bytes.len().min(room)]);
        }
    }
    Ok(stdout)
}

/// What is kept of an attempt's output, without the hole: as it is kept for good. It takes as much memory.
pub(crate) fn condense(path: &Path) -> io::Result<Bytes> {
    let mut content = BytesMut::new();
    let Some(mut reader) = Reader::open(path)? else { return Ok(content.freeze()) };
    while let Some(piece) = reader.next()? {
        let (len, before) = (piece.bytes.len() as u32, piece.before);
        let header = Header { stream: piece.stream, len, at: piece.at.0, before };
        content.extend_from_slice(&header.to_bytes());
        content.extend_from_slice(&piece.bytes);
    }
    Ok(content.freeze())
}

#[cfg(test)]
mod tests {
    use model::id::{Attempt, JobId};
    use spawner::log::Writer;

    use super::*;

    fn written(head: u64, tail: u64, pieces: usize) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let file = path(dir.path(), Ticket { job: JobId(5), attempt: Attempt(1) });
        let mut writer = Writer::new(create(&file).unwrap().into(), head, tail);
        for number in 0..pieces {
            let text = format!("{number:07}\n").repeat(1000);
            let stream = if number % 2 == 0 { Stream::Stdout } else { Stream::Stderr };
            writer.write(stream, text.as_bytes(), number as u64).unwrap();
        }
        (dir, file)
    }

    fn all(reader: &mut Reader) -> Vec<Piece> {
        std::iter::from_fn(|| reader.next().unwrap()).collect()
    }

    #[test]
    fn output_reads_back() {
        let (_dir, file) = written(1 << 20, 1 << 20, 10);
        let pieces = all(&mut Reader::open(&file).unwrap().unwrap());
        assert_eq!(pieces.len(), 10);
        assert_eq!((pieces[3].stream, pieces[3].at, pieces[3].missing), (Stream::Stderr, Millis(3), 0));
        assert_eq!(pieces[3].before, 8000);
    }

    #[test]
    fn a_cut_is_told_in_bytes_and_survives_becoming_a_blob() {
        let (dir, file) = written(100_000, 100_000, 1000);
        let pieces = all(&mut Reader::open(&file).unwrap().unwrap());
        assert!(pieces.len() < 300, "{}", pieces.len());
        let kept: u64 = pieces.iter().map(|piece| piece.bytes.len() as u64).sum();
        let missing: u64 = pieces.iter().map(|piece| piece.missing).sum();
        assert_eq!(kept + missing, 8_000_000);
        assert!(pieces[0].bytes.starts_with(b"0000000\n") && pieces.last().unwrap().bytes.starts_with(b"0000999\n"));
        assert!(has_hole(&file).unwrap());
        assert_eq!(beginning(&file, 10).unwrap(), b"0000000\n00");
        let blob = dir.path().join("blob");
        std::fs::write(&blob, condense(&file).unwrap()).unwrap();
        let again = all(&mut Reader::open(&blob).unwrap().unwrap());
        let parts =
            |pieces: &[Piece]| pieces.iter().map(|p| (p.stream, p.at, p.bytes.clone(), p.missing)).collect::<Vec<_>>();
        assert_eq!(parts(&again), parts(&pieces));
    }

    #[test]
    fn a_file_name_names_its_attempt() {
        let ticket = Ticket { job: JobId(5), attempt: Attempt(12) };
        assert_eq!(ticket_of(&path(Path::new("/x"), ticket)), Some(ticket));
        assert_eq!(ticket_of(Path::new("/x/y.log")), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_as_an_output_file_end_without_a_panic(bytes: Vec<u8>) {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("x");
            std::fs::write(&file, &bytes).unwrap();
            let mut reader = Reader::open(&file).unwrap().unwrap();
            while let Ok(Some(_)) = reader.next() {}
        }
    }
}
