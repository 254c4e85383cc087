//! What a job wrote, as it is written.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use model::id::{Attempt, JobId};

use crate::client::Client;
use crate::error::Error;
use crate::query::Query;
use crate::transport::{Ask, Transport};

/// One of the two streams of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stream {
    #[default]
    Stdout,
    Stderr,
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        })
    }
}

/// Which part of a job's log is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Request {
    pub stream: Stream,
    /// Goes on until the job is terminal, and waits for it to start.
    pub follow: bool,
    /// Only this many of the newest lines.
    pub tail: Option<usize>,
    /// Absent: the server's choice.
    pub attempt: Option<Attempt>,
}

/// The bytes of a log, in pieces.
#[derive(Debug)]
pub struct Log {
    body: Incoming,
    transport: Arc<Transport>,
}

impl Log {
    /// The next bytes; nothing at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| self.transport.unreachable(error))?;
            // Trailers are of no interest.
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

impl Client {
    pub async fn logs(&self, id: JobId, request: &Request) -> Result<Log, Error> {
        let path = Query::default()
            .with("stream", Some(request.stream))
            .with("follow", request.follow.then_some(true))
            .with("tail", request.tail)
            .with("attempt", request.attempt)
            .after(&format!("/v1/jobs/{id}/logs"));
        let body = self.transport.open(&Ask::new(Method::GET, path)).await?;
        Ok(Log { body, transport: Arc::clone(&self.transport) })
    }
}
