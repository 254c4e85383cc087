//! Keeps a link to one of several control nodes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::backoff::Backoff;
use super::{Answers, Client, ConnectError, Connected};
use crate::hello::Hello;
use crate::link::CloseReason;

#[derive(Debug)]
pub enum LinkEvent {
    Up(Box<Connected>),
    /// The link of the last [`LinkEvent::Up`] is closed.
    Down {
        reason: CloseReason,
        retry_in: Duration,
    },
    /// No address could be connected to. One error per address.
    Unreachable {
        errors: Vec<ConnectError>,
        retry_in: Duration,
    },
}

/// Connects, reports the link, waits for its end, and connects again, with backoff. Returns when `events` is closed.
pub async fn connect_loop(
    client: Client,
    addresses: Vec<String>,
    hello: Hello,
    answers: Arc<dyn Answers>,
    events: mpsc::Sender<LinkEvent>,
) {
    let (min, max) = (client.options().backoff_min, client.options().backoff_max);
    let mut backoff = Backoff::new(min, max);
    // The address that worked last is tried first.
    let mut first = 0;
    loop {
        let mut errors = Vec::new();
        let mut connected = None;
        for index in (0..addresses.len()).map(|offset| (first + offset) % addresses.len()) {
            match client.connect(&addresses[index], &hello, answers.clone()).await {
                Ok(link) => {
                    first = index;
                    connected = Some(link);
                    break;
                }
                Err(error) => errors.push(error),
            }
        }
        let (event, retry_in) = match connected {
            Some(link) => {
                let (sender, since) = (link.sender.clone(), Instant::now());
                if events.send(LinkEvent::Up(Box::new(link))).await.is_err() {
                    return;
                }
                let reason = tokio::select! {
                    reason = sender.closed() => reason,
                    () = events.closed() => return,
                };
                // A server that closes every link at once is not tried more often for it.
                if since.elapsed() >= max {
                    backoff.reset();
                }
                let retry_in = backoff.next();
                (LinkEvent::Down { reason, retry_in }, retry_in)
            }
            None => {
                let retry_in = backoff.next();
                (LinkEvent::Unreachable { errors, retry_in }, retry_in)
            }
        };
        if events.send(event).await.is_err() {
            return;
        }
        tokio::select! {
            () = sleep(retry_in) => {}
            () = events.closed() => return,
        }
    }
}
