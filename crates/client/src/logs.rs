//! What a job wrote, as it is written, and without a gap: a broken connection is taken up again where it broke.

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use model::id::{Attempt, JobId};
use model::time::Timestamp;
use serde::Deserialize;

use crate::base64;
use crate::client::Client;
use crate::error::Error;
use crate::query::Query;
use crate::sse::{Event, Parser};
use crate::transport::Ask;

/// The largest piece that is taken. The newest lines of a large log come as one, and escapes make it six times as long.
const EVENT_BYTES_MAX: usize = 128 * 1024 * 1024;

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
    /// Absent: both.
    pub stream: Option<Stream>,
    /// Goes on until the job is terminal, and waits for it to start.
    pub follow: bool,
    /// Only this many of the newest lines.
    pub tail: Option<usize>,
    /// Absent: the server's choice.
    pub attempt: Option<Attempt>,
}

/// Something that was written at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub stream: Stream,
    pub attempt: Attempt,
    pub at: Timestamp,
    /// So many bytes of the stream, right before these, were not kept.
    pub missing: u64,
    pub bytes: Bytes,
}

/// A log that is being read.
#[derive(Debug)]
pub struct Log {
    client: Client,
    id: JobId,
    request: Request,
    /// Of the last piece that was taken; a new connection goes on after it.
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
    /// Nothing is asked before the first piece is.
    pub fn logs(&self, id: JobId, request: Request) -> Log {
        let (cursor, connection, ready) = (None, None, VecDeque::new());
        Log { client: self.clone(), id, request, cursor, connection, ready, ended: false }
    }
}

impl Log {
    /// The next piece; nothing at the end. After an error the log is where it was: asking again connects anew and goes
    /// on after the last piece, so that nothing is missed and nothing comes twice. How long to try is the caller's to say.
    pub async fn next(&mut self) -> Result<Option<Piece>, Error> {
        loop {
            while let Some(event) = self.ready.pop_front() {
                if event.kind == "end" {
                    self.ended = true;
                }
                let piece = piece(&event)?;
                self.cursor = event.id.or(self.cursor.take());
                if piece.is_some() {
                    return Ok(piece);
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

    fn ask(&self) -> Ask {
        let resumed = self.cursor.is_some();
        let path = Query::default()
            .with("stream", self.request.stream)
            .with("follow", self.request.follow.then_some(true))
            // The newest lines are those of the beginning; whoever comes back wants what came after them.
            .with("tail", self.request.tail.filter(|_| !resumed))
            .with("attempt", self.request.attempt)
            .after(&format!("/v1/jobs/{}/logs", self.id));
        let ask = Ask::new(Method::GET, path);
        Ask { accept: Some("text/event-stream"), last_event_id: self.cursor.clone(), ..ask }
    }

    /// Reads one piece of the stream and keeps what it completes. Silence is no fault: a job may have nothing to say.
    async fn read(&mut self) -> Result<(), Error> {
        let transport = &self.client.transport;
        if self.connection.is_none() {
            let body = transport.open(&self.ask()).await?;
            self.connection = Some(Connection { body, parser: Parser::accepting(EVENT_BYTES_MAX) });
        }
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let Some(frame) = connection.body.frame().await else {
            // A server that stops ends its answers in good order; only the last event says that there is no more.
            return Err(transport.unreachable("the output broke off"));
        };
        let frame = frame.map_err(|error| transport.unreachable(error))?;
        let Ok(bytes) = frame.into_data() else { return Ok(()) };
        let mut events = Vec::new();
        let parsed = connection.parser.push(&bytes, &mut events);
        self.ready.extend(events);
        parsed.map_err(|error| Error::Protocol(error.to_string()))
    }
}

/// What an event says; nothing for the last one and for those of a newer server.
fn piece(event: &Event) -> Result<Option<Piece>, Error> {
    #[derive(Deserialize)]
    struct Output {
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
    let unreadable = |why: String| Error::Protocol(format!("a piece of output cannot be read: {why}"));
    let output: Output = serde_json::from_str(&event.data).map_err(|error| unreadable(error.to_string()))?;
    let bytes = match (output.text, output.base64) {
        (Some(text), _) => text.into_bytes(),
        (None, Some(text)) => base64::decode(&text).ok_or_else(|| unreadable("it is no base64".to_owned()))?,
        (None, None) => Vec::new(),
    };
    let Output { attempt, at, missing, .. } = output;
    Ok(Some(Piece { stream, attempt, at, missing, bytes: bytes.into() }))
}

#[cfg(test)]
mod tests {
    use model::time::Millis;

    use super::*;

    fn event(kind: &str, data: &str) -> Event {
        Event { kind: kind.to_owned(), data: data.to_owned(), id: None }
    }

    #[test]
    fn text_and_bytes_are_pieces_alike() {
        let time = r#""at":"1970-01-01T00:00:01.500Z""#;
        let text = piece(&event("stderr", &format!(r#"{{"attempt":2,{time},"missing":7,"text":"a\u0000\n"}}"#)));
        let text = text.unwrap().unwrap();
        assert_eq!((text.stream, text.attempt, text.missing), (Stream::Stderr, Attempt(2), 7));
        assert_eq!((text.at, &text.bytes[..]), (Timestamp(Millis(1500)), &b"a\0\n"[..]));
        let bytes = piece(&event("stdout", &format!(r#"{{"attempt":1,{time},"base64":"/w=="}}"#)));
        let bytes = bytes.unwrap().unwrap();
        assert_eq!((bytes.stream, bytes.missing, &bytes.bytes[..]), (Stream::Stdout, 0, &[0xff][..]));
    }

    #[test]
    fn what_is_no_piece_is_passed_over_or_told() {
        assert_eq!(piece(&event("end", "{}")).unwrap(), None);
        assert_eq!(piece(&event("something-new", "?")).unwrap(), None);
        assert!(matches!(piece(&event("stdout", "{}")), Err(Error::Protocol(_))));
    }

    #[test]
    fn who_comes_back_asks_for_what_came_after() {
        let client = Client::new("http://127.0.0.1:1").unwrap();
        let request = Request { follow: true, tail: Some(3), ..Request::default() };
        let mut log = client.logs(JobId(7), request);
        let first = log.ask();
        assert!(first.path.ends_with("?follow=true&tail=3") && first.last_event_id.is_none(), "{first:?}");
        log.cursor = Some("1.2.3".to_owned());
        let second = log.ask();
        assert!(second.path.ends_with("?follow=true"), "{second:?}");
        assert_eq!(second.last_event_id.as_deref(), Some("1.2.3"));
    }
}
