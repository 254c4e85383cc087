//! The output of a job's attempts: whole, its end, or as it comes; as plain text or as events that can be resumed.
//!
//! Each reader has a thread of its own with a low priority: watching a job must not slow it down.

mod event;
mod reading;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use model::id::Attempt;
use runner::logs::Stream;
use tokio::sync::mpsc;

use super::access::{Access, access, quarantined};
use super::list::{Parameters, bad};
use super::path::Path;
use super::problem::{Fault, Refused};
use super::{App, jobs};
use event::Cursor;
use reading::{Form, Reading};

const TAIL_LINES_MAX: u64 = 1_000_000;
/// How many may read output at the same time.
const READERS_MAX: usize = 256;
/// How many pieces wait for a client that reads slowly.
const PIECES_WAITING_MAX: usize = 4;

pub(crate) async fn logs(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, Refused> {
    let core = app.core()?;
    let job = jobs::load(&core, jobs::parse_id(&id)?)?;
    let events = headers.get(header::ACCEPT).is_some_and(|accept| accept.as_bytes().starts_with(b"text/event-stream"));
    let streams = match parameters.text("stream") {
        // Plain text cannot tell the two apart; events can.
        None if events => vec![Stream::Stdout, Stream::Stderr],
        None | Some("stdout") => vec![Stream::Stdout],
        Some("stderr") => vec![Stream::Stderr],
        Some(other) => return Err(bad("stream", format!("`{other}` is neither stdout nor stderr"))),
    };
    let attempt = parameters.number("attempt", u64::from(u32::MAX))?.map(|number| Attempt(number as u32));
    if let Some(attempt) = attempt
        && attempt > job.attempt
    {
        return Err(Refused::new(Fault::NoLogs));
    }
    let tail = parameters.number("tail", TAIL_LINES_MAX)?.map(|lines| lines as usize);
    let follow = parameters.flag("follow")?;
    let resumed = match headers.get("last-event-id").and_then(|id| id.to_str().ok()) {
        Some(text) => Some(text.parse::<Cursor>().map_err(|why| bad("Last-Event-ID", why))?),
        None => None,
    };
    let newest = job.attempt.max(Attempt(1));
    match access(&core, &job, attempt.unwrap_or(newest)) {
        Access::Open => {}
        // Whoever follows gets it when it is let out.
        Access::Later if follow => {}
        Access::Later | Access::Never => return Err(quarantined(&job)),
    }
    // The last lines are those of the newest attempt; whoever wants everything, as it comes, begins with the first.
    let first = attempt.unwrap_or(if follow && tail.is_none() { Attempt(1) } else { newest });
    let start = resumed.unwrap_or(Cursor::at(first));
    let form = if events { Form::Events } else { Form::Text };
    let (pieces, output) = mpsc::channel(PIECES_WAITING_MAX);
    let reading = Reading {
        core,
        job: job.id,
        only: attempt.is_some() || !follow,
        at: start,
        streams,
        tail,
        follow,
        form,
        pieces,
    };
    let turn = Turn::take(&app)?;
    let stopping = app.stopping.clone();
    reading::start(reading, stopping, turn)
        .map_err(|error| Refused::saying(Fault::Internal, format!("the output cannot be read now: {error}")))?;
    let body = Body::from_stream(stream::unfold(output, |mut output| async move {
        let piece = output.recv().await?;
        Some((piece, output))
    }));
    let kind = if events { "text/event-stream" } else { "text/plain; charset=utf-8" };
    Ok(([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-store")], body).into_response())
}

/// A reader's place among the others.
struct Turn(Arc<App>);

impl Turn {
    fn take(app: &Arc<App>) -> Result<Self, Refused> {
        if app.log_readers.fetch_add(1, Ordering::Relaxed) >= READERS_MAX {
            app.log_readers.fetch_sub(1, Ordering::Relaxed);
            return Err(Refused::new(Fault::TooManySubscribers));
        }
        Ok(Self(app.clone()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.log_readers.fetch_sub(1, Ordering::Relaxed);
    }
}
