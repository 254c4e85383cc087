//! The members, their states and their changes.

use std::collections::BTreeMap;

use foca::Member;
use model::id::NodeId;
use model::time::Millis;

use crate::events::Events;
use crate::identity::{Identity, Role};
use crate::limits::{FORGET_DEAD_RUNNER_AFTER, FORGET_LEFT_AFTER, MEMBERS_MAX};
use crate::view::{Event, MemberView, Source, State};

#[derive(Debug, Clone, Copy)]
struct Record {
    identity: Identity,
    /// SWIM incarnation: counts the refuted suspicions of this life.
    refutations: u16,
    state: State,
    changed_at: Millis,
    source: Source,
}

impl Record {
    fn view(&self) -> MemberView {
        MemberView {
            node: self.identity.node,
            incarnation: self.identity.incarnation,
            address: self.identity.address,
            role: self.identity.role,
            state: self.state,
            changed_at: self.changed_at,
            source: self.source,
        }
    }
}

/// All other members. Follows foca's state and adds what foca does not know: failed probes, departures, times, sources.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    records: BTreeMap<NodeId, Record>,
    /// Changes so far.
    version: u64,
}

impl Roster {
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn views(&self) -> impl Iterator<Item = MemberView> {
        self.records.values().map(Record::view)
    }

    pub fn view(&self, node: NodeId) -> Option<MemberView> {
        self.records.get(&node).map(Record::view)
    }

    pub fn identity(&self, node: NodeId) -> Option<Identity> {
        self.records.get(&node).map(|record| record.identity)
    }

    /// The suspicion of a member, if it is suspected.
    pub fn suspicion(&self, node: NodeId) -> Option<Member<Identity>> {
        let record = self.records.get(&node).filter(|record| record.state == State::Suspected)?;
        Some(Member::new(record.identity, record.refutations, foca::State::Suspect))
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn is_full(&self) -> bool {
        self.len() >= MEMBERS_MAX
    }

    /// Takes over what foca knows about `member`. `probe_failed`: this node's probe of it is unanswered.
    pub fn observe(
        &mut self,
        now: Millis,
        member: &Member<Identity>,
        probe_failed: bool,
        source: Source,
        events: &mut Events,
    ) {
        let identity = *member.id();
        let was = self.records.get(&identity.node).map(|record| record.state);
        let state = match member.state() {
            _ if identity.leaving => State::Left,
            // A refutation is newer than the probe.
            foca::State::Alive if probe_failed && was != Some(State::Suspected) => State::ProbeFailed,
            foca::State::Alive => State::Alive,
            foca::State::Suspect => State::Suspected,
            foca::State::Down => State::Dead,
        };
        let record = Record { identity, refutations: member.incarnation(), state, changed_at: now, source };
        let Some(old) = self.records.get_mut(&identity.node) else {
            self.records.insert(identity.node, record);
            self.version += 1;
            events.push(Event::Joined { member: record.view() });
            return;
        };
        if old.identity == identity && old.state == state {
            old.refutations = record.refutations;
            return;
        }
        let was = std::mem::replace(old, record);
        self.version += 1;
        if identity.incarnation > was.identity.incarnation {
            events.push(Event::Restarted { member: record.view(), previous: was.identity.incarnation, was: was.state });
        } else if was.state == state {
            // The process returned before this node heard of its death. Its state did not change.
            old.changed_at = was.changed_at;
            old.source = was.source;
        } else {
            events.push(change(&record, was.state));
        }
    }

    /// Removes a member that is dead or gone. Returns its identity.
    pub fn forget(&mut self, node: NodeId, events: &mut Events) -> Option<Identity> {
        let record = self.records.get(&node).filter(|record| !record.state.is_running()).copied()?;
        self.records.remove(&node);
        self.version += 1;
        events.push(Event::Forgotten { member: record.view() });
        Some(record.identity)
    }

    /// Members that departed long ago.
    pub fn forgettable(&self, now: Millis) -> Vec<NodeId> {
        let is_old = |record: &&Record| {
            let age = now.saturating_sub(record.changed_at);
            match (record.state, record.identity.role) {
                (State::Left, Role::Control | Role::Runner) => age >= FORGET_LEFT_AFTER,
                (State::Dead, Role::Runner) => age >= FORGET_DEAD_RUNNER_AFTER,
                (State::Dead, Role::Control) => false,
                (State::Alive | State::ProbeFailed | State::Suspected, _) => false,
            }
        };
        self.records.values().filter(is_old).map(|record| record.identity.node).collect()
    }

    /// The member that makes room in a full roster: the oldest departed one, never a dead control node.
    pub fn replaceable(&self) -> Option<NodeId> {
        let departed = |record: &&Record| match (record.state, record.identity.role) {
            (State::Left, Role::Control | Role::Runner) | (State::Dead, Role::Runner) => true,
            (State::Dead, Role::Control) | (State::Alive | State::ProbeFailed | State::Suspected, _) => false,
        };
        let oldest = self.records.values().filter(departed).min_by_key(|record| record.changed_at)?;
        Some(oldest.identity.node)
    }
}

fn change(record: &Record, was: State) -> Event {
    let member = record.view();
    match (was, member.state) {
        (State::Suspected, State::Alive) => Event::Refuted { member },
        (State::Dead | State::Left, State::Alive | State::ProbeFailed | State::Suspected) => Event::Returned { member },
        _ => Event::Changed { member, was },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::Incarnation;

    fn member(node: u64, state: foca::State) -> Member<Identity> {
        Member::new(identity(node), 0, state)
    }

    fn identity(node: u64) -> Identity {
        Identity {
            node: NodeId(node),
            incarnation: Incarnation(1),
            rejoins: 0,
            leaving: false,
            address: ([127, 0, 0, 1], 1).into(),
            role: Role::Runner,
        }
    }

    fn drain(events: &mut Events) -> Vec<Event> {
        std::iter::from_fn(|| events.pop()).collect()
    }

    #[test]
    fn changes_have_their_time_and_source() {
        let (mut roster, mut events) = (Roster::default(), Events::default());
        let gossip = Source::Gossip(NodeId(9));
        roster.observe(Millis(1), &member(7, foca::State::Alive), false, gossip, &mut events);
        roster.observe(Millis(2), &member(7, foca::State::Alive), false, gossip, &mut events);
        roster.observe(Millis(3), &member(7, foca::State::Alive), true, Source::Probe, &mut events);
        roster.observe(Millis(4), &member(7, foca::State::Suspect), true, Source::Probe, &mut events);
        roster.observe(Millis(5), &member(7, foca::State::Down), false, gossip, &mut events);
        let seen: Vec<_> = drain(&mut events)
            .into_iter()
            .map(|event| match event {
                Event::Joined { member } | Event::Changed { member, .. } => (member.changed_at.0, member.state),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(seen, [(1, State::Alive), (3, State::ProbeFailed), (4, State::Suspected), (5, State::Dead)]);
        assert_eq!(roster.view(NodeId(7)).unwrap().source, gossip);
    }

    #[test]
    fn a_full_roster_forgets_the_oldest_departed_runner_and_never_a_running_member() {
        let (mut roster, mut events) = (Roster::default(), Events::default());
        for node in 1..=MEMBERS_MAX as u64 {
            roster.observe(Millis(node), &member(node, foca::State::Alive), false, Source::Probe, &mut events);
        }
        assert!(roster.is_full());
        assert_eq!(roster.replaceable(), None);
        for node in [9, 5, 7] {
            roster.observe(Millis(9_000 + node), &member(node, foca::State::Down), false, Source::Probe, &mut events);
        }
        assert_eq!(roster.replaceable(), Some(NodeId(5)));
        assert_eq!(roster.forget(NodeId(6), &mut events), None);
        assert_eq!(roster.forget(NodeId(5), &mut events), Some(identity(5)));
        assert!(!roster.is_full());
    }

    #[test]
    fn dead_control_nodes_are_remembered() {
        let (mut roster, mut events) = (Roster::default(), Events::default());
        let control = Identity { role: Role::Control, ..identity(1) };
        roster.observe(Millis(0), &Member::new(control, 0, foca::State::Down), false, Source::Probe, &mut events);
        roster.observe(Millis(0), &member(2, foca::State::Down), false, Source::Probe, &mut events);
        let left = Member::new(identity(3).leaving(), 0, foca::State::Alive);
        roster.observe(Millis(0), &left, false, Source::Gossip(NodeId(3)), &mut events);
        assert_eq!(roster.forgettable(Millis(FORGET_LEFT_AFTER.0 - 1)), []);
        assert_eq!(roster.forgettable(FORGET_LEFT_AFTER), [NodeId(3)]);
        assert_eq!(roster.forgettable(Millis(u64::MAX)), [NodeId(2), NodeId(3)]);
    }
}
