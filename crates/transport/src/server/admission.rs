//! Limits on open connections: in total, per address, and of those without a certificate.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::ServerOptions;

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    open: usize,
    unauthenticated: usize,
}

#[derive(Debug, Default)]
struct State {
    total: Counts,
    by_address: HashMap<IpAddr, Counts>,
}

#[derive(Debug)]
pub(super) struct Admission {
    max: Counts,
    per_address_max: Counts,
    state: Mutex<State>,
    emptied: Notify,
}

impl Admission {
    pub(super) fn new(options: &ServerOptions) -> Self {
        Self {
            max: Counts { open: options.connections_max, unauthenticated: options.unauthenticated_max },
            per_address_max: Counts {
                open: options.connections_per_address_max,
                unauthenticated: options.unauthenticated_per_address_max,
            },
            state: Mutex::default(),
            emptied: Notify::new(),
        }
    }

    /// Admits a connection, unauthenticated at first. `None` at a limit.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Ticket> {
        let address = network(address);
        let mut state = self.state.lock();
        let of_address = state.by_address.get(&address).copied().unwrap_or_default();
        let has_room =
            |counts: Counts, max: Counts| counts.open < max.open && counts.unauthenticated < max.unauthenticated;
        if !has_room(state.total, self.max) || !has_room(of_address, self.per_address_max) {
            return None;
        }
        let counts = Counts { open: of_address.open + 1, unauthenticated: of_address.unauthenticated + 1 };
        state.by_address.insert(address, counts);
        state.total.open += 1;
        state.total.unauthenticated += 1;
        Some(Ticket { admission: self.clone(), address, is_authenticated: false })
    }

    pub(super) fn open(&self) -> usize {
        self.state.lock().total.open
    }

    /// Resolves when no connection is open.
    pub(super) async fn empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.open() == 0 {
                return;
            }
            emptied.await;
        }
    }
}

/// A /64 network is one host's to use.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
    }
}

/// The place of one connection. Dropping it frees the place.
#[derive(Debug)]
pub(super) struct Ticket {
    admission: Arc<Admission>,
    address: IpAddr,
    is_authenticated: bool,
}

impl Ticket {
    /// The peer has proven who it is.
    pub(super) fn authenticate(&mut self) {
        if std::mem::replace(&mut self.is_authenticated, true) {
            return;
        }
        let mut state = self.admission.state.lock();
        state.total.unauthenticated -= 1;
        if let Some(counts) = state.by_address.get_mut(&self.address) {
            counts.unauthenticated -= 1;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.authenticate();
        let mut state = self.admission.state.lock();
        state.total.open -= 1;
        if let Some(counts) = state.by_address.get_mut(&self.address) {
            counts.open -= 1;
            if counts.open == 0 {
                state.by_address.remove(&self.address);
            }
        }
        if state.total.open == 0 {
            self.admission.emptied.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(connections: usize, per_address: usize, unauthenticated: usize) -> Arc<Admission> {
        Arc::new(Admission::new(&ServerOptions {
            connections_max: connections,
            connections_per_address_max: per_address,
            unauthenticated_max: unauthenticated,
            ..ServerOptions::default()
        }))
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn connections_are_limited_in_total_and_per_address() {
        let admission = admission(3, 2, 10);
        let first = admission.enter(address("10.0.0.1")).unwrap();
        let _second = admission.enter(address("::ffff:10.0.0.1")).unwrap();
        assert!(admission.enter(address("10.0.0.1")).is_none(), "two of one address");
        let _third = admission.enter(address("fd00::1")).unwrap();
        assert!(admission.enter(address("10.0.0.3")).is_none(), "three in total");
        drop(first);
        assert_eq!(admission.open(), 2);
        assert!(admission.enter(address("10.0.0.1")).is_some());
    }

    #[test]
    fn unauthenticated_connections_have_their_own_limit() {
        let admission = admission(10, 10, 1);
        let mut member = admission.enter(address("fd00::1")).unwrap();
        assert!(admission.enter(address("fd00::2")).is_none());
        member.authenticate();
        let _joining = admission.enter(address("fd00::2")).unwrap();
        assert!(admission.enter(address("fd00::3")).is_none());
    }

    #[tokio::test]
    async fn no_address_is_remembered_after_its_last_connection() {
        let admission = admission(10, 10, 10);
        drop(admission.enter(address("10.0.0.1")));
        assert!(admission.state.lock().by_address.is_empty());
        admission.empty().await;
    }
}
