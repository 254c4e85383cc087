//! A control node's watch over its runner nodes, without I/O and without a clock: which link of a node counts, who is lost,
//! and the timeline of every node.

use std::collections::{BTreeMap, VecDeque};

use model::change::NodeEvent;
use model::id::{Incarnation, NodeId};
use model::time::{Millis, Now};

use crate::liveness::{LinkEnd, Liveness, Lost};
use crate::view::{Event, MemberView, Source, State};

/// Entries of one node's timeline. The oldest go first.
const TIMELINE_MAX: usize = 128;
/// A process that has sent something within this time is running.
const RUNNING_FOR: Millis = Millis(2_000);

/// A change of a node as its control node saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineEntry {
    /// Wall clock.
    pub at: Millis,
    pub what: &'static str,
    pub detail: Option<String>,
}

/// Tells the processes of a node apart. Random for each process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessId(pub [u8; 16]);

/// Tells links apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(u64);

/// Why a link is refused: another process has the id of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkRefusal {
    #[error(
        "another process of this node is running: a data directory was copied. \
         Stop one of the two, or join with a new data directory"
    )]
    Running,
    #[error("a process of this node that was started later is connected; stop one of the two")]
    Older,
    #[error(
        "another process has the same identity: its data directory is a copy. \
         Stop it, or join with a new data directory"
    )]
    Copied,
}

/// How a tether ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TetherEnd {
    /// The last holder closed it or died.
    Closed,
    /// The machine reset it, as after a reboot.
    Reset,
    /// The machine does not answer.
    Vanished,
    /// The node sent something.
    Protocol,
    /// This control node stops.
    Shutdown,
}

impl TetherEnd {
    fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "its spawner ended",
            Self::Reset => "the machine reset it",
            Self::Vanished => "the machine does not answer",
            Self::Protocol => "unexpected data",
            Self::Shutdown => "this server stops",
        }
    }
}

/// What the control node does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Log this: it was added to the timeline.
    Noted { node: NodeId, what: &'static str, detail: Option<String> },
    /// Tell the subscribers to changes of nodes.
    Announce { node: NodeId, event: NodeEvent },
    /// Tell the shards that the connection to the runner ended.
    Disconnected { node: NodeId, incarnation: Incarnation },
    /// Tell the shards that the runner is lost, and the membership that the node is dead.
    Lost(Lost),
    /// Ask the node for another tether: the network may have broken one connection and not the other.
    RequestTether { node: NodeId },
}

/// The current link of a node.
#[derive(Debug)]
struct Link {
    id: LinkId,
    incarnation: Incarnation,
    process: ProcessId,
    /// When the node has sent something over this link.
    heard: Option<Millis>,
}

/// The watch over all runner nodes.
///
/// After each call, take all actions with [`poll_action`](Self::poll_action), and call
/// [`handle_timers`](Self::handle_timers) at [`next_check`](Self::next_check).
#[derive(Debug)]
pub struct Watch {
    liveness: Liveness,
    links: BTreeMap<NodeId, Link>,
    last_link: u64,
    timelines: BTreeMap<NodeId, VecDeque<TimelineEntry>>,
    actions: VecDeque<Action>,
}

impl Watch {
    /// `adopt_grace` is the time for a node's server process to be replaced.
    pub fn new(adopt_grace: Millis) -> Self {
        Self {
            liveness: Liveness::new(adopt_grace),
            links: BTreeMap::new(),
            last_link: 0,
            timelines: BTreeMap::new(),
            actions: VecDeque::new(),
        }
    }

    /// The next action.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Refuses another process of a node whose process runs. The link of a process that ended is closed, or silent.
    pub fn check_running(&self, now: Millis, node: NodeId, process: ProcessId) -> Result<(), LinkRefusal> {
        let other = self.links.get(&node).filter(|link| link.process != process);
        let is_running = |link: &Link| link.heard.is_some_and(|heard| now < heard + RUNNING_FOR);
        if other.is_some_and(is_running) { Err(LinkRefusal::Running) } else { Ok(()) }
    }

    /// A node has connected. A new link of the same process replaces the old one, and a restarted node its previous
    /// process. A second process is refused.
    pub fn link_up(
        &mut self,
        now: Now,
        node: NodeId,
        incarnation: Incarnation,
        process: ProcessId,
    ) -> Result<LinkId, LinkRefusal> {
        if let Some(known) = self.links.get(&node).filter(|link| link.process != process) {
            match known.incarnation.cmp(&incarnation) {
                std::cmp::Ordering::Greater => return Err(LinkRefusal::Older),
                std::cmp::Ordering::Equal => return Err(LinkRefusal::Copied),
                std::cmp::Ordering::Less => {}
            }
        }
        self.last_link += 1;
        let id = LinkId(self.last_link);
        self.links.insert(node, Link { id, incarnation, process, heard: None });
        self.note(now, node, "connected", Some(format!("incarnation {}", incarnation.0)));
        self.announce(node, NodeEvent::Connected);
        let was_lost = self.liveness.link_up(now.steady, node, incarnation);
        self.note_return(now, node, was_lost);
        Ok(id)
    }

    /// A node that was connected to an earlier process of this control node is lost if it does not return within the grace
    /// period.
    pub fn await_return(&mut self, now: Now, node: NodeId, incarnation: Incarnation, grace: Millis) {
        self.note(now, node, "awaited", Some("this server was started".to_owned()));
        self.liveness.await_return(now.steady + grace, node, incarnation);
    }

    /// The node has sent something over a link.
    pub fn heard(&mut self, now: Now, node: NodeId, link: LinkId) {
        if let Some(current) = self.links.get_mut(&node).filter(|current| current.id == link) {
            current.heard = Some(now.steady);
            let was_lost = self.liveness.heard(now.steady, node, current.incarnation);
            self.note_return(now, node, was_lost);
        }
    }

    fn note_return(&mut self, now: Now, node: NodeId, was_lost: bool) {
        if was_lost {
            self.note(now, node, "returned", Some("it was lost".to_owned()));
            self.announce(node, NodeEvent::Returned);
        }
    }

    /// A link has ended. False if a newer one has replaced it: then nothing changes.
    pub fn link_down(&mut self, now: Now, node: NodeId, link: LinkId, end: LinkEnd, reason: String) -> bool {
        let Some(current) = self.links.get(&node).filter(|current| current.id == link) else { return false };
        let incarnation = current.incarnation;
        self.links.remove(&node);
        self.note(now, node, "disconnected", Some(reason));
        self.announce(node, NodeEvent::Disconnected);
        self.liveness.link_down(now.steady, node, incarnation, end);
        self.actions.push_back(Action::Disconnected { node, incarnation });
        true
    }

    /// The node announces that its server process ends. Its processes end too unless it keeps them.
    pub fn leaving(&mut self, now: Now, node: NodeId, link: LinkId, keeps_processes: bool) {
        let Some(current) = self.links.get(&node).filter(|current| current.id == link) else { return };
        let incarnation = current.incarnation;
        if keeps_processes {
            self.note(now, node, "restarting", Some("its processes go on".to_owned()));
        } else {
            self.note(now, node, "leaving", None);
            self.announce(node, NodeEvent::Leaving);
            self.liveness.leaving(node, incarnation);
        }
    }

    pub fn tether_opened(&mut self, now: Now, node: NodeId) {
        self.note(now, node, "tether opened", None);
        self.liveness.tether_opened(node);
    }

    pub fn tether_closed(&mut self, now: Now, node: NodeId, end: TetherEnd) {
        self.note(now, node, "tether closed", Some(end.as_str().to_owned()));
        self.liveness.tether_closed(node, end == TetherEnd::Vanished);
        // A spawner lets go of old tethers for new ones.
        if self.links.contains_key(&node) && !self.liveness.has_tether(node) {
            self.actions.push_back(Action::RequestTether { node });
        }
    }

    /// An event of this node's membership.
    pub fn membership(&mut self, now: Now, event: &Event) {
        match event {
            Event::Joined { member } => self.note(now, member.node, "member", Some(member.address.to_string())),
            Event::Restarted { member, .. } => {
                let detail = format!("incarnation {}", member.incarnation.0);
                self.note(now, member.node, "member restarted", Some(detail));
                self.set_dead(member, false);
            }
            Event::Changed { member, .. } => {
                let what = match member.state {
                    State::Alive => "alive",
                    State::ProbeFailed => "probe failed",
                    State::Suspected => "suspected",
                    State::Dead => "dead",
                    State::Left => "left",
                };
                self.note(now, member.node, what, Some(source(member.source)));
                self.set_dead(member, !member.state.is_running());
            }
            Event::Refuted { member } => {
                self.note(now, member.node, "refuted", None);
                self.set_dead(member, false);
            }
            Event::Returned { member } => {
                self.note(now, member.node, "returned", None);
                self.set_dead(member, false);
            }
            Event::Forgotten { .. }
            | Event::SelfSuspected { .. }
            | Event::SelfDeclaredDead { .. }
            | Event::SelfPaused { .. }
            | Event::Superseded { .. }
            | Event::DuplicateRefused { .. }
            | Event::Dropped { .. } => {}
        }
    }

    fn set_dead(&mut self, member: &MemberView, is_dead: bool) {
        self.liveness.set_dead(member.node, member.incarnation, is_dead);
    }

    /// Finds the nodes that are lost by now.
    pub fn handle_timers(&mut self, now: Now) {
        for lost in self.liveness.take_lost(now.steady) {
            self.note(now, lost.node, "lost", Some(lost.cause.as_str().to_owned()));
            self.announce(lost.node, NodeEvent::Lost);
            self.actions.push_back(Action::Lost(lost));
        }
    }

    /// When [`handle_timers`](Self::handle_timers) may find another node, on the steady clock.
    pub fn next_check(&self) -> Option<Millis> {
        self.liveness.next_check()
    }

    /// The node was removed from the cluster. Returns its incarnation, unless it was lost before: what it has in flight
    /// goes elsewhere, whether it is connected or not.
    pub fn forget(&mut self, node: NodeId) -> Option<Incarnation> {
        self.links.remove(&node);
        self.timelines.remove(&node);
        self.liveness.forget(node)
    }

    pub fn is_lost(&self, node: NodeId) -> bool {
        self.liveness.is_lost(node)
    }

    /// The newest changes of a node, oldest first.
    pub fn timeline(&self, node: NodeId) -> impl Iterator<Item = &TimelineEntry> {
        self.timelines.get(&node).into_iter().flatten()
    }

    fn note(&mut self, now: Now, node: NodeId, what: &'static str, detail: Option<String>) {
        let timeline = self.timelines.entry(node).or_default();
        if timeline.len() >= TIMELINE_MAX {
            timeline.pop_front();
        }
        timeline.push_back(TimelineEntry { at: now.wall, what, detail: detail.clone() });
        self.actions.push_back(Action::Noted { node, what, detail });
    }

    fn announce(&mut self, node: NodeId, event: NodeEvent) {
        self.actions.push_back(Action::Announce { node, event });
    }
}

fn source(source: Source) -> String {
    match source {
        Source::Probe => "by a probe of this node".to_owned(),
        Source::Gossip(node) => format!("told by {node}"),
        Source::Transport => "by its connections".to_owned(),
        Source::Operator => "by an operator".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness::Cause;

    const NODE: NodeId = NodeId(5);
    const FIRST: Incarnation = Incarnation(1);
    const SECOND: Incarnation = Incarnation(2);

    fn at(ms: u64) -> Now {
        Now::both(Millis(ms))
    }

    fn watch() -> Watch {
        Watch::new(Millis(30_000))
    }

    fn actions(watch: &mut Watch) -> Vec<Action> {
        let all = std::iter::from_fn(|| watch.poll_action());
        all.filter(|action| !matches!(action, Action::Noted { .. } | Action::Announce { .. })).collect()
    }

    fn announced(watch: &mut Watch) -> Vec<NodeEvent> {
        let all = std::iter::from_fn(|| watch.poll_action());
        let event = |action| if let Action::Announce { event, .. } = action { Some(event) } else { None };
        all.filter_map(event).collect()
    }

    // FEATURES: A5
    #[test]
    fn subscribers_are_told_of_a_death_and_of_a_return() {
        let mut watch = watch();
        watch.await_return(at(0), NODE, FIRST, Millis(50));
        watch.handle_timers(at(50));
        assert_eq!(announced(&mut watch), [NodeEvent::Lost]);
        let link = watch.link_up(at(60), NODE, SECOND, ProcessId([1; 16])).unwrap();
        assert_eq!(announced(&mut watch), [NodeEvent::Connected, NodeEvent::Returned]);
        watch.leaving(at(70), NODE, link, false);
        watch.link_down(at(80), NODE, link, LinkEnd::Ended, "closed".to_owned());
        watch.handle_timers(at(80));
        assert_eq!(announced(&mut watch), [NodeEvent::Leaving, NodeEvent::Disconnected, NodeEvent::Lost]);
    }

    #[test]
    fn the_end_of_a_replaced_link_changes_nothing() {
        let mut watch = watch();
        let process = ProcessId([1; 16]);
        let first = watch.link_up(at(0), NODE, FIRST, process).unwrap();
        let second = watch.link_up(at(10), NODE, FIRST, process).unwrap();
        assert!(!watch.link_down(at(20), NODE, first, LinkEnd::Ended, "reset".to_owned()));
        watch.heard(at(30), NODE, first);
        assert_eq!(watch.check_running(Millis(40), NODE, ProcessId([2; 16])), Ok(()), "the old link counts no more");
        watch.handle_timers(at(999_999));
        assert_eq!(actions(&mut watch), []);
        assert!(watch.link_down(at(999_999), NODE, second, LinkEnd::Ended, "reset".to_owned()));
        assert_eq!(actions(&mut watch), [Action::Disconnected { node: NODE, incarnation: FIRST }]);
        watch.handle_timers(at(1_029_999));
        let lost = Lost { node: NODE, incarnation: FIRST, cause: Cause::NotReplaced };
        assert_eq!(actions(&mut watch), [Action::Lost(lost)]);
    }

    #[test]
    fn a_second_process_is_refused_and_a_restarted_one_is_not() {
        let mut watch = watch();
        let (old, new) = (ProcessId([1; 16]), ProcessId([2; 16]));
        let link = watch.link_up(at(0), NODE, SECOND, old).unwrap();
        watch.heard(at(100), NODE, link);
        assert_eq!(watch.check_running(Millis(2_099), NODE, new), Err(LinkRefusal::Running));
        assert_eq!(watch.check_running(Millis(2_100), NODE, new), Ok(()));
        assert_eq!(watch.check_running(Millis(100), NODE, old), Ok(()));
        assert_eq!(watch.link_up(at(200), NODE, FIRST, new), Err(LinkRefusal::Older));
        assert_eq!(watch.link_up(at(200), NODE, SECOND, new), Err(LinkRefusal::Copied));
        assert!(watch.link_up(at(200), NODE, Incarnation(3), new).is_ok());
    }

    #[test]
    fn a_connected_node_without_a_tether_is_asked_for_one() {
        let mut watch = watch();
        let link = watch.link_up(at(0), NODE, FIRST, ProcessId([1; 16])).unwrap();
        watch.tether_opened(at(1), NODE);
        watch.tether_closed(at(2), NODE, TetherEnd::Vanished);
        assert_eq!(actions(&mut watch), [Action::RequestTether { node: NODE }]);
        watch.tether_opened(at(3), NODE);
        watch.link_down(at(4), NODE, link, LinkEnd::Ended, "reset".to_owned());
        watch.tether_closed(at(5), NODE, TetherEnd::Closed);
        watch.handle_timers(at(5));
        let lost = Lost { node: NODE, incarnation: FIRST, cause: Cause::Died };
        let expected = [Action::Disconnected { node: NODE, incarnation: FIRST }, Action::Lost(lost)];
        assert_eq!(actions(&mut watch), expected);
        let story: Vec<_> = watch.timeline(NODE).map(|entry| (entry.at.0, entry.what)).collect();
        let expected = [
            (0, "connected"),
            (1, "tether opened"),
            (2, "tether closed"),
            (3, "tether opened"),
            (4, "disconnected"),
            (5, "tether closed"),
            (5, "lost"),
        ];
        assert_eq!(story, expected);
    }

    /// A spawner holds a few tethers and closes the oldest for a new one. Another one for it would never end.
    #[test]
    fn a_node_with_another_tether_is_not_asked_for_one() {
        let mut watch = watch();
        watch.link_up(at(0), NODE, FIRST, ProcessId([1; 16])).unwrap();
        watch.tether_opened(at(1), NODE);
        watch.tether_opened(at(2), NODE);
        watch.tether_closed(at(3), NODE, TetherEnd::Closed);
        assert_eq!(actions(&mut watch), []);
        watch.tether_closed(at(4), NODE, TetherEnd::Closed);
        assert_eq!(actions(&mut watch), [Action::RequestTether { node: NODE }]);
    }

    #[test]
    fn the_work_of_a_removed_node_goes_elsewhere_although_it_is_not_connected() {
        let mut watch = watch();
        let link = watch.link_up(at(0), NODE, FIRST, ProcessId([1; 16])).unwrap();
        watch.tether_opened(at(1), NODE);
        watch.link_down(at(2), NODE, link, LinkEnd::Ended, "reset".to_owned());
        assert_eq!(watch.forget(NODE), Some(FIRST));
        assert_eq!(watch.forget(NODE), None);
    }

    #[test]
    fn a_timeline_keeps_the_newest_entries() {
        let mut watch = watch();
        for ms in 0..500 {
            watch.tether_opened(at(ms), NODE);
        }
        assert_eq!(watch.timeline(NODE).count(), TIMELINE_MAX);
        assert_eq!(watch.timeline(NODE).last().unwrap().at, Millis(499));
    }
}
