//! The control node: its watch over the runner nodes, and what it tells the shards.

use fabric::liveness::Lost;
use fabric::watch::{Action, ProcessId, Watch};
use fabric::{Source, State};
use model::id::{Incarnation, NodeId, RunnerId, ShardId};
use model::message::ToRunner;
use model::time::Now;

use super::streams::{Item, Side};
use super::{Cluster, ClusterEvent};
use crate::coverage::Fault;
use crate::invariants::Checked;
use crate::sabotage::{ClusterSabotage, Sabotage};
use crate::scenario::Time;
use crate::world::{Event, Inbound, World, trace};

/// The id of a process of a node: each incarnation is one process.
fn process_of(incarnation: Incarnation) -> ProcessId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&incarnation.0.to_le_bytes());
    ProcessId(id)
}

impl World {
    /// Both clocks of the control node.
    pub(super) fn control_now(&self) -> Now {
        Now { wall: self.clock(0), steady: self.node_clock(self.cluster.control_index()) }
    }

    fn new_watch(&self) -> Watch {
        let hasty = self.sabotage == Some(Sabotage::Cluster(ClusterSabotage::WaitForNobody));
        Watch::new(if hasty { model::time::Millis(0) } else { self.cluster.plan.adopt_grace })
    }

    pub(super) fn control_starts(&mut self) {
        let control = self.cluster.control_index();
        self.cluster.control.is_up = true;
        self.cluster.control.incarnation.0 += 1;
        self.cluster.control.watch = self.new_watch();
        self.cluster.control.check += 1;
        trace!(self, "the control node starts as {}", self.cluster.control.incarnation.0);
        // A node without join addresses waits for others; nothing can go wrong.
        let joined = self.join_members(control);
        debug_assert!(joined.is_ok());
    }

    /// Kills the server process of the control node, with all shards. It starts again after `down`.
    pub(super) fn restart_control(&mut self, down: Time) -> Checked {
        if !self.cluster.control.is_up {
            return Ok(());
        }
        trace!(self, "the control node is killed, down for {down} ms");
        self.coverage.count_fault(Fault::ControlRestarted);
        let control = self.cluster.control_index();
        self.cluster.control.is_up = false;
        self.cluster.control.down_until = self.now + down;
        self.cluster.control.links.clear();
        self.cluster.control.watch = self.new_watch();
        self.cluster.control.check += 1;
        self.cluster.nodes[control].membership = None;
        self.cluster.nodes[control].paused_until = 0;
        let streams: Vec<u64> = self.cluster.connections.keys().copied().collect();
        for stream in streams {
            self.close_stream(stream, Side::Control, None)?;
        }
        for shard in 0..self.hosts.len() {
            self.crash_shard(shard);
        }
        self.cluster_after(down, ClusterEvent::ControlStarts);
        Ok(())
    }

    /// Admits a link of a node, if the watch agrees.
    pub(super) fn admit(&mut self, node: usize, incarnation: Incarnation) -> Result<Option<u64>, crate::Violation> {
        let (id, process, now) = (Cluster::id(node), process_of(incarnation), self.control_now());
        let watch = &mut self.cluster.control.watch;
        let is_free = watch.check_running(now.steady, id, process).is_ok();
        let Some(link) = is_free.then(|| watch.link_up(now, id, incarnation, process).ok()).flatten() else {
            return Ok(None);
        };
        let number = self.open_stream(node, incarnation, Some(link));
        if let Some(replaced) = self.cluster.control.links.insert(id, number) {
            self.close_stream(replaced, Side::Control, None)?;
        }
        self.note_connected(node);
        self.check_nodes()?;
        Ok(Some(number))
    }

    /// Has the watch find lost nodes, and performs what it decides.
    pub(super) fn check_nodes(&mut self) -> Checked {
        if self.cluster.control.is_up {
            let now = self.control_now();
            self.cluster.control.watch.handle_timers(now);
        }
        self.perform_watch()
    }

    pub(super) fn perform_watch(&mut self) -> Checked {
        while let Some(action) = self.cluster.control.watch.poll_action() {
            match action {
                Action::Noted { node, what, detail } => {
                    trace!(self, "control: {node} {what} {}", detail.as_deref().unwrap_or_default());
                    self.tell_story(format!("control: {what}{}", in_brackets(detail.as_deref())), node);
                }
                // Nobody subscribes here.
                Action::Announce { .. } => {}
                Action::Disconnected { node, incarnation } => {
                    self.coverage.count("runners disconnected");
                    self.post(|runner| Inbound::RunnerDisconnected { runner, incarnation }, node);
                }
                Action::Lost(lost) => self.lose(lost)?,
                Action::RequestTether { node } => {
                    if let Some(link) = self.cluster.control.links.get(&node).copied() {
                        self.send_item(link, Side::Node, Item::OpenTether);
                    }
                }
            }
        }
        self.schedule_check();
        Ok(())
    }

    fn schedule_check(&mut self) {
        let control = self.cluster.control_index();
        if let Some(reading) = self.cluster.control.watch.next_check() {
            self.cluster.control.check += 1;
            let check = self.cluster.control.check;
            let at = self.time_of(control, reading);
            self.cluster_after(at - self.now, ClusterEvent::WatchChecks { check });
        }
    }

    /// Posts an input about a runner to all shards, in order.
    fn post(&mut self, inbound: impl Fn(RunnerId) -> Inbound, node: NodeId) {
        for shard in 0..self.hosts.len() {
            self.after(0, Event::Deliver { shard, inbound: inbound(RunnerId(node.0)) });
        }
    }

    /// A node is lost: its attempts go elsewhere, and the others need not find out by themselves.
    pub(super) fn lose(&mut self, lost: Lost) -> Checked {
        if self.sabotage == Some(Sabotage::Cluster(ClusterSabotage::IgnoreDeaths)) {
            return Ok(());
        }
        let Lost { node, incarnation, .. } = lost;
        self.check_loss(lost)?;
        self.runners[Cluster::index(node)].declare_lost(incarnation);
        self.coverage.count_fault(Fault::RunnerDeclaredLost);
        self.post(|runner| Inbound::RunnerLost { runner, incarnation }, node);
        let control = self.cluster.control_index();
        let now = self.node_clock(control);
        self.with_members(control, |membership| membership.declare_dead(now, node, incarnation, Source::Transport))
    }

    /// Sends a message of a shard over the link of the runner's node. Without a link of that incarnation it is lost.
    pub(crate) fn send_to_node(&mut self, runner: usize, incarnation: Incarnation, shard: usize, message: ToRunner) {
        let Some(link) = self.cluster.control.links.get(&Cluster::id(runner)).copied() else { return };
        if self.cluster.connections.get(&link).is_some_and(|it| it.incarnation == incarnation) {
            let shard = ShardId(shard as u16);
            self.send_item(link, Side::Node, Item::ToRunner { shard, message });
        }
    }

    /// The node as the control node's membership sees it.
    pub(super) fn member_state(&self, node: usize) -> Option<State> {
        let membership = self.cluster.nodes[self.cluster.control_index()].membership.as_ref()?;
        let members = membership.members();
        members.iter().find(|member| member.node == Cluster::id(node)).map(|member| member.state)
    }
}

pub(super) fn in_brackets(detail: Option<&str>) -> String {
    detail.map_or_else(String::new, |detail| format!(" ({detail})"))
}
