//! Tethers: connections to control nodes that show by their existence that this node's host and spawner live.
//!
//! The spawner neither reads nor writes them. They end with its process: every init closes its copy of them before it
//! does anything else that takes time.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Tethers at once: one for each control node, and room for their replacements.
pub const TETHERS_MAX: usize = 4;

/// Oldest first.
#[derive(Debug, Default)]
pub struct Tethers(VecDeque<OwnedFd>);

impl Tethers {
    /// Holds a connection; beyond the limit it replaces the oldest.
    pub fn hold(&mut self, connection: OwnedFd) {
        if self.0.len() == TETHERS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(connection);
    }

    /// What to poll for their end.
    pub fn watched(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.0.iter().map(|connection| PollFd::new(connection, PollFlags::IN | PollFlags::RDHUP))
    }

    /// Drops connections that the peer has closed. Data also ends a tether: nothing is ever sent over one.
    pub fn drop_ended(&mut self) {
        let mut watched: Vec<PollFd<'_>> = self.watched().collect();
        if poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_err() {
            return;
        }
        let mut open = watched.iter().map(|connection| connection.revents().is_empty()).collect::<Vec<_>>().into_iter();
        self.0.retain(|_| open.next().unwrap_or(true));
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn connection() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn only_ended_tethers_are_dropped() {
        let mut tethers = Tethers::default();
        let peers: Vec<OwnedFd> = (0..3)
            .map(|_| {
                let (own, peer) = connection();
                tethers.hold(own);
                peer
            })
            .collect();
        tethers.drop_ended();
        assert_eq!(tethers.0.len(), 3);
        rustix::io::write(&peers[1], b"x").unwrap();
        tethers.drop_ended();
        assert_eq!(tethers.0.len(), 2, "data ends a tether");
        drop(peers);
        tethers.drop_ended();
        assert_eq!(tethers.0.len(), 0);
    }
}
