//! Client of the event stream over SSE or WebSocket. Both deliver the same events in the same order.

use futures_util::StreamExt;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::http::{Answer, Request, within};
use crate::support::{Api, text};

#[derive(Debug, Clone, Copy)]
pub enum Transport {
    Sse,
    Socket,
}

impl Transport {
    pub const BOTH: [Self; 2] = [Self::Sse, Self::Socket];
}

pub enum Subscription {
    Sse { answer: Answer, unread: String },
    Socket(Box<WebSocketStream<TcpStream>>),
}

impl Subscription {
    /// Subscribes with a query such as `since=start&kind=job`.
    pub async fn open(api: &Api, transport: Transport, query: &str) -> Self {
        match transport {
            Transport::Sse => {
                let answer = Request::get(format!("/v1/events?{query}")).open(api.address).await;
                assert_eq!(answer.status, 200);
                Self::Sse { answer, unread: String::new() }
            }
            Transport::Socket => {
                let connection = TcpStream::connect(api.address).await.unwrap();
                let url = format!("ws://{}/v1/ws?{query}", api.address);
                let (socket, _) = tokio_tungstenite::client_async(url, connection).await.unwrap();
                Self::Socket(Box::new(socket))
            }
        }
    }

    /// Next change, `None` after the end of the stream.
    pub async fn next(&mut self) -> Option<Value> {
        within("the next change", async {
            match self {
                Self::Sse { answer, unread } => loop {
                    if let Some(end) = unread.find("\n\n") {
                        let event: String = unread.drain(..end + 2).collect();
                        if let Some(change) = parse_event(&event) {
                            return Some(change);
                        }
                        continue;
                    }
                    unread.push_str(std::str::from_utf8(&answer.next().await?).unwrap());
                },
                Self::Socket(socket) => loop {
                    match socket.next().await? {
                        Ok(Message::Text(json)) => return Some(serde_json::from_str(&json).unwrap()),
                        Ok(Message::Close(_)) | Err(_) => return None,
                        Ok(_) => {}
                    }
                },
            }
        })
        .await
    }

    pub async fn must_next(&mut self) -> Value {
        self.next().await.expect("the event stream is still open")
    }

    /// All changes up to and including the first that matches.
    pub async fn until(&mut self, matches: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut changes = Vec::new();
        loop {
            changes.push(self.must_next().await);
            if matches(&changes[changes.len() - 1]) {
                return changes;
            }
        }
    }
}

/// Change in an SSE event. Comments have none.
fn parse_event(event: &str) -> Option<Value> {
    let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let change: Value = serde_json::from_str(field("data:")?).unwrap();
    assert_eq!(field("id:"), Some(text(&change["cursor"]).as_str()));
    assert_eq!(field("event:"), Some(text(&change["kind"]).as_str()));
    Some(change)
}
