//! What was decided about nodes: cordons, drains and sessions.

use std::collections::BTreeMap;

use minicbor::{Decode, Encode};

use crate::id::{Incarnation, NodeId};
use crate::session::{ForbiddenMove, NodeSession, SessionState};
use crate::time::Millis;

/// Decisions about all nodes: one document of the store.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct NodeDecisions {
    /// Nodes that get no new work.
    #[n(0)]
    pub cordoned: BTreeMap<NodeId, Cordon>,
    /// Sessions. A node without one has its first session: it is ready, or draining if its cordon says so.
    #[cbor(n(1), default)]
    pub sessions: BTreeMap<NodeId, NodeSession>,
}

/// A node gets no new work.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Cordon {
    #[n(0)]
    pub at: Millis,
    #[n(1)]
    pub by: Option<String>,
    #[n(2)]
    pub reason: Option<String>,
    /// Present if its running work is to end as well.
    #[n(3)]
    pub drain: Option<Drain>,
    /// Present if the server cordoned the node because it failed distinct jobs: the first of these failures. Jobs are not
    /// charged for its failures since then.
    #[n(4)]
    pub failing_since: Option<Millis>,
}

/// The running work of a node is to end.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Drain {
    #[n(0)]
    pub at: Millis,
    /// Attempts that have not ended by then are taken back. Absent: they may take as long as they like.
    #[n(1)]
    pub deadline: Option<Millis>,
}

/// When, by whom and why something was decided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stamp {
    pub at: Millis,
    pub by: Option<String>,
    pub reason: Option<String>,
}

/// What is known about the starts of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeStarts {
    /// The newest one. 0: it was never connected.
    pub newest: Incarnation,
    pub is_connected: bool,
}

impl NodeDecisions {
    /// State of the node's session.
    pub fn session_state(&self, node: NodeId) -> SessionState {
        match self.sessions.get(&node) {
            Some(session) => session.state,
            // From before there were sessions.
            None if self.is_draining(node) => SessionState::Draining,
            None => SessionState::Ready,
        }
    }

    fn is_draining(&self, node: NodeId) -> bool {
        self.cordoned.get(&node).is_some_and(|cordon| cordon.drain.is_some())
    }

    /// Nodes that get no new work: cordoned, or in a session that takes none.
    pub fn held_back(&self) -> impl Iterator<Item = NodeId> {
        let sessions = self.sessions.iter().filter(|(_, session)| !session.state.takes_work());
        self.cordoned.keys().chain(sessions.map(|(node, _)| node)).copied()
    }

    /// Nodes whose attempts are to be ended at once.
    pub fn given_up(&self) -> impl Iterator<Item = NodeId> {
        let given_up = self.sessions.iter().filter(|(_, session)| session.state.is_given_up());
        given_up.map(|(node, _)| *node)
    }

    /// Moves the session of a node. Draining cordons the node as well. A forbidden move changes nothing.
    pub fn enter(
        &mut self,
        node: NodeId,
        to: SessionState,
        newest: Incarnation,
        stamp: Stamp,
    ) -> Result<(), ForbiddenMove> {
        let state = self.session_state(node).enter(to)?;
        if state == SessionState::Draining {
            self.cordon_to_drain(node, Drain { at: stamp.at, deadline: None }, &stamp);
        }
        let number = self.sessions.get(&node).map_or(1, |session| session.number);
        self.put_session(node, number, state, newest, stamp);
        Ok(())
    }

    fn put_session(&mut self, node: NodeId, number: u64, state: SessionState, newest: Incarnation, stamp: Stamp) {
        let Stamp { at, by, reason } = stamp;
        self.sessions.insert(node, NodeSession { number, state, since: at, by, reason, incarnation: newest });
    }

    /// A process of the node is connected. Its session is ready now if it was created, and a new one begins if the node
    /// was abandoned before this start. Returns whether anything has changed.
    pub fn started(&mut self, node: NodeId, incarnation: Incarnation, at: Millis) -> bool {
        let stamp = Stamp { at, ..Stamp::default() };
        match self.sessions.get(&node).map(|session| (session.number, session.state, session.incarnation)) {
            None => self.put_session(node, 1, self.session_state(node), incarnation, stamp),
            Some((number, SessionState::Created, _)) => {
                self.put_session(node, number, SessionState::Ready, incarnation, stamp);
            }
            Some((number, SessionState::Abandoned, known)) if known < incarnation => {
                self.end_drain(node);
                self.put_session(node, number + 1, SessionState::Ready, incarnation, stamp);
            }
            Some(_) => return false,
        }
        true
    }

    /// The node stays cordoned; its work need not end any more.
    fn end_drain(&mut self, node: NodeId) {
        if let Some(cordon) = self.cordoned.get_mut(&node) {
            cordon.drain = None;
        }
    }

    /// Keeps the node from new work. An earlier cordon or drain stays as it is.
    pub fn cordon(&mut self, node: NodeId, stamp: &Stamp) {
        let Stamp { at, by, reason } = stamp.clone();
        self.cordoned.entry(node).or_insert(Cordon { at, by, reason, drain: None, failing_since: None });
    }

    /// Cordons a node that fails distinct jobs. An earlier cordon or drain stays as it is, but for this.
    pub fn cordon_failing(&mut self, node: NodeId, failing_since: Millis, stamp: &Stamp) {
        self.cordon(node, stamp);
        if let Some(cordon) = self.cordoned.get_mut(&node) {
            cordon.failing_since = cordon.failing_since.or(Some(failing_since));
        }
    }

    fn cordon_to_drain(&mut self, node: NodeId, drain: Drain, stamp: &Stamp) {
        self.cordon(node, stamp);
        if let Some(cordon) = self.cordoned.get_mut(&node) {
            let begun = cordon.drain.as_ref().map_or(drain.at, |drain| drain.at);
            cordon.drain = Some(Drain { at: begun, ..drain });
        }
    }

    /// Moves the session of the node to `Draining` and lets its work end by a deadline. A repeated drain sets a new one.
    pub fn drain(
        &mut self,
        node: NodeId,
        deadline: Option<Millis>,
        newest: Incarnation,
        stamp: Stamp,
    ) -> Result<(), ForbiddenMove> {
        let drain = Drain { at: stamp.at, deadline };
        if self.session_state(node) != SessionState::Draining {
            self.enter(node, SessionState::Draining, newest, stamp.clone())?;
        }
        self.cordon_to_drain(node, drain, &stamp);
        Ok(())
    }

    /// Ends cordon and drain. A session that takes no work any more is followed by a new one.
    pub fn uncordon(&mut self, node: NodeId, starts: NodeStarts, stamp: Stamp) {
        let state = self.session_state(node);
        self.cordoned.remove(&node);
        match state {
            SessionState::Created | SessionState::Ready => {}
            SessionState::Draining | SessionState::Paused | SessionState::Abandoned | SessionState::Sunset => {
                let number = self.sessions.get(&node).map_or(1, |session| session.number) + 1;
                let state = if starts.is_connected { SessionState::Ready } else { SessionState::Created };
                self.put_session(node, number, state, starts.newest, stamp);
            }
        }
    }

    /// The node was removed from the cluster.
    pub fn forget(&mut self, node: NodeId) {
        self.cordoned.remove(&node);
        self.sessions.remove(&node);
    }

    /// Nodes whose attempts are to be taken back.
    pub fn overdue(&self, now: Millis) -> impl Iterator<Item = NodeId> {
        let is_overdue = move |cordon: &Cordon| {
            cordon.drain.as_ref().and_then(|drain| drain.deadline).is_some_and(|deadline| deadline <= now)
        };
        self.cordoned.iter().filter(move |(_, cordon)| is_overdue(cordon)).map(|(node, _)| *node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    const NODE: NodeId = NodeId(7);
    const FIRST: Incarnation = Incarnation(1);
    const SECOND: Incarnation = Incarnation(2);
    const CONNECTED: NodeStarts = NodeStarts { newest: FIRST, is_connected: true };

    fn stamp(at: u64, by: &str) -> Stamp {
        Stamp { at: Millis(at), by: Some(by.to_owned()), reason: Some("disk".to_owned()) }
    }

    fn in_state(state: SessionState) -> NodeDecisions {
        let mut decisions = NodeDecisions::default();
        assert!(decisions.started(NODE, FIRST, Millis(1)));
        if state != SessionState::Ready {
            decisions.enter(NODE, state, FIRST, stamp(2, "ann")).unwrap();
        }
        decisions
    }

    fn is_held_back(decisions: &NodeDecisions) -> bool {
        decisions.held_back().any(|node| node == NODE)
    }

    #[test]
    fn a_drained_node_is_overdue_from_its_deadline_until_it_is_uncordoned() {
        let mut decisions = NodeDecisions::default();
        decisions.cordon(NODE, &stamp(1, "ann"));
        assert_eq!((decisions.overdue(Millis(u64::MAX)).count(), is_held_back(&decisions)), (0, true));
        assert_eq!(decisions.session_state(NODE), SessionState::Ready, "a cordon is no move");
        decisions.drain(NODE, Some(Millis(10)), FIRST, stamp(2, "bob")).unwrap();
        assert_eq!((decisions.overdue(Millis(9)).count(), decisions.overdue(Millis(10)).count()), (0, 1));
        decisions.drain(NODE, Some(Millis(20)), FIRST, stamp(5, "bob")).unwrap();
        assert_eq!(decisions.overdue(Millis(19)).count(), 0);
        let cordon = &decisions.cordoned[&NODE];
        let drain = Drain { at: Millis(2), deadline: Some(Millis(20)) };
        assert_eq!((cordon.by.as_deref(), cordon.at, cordon.drain.clone()), (Some("ann"), Millis(1), Some(drain)));
        let session = &decisions.sessions[&NODE];
        assert_eq!((session.state, session.since, session.number), (SessionState::Draining, Millis(2), 1));
        assert_eq!(codec::decode(&codec::encode(&decisions)), Ok(decisions.clone()));
        decisions.uncordon(NODE, CONNECTED, stamp(30, "cleo"));
        assert_eq!((decisions.cordoned.len(), is_held_back(&decisions)), (0, false));
        let session = &decisions.sessions[&NODE];
        assert_eq!((session.state, session.number, session.by.as_deref()), (SessionState::Ready, 2, Some("cleo")));
    }

    // FEATURES: C2
    #[test]
    fn a_forbidden_move_changes_nothing() {
        for from in SessionState::ALL.into_iter().filter(|from| *from != SessionState::Created) {
            for to in SessionState::ALL {
                let before = in_state(from);
                let mut decisions = before.clone();
                match decisions.enter(NODE, to, FIRST, stamp(9, "bob")) {
                    Ok(()) => assert_eq!((decisions.session_state(NODE), from.enter(to)), (to, Ok(to))),
                    Err(refused) => assert_eq!((decisions, refused), (before, ForbiddenMove { from, to })),
                }
            }
        }
        let mut paused = in_state(SessionState::Paused);
        assert!(paused.drain(NODE, None, FIRST, stamp(9, "bob")).is_err());
        assert_eq!(paused, in_state(SessionState::Paused));
    }

    // FEATURES: C2
    #[test]
    fn uncordoning_leads_on_from_every_state() {
        for state in SessionState::ALL.into_iter().filter(|state| *state != SessionState::Created) {
            let mut decisions = in_state(state);
            assert_eq!(is_held_back(&decisions), state != SessionState::Ready);
            assert_eq!(decisions.given_up().count() == 1, state.is_given_up());
            decisions.uncordon(NODE, CONNECTED, stamp(9, "bob"));
            assert_eq!((decisions.session_state(NODE), is_held_back(&decisions)), (SessionState::Ready, false));
            assert_eq!(decisions.sessions[&NODE].number, if state == SessionState::Ready { 1 } else { 2 });
        }
    }

    // FEATURES: C2
    #[test]
    fn a_new_start_begins_a_new_session_only_of_an_abandoned_node() {
        for state in [SessionState::Ready, SessionState::Draining, SessionState::Paused, SessionState::Sunset] {
            let mut decisions = in_state(state);
            assert!(!decisions.started(NODE, SECOND, Millis(9)));
            assert_eq!(decisions.session_state(NODE), state);
        }
        let mut decisions = in_state(SessionState::Draining);
        decisions.enter(NODE, SessionState::Abandoned, FIRST, stamp(3, "ann")).unwrap();
        assert!(!decisions.started(NODE, FIRST, Millis(9)), "the same process again");
        assert!(decisions.started(NODE, SECOND, Millis(9)));
        assert_eq!((decisions.session_state(NODE), decisions.sessions[&NODE].number), (SessionState::Ready, 2));
        assert!(is_held_back(&decisions), "it is still cordoned");
        assert!(decisions.cordoned[&NODE].drain.is_none());
    }

    #[test]
    fn a_session_that_begins_while_the_node_is_away_is_ready_when_it_connects() {
        let mut decisions = in_state(SessionState::Sunset);
        decisions.uncordon(NODE, NodeStarts { newest: FIRST, is_connected: false }, stamp(9, "bob"));
        assert_eq!((decisions.session_state(NODE), is_held_back(&decisions)), (SessionState::Created, true));
        assert!(decisions.started(NODE, FIRST, Millis(10)));
        assert_eq!((decisions.session_state(NODE), is_held_back(&decisions)), (SessionState::Ready, false));
        decisions.forget(NODE);
        assert_eq!(decisions, NodeDecisions::default());
    }

    /// The document as it was before there were sessions.
    #[derive(Encode, Decode)]
    struct Earlier {
        #[n(0)]
        cordoned: BTreeMap<NodeId, Cordon>,
    }

    #[test]
    fn decisions_of_the_version_before_are_read() {
        let drain = Drain { at: Millis(1), deadline: None };
        let cordon = Cordon { at: Millis(1), by: None, reason: None, drain: Some(drain), failing_since: None };
        let earlier = Earlier { cordoned: [(NODE, cordon)].into() };
        let mut decisions: NodeDecisions = codec::decode(&codec::encode(&earlier)).unwrap();
        assert_eq!(decisions.session_state(NODE), SessionState::Draining);
        assert!(decisions.started(NODE, FIRST, Millis(2)));
        assert_eq!(decisions.session_state(NODE), SessionState::Draining, "a drain outlives a restart");
        assert_eq!(decisions.session_state(NodeId(8)), SessionState::Ready);
    }

    #[test]
    fn the_largest_document_has_room_in_the_store() {
        let text = |bytes| Some("x".repeat(bytes));
        let largest = Stamp {
            at: Millis(u64::MAX),
            by: text(crate::limits::NAME_BYTES_MAX),
            reason: text(crate::limits::NODE_REASON_BYTES_MAX),
        };
        let mut decisions = NodeDecisions::default();
        // All runner nodes and the control node.
        for node in 0..=1_000 {
            let node = NodeId(u64::MAX - node);
            decisions.drain(node, Some(Millis(u64::MAX)), Incarnation(u64::MAX), largest.clone()).unwrap();
        }
        assert!(codec::encode(&decisions).len() < 1 << 20);
    }
}
