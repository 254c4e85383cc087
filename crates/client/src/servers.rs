//! The servers of a client: their addresses, the one in use, and their generations.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hyper::header::HeaderValue;
use parking_lot::Mutex;

use crate::address::Address;

/// Position of a server in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerIndex(usize);

/// The generation of a server, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Generation {
    Unknown,
    /// The server does not name it: it is of an older version, and does not know resent requests.
    Unnamed,
    Named(HeaderValue),
}

#[derive(Debug)]
pub(crate) struct Servers {
    /// At least one.
    addresses: Vec<Address>,
    generations: Mutex<Vec<Generation>>,
    /// The server that answered last.
    current: AtomicUsize,
    /// Whether any server was ever reached.
    reached: AtomicBool,
}

impl Servers {
    pub(crate) fn new(addresses: Vec<Address>) -> Self {
        assert!(!addresses.is_empty(), "a client has at least one address");
        let generations = Mutex::new(vec![Generation::Unknown; addresses.len()]);
        Self { addresses, generations, current: AtomicUsize::new(0), reached: AtomicBool::new(false) }
    }

    pub(crate) fn count(&self) -> usize {
        self.addresses.len()
    }

    pub(crate) fn address(&self, server: ServerIndex) -> &Address {
        &self.addresses[server.0]
    }

    pub(crate) fn current(&self) -> ServerIndex {
        ServerIndex(self.current.load(Ordering::Relaxed))
    }

    pub(crate) fn set_current(&self, server: ServerIndex) {
        self.current.store(server.0, Ordering::Relaxed);
    }

    /// The one to try after `server`.
    pub(crate) fn after(&self, server: ServerIndex) -> ServerIndex {
        ServerIndex((server.0 + 1) % self.addresses.len())
    }

    pub(crate) fn is_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }

    pub(crate) fn set_reached(&self) {
        self.reached.store(true, Ordering::Relaxed);
    }

    pub(crate) fn generation(&self, server: ServerIndex) -> Generation {
        self.generations.lock()[server.0].clone()
    }

    /// Records the generation in a response. One without does not make a known generation unknown: a proxy may have
    /// sent it.
    pub(crate) fn record_generation(&self, server: ServerIndex, named: Option<&HeaderValue>) {
        let generation = &mut self.generations.lock()[server.0];
        match (named, &*generation) {
            (Some(named), _) => *generation = Generation::Named(named.clone()),
            (None, Generation::Unknown) => *generation = Generation::Unnamed,
            (None, Generation::Unnamed | Generation::Named(_)) => {}
        }
    }

    /// A server that is starting names its generation later.
    pub(crate) fn expect_generation(&self, server: ServerIndex) {
        let generation = &mut self.generations.lock()[server.0];
        if *generation == Generation::Unnamed {
            *generation = Generation::Unknown;
        }
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, address) in self.addresses.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{address}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_tried_in_turn() {
        let servers = Servers::new(Address::parse_list("a:1,b:2").unwrap());
        let first = servers.current();
        let second = servers.after(first);
        assert_eq!((servers.after(second), servers.address(second).to_string()), (first, "http://b:2".to_owned()));
        servers.set_current(second);
        assert_eq!(servers.current(), second);
        assert_eq!(servers.to_string(), "http://a:1, http://b:2");
    }

    #[test]
    fn a_known_generation_stays_known() {
        let servers = Servers::new(Address::parse_list("a:1").unwrap());
        let server = servers.current();
        servers.record_generation(server, None);
        assert_eq!(servers.generation(server), Generation::Unnamed);
        servers.expect_generation(server);
        assert_eq!(servers.generation(server), Generation::Unknown);
        let named = HeaderValue::from_static("node_1.1");
        servers.record_generation(server, Some(&named));
        servers.record_generation(server, None);
        servers.expect_generation(server);
        assert_eq!(servers.generation(server), Generation::Named(named));
    }
}
