//! Invariants of everything that nodes observe.

use std::collections::BTreeMap;

use model::id::Incarnation;
use model::time::Millis;

use super::cluster::{Cluster, Observation};
use crate::view::{Event, MemberView, Source, State};

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation(pub String);

/// Follows the observations of all nodes.
#[derive(Debug, Default)]
pub struct Checker {
    /// What each observer last said about each node.
    last: BTreeMap<(usize, usize), MemberView>,
    /// Until when a node has an excuse for being declared dead, by true time.
    excused_until: BTreeMap<usize, Millis>,
    /// Running, reachable nodes without an excuse that were declared dead, counted once per observer.
    pub false_alarms: u64,
    /// Running nodes that were suspected, counted once per observer.
    pub false_suspicions: u64,
    pub refutations: u64,
    pub returns: u64,
    pub restarts: u64,
    pub deaths: u64,
}

impl Checker {
    /// The node was or is stopped, unreachable or restarted. Being declared dead until `until` is not a false alarm.
    pub fn excuse(&mut self, node: usize, until: Millis) {
        let excused = self.excused_until.entry(node).or_default();
        *excused = (*excused).max(until);
    }

    /// An observer that starts again knows nothing.
    pub fn forget_observer(&mut self, observer: usize) {
        self.last.retain(|(of, _), _| *of != observer);
    }

    /// Takes over what an observer knows already.
    pub fn adopt(&mut self, observer: usize, members: &[MemberView]) {
        self.last.extend(members.iter().map(|member| ((observer, Cluster::index(member.node)), *member)));
    }

    /// Checks what the nodes have observed since the last call.
    pub fn check(&mut self, cluster: &mut Cluster) -> Result<(), Violation> {
        for observation in cluster.take_observations() {
            self.observe(cluster, observation)
                .map_err(|what| Violation(format!("{what} in {observation:?} at seed time {}", observation.at.0)))?;
        }
        Ok(())
    }

    fn observe(&mut self, cluster: &Cluster, observation: Observation) -> Result<(), &'static str> {
        let Observation { at, observer, event } = observation;
        let (member, was) = match event {
            Event::Joined { member } => (member, None),
            Event::Changed { member, was } | Event::Restarted { member, was, .. } => (member, Some(was)),
            Event::Refuted { member } => (member, Some(State::Suspected)),
            Event::Returned { member } => (member, Some(State::Dead)),
            Event::Forgotten { .. }
            | Event::SelfSuspected { .. }
            | Event::SelfDeclaredDead { .. }
            | Event::SelfPaused { .. } => return Ok(()),
            Event::Superseded { .. } => return Err("a node was superseded although every id is used once"),
            Event::DuplicateRefused { .. } => return Err("a node was refused although every id is used once"),
            Event::Dropped { .. } => return Err("events were dropped"),
        };
        let node = Cluster::index(member.node);
        let last = self.last.insert((observer, node), member);
        if last.map(|last| last.state) != was {
            return Err("the previous state differs from the last one observed");
        }
        if last.is_some_and(|last| last.changed_at > member.changed_at) {
            return Err("a change is earlier than the one before");
        }
        if last.is_some_and(|last| last.incarnation > member.incarnation) {
            return Err("a node appears in an earlier incarnation");
        }
        match event {
            Event::Changed { was, .. } => invariant_order(was, member)?,
            Event::Refuted { .. } => self.refutations += 1,
            Event::Returned { .. } => self.returns += 1,
            Event::Restarted { previous, .. } => {
                self.restarts += 1;
                if previous >= member.incarnation {
                    return Err("a restart without a new incarnation");
                }
            }
            _ => {}
        }
        if member.state == State::Left && !cluster.has_left(node) && cluster.incarnation(node) == member.incarnation {
            return Err("a node is gone that did not leave");
        }
        self.count(cluster, at, node, member);
        Ok(())
    }

    fn count(&mut self, cluster: &Cluster, at: Millis, node: usize, member: MemberView) {
        let runs = cluster.is_up(node) && cluster.incarnation(node) == member.incarnation;
        let excused = self.excused_until.get(&node).is_some_and(|until| at <= *until);
        match member.state {
            State::Dead if runs && !excused => self.false_alarms += 1,
            State::Dead => self.deaths += 1,
            State::Suspected if runs && !excused => self.false_suspicions += 1,
            State::Suspected | State::Alive | State::ProbeFailed | State::Left => {}
        }
    }

    /// What `observer` last said about `node`.
    pub fn last(&self, observer: usize, node: usize) -> Option<(State, Incarnation)> {
        self.last.get(&(observer, node)).map(|member| (member.state, member.incarnation))
    }
}

/// Alive → ProbeFailed → Suspected → Dead. Others than the prober may miss steps.
fn invariant_order(was: State, member: MemberView) -> Result<(), &'static str> {
    let own_probe = member.source == Source::Probe;
    let ordered = match (was, member.state) {
        (State::Alive, State::ProbeFailed) | (State::ProbeFailed, State::Alive) => true,
        (State::ProbeFailed, State::Suspected) => true,
        (State::Alive, State::Suspected) => !own_probe,
        (State::Suspected, State::Dead) => true,
        (State::Alive | State::ProbeFailed, State::Dead) => !own_probe,
        (_, State::Left) => true,
        _ => false,
    };
    if ordered { Ok(()) } else { Err("states are out of order") }
}
