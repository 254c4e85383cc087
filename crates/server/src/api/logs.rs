//! The output of a job's attempts, whole, its end, or as it comes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State as Shared;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use model::id::{Attempt, JobId};
use runner::logs::{Reader, Stream};

use super::list::{Parameters, bad};
use super::path::Path;
use super::problem::{Fault, Refused};
use super::{App, Core, jobs};

/// How often a followed output is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
const TAIL_LINES_MAX: u64 = 1_000_000;

pub(crate) async fn logs(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    parameters: Parameters,
) -> Result<Response, Refused> {
    let core = app.core()?;
    let job = jobs::load(&core, jobs::parse_id(&id)?)?;
    let stream = match parameters.text("stream") {
        None | Some("stdout") => Stream::Stdout,
        Some("stderr") => Stream::Stderr,
        Some(other) => return Err(bad("stream", format!("`{other}` is neither stdout nor stderr"))),
    };
    let attempt = parameters.number("attempt", u64::from(u32::MAX))?.map(|number| Attempt(number as u32));
    let tail = parameters.number("tail", TAIL_LINES_MAX)?;
    let body = if parameters.flag("follow")? {
        follow(app, core, job.id, attempt, stream, tail)
    } else {
        let attempt = attempt.unwrap_or(job.attempt);
        Body::from(whole(&core, job.id, attempt, stream, tail)?)
    };
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response())
}

fn trouble(error: &std::io::Error) -> Refused {
    Refused::saying(Fault::Internal, format!("the output cannot be read: {error}"))
}

/// All that is kept of a stream so far, or its last lines.
fn whole(core: &Core, job: JobId, attempt: Attempt, stream: Stream, tail: Option<u64>) -> Result<Vec<u8>, Refused> {
    let reader = Reader::open(&core.logs, job, attempt).map_err(|error| trouble(&error))?;
    let Some(mut reader) = reader else {
        // A job that has not started, or is no process, has said nothing; an attempt that never was has no output.
        let known = attempt == Attempt::NONE || jobs::load(core, job)?.attempt >= attempt;
        return if known { Ok(Vec::new()) } else { Err(Refused::new(Fault::NoLogs)) };
    };
    let mut output = Vec::new();
    while let Some(piece) = reader.next().map_err(|error| trouble(&error))? {
        if piece.stream == stream {
            output.extend_from_slice(&piece.bytes);
        }
    }
    Ok(match tail {
        Some(lines) => last_lines(&output, lines as usize).to_vec(),
        None => output,
    })
}

fn last_lines(output: &[u8], lines: usize) -> &[u8] {
    if lines == 0 {
        return &[];
    }
    let end = output.len().saturating_sub(usize::from(output.ends_with(b"\n")));
    let start = output[..end].iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').nth(lines - 1);
    start.map_or(output, |(at, _)| &output[at + 1..])
}

/// A follower's place: which attempt it reads, and what it has read ahead.
struct Follower {
    app: Arc<App>,
    core: Arc<Core>,
    job: JobId,
    /// Asked for by the client; absent: one attempt after the other, to the last.
    only: Option<Attempt>,
    at: Attempt,
    reader: Option<Reader>,
    stream: Stream,
    waiting: VecDeque<Bytes>,
    /// Of what there is at the beginning, only so many lines.
    tail: Option<u64>,
}

fn follow(
    app: Arc<App>,
    core: Arc<Core>,
    job: JobId,
    only: Option<Attempt>,
    stream: Stream,
    tail: Option<u64>,
) -> Body {
    let newest = jobs::load(&core, job).map_or(Attempt(1), |job| job.attempt.max(Attempt(1)));
    // The last lines are those of the newest attempt; whoever wants everything begins with the first.
    let at = only.unwrap_or(if tail.is_some() { newest } else { Attempt(1) });
    let follower = Follower { app, core, job, only, at, reader: None, stream, waiting: VecDeque::new(), tail };
    Body::from_stream(stream::unfold(follower, |mut follower| async move {
        let piece = follower.next().await?;
        Some((piece, follower))
    }))
}

impl Follower {
    async fn next(&mut self) -> Option<Result<Bytes, std::io::Error>> {
        loop {
            if let Some(piece) = self.waiting.pop_front() {
                return Some(Ok(piece));
            }
            // Whether more may come is asked before reading: what was written before the end is read after it.
            let over = self.is_over();
            match self.read_more() {
                Ok(true) => {}
                Ok(false) if over => {
                    if !self.move_on() {
                        return None;
                    }
                }
                Ok(false) => tokio::select! {
                    () = tokio::time::sleep(LOOK_INTERVAL) => {}
                    () = self.app.stopping() => return None,
                },
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Reads what there is of the stream; says whether it was anything.
    fn read_more(&mut self) -> std::io::Result<bool> {
        if self.reader.is_none() {
            self.reader = Reader::open(&self.core.logs, self.job, self.at)?;
        }
        let Some(reader) = &mut self.reader else { return Ok(false) };
        if let Some(lines) = self.tail.take() {
            let mut output = Vec::new();
            while let Some(piece) = reader.next()? {
                if piece.stream == self.stream {
                    output.extend_from_slice(&piece.bytes);
                }
            }
            self.waiting.push_back(Bytes::copy_from_slice(last_lines(&output, lines as usize)));
            return Ok(true);
        }
        while self.waiting.len() < 64 {
            let Some(piece) = reader.next()? else { break };
            if piece.stream == self.stream {
                self.waiting.push_back(piece.bytes);
            }
        }
        Ok(!self.waiting.is_empty())
    }

    /// Whether the attempt that is read has ended.
    fn is_over(&self) -> bool {
        match jobs::load(&self.core, self.job) {
            Ok(job) => job.state.is_terminal() || job.attempt > self.at,
            // It was removed, or cannot be read: nothing more will come.
            Err(_) => true,
        }
    }

    /// Goes on to the next attempt, if there is one and the client wants it.
    fn move_on(&mut self) -> bool {
        let newest = jobs::load(&self.core, self.job).map_or(Attempt::NONE, |job| job.attempt);
        if self.only.is_some() || newest <= self.at {
            return false;
        }
        self.at = self.at.next();
        self.reader = None;
        true
    }
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
