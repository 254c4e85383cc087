//! Change events over SSE or WebSocket. Reconnecting with the last cursor resumes without a gap.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::api::{ChangeKind, ChangeView};
use axum::extract::State as Shared;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use model::change::{Change, NodeEvent};
use model::codec;
use model::id::{JobId, NodeId, QueueId, WorkflowId};
use model::time::Timestamp;
use store::{Cursor, EventReader, Store, StoreId};

use super::blocking::blocking;
use super::parameters::Parameters;
use super::permit::Permit;
use super::problem::{ProblemKind, Refused};
use super::{App, Core};
use crate::error::Error;

pub(super) const SUBSCRIBERS_MAX: usize = 1_000;
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Changes and commits read at once.
const CHUNK: usize = 1_000;

/// Filter of a subscription.
#[derive(Debug, Clone, Default)]
struct Filter {
    kind: Option<ChangeKind>,
    job: Option<JobId>,
    queue: Option<QueueId>,
    workflow: Option<WorkflowId>,
    node: Option<NodeId>,
}

impl Filter {
    /// Blocks on the store if a queue is given by its token.
    fn from(core: &Core, parameters: &Parameters) -> Result<Self, Refused> {
        let kind = match parameters.text("kind") {
            None => None,
            Some(text) => Some(ChangeKind::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
                let known = ChangeKind::ALL.map(ChangeKind::as_str).join(", ");
                Refused::parameter("kind", format!("`{text}` is not one of {known}"))
            })?),
        };
        let workflow = parameters.text("workflow").map(|text| {
            let parsed: Result<WorkflowId, _> = text.parse();
            parsed.map_err(|error| Refused::detailed(ProblemKind::InvalidId, error.to_string()).at("workflow"))
        });
        let node = parameters.text("node").map(|text| {
            let parsed: Result<NodeId, _> = text.parse();
            parsed.map_err(|error| Refused::detailed(ProblemKind::InvalidId, error.to_string()).at("node"))
        });
        let queue = parameters.queue_id(core)?;
        let (workflow, node) = (workflow.transpose()?, node.transpose()?);
        Ok(Self { kind, job: parameters.job()?, queue, workflow, node })
    }

    fn accepts(&self, change: &Change) -> bool {
        self.kind.is_none_or(|kind| kind == ChangeKind::of(change))
            && self.job.is_none_or(|job| change.job() == Some(job))
            && self.queue.is_none_or(|queue| change.queue() == Some(queue))
            && self.workflow.is_none_or(|workflow| change.workflow() == Some(workflow))
            && self.node.is_none_or(|node| change.node() == Some(node))
    }
}

/// A place in the stream of changes: a cursor of the store, and the number of seen changes of the next commit.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ChangeCursor {
    after: Cursor,
    seen: usize,
}

impl ChangeCursor {
    fn parse(text: &str, own: StoreId) -> Option<Self> {
        let (after, seen) = text.strip_prefix('e')?.split_once('-')?;
        let seen = Some(seen).filter(|seen| seen.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        Some(Self { after: Cursor::parse(after, own)?, seen: usize::from_str_radix(seen, 16).ok()? })
    }

    /// Blocks on the store.
    fn from(store: &dyn Store, since: Option<&str>) -> Result<Self, Refused> {
        match since {
            None | Some("now") => Ok(Self { after: store.newest_cursor()?, seen: 0 }),
            Some("start") => Ok(Self { after: store.oldest_cursor()?, seen: 0 }),
            Some(text) => Self::parse(text, store.id()).ok_or_else(|| {
                let detail =
                    format!("`{text}` is not a cursor: use that of the last received change, `now` or `start`");
                Refused::detailed(ProblemKind::InvalidCursor, detail).at("since")
            }),
        }
    }
}

impl fmt::Display for ChangeCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}-{:x}", self.after, self.seen)
    }
}

/// A subscription.
struct Subscriber {
    _permit: Permit,
    app: Arc<App>,
    core: Arc<Core>,
    reader: Option<Box<dyn EventReader>>,
    filter: Filter,
    /// Seen changes of the next commit.
    seen: usize,
    waiting: VecDeque<ChangeView>,
}

impl Subscriber {
    async fn new(app: Arc<App>, parameters: Parameters) -> Result<Self, Refused> {
        let core = app.core()?;
        let subscribers = app.subscribers.clone();
        let opened = core.read(move |core| {
            let filter = Filter::from(core, &parameters)?;
            let permit = subscribers.acquire()?;
            let cursor = ChangeCursor::from(core.store(), parameters.text("since"))?;
            Ok((filter, permit, core.store().events(&cursor.after)?, cursor.seen))
        });
        let (filter, permit, reader, seen) = opened.await?;
        Ok(Self { _permit: permit, app, core, reader: Some(reader), filter, seen, waiting: VecDeque::new() })
    }

    /// The next accepted change. None when the node stops or the changes are no longer retained: the client reconnects
    /// with its cursor and gets the reason.
    async fn next(&mut self) -> Option<ChangeView> {
        let mut commits = self.core.commits.clone();
        loop {
            if let Some(change) = self.waiting.pop_front() {
                return Some(change);
            }
            commits.borrow_and_update();
            let read_any = self.read_more().await.ok()?;
            if !read_any {
                tokio::select! {
                    changed = commits.changed() => changed.ok()?,
                    () = self.app.stopping() => return None,
                }
            }
        }
    }

    /// Reads some commits. False if there were none.
    async fn read_more(&mut self) -> Result<bool, Refused> {
        let mut reader = self.reader.take().ok_or_else(|| Refused::new(ProblemKind::Internal))?;
        let (filter, mut seen) = (self.filter.clone(), self.seen);
        let read = move || {
            let mut found = VecDeque::new();
            let mut commits = 0;
            while found.len() < CHUNK && commits < CHUNK {
                let after = reader.cursor();
                let Some(committed) = reader.next()? else { break };
                commits += 1;
                let mut cursor = ChangeCursor { after, seen: 0 };
                for (index, payload) in committed.events.iter().enumerate().skip(std::mem::take(&mut seen)) {
                    let change: Change =
                        codec::decode(payload).map_err(|source| Error::record(committed.shard, source))?;
                    if filter.accepts(&change) {
                        cursor.seen = index + 1;
                        found.push_back(view(&change, &cursor));
                    }
                }
            }
            Ok::<_, Refused>((reader, seen, found, commits))
        };
        let (reader, seen, found, commits) = blocking(read).await?;
        self.reader = Some(reader);
        self.seen = seen;
        self.waiting = found;
        Ok(commits > 0)
    }
}

fn view(change: &Change, cursor: &ChangeCursor) -> ChangeView {
    let mut view = ChangeView {
        cursor: cursor.to_string(),
        kind: ChangeKind::of(change).as_str().to_owned(),
        job: change.job(),
        queue: change.queue(),
        workflow: change.workflow(),
        place: None,
        schedule: None,
        node: change.node(),
        session: None,
        state: None,
        attempt: None,
        reason: None,
        at: Timestamp(change.at()),
    };
    match change {
        Change::Job { state, attempt, reason, .. } => {
            view.state = Some(state.as_str().to_owned());
            view.attempt = Some(*attempt);
            view.reason = reason.map(|reason| reason.as_str().to_owned());
        }
        Change::Queue { state, .. } => view.state = Some(state.as_str().to_owned()),
        Change::Workflow { state, reason, .. } => {
            view.state = Some(state.as_str().to_owned());
            view.reason = reason.map(|reason| reason.as_str().to_owned());
        }
        Change::Task { task_key, state, reason, .. } => {
            view.place = Some((*task_key).into());
            view.state = Some(state.as_str().to_owned());
            view.reason = reason.map(|reason| reason.as_str().to_owned());
        }
        Change::Schedule { id, paused, .. } => {
            view.schedule = Some(*id);
            view.state = Some(if *paused { "paused" } else { "active" }.to_owned());
        }
        Change::ScheduleRemoved { id, .. } => view.schedule = Some(*id),
        Change::Node { event, .. } => {
            view.state = Some(event.as_str().to_owned());
            if let NodeEvent::Session(state) = event {
                view.session = Some(*state);
            }
        }
        Change::JobRemoved { .. } | Change::QueueRemoved { .. } | Change::WorkflowRemoved { .. } => {}
    }
    view
}

pub(crate) async fn stream(
    Shared(app): Shared<Arc<App>>,
    headers: axum::http::HeaderMap,
    mut parameters: Parameters,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refused> {
    // Browsers send their position in this header when they reconnect.
    if let Some(last) = headers.get("last-event-id").and_then(|value| value.to_str().ok()) {
        parameters.set("since", last);
    }
    let subscriber = Subscriber::new(app, parameters).await?;
    let events = stream::unfold(subscriber, |mut subscriber| async move {
        let change = subscriber.next().await?;
        let data = serde_json::to_string(&change).unwrap_or_default();
        let event = Event::default().id(&change.cursor).event(&change.kind).data(data);
        Some((Ok(event), subscriber))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

pub(crate) async fn socket(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refused> {
    let upgrade = upgrade.map_err(|rejected| {
        let detail = format!("{rejected}; for a stream over plain HTTP, use /v1/events");
        Refused::detailed(ProblemKind::UpgradeRequired, detail)
    })?;
    let subscriber = Subscriber::new(app, parameters).await?;
    Ok(upgrade.on_upgrade(move |socket| push(socket, subscriber)))
}

async fn push(mut socket: WebSocket, mut subscriber: Subscriber) {
    loop {
        tokio::select! {
            change = subscriber.next() => {
                let Some(change) = change else { break };
                let text = serde_json::to_string(&change).unwrap_or_default();
                if socket.send(Message::Text(text.into())).await.is_err() {
                    return;
                }
            }
            // Messages of the client are ignored; its close is not.
            message = socket.recv() => {
                if !matches!(message, Some(Ok(_))) {
                    return;
                }
            }
        }
    }
    let _ = socket.send(Message::Close(None)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_its_text() {
        let own = StoreId(9);
        let cursor = ChangeCursor { after: Cursor::new(own, vec![store::Position(255)]), seen: 3 };
        assert_eq!(ChangeCursor::parse(&cursor.to_string(), own), Some(cursor.clone()));
        assert_eq!(ChangeCursor::parse("eff-3", own), Some(cursor), "of an earlier version");
        for bad in ["", "e", "e-", "x1-1", "e1-", "e+1-1", "e1-+1", "e1.-1"] {
            assert_eq!(ChangeCursor::parse(bad, own), None, "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn parsing_any_text_as_a_cursor_does_not_panic(text in ".{0,30}") {
            let _ = ChangeCursor::parse(&text, StoreId(9));
        }
    }
}
