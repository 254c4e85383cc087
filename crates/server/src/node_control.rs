//! Cordoned and draining nodes: kept in a document of the store, enforced by the shards.

use std::sync::Arc;
use std::time::Duration;

use engine::Input;
use model::id::RunnerId;
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
    /// Held while the record and the shards' settings change, so that both change in the same order.
    changing: Mutex<()>,
}

impl NodeControl {
    /// Reads the decisions on record and tells the shards. Blocks on the store.
    pub fn open(store: Arc<dyn Store>, policy: PolicyChecks, inboxes: Vec<Inbox>) -> Result<Self, Error> {
        let decisions = SharedDocument::new(store, DOCUMENT);
        let control = Self { decisions, policy, inboxes, changing: Mutex::default() };
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
        self.policy.cordon(cordoned);
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
            match tokio::task::spawn_blocking(move || control.retract_overdue()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "deadlines of drained nodes cannot be enforced at present"),
                Err(error) => tracing::error!(%error, "deadlines of drained nodes cannot be enforced at present"),
            }
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                _ = stopping.changed() => {}
            }
        }
    }
}
