//! Every change, as it happens, without a gap: a broken connection is taken up again where it broke.

use std::collections::VecDeque;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use model::id::{JobId, WorkflowId};
use model::queue::QueueRef;
use model::view::ChangeView;
use tokio::time::{sleep, timeout};

use crate::client::Client;
use crate::error::Error;
use crate::query::Query;
use crate::sse::Parser;
use crate::transport::Ask;

/// A stream that says nothing for this long, not even that it lives, is given up and taken up again.
const SILENCE_MAX: Duration = Duration::from_secs(60);
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Where to begin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Since {
    /// With what happens from now on.
    #[default]
    Now,
    /// With the oldest change that is kept.
    Start,
    /// After the change with this cursor.
    Cursor(String),
}

impl Since {
    fn as_str(&self) -> &str {
        match self {
            Self::Now => "now",
            Self::Start => "start",
            Self::Cursor(cursor) => cursor,
        }
    }
}

/// Which changes are of interest. Absent: all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interest {
    pub job: Option<JobId>,
    pub queue: Option<QueueRef>,
    pub workflow: Option<WorkflowId>,
    pub kind: Option<String>,
}

/// An open subscription.
#[derive(Debug)]
pub struct Events {
    client: Client,
    interest: Interest,
    since: Since,
    connection: Option<Connection>,
    ready: VecDeque<ChangeView>,
    failures: u32,
}

#[derive(Debug)]
struct Connection {
    body: Incoming,
    parser: Parser,
}

impl Client {
    /// Subscribes. The connection is made before this returns, so that nothing that happens afterwards is missed.
    pub async fn events(&self, since: Since, interest: Interest) -> Result<Events, Error> {
        let mut events =
            Events { client: self.clone(), interest, since, connection: None, ready: VecDeque::new(), failures: 0 };
        events.connect().await?;
        Ok(events)
    }
}

impl Events {
    /// The next change. Errors are final: the server refused (a cursor that is too old is 410 `cursor_expired`), or it
    /// could not be reached for too long.
    pub async fn next(&mut self) -> Result<ChangeView, Error> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                self.since = Since::Cursor(change.cursor.clone());
                return Ok(change);
            }
            match self.read().await {
                Ok(()) => self.failures = 0,
                Err(error @ Error::Unreachable { .. }) => self.recover(error).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Where a new subscription would have to begin so as not to miss anything.
    pub fn since(&self) -> &Since {
        &self.since
    }

    async fn connect(&mut self) -> Result<(), Error> {
        let path = Query::default()
            .with("since", Some(self.since.as_str()))
            .with("job", self.interest.job)
            .with("queue", self.interest.queue)
            .with("workflow", self.interest.workflow)
            .with("kind", self.interest.kind.as_deref())
            .after("/v1/events");
        let body = self.client.transport.open(&Ask::new(Method::GET, path)).await?;
        self.connection = Some(Connection { body, parser: Parser::default() });
        Ok(())
    }

    /// Drops the broken connection, waits, and leaves it to the next read to connect again.
    async fn recover(&mut self, error: Error) -> Result<(), Error> {
        self.connection = None;
        if self.failures >= self.client.transport.options().reconnects {
            return Err(error);
        }
        let pause = RECONNECT_PAUSE.saturating_mul(1 << self.failures.min(16)).min(RECONNECT_PAUSE_MAX);
        self.failures += 1;
        sleep(pause).await;
        Ok(())
    }

    /// Reads one piece of the stream and keeps what it completes.
    async fn read(&mut self) -> Result<(), Error> {
        if self.connection.is_none() {
            self.connect().await?;
        }
        let transport = &self.client.transport;
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let frame = match timeout(SILENCE_MAX, connection.body.frame()).await {
            Ok(Some(frame)) => frame.map_err(|error| transport.unreachable(error))?,
            Ok(None) => return Err(transport.unreachable("the stream of events ended")),
            Err(_) => return Err(transport.unreachable("the stream of events fell silent")),
        };
        let Ok(bytes) = frame.into_data() else { return Ok(()) };
        let mut events = Vec::new();
        connection.parser.push(&bytes, &mut events).map_err(|error| Error::Protocol(error.to_string()))?;
        for event in events {
            let change = serde_json::from_str(&event.data);
            let change = change.map_err(|error| Error::Protocol(format!("a change cannot be read: {error}")))?;
            self.ready.push_back(change);
        }
        // The server may say where "now" is before anything has happened. While changes are waiting to be taken,
        // their own cursors tell more exactly.
        if let (true, Some(cursor)) = (self.ready.is_empty(), connection.parser.last_id()) {
            self.since = Since::Cursor(cursor.to_owned());
        }
        Ok(())
    }
}
