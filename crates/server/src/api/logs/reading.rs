//! The thread that reads output for one client.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use model::id::{Attempt, JobId};
use model::job::{Job, LogRef};
use model::message::AttemptRef;
use runner::logs::{self, LogChunk, Reader, Stream};
use tokio::sync::{mpsc, watch};

use super::super::access::{Access, access};
use super::super::blocking::allow;
use super::super::permit::Permit;
use super::super::{Core, jobs};
use super::event::{self, Cursor};
use super::remote::RemoteReader;

/// Poll interval of followed output.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Approximate size of a sent piece.
const CHUNK_BYTES: usize = 512 * 1024;
/// Priority and bandwidth of a reader while the job runs: jobs come first.
const NICENESS: i32 = 10;
const BYTES_PER_SECOND: u64 = 64 << 20;

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Events,
}

/// A client's request and its progress.
pub(super) struct Reading {
    pub core: Arc<Core>,
    pub job: JobId,
    /// Without later attempts.
    pub only: bool,
    pub at: Cursor,
    pub streams: Vec<Stream>,
    /// Number of last lines of the existing output.
    pub tail: Option<usize>,
    pub follow: bool,
    pub form: Format,
    pub pieces: mpsc::Sender<io::Result<Bytes>>,
}

/// Where the output comes from.
enum Source {
    /// A file of this node, or a blob.
    File(Reader),
    /// The node on which the attempt runs.
    Remote(RemoteReader),
}

impl Source {
    /// The next chunk, or `None` if there is none yet.
    fn next(&mut self) -> io::Result<Option<LogChunk>> {
        match self {
            Self::File(reader) => reader.next(),
            Self::Remote(reader) => reader.next(),
        }
    }
}

/// The client is gone, or the node stops.
struct Ended;

/// State of the attempt that is read.
struct AttemptState {
    /// It has ended.
    ended: bool,
    /// The job's newest attempt.
    newest: Attempt,
    /// Whether its output may be shown.
    access: Access,
}

pub(super) fn start(reading: Reading, stopping: watch::Receiver<bool>, permit: Permit) -> io::Result<()> {
    let runtime = tokio::runtime::Handle::current();
    let body = move || {
        let _permit = permit;
        // Without the permission, the priority stays normal.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
        let _ = allow(|| reading.run(&stopping, &runtime));
    };
    std::thread::Builder::new().name("logs".to_owned()).spawn(body).map(drop)
}

impl Reading {
    fn run(mut self, stopping: &watch::Receiver<bool>, runtime: &tokio::runtime::Handle) -> Result<(), Ended> {
        let mut reader = None;
        loop {
            // The state is read before the output: output written before the end is then complete.
            let AttemptState { ended, newest, access } = self.state();
            // What a node has sent so far is continued from the blob: it was complete before the end was committed.
            let is_outdated = ended && matches!(reader, Some(Source::Remote(_)));
            if access != Access::Open || is_outdated {
                reader = None;
            }
            if access == Access::Open && reader.is_none() {
                reader = match runtime.block_on(self.open(ended, runtime)) {
                    Ok(reader) => reader,
                    Err(error) => return self.fail(error),
                };
            }
            let read = match &mut reader {
                Some(reader) => self.send_available(reader)?,
                None => 0,
            };
            if read > 0 {
                if !ended {
                    std::thread::sleep(Duration::from_micros(read * 1_000_000 / BYTES_PER_SECOND));
                }
                continue;
            }
            if (ended || !self.follow) && (self.only || newest <= self.at.attempt) {
                break;
            }
            if ended {
                self.at = Cursor::at(self.at.attempt.next());
                reader = None;
                continue;
            }
            if *stopping.borrow() || self.pieces.is_closed() {
                return Err(Ended);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        match self.form {
            Format::Text => Ok(()),
            Format::Events => self.send(event::end(self.at)),
        }
    }

    /// Blocks on the store.
    fn record(&self) -> Option<Job> {
        jobs::load(&self.core, self.job).ok()
    }

    fn state(&self) -> AttemptState {
        match self.record() {
            Some(job) => AttemptState {
                ended: job.state.is_terminal() || job.attempt > self.at.attempt,
                newest: job.attempt,
                access: access(&self.core, &job, self.at.attempt),
            },
            // The job was removed or is unreadable: there is no more output.
            None => AttemptState { ended: true, newest: Attempt::NONE, access: Access::Never },
        }
    }

    /// Opens the log file of the attempt, or its blob. Blocks on the store: awaited only on the thread of the reader.
    async fn open(&self, ended: bool, runtime: &tokio::runtime::Handle) -> io::Result<Option<Source>> {
        let job = self.record();
        let attempt_ref = AttemptRef { job: self.job, attempt: self.at.attempt };
        if !ended && let Some(peer) = job.as_ref().and_then(|job| jobs::peer_of(&self.core, job)) {
            return Ok(Some(Source::Remote(RemoteReader::new(peer, attempt_ref, runtime.clone()))));
        }
        // After a scan the blob may be a redacted copy.
        let was_scanned = job.as_ref().is_some_and(|job| !job.output_decisions().is_empty());
        let path = logs::path(&self.core.logs, attempt_ref);
        if !was_scanned && let Some(reader) = Reader::open(&path)? {
            return Ok(Some(Source::File(reader)));
        }
        let Some(LogRef { blob, .. }) = job.and_then(|job| log_of(&job, self.at.attempt)) else {
            return Ok(None);
        };
        // An open file stays readable when the cache evicts it.
        let pinned = self.core.blobs.materialise(blob).await.map_err(io::Error::other)?;
        Ok(Reader::open(pinned.path())?.map(Source::File))
    }

    /// Sends available output; the number of bytes read.
    fn send_available(&mut self, reader: &mut Source) -> Result<u64, Ended> {
        if let Some(lines) = self.tail.take() {
            return self.send_tail(reader, lines);
        }
        let mut chunk = Vec::new();
        let mut read = 0;
        while chunk.len() < CHUNK_BYTES {
            match reader.next() {
                Ok(Some(piece)) => {
                    read += piece.bytes.len() as u64;
                    self.show(piece, &mut chunk);
                }
                Ok(None) => break,
                // The node is away: its output comes again with it, or from the blob.
                Err(error) if matches!(reader, Source::Remote(_)) => {
                    tracing::debug!(job = %self.job, %error, "the output of a job cannot be read at present");
                    break;
                }
                Err(error) => return self.fail(error).map(|()| 0),
            }
        }
        if !chunk.is_empty() {
            self.send(chunk)?;
        }
        Ok(read)
    }

    fn show(&mut self, mut piece: LogChunk, chunk: &mut Vec<u8>) {
        let seen = &mut self.at.seen[piece.stream.index()];
        let end = piece.before + piece.bytes.len() as u64;
        if !self.streams.contains(&piece.stream) || end <= *seen {
            return;
        }
        // A resuming client may have a part of the piece.
        let known = seen.saturating_sub(piece.before) as usize;
        piece.bytes = piece.bytes.slice(known..);
        piece.missing = piece.before.saturating_sub(*seen);
        *seen = end;
        match self.form {
            Format::Events => event::output(&piece, self.at, chunk),
            Format::Text => {
                if piece.missing > 0 {
                    let stream = event::name(piece.stream);
                    let mark = format!("\n[outlast: {} bytes of {stream} were dropped]\n", piece.missing);
                    chunk.extend_from_slice(mark.as_bytes());
                }
                chunk.extend_from_slice(&piece.bytes);
            }
        }
    }

    /// Sends the last lines of each stream.
    fn send_tail(&mut self, reader: &mut Source, lines: usize) -> Result<u64, Ended> {
        let mut pieces = Vec::new();
        loop {
            match reader.next() {
                Ok(Some(piece)) => pieces.push(piece),
                Ok(None) => break,
                Err(error) => return self.fail(error).map(|()| 0),
            }
        }
        for stream in self.streams.clone() {
            let all: Vec<&LogChunk> = pieces.iter().filter(|piece| piece.stream == stream).collect();
            let output: Vec<u8> = all.iter().flat_map(|piece| piece.bytes.iter().copied()).collect();
            let Some(newest) = all.last() else { continue };
            let end = newest.before + newest.bytes.len() as u64;
            let bytes = Bytes::copy_from_slice(last_lines(&output, lines));
            let before = end - bytes.len() as u64;
            self.at.seen[stream.index()] = before;
            let mut chunk = Vec::new();
            self.show(LogChunk { stream, at: newest.at, bytes, before, missing: 0 }, &mut chunk);
            self.send(chunk)?;
        }
        Ok(pieces.len() as u64)
    }

    fn send(&self, chunk: Vec<u8>) -> Result<(), Ended> {
        self.pieces.blocking_send(Ok(chunk.into())).map_err(|_| Ended)
    }

    fn fail(&self, error: io::Error) -> Result<(), Ended> {
        tracing::warn!(job = %self.job, %error, "reading the output of a job failed");
        self.pieces.blocking_send(Err(error)).map_err(|_| Ended)?;
        Err(Ended)
    }
}

fn log_of(job: &Job, attempt: Attempt) -> Option<LogRef> {
    job.attempts.iter().find(|record| record.attempt == attempt)?.log.as_deref().copied()
}

fn last_lines(output: &[u8], lines: usize) -> &[u8] {
    if lines == 0 {
        return &[];
    }
    let end = output.len().saturating_sub(usize::from(output.ends_with(b"\n")));
    let start = output[..end].iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').nth(lines - 1);
    start.map_or(output, |(at, _)| &output[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_has_whole_lines() {
        assert_eq!(last_lines(b"a\nb\nc\n", 2), b"b\nc\n");
        assert_eq!(last_lines(b"a\nb\nc", 1), b"c");
        assert_eq!(last_lines(b"a\n", 5), b"a\n");
        assert_eq!(last_lines(b"a\n", 0), b"");
        assert_eq!(last_lines(b"", 3), b"");
    }
}
