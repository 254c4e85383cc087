//! When a runner node is lost: a decision from three witnesses, without I/O and without a clock.
//!
//! - The **link** belongs to the node's server process. A killed process resets it; a hung one leaves it open and silent.
//! - The **tether** belongs to the node's spawner, which outlives the server process.
//! - The **membership** probes the server process.
//!
//! A link that ended while the tether is open means that the server process is being replaced: its attempts run on, and the
//! next process adopts them. Both ended: the node is dead. The link is open but silent, and probes are unanswered: the node
//! hangs or is cut off. A tether that the network lost says little: where packets are lost, the link breaks too, and a
//! running node connects again.

use std::collections::BTreeMap;

use model::id::{Incarnation, NodeId};
use model::time::Millis;

/// A running node sends at least this often: two heartbeats.
const SILENT_AFTER: Millis = Millis(2_000);

/// A node that runs connects again within this time, also where many packets are lost.
const CONNECTS_WITHIN: Millis = Millis(10_000);

/// How a link ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEnd {
    /// The connection was closed or reset: the process ended, or it closed the link.
    Ended,
    /// The node did not answer any more.
    Silent,
}

/// Why a node is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Link and tether ended: its processes are gone.
    Died,
    /// It neither sends nor answers.
    Silent,
    /// Its server process ended and was not replaced in time.
    NotReplaced,
    /// It announced its departure.
    Left,
    /// It has not connected again since the control node was started.
    NotReturned,
}

impl Cause {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Died => "its server and its spawner ended",
            Self::Silent => "it does not answer",
            Self::NotReplaced => "its server ended and was not started again in time",
            Self::Left => "it left the cluster",
            Self::NotReturned => "it has not connected since the control node was started",
        }
    }
}

/// A node is lost: what it had in flight comes back elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub cause: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Up {
        heard: Millis,
    },
    Down {
        since: Millis,
        end: LinkEnd,
    },
    /// It was connected to an earlier process of the control node.
    Awaited {
        until: Millis,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tether {
    /// This incarnation never had one: its spawner is of an earlier version.
    Unknown,
    /// Number of open ones: a new one is opened before the old one is closed.
    Open(u32),
    /// The spawner or the machine ended it.
    Closed,
    /// The machine did not answer.
    Vanished,
}

#[derive(Debug)]
struct Node {
    incarnation: Incarnation,
    link: Link,
    tether: Tether,
    /// The membership has found it dead.
    is_dead: bool,
    /// It announced that it ends together with its processes.
    leaves: bool,
    is_lost: bool,
}

/// The liveness of all runner nodes that this control node has been connected to.
#[derive(Debug)]
pub struct Liveness {
    nodes: BTreeMap<NodeId, Node>,
    adopt_grace: Millis,
}

impl Liveness {
    /// `adopt_grace` is the time for a node's server process to be replaced.
    pub fn new(adopt_grace: Millis) -> Self {
        Self { nodes: BTreeMap::new(), adopt_grace }
    }

    /// A process of the node is connected. Events of earlier incarnations are ignored from now on.
    /// Returns whether the node was lost.
    pub fn link_up(&mut self, now: Millis, node: NodeId, incarnation: Incarnation) -> bool {
        let link = Link::Up { heard: now };
        let entry = self.nodes.entry(node).or_insert(Node::new(incarnation, link));
        if entry.incarnation > incarnation {
            return false;
        }
        if entry.incarnation < incarnation {
            // The spawner, and with it the tether, may be unchanged. The next tether replaces it.
            entry.is_dead = false;
        }
        (entry.incarnation, entry.link, entry.leaves) = (incarnation, link, false);
        std::mem::take(&mut entry.is_lost)
    }

    /// A node that was connected to an earlier process of the control node is lost if it does not return in time. Ignored
    /// if it is connected already.
    pub fn await_return(&mut self, until: Millis, node: NodeId, incarnation: Incarnation) {
        self.nodes.entry(node).or_insert(Node::new(incarnation, Link::Awaited { until }));
    }

    /// The node has sent something. One that was lost because it was silent is back: returns whether it was.
    pub fn heard(&mut self, now: Millis, node: NodeId, incarnation: Incarnation) -> bool {
        let Some(entry) = self.current(node, incarnation) else { return false };
        let Link::Up { heard } = &mut entry.link else { return false };
        *heard = now;
        std::mem::take(&mut entry.is_lost)
    }

    pub fn link_down(&mut self, now: Millis, node: NodeId, incarnation: Incarnation, end: LinkEnd) {
        if let Some(entry) = self.current(node, incarnation)
            && matches!(entry.link, Link::Up { .. })
        {
            entry.link = Link::Down { since: now, end };
        }
    }

    /// The node will end together with its processes.
    pub fn leaving(&mut self, node: NodeId, incarnation: Incarnation) {
        if let Some(entry) = self.current(node, incarnation) {
            entry.leaves = true;
        }
    }

    pub fn tether_opened(&mut self, node: NodeId) {
        if let Some(entry) = self.nodes.get_mut(&node) {
            entry.tether = match entry.tether {
                Tether::Open(count) => Tether::Open(count + 1),
                Tether::Unknown | Tether::Closed | Tether::Vanished => Tether::Open(1),
            };
        }
    }

    /// A tether ended. `vanished`: the machine did not answer.
    pub fn tether_closed(&mut self, node: NodeId, vanished: bool) {
        if let Some(entry) = self.nodes.get_mut(&node) {
            entry.tether = match entry.tether {
                Tether::Open(count) if count > 1 => Tether::Open(count - 1),
                Tether::Open(_) | Tether::Unknown | Tether::Closed | Tether::Vanished => match vanished {
                    true => Tether::Vanished,
                    false => Tether::Closed,
                },
            };
        }
    }

    /// Whether a tether of the node is open.
    pub fn has_tether(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|entry| matches!(entry.tether, Tether::Open(_)))
    }

    /// The membership has found the node dead, or alive again.
    pub fn set_dead(&mut self, node: NodeId, incarnation: Incarnation, is_dead: bool) {
        if let Some(entry) = self.current(node, incarnation) {
            entry.is_dead = is_dead;
        }
    }

    /// The node was removed from the cluster. Returns its incarnation, unless it was lost before.
    pub fn forget(&mut self, node: NodeId) -> Option<Incarnation> {
        self.nodes.remove(&node).filter(|entry| !entry.is_lost).map(|entry| entry.incarnation)
    }

    fn current(&mut self, node: NodeId, incarnation: Incarnation) -> Option<&mut Node> {
        self.nodes.get_mut(&node).filter(|entry| entry.incarnation == incarnation)
    }

    /// Nodes that are lost now, each once until it is connected again.
    pub fn take_lost(&mut self, now: Millis) -> Vec<Lost> {
        let grace = self.adopt_grace;
        let lost = self.nodes.iter_mut().filter(|(_, entry)| !entry.is_lost).filter_map(|(node, entry)| {
            let (at, cause) = entry.verdict(grace)?;
            if at > now {
                return None;
            }
            entry.is_lost = true;
            Some(Lost { node: *node, incarnation: entry.incarnation, cause })
        });
        lost.collect()
    }

    /// When [`Liveness::take_lost`] may find another node, if nothing happens before.
    pub fn next_check(&self) -> Option<Millis> {
        let open = self.nodes.values().filter(|entry| !entry.is_lost);
        open.filter_map(|entry| entry.verdict(self.adopt_grace).map(|(at, _)| at)).min()
    }

    /// Whether the node is known and lost.
    pub fn is_lost(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|entry| entry.is_lost)
    }
}

impl Node {
    fn new(incarnation: Incarnation, link: Link) -> Self {
        Self { incarnation, link, tether: Tether::Unknown, is_dead: false, leaves: false, is_lost: false }
    }

    /// From when on, and why, the node is lost if no witness says otherwise.
    fn verdict(&self, adopt_grace: Millis) -> Option<(Millis, Cause)> {
        match self.link {
            // What arrives proves that it lives, whatever happens to the probes.
            Link::Up { heard } => self.is_dead.then_some((heard + SILENT_AFTER, Cause::Silent)),
            Link::Awaited { until } => Some((until, Cause::NotReturned)),
            Link::Down { since, .. } if self.leaves => Some((since, Cause::Left)),
            Link::Down { since, end } => Some(match (end, self.tether, self.is_dead) {
                (_, Tether::Closed, _) => (since, Cause::Died),
                (LinkEnd::Silent, Tether::Vanished, true) => (since, Cause::Silent),
                (_, Tether::Vanished, _) => (since + CONNECTS_WITHIN.min(adopt_grace), Cause::Died),
                (LinkEnd::Silent, _, true) | (LinkEnd::Ended, Tether::Unknown, true) => (since, Cause::Silent),
                (LinkEnd::Silent, _, false) | (LinkEnd::Ended, _, _) => (since + adopt_grace, Cause::NotReplaced),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(5);
    const FIRST: Incarnation = Incarnation(1);
    const SECOND: Incarnation = Incarnation(2);
    const GRACE: Millis = Millis(30_000);

    /// A node that is connected since 0, with a tether.
    fn connected() -> Liveness {
        let mut liveness = Liveness::new(GRACE);
        liveness.link_up(Millis(0), NODE, FIRST);
        liveness.tether_opened(NODE);
        liveness
    }

    fn cause(liveness: &mut Liveness, now: u64) -> Option<Cause> {
        let lost = liveness.take_lost(Millis(now));
        assert!(lost.iter().all(|lost| lost.node == NODE));
        lost.first().map(|lost| lost.cause)
    }

    // FEATURES: A5
    #[test]
    fn a_node_is_dead_as_soon_as_link_and_tether_ended_in_any_order() {
        let mut liveness = connected();
        liveness.link_down(Millis(10), NODE, FIRST, LinkEnd::Ended);
        assert_eq!(cause(&mut liveness, 10), None);
        liveness.tether_closed(NODE, false);
        assert_eq!(cause(&mut liveness, 11), Some(Cause::Died));
        assert_eq!(cause(&mut liveness, 99_999), None, "reported once");
        let mut liveness = connected();
        liveness.tether_closed(NODE, false);
        assert_eq!((cause(&mut liveness, 9), liveness.next_check()), (None, None));
        liveness.link_down(Millis(10), NODE, FIRST, LinkEnd::Ended);
        assert_eq!(cause(&mut liveness, 10), Some(Cause::Died));
    }

    // FEATURES: B8
    #[test]
    fn a_server_that_is_replaced_in_time_is_not_lost_although_probes_failed() {
        let mut liveness = connected();
        liveness.link_down(Millis(10), NODE, FIRST, LinkEnd::Ended);
        liveness.set_dead(NODE, FIRST, true);
        assert_eq!((cause(&mut liveness, 20_000), liveness.next_check()), (None, Some(GRACE + Millis(10))));
        liveness.link_up(Millis(20_000), NODE, SECOND);
        liveness.set_dead(NODE, FIRST, true);
        assert_eq!((cause(&mut liveness, 99_999), liveness.next_check()), (None, None), "late news of the first one");
        liveness.link_down(Millis(100_000), NODE, SECOND, LinkEnd::Ended);
        assert_eq!(cause(&mut liveness, 129_999), None);
        assert_eq!(cause(&mut liveness, 130_000), Some(Cause::NotReplaced));
        liveness.link_up(Millis(140_000), NODE, SECOND);
        assert!(!liveness.is_lost(NODE), "a node that comes back is not lost any more");
    }

    // FEATURES: A5
    #[test]
    fn a_hung_node_is_lost_when_probes_fail_and_nothing_arrives() {
        let mut liveness = connected();
        liveness.heard(Millis(1_000), NODE, FIRST);
        liveness.set_dead(NODE, FIRST, true);
        assert_eq!((cause(&mut liveness, 2_900), liveness.next_check()), (None, Some(Millis(3_000))));
        assert_eq!(cause(&mut liveness, 3_000), Some(Cause::Silent));
        let mut cut = connected();
        cut.link_down(Millis(5_000), NODE, FIRST, LinkEnd::Silent);
        assert_eq!(cause(&mut cut, 5_000), None, "it may reconnect");
        cut.set_dead(NODE, FIRST, true);
        assert_eq!(cause(&mut cut, 5_001), Some(Cause::Silent));
    }

    // FEATURES: A5
    #[test]
    fn a_node_that_hung_and_continues_on_the_same_link_can_be_lost_again() {
        let mut liveness = connected();
        liveness.set_dead(NODE, FIRST, true);
        assert_eq!(cause(&mut liveness, 2_000), Some(Cause::Silent));
        liveness.heard(Millis(5_000), NODE, FIRST);
        liveness.set_dead(NODE, FIRST, false);
        assert!(!liveness.is_lost(NODE));
        liveness.link_down(Millis(6_000), NODE, FIRST, LinkEnd::Ended);
        liveness.tether_closed(NODE, false);
        assert_eq!(cause(&mut liveness, 6_000), Some(Cause::Died));
    }

    #[test]
    fn a_node_that_sends_lives_although_its_probes_are_lost() {
        let mut liveness = connected();
        liveness.set_dead(NODE, FIRST, true);
        for second in 1..60 {
            liveness.heard(Millis(second * 1_000), NODE, FIRST);
            assert_eq!(cause(&mut liveness, second * 1_000 + 900), None);
        }
        liveness.set_dead(NODE, FIRST, false);
        assert_eq!(cause(&mut liveness, 999_999), None);
    }

    #[test]
    fn a_departure_is_acted_on_at_once() {
        let mut liveness = connected();
        liveness.leaving(NODE, FIRST);
        assert_eq!(cause(&mut liveness, 5), None, "its ends are still under way");
        liveness.link_down(Millis(10), NODE, FIRST, LinkEnd::Ended);
        assert_eq!(cause(&mut liveness, 10), Some(Cause::Left));
    }

    #[test]
    fn without_a_tether_the_membership_decides() {
        let mut liveness = Liveness::new(GRACE);
        liveness.link_up(Millis(0), NODE, FIRST);
        liveness.link_down(Millis(10), NODE, FIRST, LinkEnd::Ended);
        assert_eq!(cause(&mut liveness, 20), None);
        liveness.set_dead(NODE, FIRST, true);
        assert_eq!(cause(&mut liveness, 2_000), Some(Cause::Silent));
    }

    /// Found by the simulation with a loss of 30 %: a tether loses its probes while the link stalls.
    #[test]
    fn a_node_whose_tether_vanished_may_connect_again() {
        for end in [LinkEnd::Ended, LinkEnd::Silent] {
            let mut liveness = connected();
            liveness.tether_closed(NODE, true);
            liveness.link_down(Millis(10), NODE, FIRST, end);
            assert_eq!(cause(&mut liveness, 10_009), None);
            liveness.link_up(Millis(10_009), NODE, FIRST);
            assert_eq!(cause(&mut liveness, 99_999), None);
            liveness.link_down(Millis(100_000), NODE, FIRST, end);
            assert_eq!(cause(&mut liveness, 110_000), Some(Cause::Died));
        }
        let mut liveness = connected();
        liveness.tether_closed(NODE, true);
        liveness.set_dead(NODE, FIRST, true);
        liveness.link_down(Millis(10), NODE, FIRST, LinkEnd::Silent);
        assert_eq!(cause(&mut liveness, 10), Some(Cause::Silent), "nothing of it answers");
    }

    #[test]
    fn a_tether_that_is_replaced_is_open_throughout() {
        let mut liveness = connected();
        liveness.tether_opened(NODE);
        liveness.tether_closed(NODE, false);
        liveness.link_down(Millis(10), NODE, FIRST, LinkEnd::Ended);
        assert_eq!(cause(&mut liveness, 100), None);
        liveness.tether_closed(NODE, false);
        assert_eq!(cause(&mut liveness, 101), Some(Cause::Died));
    }

    // FEATURES: A5
    #[test]
    fn a_node_that_died_while_the_control_node_was_down_is_lost_unless_it_returns() {
        let mut liveness = Liveness::new(GRACE);
        liveness.await_return(Millis(100), NODE, FIRST);
        assert_eq!((cause(&mut liveness, 99), liveness.next_check()), (None, Some(Millis(100))));
        assert_eq!(cause(&mut liveness, 100), Some(Cause::NotReturned));
        assert!(liveness.is_lost(NODE) && liveness.link_up(Millis(200), NODE, SECOND), "it was lost and is back");
        assert!(!liveness.is_lost(NODE));
        let mut returned = Liveness::new(GRACE);
        returned.await_return(Millis(100), NODE, FIRST);
        assert!(!returned.link_up(Millis(50), NODE, FIRST));
        returned.await_return(Millis(100), NODE, FIRST);
        assert_eq!((cause(&mut returned, 1_000), returned.next_check()), (None, None));
    }
}
