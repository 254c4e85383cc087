//! What really happens to nodes, to compare with what the cluster decides about them.

use fabric::liveness::{Cause, Lost};
use fabric::{Event as MemberEvent, MemberView, State};
use model::id::{Incarnation, NodeId};
use model::job::Job;
use model::message::{ShardMessage, ToRunner};

use super::control::in_brackets;
use super::report::Detections;
use super::streams::Side;
use super::{Cluster, ClusterEvent};
use crate::invariants::{self, Checked};
use crate::ledger::LostAttempt;
use crate::rng::Rate;
use crate::scenario::{SECOND, Time};
use crate::world::World;

/// A node that was stopped or cut off may be declared lost for this long after: suspicions end late.
const EXCUSE: Time = 15 * SECOND;
/// A cluster without faults for this long finds a dead node within the bound.
const QUIET: Time = 20 * SECOND;

/// Up to this loss, a stream rarely stalls for longer than two heartbeats.
const LOSS_WITHOUT_EFFECT: Rate = Rate(1_000);

/// How a node died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Death {
    /// All its processes were killed: its machine closes their connections.
    Killed,
    /// Its machine lost power.
    PowerLost,
    /// Its server process hangs.
    Hung,
}

/// What happened to one node.
#[derive(Debug, Default)]
pub struct NodeTruth {
    pub stays_dead: bool,
    /// Until then the node has an excuse for being declared lost.
    excused_until: Time,
    /// When its server process ended while its spawner went on, with the incarnation that ended.
    server_stopped: Option<(Incarnation, Time)>,
    connected_since: Option<Time>,
    /// The tether that the control node sees is open since then.
    tether_since: Option<Time>,
    /// When a stream of it was broken by the network.
    stream_reset_at: Option<Time>,
    heard_at: Time,
    /// When it was declared lost last.
    lost_at: Option<Time>,
    /// The death that the cluster has not found.
    death: Option<(Death, Time, bool)>,
}

/// What happened in the cluster.
#[derive(Debug, Default)]
pub struct Truth {
    /// End of the effects of the last fault.
    disturbed_until: Time,
    /// The effects of a heavy loss end.
    lossy_until: Time,
    pub detections: Detections,
    /// A node whose story is told, with the time of its beginning.
    story: Option<(usize, Time, Vec<String>)>,
}

impl World {
    /// Whether the network has lost nothing, and no fault had an effect, for a while.
    fn is_quiet(&self) -> bool {
        let cluster = &self.cluster;
        cluster.network.is_whole()
            && cluster.network.loss == Rate::NEVER
            && cluster.control.is_up
            && cluster.truth.disturbed_until + QUIET < self.now
    }

    /// Whether streams stall for long, or did a while ago.
    fn is_lossy(&self) -> bool {
        self.cluster.network.loss > LOSS_WITHOUT_EFFECT || self.now < self.cluster.truth.lossy_until
    }

    /// The loss of packets changes.
    pub(super) fn note_loss(&mut self, loss: Rate) {
        if self.cluster.network.loss > LOSS_WITHOUT_EFFECT {
            self.cluster.truth.lossy_until = self.now + EXCUSE;
        }
        self.cluster.network.loss = loss;
        self.disturb(self.now);
    }

    /// A fault has effects until then.
    pub(super) fn disturb(&mut self, until: Time) {
        let disturbed = &mut self.cluster.truth.disturbed_until;
        *disturbed = (*disturbed).max(until);
    }

    /// Until then, and a while longer, the node has an excuse.
    pub(super) fn excuse(&mut self, node: usize, until: Time) {
        let excused = &mut self.cluster.nodes[node].truth.excused_until;
        *excused = (*excused).max(until + EXCUSE);
    }

    pub(super) fn note_start(&mut self, node: usize) {
        self.cluster.nodes[node].truth.death = None;
        self.disturb(self.now);
    }

    pub(super) fn note_stop(&mut self, node: usize, keeps_processes: bool) {
        let incarnation = self.runners[node].incarnation;
        let now = self.now;
        let truth = &mut self.cluster.nodes[node].truth;
        truth.connected_since = None;
        truth.server_stopped = keeps_processes.then_some((incarnation, now));
        if !keeps_processes {
            truth.tether_since = None;
        }
    }

    pub(super) fn note_connected(&mut self, node: usize) {
        self.cluster.nodes[node].truth.connected_since = Some(self.now);
        self.note_heard(node);
        if self.cluster.nodes[node].truth.lost_at.take().is_some() {
            self.coverage.count("nodes that returned after they were lost");
        }
    }

    pub(super) fn note_heard(&mut self, node: usize) {
        self.cluster.nodes[node].truth.heard_at = self.now;
    }

    pub(super) fn note_tether_opened(&mut self, node: usize) {
        let truth = &mut self.cluster.nodes[node].truth;
        truth.tether_since = truth.tether_since.or(Some(self.now));
    }

    pub(super) fn note_tether_ended(&mut self, node: usize) {
        // A new one is opened before the old one is closed.
        let is_open = |it: &super::Connection| it.is_tether() && it.node() == node && it.is_open(Side::Control);
        if !self.cluster.connections.values().any(is_open) {
            self.cluster.nodes[node].truth.tether_since = None;
        }
    }

    /// The control node is stopped, and answers no pings: the nodes close their links to it. One without a tether has
    /// neither then, as if it had died, until it connects again.
    pub(super) fn note_control_pause(&mut self, duration: Time) {
        for node in 0..self.runners.len() {
            if self.cluster.nodes[node].truth.tether_since.is_none() {
                self.excuse(node, self.now + duration);
            }
        }
    }

    /// The network breaks a stream of a node. A second one shortly after, a stalled one, or a control node that is stopped
    /// and answers nothing, may look like a death.
    pub(super) fn note_stream_reset(&mut self, node: usize) {
        let control_paused_until = self.cluster.nodes[self.cluster.control_index()].paused_until;
        if control_paused_until > self.now {
            self.excuse(node, control_paused_until);
        }
        let now = self.now;
        let before = self.cluster.nodes[node].truth.stream_reset_at.replace(now);
        if before.is_some_and(|before| before + EXCUSE > now) || self.is_lossy() {
            self.excuse(node, now);
        }
    }

    /// A node dies. If the network works, it must be found within the bound.
    pub(super) fn note_death(&mut self, node: usize, death: Death, is_alone: bool) {
        let truth = &self.cluster.nodes[node].truth;
        let is_established = |since: Option<Time>| since.is_some_and(|since| since + QUIET < self.now);
        let is_known = is_established(truth.connected_since) && is_established(truth.tether_since);
        let is_checked = is_known && is_alone && self.is_quiet();
        self.cluster.nodes[node].truth.death = Some((death, self.now, is_alone));
        self.tell_story(format!("{} dies: {death:?}", Cluster::id(node)), Cluster::id(node));
        if is_checked {
            self.coverage.count("deaths while the network worked");
            let bound = self.detection_bound();
            self.cluster_after(bound, ClusterEvent::DetectionDue { node, death });
        }
    }

    /// The profile's bound: two heartbeats of silence, and the suspicion of a cluster of this size.
    fn detection_bound(&self) -> Time {
        2 * SECOND + self.cluster.plan.profile.suspicion_of(self.cluster.nodes.len()).0
    }

    /// 2: a dead node is found in time, unless another fault came between.
    pub(super) fn check_detection(&mut self, node: usize, death: Death) -> Checked {
        let bound = self.detection_bound();
        let died_at = self.now - bound;
        if self.cluster.truth.disturbed_until > died_at {
            return Ok(());
        }
        let truth = &self.cluster.nodes[node].truth;
        let state = self.member_state(node);
        let found = truth.lost_at.is_some_and(|lost_at| lost_at >= died_at);
        self.coverage.count("dead nodes found within the bound");
        invariants::invariant_dead_nodes_are_found((Cluster::id(node), death), found, bound, state)
    }

    /// The control node declares a node lost.
    pub(super) fn check_loss(&mut self, lost: Lost) -> Checked {
        let node = Cluster::index(lost.node);
        let (now, is_up) = (self.now, self.runners[node].is_up());
        let is_current = is_up && self.runners[node].incarnation == lost.incarnation;
        let grace = self.cluster.plan.adopt_grace.0;
        let truth = &mut self.cluster.nodes[node].truth;
        let is_excused = now < truth.excused_until;
        truth.lost_at = Some(now);
        if let Some((death, died_at, is_alone)) = truth.death.take() {
            self.cluster.truth.detections.add(death, is_alone, now - died_at);
            return Ok(());
        }
        let truth = &self.cluster.nodes[node].truth;
        if is_current {
            let silent_for = now - truth.heard_at;
            if !is_excused {
                self.cluster.truth.detections.false_alarms += 1;
            }
            return invariants::invariant_reachable_nodes_are_not_lost(lost, is_excused, silent_for);
        }
        // Its server process ended. The spawner, and with it the tether, went on.
        let stopped = truth.server_stopped.filter(|(incarnation, _)| *incarnation == lost.incarnation);
        if let Some((_, stopped_at)) = stopped {
            // Clocks differ by up to two percent.
            let is_late = (now - stopped_at) * 103 / 100 >= grace;
            let had_tether = truth.tether_since.is_some_and(|since| since < stopped_at);
            // The end of its link is sent again and again, and has not arrived: it looks as if it hung.
            let seems_hung = lost.cause == Cause::Silent && self.cluster.control.links.contains_key(&lost.node);
            let may_be_lost = is_late || is_excused || self.is_lossy() || !had_tether || seems_hung;
            return invariants::invariant_restarted_servers_are_waited_for(lost, may_be_lost);
        }
        Ok(())
    }

    /// 1: an attempt of a node that ran and could be reached all the time is not given up.
    pub(crate) fn check_lost_attempt(&self, lost: &LostAttempt) -> Checked {
        if !self.cluster.is_active() {
            return Ok(());
        }
        let Some(node) = self.runners.iter().position(|runner| runner.id == lost.runner) else { return Ok(()) };
        let runner = &self.runners[node];
        let truth = &self.cluster.nodes[node].truth;
        let is_connected = truth.connected_since.is_some_and(|since| since + QUIET < self.now);
        let is_reachable = runner.is_up() && is_connected && truth.excused_until < self.now;
        let has_it = runner.links.values().any(|link| link.is_known(lost.attempt_ref));
        invariants::invariant_attempts_of_reachable_nodes_are_kept(lost, is_reachable && has_it)
    }

    /// A membership finds a member dead.
    pub(super) fn note_member_death(&mut self, member: &MemberView) {
        let node = Cluster::index(member.node);
        let is_control = node == self.cluster.control_index();
        if is_control || self.runners[node].incarnation != member.incarnation {
            return;
        }
        let truth = &self.cluster.nodes[node].truth;
        let is_running = self.runners[node].is_up();
        match truth.death {
            Some((death, died_at, true)) => self.cluster.truth.detections.member(death, self.now - died_at),
            Some(_) => {}
            None if is_running && self.now >= truth.excused_until => {
                self.cluster.truth.detections.false_suspects += 1;
            }
            None => {}
        }
    }

    /// Tells the story of a node from now on.
    pub(super) fn begin_story(&mut self, node: usize) {
        self.cluster.truth.story = Some((node, self.now, Vec::new()));
    }

    pub(super) fn take_story(&mut self) -> Vec<String> {
        self.cluster.truth.story.take().map(|(_, _, lines)| lines).unwrap_or_default()
    }

    pub(crate) fn tell_story(&mut self, what: String, node: NodeId) {
        let now = self.now;
        if let Some((of, since, lines)) = &mut self.cluster.truth.story
            && Cluster::id(*of) == node
        {
            lines.push(format!("{:>6} ms  {what}", now - *since));
        }
    }

    /// What another runner node sees.
    pub(super) fn note_story(&mut self, observer: usize, event: &MemberEvent) {
        if self.cluster.truth.story.is_none() || observer == self.cluster.control_index() {
            return;
        }
        if let MemberEvent::Changed { member, .. } = event {
            let state = match member.state {
                State::Alive => "alive",
                State::ProbeFailed => "probe failed",
                State::Suspected => "suspected",
                State::Dead => "dead",
                State::Left => "left",
            };
            let source = format!("{:?}", member.source);
            self.tell_story(format!("{}: {state}{}", Cluster::id(observer), in_brackets(Some(&source))), member.node);
        }
    }

    /// A shard gives an attempt of a job to a runner.
    pub(crate) fn tell_dispatch(&mut self, runner: usize, message: &ToRunner) {
        let Some((node, _, _)) = &self.cluster.truth.story else { return };
        let (node, id) = (*node, Cluster::id(*node));
        let Some(ShardMessage::Run { attempt_ref, .. }) = message.message() else { return };
        let known = self.ledger.jobs.get(&attempt_ref.job).map(|known| &known.record);
        let was_there = |job: &Job| job.attempts.iter().any(|attempt| attempt.runner.0 == id.0);
        if let Some(job) = known.filter(|job| runner != node && was_there(job)) {
            let (to, kind) = (self.runners[runner].id, if job.exclusive { "exclusive " } else { "" });
            self.tell_story(
                format!("shard: attempt {} of {kind}{} is given to {to}", attempt_ref.attempt, attempt_ref.job),
                id,
            );
        }
    }

    /// The runner with the most attempts in flight.
    pub(super) fn busiest_runner(&self) -> Option<usize> {
        let in_flight = |index: &usize| self.runners[*index].links.values().map(|link| link.in_flight().count()).sum();
        let busiest = (0..self.runners.len()).max_by_key(|index| -> usize { in_flight(index) })?;
        let count: usize = in_flight(&busiest);
        (count > 0).then_some(busiest)
    }

    pub(super) fn node_hours(&mut self) -> f64 {
        self.runners.len() as f64 * self.now as f64 / 3_600_000.0
    }
}
