//! The thread that reads output for one client.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use model::id::{Attempt, JobId};
use model::job::{Job, LogRef};
use model::message::Ticket;
use runner::logs::{self, Piece, Reader, Stream};
use tokio::sync::{mpsc, watch};

use super::super::access::{Access, access};
use super::super::{Core, jobs};
use super::Turn;
use super::event::{self, Cursor};

/// How often a followed output is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(25);
/// About how much is sent at once.
const CHUNK_BYTES: usize = 512 * 1024;
/// Watching comes after working: at a low priority, and not faster than this while the job runs.
const NICENESS: i32 = 10;
const BYTES_PER_SECOND: u64 = 64 << 20;

/// How output is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Events,
}

/// What a client has asked for, and how far it has got.
pub(super) struct Reading {
    pub core: Arc<Core>,
    pub job: JobId,
    /// Not the attempts after this one.
    pub only: bool,
    pub at: Cursor,
    pub streams: Vec<Stream>,
    /// Of what there is at the beginning, only so many lines.
    pub tail: Option<usize>,
    pub follow: bool,
    pub form: Form,
    pub pieces: mpsc::Sender<io::Result<Bytes>>,
}

/// The client has gone, or the node stops.
struct Over;

/// How it stands with the attempt that is read.
struct Standing {
    /// It has ended.
    over: bool,
    /// The job's newest attempt.
    newest: Attempt,
    /// Whether its output may be seen.
    access: Access,
}

pub(super) fn start(reading: Reading, stopping: watch::Receiver<bool>, turn: Turn) -> io::Result<()> {
    let runtime = tokio::runtime::Handle::current();
    let body = move || {
        let _turn = turn;
        // Not being allowed to is no harm.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
        let _ = reading.run(&stopping, &runtime);
    };
    std::thread::Builder::new().name("logs".to_owned()).spawn(body).map(drop)
}

impl Reading {
    fn run(mut self, stopping: &watch::Receiver<bool>, runtime: &tokio::runtime::Handle) -> Result<(), Over> {
        let mut reader = None;
        loop {
            // Whether more may come is asked before reading: what was written before the end is read after it.
            let Standing { over, newest, access } = self.state();
            if access != Access::Open {
                reader = None;
            } else if reader.is_none() {
                reader = match runtime.block_on(self.open()) {
                    Ok(reader) => reader,
                    Err(error) => return self.fail(error),
                };
            }
            let read = match &mut reader {
                Some(reader) => self.send_what_is_there(reader)?,
                None => 0,
            };
            if read > 0 {
                if !over {
                    std::thread::sleep(Duration::from_micros(read * 1_000_000 / BYTES_PER_SECOND));
                }
                continue;
            }
            if (over || !self.follow) && (self.only || newest <= self.at.attempt) {
                break;
            }
            if over {
                self.at = Cursor::at(self.at.attempt.next());
                reader = None;
                continue;
            }
            if *stopping.borrow() || self.pieces.is_closed() {
                return Err(Over);
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        match self.form {
            Form::Text => Ok(()),
            Form::Events => self.send(event::end(self.at)),
        }
    }

    fn record(&self) -> Option<Job> {
        jobs::load(&self.core, self.job).ok()
    }

    fn state(&self) -> Standing {
        match self.record() {
            Some(job) => Standing {
                over: job.state.is_terminal() || job.attempt > self.at.attempt,
                newest: job.attempt,
                access: access(&self.core, &job, self.at.attempt),
            },
            // It was removed, or cannot be read: nothing more will come.
            None => Standing { over: true, newest: Attempt::NONE, access: Access::Never },
        }
    }

    /// The attempt's file, or the blob that it became.
    async fn open(&self) -> io::Result<Option<Reader>> {
        let job = self.record();
        // What the policy has looked at may have been replaced by a copy without what it found.
        let was_looked_at = job.as_ref().is_some_and(|job| !job.output_decisions().is_empty());
        let ticket = Ticket { job: self.job, attempt: self.at.attempt };
        let path = logs::path(&self.core.logs, ticket);
        if !was_looked_at && let Some(reader) = Reader::open(&path)? {
            return Ok(Some(reader));
        }
        let Some(LogRef { blob, .. }) = job.and_then(|job| log_of(&job, self.at.attempt)) else {
            return Ok(None);
        };
        // Open, it stays readable even when the cache needs its place.
        let pinned = self.core.blobs.materialise(blob).await.map_err(io::Error::other)?;
        Reader::open(pinned.path())
    }

    /// Says how much there was.
    fn send_what_is_there(&mut self, reader: &mut Reader) -> Result<u64, Over> {
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
                Err(error) => return self.fail(error).map(|()| 0),
            }
        }
        if !chunk.is_empty() {
            self.send(chunk)?;
        }
        Ok(read)
    }

    fn show(&mut self, mut piece: Piece, chunk: &mut Vec<u8>) {
        let seen = &mut self.at.seen[piece.stream.index()];
        let end = piece.before + piece.bytes.len() as u64;
        if !self.streams.contains(&piece.stream) || end <= *seen {
            return;
        }
        // A client that comes back may have a part of it.
        let known = seen.saturating_sub(piece.before) as usize;
        piece.bytes = piece.bytes.slice(known..);
        piece.missing = piece.before.saturating_sub(*seen);
        *seen = end;
        match self.form {
            Form::Events => event::output(&piece, self.at, chunk),
            Form::Text => {
                if piece.missing > 0 {
                    let mark = format!("\n[outlast: {} bytes of output were not kept]\n", piece.missing);
                    chunk.extend_from_slice(mark.as_bytes());
                }
                chunk.extend_from_slice(&piece.bytes);
            }
        }
    }

    /// The last lines of each stream, and then what comes after them.
    fn send_tail(&mut self, reader: &mut Reader, lines: usize) -> Result<u64, Over> {
        let mut pieces = Vec::new();
        loop {
            match reader.next() {
                Ok(Some(piece)) => pieces.push(piece),
                Ok(None) => break,
                Err(error) => return self.fail(error).map(|()| 0),
            }
        }
        for stream in self.streams.clone() {
            let all: Vec<&Piece> = pieces.iter().filter(|piece| piece.stream == stream).collect();
            let output: Vec<u8> = all.iter().flat_map(|piece| piece.bytes.iter().copied()).collect();
            let Some(newest) = all.last() else { continue };
            let end = newest.before + newest.bytes.len() as u64;
            let bytes = Bytes::copy_from_slice(last_lines(&output, lines));
            let before = end - bytes.len() as u64;
            self.at.seen[stream.index()] = before;
            let mut chunk = Vec::new();
            self.show(Piece { stream, at: newest.at, bytes, before, missing: 0 }, &mut chunk);
            self.send(chunk)?;
        }
        Ok(pieces.len() as u64)
    }

    fn send(&self, chunk: Vec<u8>) -> Result<(), Over> {
        self.pieces.blocking_send(Ok(chunk.into())).map_err(|_| Over)
    }

    fn fail(&self, error: io::Error) -> Result<(), Over> {
        tracing::warn!(job = %self.job, %error, "a job's output cannot be read");
        self.pieces.blocking_send(Err(error)).map_err(|_| Over)?;
        Err(Over)
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
