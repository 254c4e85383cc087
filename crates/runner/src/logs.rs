//! The output of attempts: one file each, a sequence of records with stream, time and bytes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use model::id::{Attempt, JobId};
use model::message::Ticket;
use model::time::Millis;

/// The longest piece that is read back at once; the writer's pieces are shorter.
const PIECE_BYTES_MAX: usize = 1 << 20;
const HEADER_BYTES: usize = 13;
const CUT: u8 = 0x80;

/// Where a process wrote to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn code(self) -> u8 {
        match self {
            Self::Stdout => 1,
            Self::Stderr => 2,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        match code & !CUT {
            1 => Some(Self::Stdout),
            2 => Some(Self::Stderr),
            _ => None,
        }
    }
}

/// The directory of a job's output.
pub fn directory(logs: &Path, job: JobId) -> PathBuf {
    // Two levels, so that no directory gets millions of entries.
    logs.join(format!("{:03}", job.0 / 7 % 512)).join(job.to_string())
}

pub fn path(logs: &Path, ticket: Ticket) -> PathBuf {
    directory(logs, ticket.job).join(format!("{}.log", ticket.attempt))
}

/// Writes one attempt's output.
#[derive(Debug)]
pub struct Writer {
    file: File,
    left: [u64; 2],
}

impl Writer {
    /// `bytes_max` of each stream are kept; what comes after is dropped, and the cut is marked.
    pub fn create(path: &Path, bytes_max: u64) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        Ok(Self { file: File::create(path)?, left: [bytes_max; 2] })
    }

    pub fn write(&mut self, stream: Stream, now: Millis, bytes: &[u8]) -> io::Result<()> {
        let left = &mut self.left[usize::from(stream.code()) - 1];
        if *left == 0 {
            return Ok(());
        }
        let kept = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
        *left -= kept as u64;
        let cut = kept < bytes.len();
        if cut {
            *left = 0;
        }
        for piece in bytes[..kept].chunks(PIECE_BYTES_MAX / 2) {
            self.record(stream.code(), now, piece)?;
        }
        if cut {
            self.record(stream.code() | CUT, now, b"\n[outlast: the output goes on, but no more of it is kept]\n")?;
        }
        Ok(())
    }

    fn record(&mut self, code: u8, now: Millis, bytes: &[u8]) -> io::Result<()> {
        let mut record = Vec::with_capacity(HEADER_BYTES + bytes.len());
        record.push(code);
        record.extend_from_slice(&now.0.to_le_bytes());
        record.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        record.extend_from_slice(bytes);
        self.file.write_all(&record)
    }
}

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub stream: Stream,
    pub at: Millis,
    pub bytes: Bytes,
}

/// Reads an attempt's output while it may still be written.
#[derive(Debug)]
pub struct Reader {
    file: File,
    buffer: Vec<u8>,
}

impl Reader {
    /// `None` as long as there is no output file.
    pub fn open(logs: &Path, job: JobId, attempt: Attempt) -> io::Result<Option<Self>> {
        match File::open(path(logs, Ticket { job, attempt })) {
            Ok(file) => Ok(Some(Self { file, buffer: Vec::new() })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The next whole piece, or `None` when there is none yet.
    #[expect(clippy::should_implement_trait, reason = "not an iterator: after None there may be more")]
    pub fn next(&mut self) -> io::Result<Option<Piece>> {
        loop {
            if let Some(piece) = self.take_piece()? {
                return Ok(Some(piece));
            }
            let mut chunk = [0; 64 * 1024];
            let read = self.file.read(&mut chunk)?;
            if read == 0 {
                return Ok(None);
            }
            self.buffer.extend_from_slice(&chunk[..read]);
        }
    }

    fn take_piece(&mut self) -> io::Result<Option<Piece>> {
        let Some(header) = self.buffer.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [code, t0, t1, t2, t3, t4, t5, t6, t7, l0, l1, l2, l3] = *header;
        let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let damaged =
            |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("the output file is damaged: {what}"));
        let stream = Stream::from_code(code).ok_or_else(|| damaged("unknown stream"))?;
        if len > PIECE_BYTES_MAX {
            return Err(damaged("a piece is too long"));
        }
        let end = HEADER_BYTES + len;
        if self.buffer.len() < end {
            return Ok(None);
        }
        let at = Millis(u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]));
        let bytes = Bytes::copy_from_slice(&self.buffer[HEADER_BYTES..end]);
        self.buffer.drain(..end);
        Ok(Some(Piece { stream, at, bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(logs: &Path, job: JobId) -> Vec<Piece> {
        let mut reader = Reader::open(logs, job, Attempt(1)).unwrap().unwrap();
        std::iter::from_fn(|| reader.next().unwrap()).collect()
    }

    #[test]
    fn output_reads_back_and_is_cut_at_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let ticket = Ticket { job: JobId(5), attempt: Attempt(1) };
        let mut writer = Writer::create(&path(dir.path(), ticket), 4).unwrap();
        writer.write(Stream::Stdout, Millis(1), b"abcd").unwrap();
        writer.write(Stream::Stderr, Millis(2), b"abcde").unwrap();
        writer.write(Stream::Stderr, Millis(3), b"more").unwrap();
        let pieces = read_all(dir.path(), ticket.job);
        assert_eq!(pieces[0], Piece { stream: Stream::Stdout, at: Millis(1), bytes: "abcd".into() });
        assert_eq!(pieces[1].bytes, "abcd");
        assert!(pieces[2].bytes.starts_with(b"\n[outlast:"));
        assert_eq!(pieces.len(), 3);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_as_an_output_file_end_without_a_panic(bytes: Vec<u8>) {
            let dir = tempfile::tempdir().unwrap();
            let ticket = Ticket { job: JobId(5), attempt: Attempt(1) };
            let file = path(dir.path(), ticket);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, bytes).unwrap();
            let mut reader = Reader::open(dir.path(), ticket.job, Attempt(1)).unwrap().unwrap();
            while let Ok(Some(_)) = reader.next() {}
        }
    }
}
