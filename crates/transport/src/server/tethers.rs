//! Tethers of nodes, seen from the control node.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use model::id::{Incarnation, NodeId};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Core, is_shut_down};
use crate::limits::{TETHER_CHALLENGE_TIMEOUT, TETHER_CHALLENGES_PER_NODE_MAX, TETHER_HELLO_BYTES_MAX};
use crate::tether::{self, Hello, Proof, TetherEnd, TetherEvent, TetherId};
use crate::{Error, random};

struct Issued {
    proof: Proof,
    expires_at: Instant,
}

/// Challenges that nodes may answer, each once.
#[derive(Default)]
pub(super) struct Tethers {
    issued: Mutex<HashMap<NodeId, Vec<Issued>>>,
    last_id: AtomicU64,
}

impl Tethers {
    pub(super) fn issue(&self, node: NodeId, incarnation: Incarnation, now: Instant) -> Result<Proof, Error> {
        let proof = Proof { node, incarnation, challenge: random::bytes()?, secret: random::bytes()? };
        let mut issued = self.issued.lock();
        issued.retain(|_, of_node| {
            of_node.retain(|issued| issued.expires_at > now);
            !of_node.is_empty()
        });
        let of_node = issued.entry(node).or_default();
        if of_node.len() >= TETHER_CHALLENGES_PER_NODE_MAX {
            of_node.remove(0);
        }
        of_node.push(Issued { proof: proof.clone(), expires_at: now + TETHER_CHALLENGE_TIMEOUT });
        Ok(proof)
    }

    /// Takes the challenge of a valid hello, which cannot be used again.
    fn redeem(&self, hello: &Hello, now: Instant) -> bool {
        let mut issued = self.issued.lock();
        let Some(of_node) = issued.get_mut(&hello.node) else { return false };
        let is_valid = |issued: &Issued| {
            let Proof { node, incarnation, challenge, secret } = &issued.proof;
            (*node, *incarnation, *challenge) == (hello.node, hello.incarnation, hello.challenge)
                && issued.expires_at > now
                && hello.is_signed_with(secret)
        };
        match of_node.iter().position(is_valid) {
            Some(index) => {
                of_node.remove(index);
                true
            }
            None => false,
        }
    }
}

/// A tether with a valid proof.
pub(super) struct Accepted {
    tether: TetherId,
    node: NodeId,
    incarnation: Incarnation,
}

/// Reads and checks the line of a tether.
pub(super) async fn accept(core: &Core, mut stream: TcpStream) -> Result<(TcpStream, Accepted), String> {
    let mut line = Vec::with_capacity(TETHER_HELLO_BYTES_MAX);
    while line.last() != Some(&b'\n') {
        if line.len() >= TETHER_HELLO_BYTES_MAX {
            return Err("neither TLS nor a tether".to_owned());
        }
        line.push(stream.read_u8().await.map_err(|error| error.to_string())?);
    }
    let hello = Hello::parse(&line).ok_or("neither TLS nor a tether")?;
    if !core.tethers.redeem(&hello, Instant::now()) {
        return Err(format!("the proof of the tether of {} is invalid or expired", hello.node));
    }
    tether::keep_alive(&stream).map_err(|error| error.to_string())?;
    let tether = TetherId(core.tethers.last_id.fetch_add(1, Ordering::Relaxed) + 1);
    Ok((stream, Accepted { tether, node: hello.node, incarnation: hello.incarnation }))
}

/// Reports the tether, and waits for its end.
pub(super) async fn watch(core: &Core, mut stream: TcpStream, accepted: Accepted) {
    let Accepted { tether, node, incarnation } = accepted;
    core.service.tether(TetherEvent::Opened { tether, node, incarnation });
    let reason = tokio::select! {
        reason = end(&mut stream) => reason,
        () = is_shut_down(&core.shutdown) => TetherEnd::Shutdown,
    };
    core.service.tether(TetherEvent::Closed { tether, node, incarnation, reason });
}

async fn end(stream: &mut TcpStream) -> TetherEnd {
    let result = match stream.write_u8(tether::ACCEPTED).await {
        Ok(()) => stream.read(&mut [0]).await,
        Err(error) => Err(error),
    };
    match result {
        Ok(0) => TetherEnd::Closed,
        Ok(_) => TetherEnd::Protocol,
        Err(error) => match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                TetherEnd::Vanished
            }
            _ => TetherEnd::Reset,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_challenge_is_used_once_and_in_time() {
        let (tethers, start) = (Tethers::default(), Instant::now());
        let issue = |incarnation| tethers.issue(NodeId(1), Incarnation(incarnation), start).unwrap();
        let hello = Hello::signed(&issue(1));
        assert!(tethers.redeem(&hello, start));
        assert!(!tethers.redeem(&hello, start));
        let late = Hello::signed(&issue(1));
        assert!(!tethers.redeem(&late, start + TETHER_CHALLENGE_TIMEOUT));
        let guessed = Proof { secret: [0; 32], ..issue(1) };
        assert!(!tethers.redeem(&Hello::signed(&guessed), start));
        let other_incarnation = Proof { incarnation: Incarnation(2), ..issue(1) };
        assert!(!tethers.redeem(&Hello::signed(&other_incarnation), start));
        let first = issue(3);
        for _ in 0..TETHER_CHALLENGES_PER_NODE_MAX {
            issue(3);
        }
        assert!(!tethers.redeem(&Hello::signed(&first), start), "the oldest is replaced");
        tethers.issue(NodeId(2), Incarnation(1), start + Duration::from_secs(60)).unwrap();
        assert_eq!(tethers.issued.lock().len(), 1, "expired ones are forgotten");
    }
}
