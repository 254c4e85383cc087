//! Job output as a stream without gaps: a broken connection resumes after the last chunk.

use std::collections::VecDeque;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use model::id::{Attempt, JobId};
use model::time::Timestamp;
use serde::Deserialize;

use crate::client::Client;
use crate::error::Error;
use crate::query::Query;
use crate::request::ApiRequest;
use crate::sse::{Event, Parser};

/// Limit of an event. `tail` of a large log arrives as one event, and JSON escapes make it up to six times as long.
const EVENT_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Output stream of a process.
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

/// Selects a part of a job's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogOptions {
    /// `None`: both.
    pub stream: Option<Stream>,
    /// Waits for the job to start and continues until it is terminal.
    pub follow: bool,
    /// Number of most recent lines to return.
    pub tail: Option<usize>,
    /// `None`: chosen by the server.
    pub attempt: Option<Attempt>,
}

/// Bytes written at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogChunk {
    pub stream: Stream,
    pub attempt: Attempt,
    pub at: Timestamp,
    /// Number of bytes dropped from the stream right before these.
    pub missing: u64,
    pub bytes: Bytes,
}

/// Reader of a job's log.
#[derive(Debug)]
pub struct Log {
    client: Client,
    id: JobId,
    options: LogOptions,
    /// Cursor of the last returned chunk; a new connection resumes after it.
    cursor: Option<String>,
    connection: Option<Connection>,
    ready: VecDeque<Event>,
    ended: bool,
}

#[derive(Debug)]
struct Connection {
    body: Incoming,
    parser: Parser,
}

impl Client {
    /// Reader of a job's log. Connects on the first call of [`Log::next`].
    pub fn logs(&self, id: JobId, options: LogOptions) -> Log {
        let (cursor, connection, ready) = (None, None, VecDeque::new());
        Log { client: self.clone(), id, options, cursor, connection, ready, ended: false }
    }
}

impl Log {
    /// The next chunk; `None` at the end. After an error, calling again reconnects and resumes after the last chunk
    /// without loss or duplication. The caller decides how often to retry.
    pub async fn next(&mut self) -> Result<Option<LogChunk>, Error> {
        loop {
            while let Some(event) = self.ready.pop_front() {
                if event.kind == "end" {
                    self.ended = true;
                }
                let chunk = decode(&event)?;
                self.cursor = event.id.or(self.cursor.take());
                if chunk.is_some() {
                    return Ok(chunk);
                }
            }
            if self.ended {
                return Ok(None);
            }
            if let Err(error) = self.read().await {
                self.connection = None;
                return Err(error);
            }
        }
    }

    fn request(&self) -> ApiRequest {
        let resumed = self.cursor.is_some();
        let path = Query::default()
            .with("stream", self.options.stream)
            .with("follow", self.options.follow.then_some(true))
            // `tail` applies to the first request only; a resumed one continues after the cursor.
            .with("tail", self.options.tail.filter(|_| !resumed))
            .with("attempt", self.options.attempt)
            .append_to(&format!("/v1/jobs/{}/logs", self.id));
        let request = ApiRequest::get(path);
        ApiRequest { accept: Some("text/event-stream"), last_event_id: self.cursor.clone(), ..request }
    }

    /// Reads one frame of the stream and queues the completed events. No timeout: a job may be silent.
    async fn read(&mut self) -> Result<(), Error> {
        let transport = &self.client.transport;
        if self.connection.is_none() {
            let body = transport.open(&self.request()).await?;
            self.connection = Some(Connection { body, parser: Parser::with_limit(EVENT_BYTES_MAX) });
        }
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let Some(frame) = connection.body.frame().await else {
            // A stopping server ends its responses properly; only the event `end` marks the end of the log.
            return Err(transport.unreachable("the log stream ended early"));
        };
        let frame = frame.map_err(|error| transport.unreachable(error))?;
        let Ok(bytes) = frame.into_data() else { return Ok(()) };
        let mut events = Vec::new();
        let parsed = connection.parser.push(&bytes, &mut events);
        self.ready.extend(events);
        parsed.map_err(|error| Error::Protocol(error.to_string()))
    }
}

/// Decodes an event; `None` for `end` and for unknown events of a newer server.
fn decode(event: &Event) -> Result<Option<LogChunk>, Error> {
    #[derive(Deserialize)]
    struct EventData {
        attempt: Attempt,
        at: Timestamp,
        #[serde(default)]
        missing: u64,
        text: Option<String>,
        base64: Option<String>,
    }
    let stream = match event.kind.as_str() {
        "stdout" => Stream::Stdout,
        "stderr" => Stream::Stderr,
        _ => return Ok(None),
    };
    let invalid = |why: String| Error::Protocol(format!("invalid log event: {why}"));
    let data: EventData = serde_json::from_str(&event.data).map_err(|error| invalid(error.to_string()))?;
    let bytes = match (data.text, data.base64) {
        (Some(text), _) => text.into_bytes(),
        (None, Some(text)) => STANDARD.decode(text).map_err(|error| invalid(error.to_string()))?,
        (None, None) => Vec::new(),
    };
    let EventData { attempt, at, missing, .. } = data;
    Ok(Some(LogChunk { stream, attempt, at, missing, bytes: bytes.into() }))
}

#[cfg(test)]
mod tests {
    use model::time::Millis;

    use super::*;

    fn event(kind: &str, data: &str) -> Event {
        Event { kind: kind.to_owned(), data: data.to_owned(), id: None }
    }

    #[test]
    fn text_and_binary_output_are_decoded() {
        let time = r#""at":"1970-01-01T00:00:01.500Z""#;
        let text = decode(&event("stderr", &format!(r#"{{"attempt":2,{time},"missing":7,"text":"a\u0000\n"}}"#)));
        let text = text.unwrap().unwrap();
        assert_eq!((text.stream, text.attempt, text.missing), (Stream::Stderr, Attempt(2), 7));
        assert_eq!((text.at, &text.bytes[..]), (Timestamp(Millis(1500)), &b"a\0\n"[..]));
        let bytes = decode(&event("stdout", &format!(r#"{{"attempt":1,{time},"base64":"/w=="}}"#)));
        let bytes = bytes.unwrap().unwrap();
        assert_eq!((bytes.stream, bytes.missing, &bytes.bytes[..]), (Stream::Stdout, 0, &[0xff][..]));
    }

    #[test]
    fn unknown_events_are_skipped_and_invalid_ones_rejected() {
        assert_eq!(decode(&event("end", "{}")).unwrap(), None);
        assert_eq!(decode(&event("something-new", "?")).unwrap(), None);
        assert!(matches!(decode(&event("stdout", "{}")), Err(Error::Protocol(_))));
        for base64 in ["Z", "Zg", "Zg=", "Z===", "====", "Zm9*", "Zg==Zg==", "Zh=="] {
            let data = format!(r#"{{"attempt":1,"at":"1970-01-01T00:00:01Z","base64":"{base64}"}}"#);
            assert!(matches!(decode(&event("stdout", &data)), Err(Error::Protocol(_))), "{base64}");
        }
    }

    #[test]
    fn a_resumed_request_continues_after_the_cursor() {
        let client = Client::new("http://127.0.0.1:1").unwrap();
        let request = LogOptions { follow: true, tail: Some(3), ..LogOptions::default() };
        let mut log = client.logs(JobId(7), request);
        let first = log.request();
        assert!(first.path.ends_with("?follow=true&tail=3") && first.last_event_id.is_none(), "{first:?}");
        log.cursor = Some("1.2.3".to_owned());
        let second = log.request();
        assert!(second.path.ends_with("?follow=true"), "{second:?}");
        assert_eq!(second.last_event_id.as_deref(), Some("1.2.3"));
    }
}
