//! Watches runner nodes: gives links, tethers and probes to the watch of `fabric`, and tells the shards what it decides.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use engine::Input;
use fabric::liveness::{LinkEnd, Lost};
use fabric::watch::{Action, LinkId, LinkRefusal, ProcessId, TimelineEntry, Watch};
use fabric::{Event, MemberView, Source};
use model::id::{Incarnation, NodeId, RunnerId};
use model::time::Millis;
use parking_lot::Mutex;
use tokio::sync::Notify;
use transport::CloseReason;
use transport::tether::{TetherEnd, TetherEvent};

use crate::clock;
use crate::inbox::{Inbox, Message};
use crate::node_news::NodeNews;

/// Longest sleep between two checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What is known about the liveness of runner nodes.
pub(crate) struct NodeWatch {
    watch: Mutex<Watch>,
    inboxes: Vec<Inbox>,
    news: NodeNews,
    members: OnceLock<fabric::Handle>,
    /// A decision may be due.
    changed: Notify,
}

impl NodeWatch {
    pub fn new(adopt_grace: Millis, inboxes: Vec<Inbox>) -> Self {
        Self {
            watch: Mutex::new(Watch::new(adopt_grace)),
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
        self.watch.lock().is_lost(node)
    }

    pub fn timeline(&self, node: NodeId) -> Vec<TimelineEntry> {
        self.watch.lock().timeline(node).cloned().collect()
    }

    /// Refuses another process of a node whose process runs.
    pub fn check_running(&self, node: NodeId, process: ProcessId) -> Result<(), LinkRefusal> {
        self.watch.lock().check_running(clock::read().steady, node, process)
    }

    pub fn link_up(&self, node: NodeId, incarnation: Incarnation, process: ProcessId) -> Result<LinkId, LinkRefusal> {
        let mut watch = self.watch.lock();
        let link = watch.link_up(clock::read(), node, incarnation, process)?;
        self.perform(&mut watch);
        Ok(link)
    }

    /// A node that was connected to an earlier process of this server is lost if it does not return.
    pub fn await_return(&self, node: NodeId, incarnation: Incarnation, grace: Millis) {
        let mut watch = self.watch.lock();
        watch.await_return(clock::read(), node, incarnation, grace);
        self.perform(&mut watch);
    }

    /// The node has sent something.
    pub fn heard(&self, node: NodeId, link: LinkId) {
        let mut watch = self.watch.lock();
        watch.heard(clock::read(), node, link);
        self.perform(&mut watch);
    }

    /// False if a newer link has replaced this one.
    pub fn link_down(&self, node: NodeId, link: LinkId, reason: &CloseReason) -> bool {
        let end = match reason {
            CloseReason::KeepAliveTimeout => LinkEnd::Silent,
            CloseReason::Local
            | CloseReason::ClosedByPeer
            | CloseReason::Refused(_)
            | CloseReason::Reset(_)
            | CloseReason::Protocol(_) => LinkEnd::Ended,
        };
        let mut watch = self.watch.lock();
        let is_current = watch.link_down(clock::read(), node, link, end, reason.to_string());
        self.perform(&mut watch);
        self.changed.notify_one();
        is_current
    }

    pub fn leaving(&self, node: NodeId, link: LinkId, keeps_processes: bool) {
        let mut watch = self.watch.lock();
        watch.leaving(clock::read(), node, link, keeps_processes);
        self.perform(&mut watch);
    }

    /// Returns the nodes to ask for another tether.
    pub fn tether(&self, event: &TetherEvent) -> Vec<NodeId> {
        let mut watch = self.watch.lock();
        match event {
            TetherEvent::Opened { node, .. } => watch.tether_opened(clock::read(), *node),
            TetherEvent::Closed { node, reason, .. } => {
                let end = match reason {
                    TetherEnd::Closed => fabric::watch::TetherEnd::Closed,
                    TetherEnd::Reset => fabric::watch::TetherEnd::Reset,
                    TetherEnd::Vanished => fabric::watch::TetherEnd::Vanished,
                    TetherEnd::Protocol => fabric::watch::TetherEnd::Protocol,
                    TetherEnd::Shutdown => fabric::watch::TetherEnd::Shutdown,
                };
                watch.tether_closed(clock::read(), *node, end);
            }
        }
        let without_tether = self.perform(&mut watch);
        self.changed.notify_one();
        without_tether
    }

    /// An event of the membership. Called on its thread.
    pub fn membership(&self, event: Event) {
        match event {
            Event::DuplicateRefused { member, address } => {
                tracing::error!(node = %member.node, %address, "a second process uses the id of this node and is ignored");
            }
            Event::SelfPaused { duration, .. } => {
                tracing::warn!(ms = duration.0, "this server was stopped for a while");
            }
            Event::Superseded { by, address, .. } => {
                tracing::error!(incarnation = by.0, %address, "another process has this node's id; membership ends here");
            }
            Event::Joined { .. }
            | Event::Restarted { .. }
            | Event::Changed { .. }
            | Event::Refuted { .. }
            | Event::Returned { .. }
            | Event::Forgotten { .. }
            | Event::SelfSuspected { .. }
            | Event::SelfDeclaredDead { .. }
            | Event::Dropped { .. } => tracing::debug!(?event, "membership"),
        }
        let mut watch = self.watch.lock();
        watch.membership(clock::read(), &event);
        self.perform(&mut watch);
        self.changed.notify_one();
    }

    /// The node was removed from the cluster: its work goes to others.
    pub fn forget(&self, node: NodeId) {
        let incarnation = self.watch.lock().forget(node);
        if let Some(incarnation) = incarnation {
            self.post(|| Input::RunnerLost { runner: RunnerId(node.0), incarnation });
        }
        if let Some(members) = self.members.get() {
            let _ = members.forget(node);
        }
    }

    /// Acts on lost nodes until dropped by its task.
    pub async fn run(self: Arc<Self>) {
        loop {
            let changed = self.changed.notified();
            let wait = {
                let (mut watch, now) = (self.watch.lock(), clock::read());
                watch.handle_timers(now);
                self.perform(&mut watch);
                let left = |at: Millis| Duration::from_millis(at.saturating_sub(now.steady).0.max(1));
                watch.next_check().map_or(CHECK_INTERVAL, left)
            };
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(wait.min(CHECK_INTERVAL)) => {}
            }
        }
    }

    /// Performs what the watch has decided, in order. Returns the nodes to ask for another tether.
    fn perform(&self, watch: &mut Watch) -> Vec<NodeId> {
        let mut without_tether = Vec::new();
        while let Some(action) = watch.poll_action() {
            match action {
                Action::Noted { node, what, detail } => tracing::info!(%node, detail, "{what}"),
                Action::Announce { node, event } => self.news.announce(node, event),
                Action::Disconnected { node, incarnation } => {
                    self.post(|| Input::RunnerDisconnected { runner: RunnerId(node.0), incarnation });
                }
                Action::Lost(lost) => self.lose(lost),
                Action::RequestTether { node } => without_tether.push(node),
            }
        }
        without_tether
    }

    fn post(&self, input: impl Fn() -> Input) {
        for inbox in &self.inboxes {
            let _ = inbox.post(Message::Input(Box::new(input())));
        }
    }

    fn lose(&self, lost: Lost) {
        let Lost { node, incarnation, cause } = lost;
        tracing::warn!(%node, incarnation = incarnation.0, cause = cause.as_str(), "a node is lost; its work goes elsewhere");
        self.post(|| Input::RunnerLost { runner: RunnerId(node.0), incarnation });
        if let Some(members) = self.members.get() {
            // The others need not find out by themselves.
            let _ = members.declare_dead(node, incarnation, Source::Transport);
        }
    }
}
