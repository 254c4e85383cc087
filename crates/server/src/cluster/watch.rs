//! Watches runner nodes: joins what links, tethers and probes say, tells the shards which runners are lost, and keeps the
//! timeline of every node.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use engine::Input;
use fabric::liveness::{LinkEnd, Liveness, Lost};
use fabric::{Event, MemberView, Source, State};
use model::change::NodeEvent;
use model::id::{Incarnation, NodeId, RunnerId};
use model::time::Millis;
use parking_lot::Mutex;
use tokio::sync::Notify;
use transport::CloseReason;
use transport::tether::{TetherEnd, TetherEvent};

use crate::clock;
use crate::inbox::{Inbox, Message};
use crate::node_news::NodeNews;

/// Entries of one node's timeline. The oldest go first.
const TIMELINE_MAX: usize = 128;
/// Longest sleep between two checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A change of a node as this control node saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TimelineEntry {
    pub at: Millis,
    pub what: &'static str,
    pub detail: Option<String>,
}

/// What is known about the liveness of runner nodes.
pub(crate) struct NodeWatch {
    liveness: Mutex<Liveness>,
    timelines: Mutex<BTreeMap<NodeId, VecDeque<TimelineEntry>>>,
    inboxes: Vec<Inbox>,
    news: NodeNews,
    members: OnceLock<fabric::Handle>,
    /// A decision may be due.
    changed: Notify,
}

impl NodeWatch {
    pub fn new(adopt_grace: Millis, inboxes: Vec<Inbox>) -> Self {
        Self {
            liveness: Mutex::new(Liveness::new(adopt_grace)),
            timelines: Mutex::default(),
            news: NodeNews::new(&inboxes),
            inboxes,
            members: OnceLock::new(),
            changed: Notify::new(),
        }
    }

    /// The membership, once it runs.
    pub fn set_members(&self, members: fabric::Handle) {
        // Set once: the cluster starts once.
        let _ = self.members.set(members);
    }

    /// The node as the membership sees it.
    pub fn member(&self, node: NodeId) -> Option<MemberView> {
        self.members.get()?.members().iter().find(|member| member.node == node).copied()
    }

    pub fn is_lost(&self, node: NodeId) -> bool {
        self.liveness.lock().is_lost(node)
    }

    pub fn timeline(&self, node: NodeId) -> Vec<TimelineEntry> {
        self.timelines.lock().get(&node).map(|timeline| timeline.iter().cloned().collect()).unwrap_or_default()
    }

    fn note(&self, node: NodeId, what: &'static str, detail: Option<String>) {
        tracing::info!(%node, detail, "{what}");
        let mut timelines = self.timelines.lock();
        let timeline = timelines.entry(node).or_default();
        if timeline.len() >= TIMELINE_MAX {
            timeline.pop_front();
        }
        timeline.push_back(TimelineEntry { at: clock::now(), what, detail });
    }

    pub fn link_up(&self, node: NodeId, incarnation: Incarnation) {
        self.note(node, "connected", Some(format!("incarnation {}", incarnation.0)));
        let was_lost = self.liveness.lock().link_up(clock::read().steady, node, incarnation);
        self.news.announce(node, NodeEvent::Connected);
        self.note_return(node, was_lost);
    }

    fn note_return(&self, node: NodeId, was_lost: bool) {
        if was_lost {
            self.note(node, "returned", Some("it was lost".to_owned()));
            self.news.announce(node, NodeEvent::Returned);
        }
    }

    /// A node that was connected to an earlier process of this server is lost if it does not return.
    pub fn await_return(&self, node: NodeId, incarnation: Incarnation, grace: Millis) {
        self.note(node, "awaited", Some("this server was started".to_owned()));
        self.liveness.lock().await_return(clock::read().steady + grace, node, incarnation);
    }

    /// The node has sent something.
    pub fn heard(&self, node: NodeId, incarnation: Incarnation) {
        let was_lost = self.liveness.lock().heard(clock::read().steady, node, incarnation);
        self.note_return(node, was_lost);
    }

    pub fn link_down(&self, node: NodeId, incarnation: Incarnation, reason: &CloseReason) {
        self.note(node, "disconnected", Some(reason.to_string()));
        self.news.announce(node, NodeEvent::Disconnected);
        let end = match reason {
            CloseReason::KeepAliveTimeout => LinkEnd::Silent,
            CloseReason::Local
            | CloseReason::ClosedByPeer
            | CloseReason::Refused(_)
            | CloseReason::Reset(_)
            | CloseReason::Protocol(_) => LinkEnd::Ended,
        };
        self.liveness.lock().link_down(clock::read().steady, node, incarnation, end);
        self.post(|| Input::RunnerDisconnected { runner: RunnerId(node.0), incarnation });
        self.changed.notify_one();
    }

    pub fn leaving(&self, node: NodeId, incarnation: Incarnation, keeps_processes: bool) {
        match keeps_processes {
            true => self.note(node, "restarting", Some("its processes go on".to_owned())),
            false => {
                self.note(node, "leaving", None);
                self.news.announce(node, NodeEvent::Leaving);
                self.liveness.lock().leaving(node, incarnation);
            }
        }
    }

    pub fn tether(&self, event: &TetherEvent) {
        match event {
            TetherEvent::Opened { node, .. } => {
                self.note(*node, "tether opened", None);
                self.liveness.lock().tether_opened(*node);
            }
            TetherEvent::Closed { node, reason, .. } => {
                let detail = match reason {
                    TetherEnd::Closed => "its spawner ended",
                    TetherEnd::Reset => "the machine reset it",
                    TetherEnd::Vanished => "the machine does not answer",
                    TetherEnd::Protocol => "unexpected data",
                    TetherEnd::Shutdown => "this server stops",
                };
                self.note(*node, "tether closed", Some(detail.to_owned()));
                self.liveness.lock().tether_closed(*node);
                self.changed.notify_one();
            }
        }
    }

    /// An event of the membership. Called on its thread.
    pub fn membership(&self, event: Event) {
        match event {
            Event::Joined { member } => self.note(member.node, "member", Some(member.address.to_string())),
            Event::Restarted { member, .. } => {
                self.note(member.node, "member restarted", Some(format!("incarnation {}", member.incarnation.0)));
                self.set_dead(&member, false);
            }
            Event::Changed { member, .. } => {
                let what = match member.state {
                    State::Alive => "alive",
                    State::ProbeFailed => "probe failed",
                    State::Suspected => "suspected",
                    State::Dead => "dead",
                    State::Left => "left",
                };
                self.note(member.node, what, Some(source(member.source)));
                self.set_dead(&member, !member.state.is_running());
            }
            Event::Refuted { member } => {
                self.note(member.node, "refuted", None);
                self.set_dead(&member, false);
            }
            Event::Returned { member } => {
                self.note(member.node, "returned", None);
                self.set_dead(&member, false);
            }
            Event::DuplicateRefused { member, address } => {
                tracing::error!(node = %member.node, %address, "a second process uses the id of this node and is ignored");
            }
            Event::SelfPaused { duration, .. } => {
                tracing::warn!(ms = duration.0, "this server was stopped for a while");
            }
            Event::Superseded { by, address, .. } => {
                tracing::error!(incarnation = by.0, %address, "another process has this node's id; membership ends here");
            }
            Event::Forgotten { .. }
            | Event::SelfSuspected { .. }
            | Event::SelfDeclaredDead { .. }
            | Event::Dropped { .. } => tracing::debug!(?event, "membership"),
        }
        self.changed.notify_one();
    }

    fn set_dead(&self, member: &MemberView, is_dead: bool) {
        self.liveness.lock().set_dead(member.node, member.incarnation, is_dead);
    }

    pub fn forget(&self, node: NodeId) {
        self.liveness.lock().forget(node);
        self.timelines.lock().remove(&node);
        if let Some(members) = self.members.get() {
            let _ = members.forget(node);
        }
    }

    /// Acts on lost nodes until dropped by its task.
    pub async fn run(self: Arc<Self>) {
        loop {
            let changed = self.changed.notified();
            let now = clock::read().steady;
            let lost = self.liveness.lock().take_lost(now);
            lost.iter().for_each(|lost| self.lose(lost));
            let next = self.liveness.lock().next_check();
            let wait = next.map_or(CHECK_INTERVAL, |at| Duration::from_millis(at.saturating_sub(now).0.max(1)));
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(wait.min(CHECK_INTERVAL)) => {}
            }
        }
    }

    /// Gives the work of a removed node to others.
    pub fn remove(&self, node: NodeId, incarnation: Incarnation) {
        self.post(|| Input::RunnerLost { runner: RunnerId(node.0), incarnation });
    }

    fn post(&self, input: impl Fn() -> Input) {
        for inbox in &self.inboxes {
            let _ = inbox.post(Message::Input(Box::new(input())));
        }
    }

    fn lose(&self, lost: &Lost) {
        let Lost { node, incarnation, cause } = *lost;
        tracing::warn!(%node, incarnation = incarnation.0, cause = cause.as_str(), "a node is lost; its work goes elsewhere");
        self.note(node, "lost", Some(cause.as_str().to_owned()));
        self.news.announce(node, NodeEvent::Lost);
        self.remove(node, incarnation);
        if let Some(members) = self.members.get() {
            // The others need not find out by themselves.
            let _ = members.declare_dead(node, incarnation, Source::Transport);
        }
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
