//! Output of jobs: whole, tail or followed, as plain text or as resumable events.
//!
//! Each reader has its own thread with a low priority, so that reading does not slow jobs down.

mod event;
mod reading;
mod remote;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use model::id::Attempt;
use runner::logs::Stream;
use tokio::sync::mpsc;

use super::access::{Access, access, quarantined};
use super::parameters::Parameters;
use super::path::Path;
use super::problem::{ProblemKind, Refused};
use super::{App, jobs};
use event::Cursor;
use reading::{Format, Reading};

const TAIL_LINES_MAX: u64 = 1_000_000;
/// Limit of concurrent readers.
pub(super) const READERS_MAX: usize = 256;
/// Pieces buffered for a slow client.
const PIECES_WAITING_MAX: usize = 4;

pub(crate) async fn logs(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, Refused> {
    let core = app.core()?;
    let id = jobs::parse_id(&id)?;
    let job = core.read(move |core| jobs::load(core, id)).await?;
    let events = headers.get(header::ACCEPT).is_some_and(|accept| accept.as_bytes().starts_with(b"text/event-stream"));
    let streams = match parameters.text("stream") {
        // Events name their stream, plain text does not.
        None if events => vec![Stream::Stdout, Stream::Stderr],
        None | Some("stdout") => vec![Stream::Stdout],
        Some("stderr") => vec![Stream::Stderr],
        Some(other) => return Err(Refused::parameter("stream", format!("`{other}` is neither stdout nor stderr"))),
    };
    let attempt = parameters.number("attempt", u64::from(u32::MAX))?.map(|number| Attempt(number as u32));
    if let Some(attempt) = attempt
        && attempt > job.attempt
    {
        return Err(Refused::new(ProblemKind::NoLogs));
    }
    let tail = parameters.number("tail", TAIL_LINES_MAX)?.map(|lines| lines as usize);
    let follow = parameters.flag("follow")?;
    let resumed = match headers.get("last-event-id").and_then(|id| id.to_str().ok()) {
        Some(text) => Some(text.parse::<Cursor>().map_err(|why| Refused::parameter("Last-Event-ID", why))?),
        None => None,
    };
    let newest = job.attempt.max(Attempt(1));
    match access(&core, &job, attempt.unwrap_or(newest)) {
        Access::Open => {}
        // A follower gets the output once it is released.
        Access::Later if follow => {}
        Access::Later | Access::Never => return Err(quarantined(&job)),
    }
    // A tail is that of the newest attempt. Following without a tail starts with the first attempt.
    let first = attempt.unwrap_or(if follow && tail.is_none() { Attempt(1) } else { newest });
    let start = resumed.unwrap_or(Cursor::at(first));
    let form = if events { Format::Events } else { Format::Text };
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
    let permit = app.log_readers.acquire()?;
    let stopping = app.stopping.clone();
    reading::start(reading, stopping, permit)
        .map_err(|error| Refused::detailed(ProblemKind::Internal, format!("reading the output failed: {error}")))?;
    let body = Body::from_stream(stream::unfold(output, |mut output| async move {
        let piece = output.recv().await?;
        Some((piece, output))
    }));
    let kind = if events { "text/event-stream" } else { "text/plain; charset=utf-8" };
    Ok(([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-store")], body).into_response())
}
