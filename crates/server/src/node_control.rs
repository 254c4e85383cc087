//! Cordons, drains and sessions of nodes: kept in a document of the store, enforced by the shards. Nodes that fail distinct
//! jobs are cordoned here, from what all shards have seen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use engine::{FailingRule, FailingRunner, Input, failing_runners};
use model::change::NodeEvent;
use model::id::{Incarnation, NodeId, RunnerId};
use model::node::{NodeDecisions, Stamp};
use model::session::{ForbiddenMove, SessionState};
use parking_lot::{Mutex, RwLock};
use store::Store;
use tokio::sync::{Notify, watch};

use crate::clock;
use crate::cluster::Cluster;
use crate::document::SharedDocument;
use crate::error::Error;
use crate::inbox::{Inbox, Message};
use crate::node_news::NodeNews;
use crate::policy::PolicyChecks;

const DOCUMENT: &str = "node-decisions";

/// Interval at which attempts of overdue and given-up nodes are ended, until none is left.
const INTERVAL: Duration = Duration::from_millis(500);

/// Decisions about nodes.
pub(crate) struct NodeControl {
    own: NodeId,
    decisions: SharedDocument<NodeDecisions>,
    /// The decisions on record: read without the store.
    current: RwLock<Arc<NodeDecisions>>,
    policy: PolicyChecks,
    inboxes: Vec<Inbox>,
    rule: FailingRule,
    /// Nodes that fail distinct jobs and are not cordoned, because their pool has no other, with an explanation.
    failing: Mutex<BTreeMap<NodeId, String>>,
    news: NodeNews,
    /// Held while record, memory and the shards' settings change, so that all change in the same order.
    changing: Mutex<()>,
    /// Attempts may have to be ended.
    changed: Notify,
}

/// Why the decisions about a node were not changed.
#[derive(Debug)]
pub(crate) enum ChangeError {
    Forbidden(ForbiddenMove),
    Failed(Error),
}

impl From<Error> for ChangeError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<ForbiddenMove> for ChangeError {
    fn from(forbidden: ForbiddenMove) -> Self {
        Self::Forbidden(forbidden)
    }
}

/// What subscribers are told about one node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    is_cordoned: bool,
    session: Option<(u64, SessionState)>,
}

impl Shown {
    fn of(decisions: &NodeDecisions, node: NodeId) -> Self {
        let session = decisions.sessions.get(&node);
        Self {
            is_cordoned: decisions.cordoned.contains_key(&node),
            session: session.map(|session| (session.number, session.state)),
        }
    }
}

impl NodeControl {
    /// Reads the decisions on record, notes this start of the own node, and tells the shards. Blocks on the store.
    pub fn open(
        store: Arc<dyn Store>,
        policy: PolicyChecks,
        inboxes: Vec<Inbox>,
        (own, incarnation): (NodeId, Incarnation),
        rule: FailingRule,
    ) -> Result<Self, Error> {
        let decisions = SharedDocument::<NodeDecisions>::new(store, DOCUMENT);
        let current = decisions.read()?;
        let control = Self {
            own,
            decisions,
            current: RwLock::new(Arc::new(current)),
            policy,
            news: NodeNews::new(&inboxes),
            inboxes,
            rule,
            failing: Mutex::default(),
            changing: Mutex::default(),
            changed: Notify::new(),
        };
        control.apply(&control.read());
        control.started(own, incarnation)?;
        Ok(control)
    }

    /// The decisions on record.
    pub fn read(&self) -> Arc<NodeDecisions> {
        self.current.read().clone()
    }

    /// State of the session of the own node.
    pub fn own_session(&self) -> SessionState {
        self.current.read().session_state(self.own)
    }

    /// Changes the decisions about a node on record, then tells the shards and subscribers. Blocks on the store.
    pub fn change(
        &self,
        node: NodeId,
        change: impl Fn(&mut NodeDecisions) -> Result<(), ForbiddenMove>,
    ) -> Result<(), ChangeError> {
        let _changing = self.changing.lock();
        let (decisions, before) = self.decisions.change(|decisions| {
            let before = Shown::of(decisions, node);
            change(decisions)?;
            Ok::<_, ChangeError>(before)
        })?;
        self.apply(&decisions);
        let after = Shown::of(&decisions, node);
        *self.current.write() = Arc::new(decisions);
        self.announce(node, &before, &after);
        self.changed.notify_one();
        Ok(())
    }

    fn announce(&self, node: NodeId, before: &Shown, after: &Shown) {
        match (before.is_cordoned, after.is_cordoned) {
            (false, true) => self.news.announce(node, NodeEvent::Cordoned),
            (true, false) => self.news.announce(node, NodeEvent::Uncordoned),
            (true, true) | (false, false) => {}
        }
        if let Some((_, state)) = after.session
            && before.session != after.session
        {
            tracing::info!(%node, session = %state, "the session of a node has changed");
            self.news.announce(node, NodeEvent::Session(state));
        }
    }

    /// A process of the node is connected: its session is ready, or a new one begins. Blocks on the store if so.
    pub fn started(&self, node: NodeId, incarnation: Incarnation) -> Result<(), Error> {
        let at = clock::now();
        if !NodeDecisions::clone(&self.read()).started(node, incarnation, at) {
            return Ok(());
        }
        let started = self.change(node, |decisions| {
            decisions.started(node, incarnation, at);
            Ok(())
        });
        match started {
            Ok(()) | Err(ChangeError::Forbidden(_)) => Ok(()),
            Err(ChangeError::Failed(error)) => Err(error),
        }
    }

    /// The node was removed from the cluster. Blocks on the store.
    pub fn forget(&self, node: NodeId) -> Result<(), Error> {
        let _changing = self.changing.lock();
        let (decisions, ()) = self.decisions.change(|decisions| {
            decisions.forget(node);
            Ok::<_, Error>(())
        })?;
        self.apply(&decisions);
        *self.current.write() = Arc::new(decisions);
        self.news.announce(node, NodeEvent::Removed);
        Ok(())
    }

    /// Tells the shards which runners get no new attempts.
    fn apply(&self, decisions: &NodeDecisions) {
        let held_back = decisions.held_back().map(|node| RunnerId(node.0)).collect();
        let failing = decisions.cordoned.iter();
        let failing = failing.filter_map(|(node, cordon)| Some((RunnerId(node.0), cordon.failing_since?))).collect();
        self.policy.cordon(held_back, failing);
    }

    /// Why a node counts as failing, although it is not cordoned.
    pub fn failing(&self, node: NodeId) -> Option<String> {
        self.failing.lock().get(&node).cloned()
    }

    /// Cordons the nodes that fail distinct jobs, unless their pool has no other. Blocks on the store if there are any.
    fn cordon_failing(&self) -> Result<(), Error> {
        let reports: Vec<_> = self.inboxes.iter().flat_map(|inbox| inbox.status().health).collect();
        if reports.iter().all(|report| report.failures.is_empty()) {
            self.failing.lock().clear();
            return Ok(());
        }
        let held_back: BTreeSet<RunnerId> = self.read().held_back().map(|node| RunnerId(node.0)).collect();
        let found = failing_runners(&reports, &held_back, self.rule, clock::now());
        let (last, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|failing| failing.is_last);
        for failing in others {
            self.cordon_for_failures(&failing)?;
        }
        let last = last.iter().map(|failing| {
            let why = format!("{}; it is not cordoned, because its pool has no other node", explain(failing));
            (NodeId(failing.runner.0), why)
        });
        let last: BTreeMap<NodeId, String> = last.collect();
        let mut known = self.failing.lock();
        for (node, why) in last.iter().filter(|(node, _)| !known.contains_key(node)) {
            tracing::error!(%node, why, "node is failing; repair it, or add another node");
        }
        *known = last;
        Ok(())
    }

    fn cordon_for_failures(&self, failing: &FailingRunner) -> Result<(), Error> {
        let (node, reason) = (NodeId(failing.runner.0), explain(failing));
        let stamp = Stamp { at: clock::now(), by: None, reason: Some(reason.clone()) };
        let cordoned = self.change(node, |decisions| {
            decisions.cordon_failing(node, failing.since, &stamp);
            Ok(())
        });
        match cordoned {
            Ok(()) | Err(ChangeError::Forbidden(_)) => {}
            Err(ChangeError::Failed(error)) => return Err(error),
        }
        tracing::error!(%node, reason, "node cordoned; repair it, then run `outlast nodes uncordon`");
        Ok(())
    }

    /// Ends the attempts of nodes that are given up, or whose drain has passed its deadline. Their jobs go to other
    /// nodes. A node without others is given up together with the jobs that run on it.
    fn end_attempts(&self, has_others: bool) {
        let decisions = self.read();
        for node in decisions.overdue(clock::now()) {
            self.post(&|| Input::RetractAll { runner: RunnerId(node.0) });
        }
        for node in decisions.given_up() {
            let runner = RunnerId(node.0);
            match node == self.own && !has_others {
                true => self.post(&|| Input::AbandonAll { runner }),
                false => self.post(&|| Input::RetractAll { runner }),
            }
        }
    }

    fn post(&self, input: &dyn Fn() -> Input) {
        for inbox in &self.inboxes {
            let _ = inbox.post(Message::Input(Box::new(input())));
        }
    }

    /// Enforces decisions until the node stops.
    pub async fn enforce(self: Arc<Self>, cluster: Arc<Cluster>, mut stopping: watch::Receiver<bool>) {
        while !*stopping.borrow() {
            self.end_attempts(cluster.has_nodes());
            let control = self.clone();
            match tokio::task::spawn_blocking(move || control.cordon_failing()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "failing nodes cannot be cordoned at present"),
                Err(error) => tracing::error!(%error, "failing nodes cannot be cordoned at present"),
            }
            tokio::select! {
                () = self.changed.notified() => {}
                () = tokio::time::sleep(INTERVAL) => {}
                _ = stopping.changed() => {}
            }
        }
    }
}

fn explain(failing: &FailingRunner) -> String {
    let jobs: Vec<String> = failing.jobs.iter().take(3).map(ToString::to_string).collect();
    let count = failing.jobs.len();
    format!("{count} jobs failed on it through its own fault, with no success in between: {}", jobs.join(", "))
}
