//! Cordoned and draining nodes: kept in a document of the store, enforced by the shards. Nodes that fail distinct jobs are
//! cordoned here, from what all shards have seen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use engine::{FailingRule, FailingRunner, Input, failing_runners};
use model::id::{NodeId, RunnerId};
use model::node::NodeDecisions;
use parking_lot::Mutex;
use store::Store;
use tokio::sync::watch;

use crate::clock;
use crate::document::SharedDocument;
use crate::error::Error;
use crate::inbox::{Inbox, Message};
use crate::policy::PolicyChecks;

const DOCUMENT: &str = "node-decisions";

/// Interval at which attempts of overdue nodes are taken back, until none is left.
const INTERVAL: Duration = Duration::from_millis(500);

/// Decisions of operators about nodes.
pub(crate) struct NodeControl {
    decisions: SharedDocument<NodeDecisions>,
    policy: PolicyChecks,
    inboxes: Vec<Inbox>,
    rule: FailingRule,
    /// Nodes that fail distinct jobs and are not cordoned, because their pool has no other, with an explanation.
    failing: Mutex<BTreeMap<NodeId, String>>,
    /// Held while the record and the shards' settings change, so that both change in the same order.
    changing: Mutex<()>,
}

impl NodeControl {
    /// Reads the decisions on record and tells the shards. Blocks on the store.
    pub fn open(
        store: Arc<dyn Store>,
        policy: PolicyChecks,
        inboxes: Vec<Inbox>,
        rule: FailingRule,
    ) -> Result<Self, Error> {
        let decisions = SharedDocument::new(store, DOCUMENT);
        let (failing, changing) = (Mutex::default(), Mutex::default());
        let control = Self { decisions, policy, inboxes, rule, failing, changing };
        control.apply(&control.read()?);
        Ok(control)
    }

    /// The decisions on record. Blocks on the store.
    pub fn read(&self) -> Result<NodeDecisions, Error> {
        self.decisions.read()
    }

    /// Changes the decisions on record, then tells the shards. Blocks on the store.
    pub fn change(&self, change: impl Fn(&mut NodeDecisions)) -> Result<(), Error> {
        let _changing = self.changing.lock();
        let (decisions, ()) = self.decisions.change(|decisions| {
            change(decisions);
            Ok::<_, Error>(())
        })?;
        self.apply(&decisions);
        Ok(())
    }

    /// Tells the shards which runners get no new attempts.
    fn apply(&self, decisions: &NodeDecisions) {
        let cordoned = decisions.cordoned.keys().map(|node| RunnerId(node.0)).collect();
        let failing = decisions.cordoned.iter();
        let failing = failing.filter_map(|(node, cordon)| Some((RunnerId(node.0), cordon.failing_since?))).collect();
        self.policy.cordon(cordoned, failing);
    }

    /// Why a node counts as failing, although it is not cordoned.
    pub fn failing(&self, node: NodeId) -> Option<String> {
        self.failing.lock().get(&node).cloned()
    }

    /// Cordons the nodes that fail distinct jobs, unless their pool has no other.
    fn cordon_failing(&self) -> Result<(), Error> {
        let reports: Vec<_> = self.inboxes.iter().flat_map(|inbox| inbox.status().health).collect();
        if reports.iter().all(|report| report.failures.is_empty()) {
            self.failing.lock().clear();
            return Ok(());
        }
        let cordoned: BTreeSet<RunnerId> = self.read()?.cordoned.keys().map(|node| RunnerId(node.0)).collect();
        let found = failing_runners(&reports, &cordoned, self.rule, clock::now());
        let (last, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|failing| failing.is_last);
        for failing in others {
            let (node, reason) = (NodeId(failing.runner.0), explain(&failing));
            self.change(|decisions| decisions.cordon_failing(node, clock::now(), failing.since, reason.clone()))?;
            tracing::error!(%node, reason, "node cordoned; repair it, then run `outlast nodes uncordon`");
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

    /// Takes back the attempts of nodes whose drain has passed its deadline.
    fn retract_overdue(&self) -> Result<(), Error> {
        for node in self.read()?.overdue(clock::now()) {
            for inbox in &self.inboxes {
                let input = Input::RetractAll { runner: RunnerId(node.0) };
                let _ = inbox.post(Message::Input(Box::new(input)));
            }
        }
        Ok(())
    }

    /// Enforces deadlines until the node stops.
    pub async fn enforce(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        while !*stopping.borrow() {
            let control = self.clone();
            let work = move || control.retract_overdue().and_then(|()| control.cordon_failing());
            match tokio::task::spawn_blocking(work).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "nodes cannot be drained or cordoned at present"),
                Err(error) => tracing::error!(%error, "nodes cannot be drained or cordoned at present"),
            }
            tokio::select! {
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
