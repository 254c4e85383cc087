//! Event stream without gaps: a broken connection resumes after the last event.

use std::collections::VecDeque;
use std::time::Duration;

use api::ChangeView;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use model::id::{JobId, NodeId, WorkflowId};
use model::queue::QueueRef;
use tokio::time::timeout;

use crate::backoff::Outage;
use crate::client::Client;
use crate::error::Error;
use crate::query::Query;
use crate::request::ApiRequest;
use crate::sse::Parser;

/// A stream without any data, including keep-alives, for this long is reconnected.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Start position of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Since {
    /// New changes only.
    #[default]
    Now,
    /// From the oldest retained change.
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

/// Filter of changes. `None` fields match all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFilter {
    pub job: Option<JobId>,
    pub queue: Option<QueueRef>,
    pub workflow: Option<WorkflowId>,
    pub node: Option<NodeId>,
    pub kind: Option<String>,
}

/// An open subscription.
#[derive(Debug)]
pub struct Events {
    client: Client,
    filter: EventFilter,
    since: Since,
    connection: Option<Connection>,
    ready: VecDeque<ChangeView>,
    outage: Outage,
}

#[derive(Debug)]
struct Connection {
    body: Incoming,
    parser: Parser,
}

impl Client {
    /// Subscribes to changes. Connects before returning, so that no later change is missed.
    pub async fn events(&self, since: Since, filter: EventFilter) -> Result<Events, Error> {
        let (connection, ready, outage) = (None, VecDeque::new(), Outage::default());
        let mut events = Events { client: self.clone(), filter, since, connection, ready, outage };
        events.connect().await?;
        Ok(events)
    }
}

impl Events {
    /// The next change. Errors are final: the server refused the request (410 `cursor_expired` for a cursor that is too
    /// old), or it cannot be reached for longer than [`crate::Options::resend_for`].
    pub async fn next(&mut self) -> Result<ChangeView, Error> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                self.since = Since::Cursor(change.cursor.clone());
                return Ok(change);
            }
            match self.read().await {
                Ok(()) => self.outage.end(),
                Err(error @ Error::Unreachable { .. }) => {
                    // The next read reconnects.
                    self.connection = None;
                    self.outage.wait_or_fail(error, self.client.options().resend_for).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Start position for a new subscription that misses nothing.
    pub fn since(&self) -> &Since {
        &self.since
    }

    async fn connect(&mut self) -> Result<(), Error> {
        let path = Query::default()
            .with("since", Some(self.since.as_str()))
            .with("job", self.filter.job)
            .with("queue", self.filter.queue)
            .with("workflow", self.filter.workflow)
            .with("node", self.filter.node)
            .with("kind", self.filter.kind.as_deref())
            .append_to("/v1/events");
        let body = self.client.transport.open(&ApiRequest::get(path)).await?;
        self.connection = Some(Connection { body, parser: Parser::default() });
        Ok(())
    }

    /// Reads one frame of the stream and queues the completed changes.
    async fn read(&mut self) -> Result<(), Error> {
        if self.connection.is_none() {
            self.connect().await?;
        }
        let transport = &self.client.transport;
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let frame = match timeout(SILENCE_MAX, connection.body.frame()).await {
            Ok(Some(frame)) => frame.map_err(|error| transport.unreachable(error))?,
            Ok(None) => return Err(transport.unreachable("the event stream ended")),
            Err(_) => return Err(transport.unreachable("the event stream timed out")),
        };
        let Ok(bytes) = frame.into_data() else { return Ok(()) };
        let mut events = Vec::new();
        connection.parser.push(&bytes, &mut events).map_err(|error| Error::Protocol(error.to_string()))?;
        for event in events {
            let change = serde_json::from_str(&event.data);
            let change = change.map_err(|error| Error::Protocol(format!("invalid change: {error}")))?;
            self.ready.push_back(change);
        }
        // The server may send a cursor for "now" before the first change. While changes are queued, their own cursors
        // are more precise.
        if let (true, Some(cursor)) = (self.ready.is_empty(), connection.parser.last_id()) {
            self.since = Since::Cursor(cursor.to_owned());
        }
        Ok(())
    }
}
