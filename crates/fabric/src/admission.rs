//! What a packet may tell foca. Foca trusts every sender with a new identity; these checks come before it.

use foca::Message;

use crate::identity::Identity;
use crate::limits::MEMBERS_MAX;
use crate::packet::Packet;
use crate::roster::Roster;

/// Why a packet is not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// From this node itself, for example because its own address is among the join addresses.
    Own,
    /// The sender or the receiver cannot be what the packet says.
    Misdirected,
    /// For an earlier life of this node. The sender has not heard of this one.
    ForEarlierLife,
    /// From an earlier life of a member. `known` is the current one.
    FromEarlierLife { known: Identity },
    /// A second process with the id and incarnation of a running member.
    Duplicate { known: Identity },
    /// No room for another member.
    Full,
    /// Another process has this node's id, and the cluster accepted it.
    Superseded { by: Identity },
}

/// Examines a packet for the node `me`. Removes updates that foca must not see and fills in the receiver of an announcement.
/// Returns whether the packet was changed.
pub(crate) fn examine(packet: &mut Packet, me: &Identity, roster: &Roster) -> Result<bool, Refusal> {
    let src = packet.header.src;
    let mut changed = false;
    if src == *me {
        return Err(Refusal::Own);
    }
    if !src.is_valid() {
        return Err(Refusal::Misdirected);
    }
    if packet.header.message == Message::Announce && packet.header.dst.node == Identity::UNKNOWN {
        packet.header.dst = *me;
        changed = true;
    }
    let dst = packet.header.dst;
    if dst.node != me.node {
        return Err(Refusal::Misdirected);
    }
    if dst != *me && packet.header.message != Message::Announce {
        return Err(if dst < *me { Refusal::ForEarlierLife } else { Refusal::Misdirected });
    }
    if src.node == me.node {
        // An earlier life, or a second process that the cluster will refuse.
        return Err(Refusal::Misdirected);
    }
    let mut room = MEMBERS_MAX.saturating_sub(roster.len());
    match roster.view(src.node).zip(roster.identity(src.node)) {
        Some((view, known)) => {
            if view.state.is_running() && known.incarnation == src.incarnation && known.address != src.address {
                return Err(Refusal::Duplicate { known });
            }
            if src < known {
                return Err(Refusal::FromEarlierLife { known });
            }
        }
        None if room == 0 => return Err(Refusal::Full),
        None => room -= 1,
    }
    if let Some(rival) = packet.updates.iter().map(|update| update.id()).find(|id| is_rival(id, me)) {
        return Err(Refusal::Superseded { by: *rival });
    }
    let updates = packet.updates.len();
    packet.updates.retain(|update| {
        let id = update.id();
        if id.node == me.node {
            // Foca would declare an earlier life of this node dead, and the cluster with it.
            return id == me;
        }
        if id.node == src.node || roster.identity(id.node).is_some() {
            return id.is_valid();
        }
        let admitted = room > 0 && id.is_valid();
        room -= usize::from(admitted);
        admitted
    });
    Ok(changed || packet.updates.len() != updates)
}

/// Another process with this node's id that the cluster prefers.
fn is_rival(id: &Identity, me: &Identity) -> bool {
    id.node == me.node
        && (id.incarnation > me.incarnation || (id.incarnation == me.incarnation && id.address != me.address))
}

#[cfg(test)]
mod tests {
    use foca::{Header, Member};
    use model::id::{Incarnation, NodeId};
    use model::time::Millis;

    use super::*;
    use crate::events::Events;
    use crate::identity::Role;
    use crate::view::Source;

    const ME: u64 = 1;

    fn identity(node: u64) -> Identity {
        Identity {
            node: NodeId(node),
            incarnation: Incarnation(5),
            rejoins: 3,
            leaving: false,
            address: ([10, 0, 0, 1], node as u16).into(),
            role: Role::Control,
        }
    }

    fn packet(src: Identity, updates: &[Identity]) -> Packet {
        let header = Header { src, src_incarnation: 0, dst: identity(ME), message: Message::Gossip };
        Packet { header, updates: updates.iter().copied().map(Member::alive).collect() }
    }

    fn roster(nodes: std::ops::RangeInclusive<u64>) -> Roster {
        let (mut roster, mut events) = (Roster::default(), Events::default());
        for node in nodes {
            roster.observe(Millis(0), &Member::alive(identity(node)), false, Source::Probe, &mut events);
        }
        roster
    }

    fn examined(mut packet: Packet, roster: &Roster) -> Result<Vec<Identity>, Refusal> {
        examine(&mut packet, &identity(ME), roster)?;
        Ok(packet.updates.into_iter().map(|update| *update.id()).collect())
    }

    #[test]
    fn a_full_roster_takes_no_new_members_and_still_listens_to_old_ones() {
        let last = MEMBERS_MAX as u64 + 1;
        let full = roster(2..=last);
        let new = identity(last + 1);
        assert_eq!(examined(packet(new, &[]), &full), Err(Refusal::Full));
        assert_eq!(examined(packet(identity(2), &[new, identity(3)]), &full), Ok(vec![identity(3)]));
        let room_for_one = roster(2..=last - 1);
        let newer = identity(last + 2);
        assert_eq!(examined(packet(identity(2), &[new, newer]), &room_for_one), Ok(vec![new]));
        assert_eq!(examined(packet(new, &[newer]), &room_for_one), Ok(vec![]));
    }

    #[test]
    fn an_announcement_to_an_unknown_id_is_for_the_node_that_receives_it() {
        let mut announcement = packet(identity(2), &[]);
        announcement.header.dst = Identity::unknown(([10, 0, 0, 1], 1).into());
        assert_eq!(examined(announcement.clone(), &roster(2..=2)), Err(Refusal::Misdirected));
        announcement.header.message = Message::Announce;
        assert_eq!(examine(&mut announcement, &identity(ME), &roster(2..=2)), Ok(true));
        assert_eq!(announcement.header.dst, identity(ME));
    }

    #[test]
    fn lives_of_this_node_are_told_apart() {
        let known = roster(2..=2);
        let earlier = Identity { rejoins: 2, ..identity(ME) };
        assert_eq!(examined(packet(identity(2), &[earlier, identity(ME)]), &known), Ok(vec![identity(ME)]));
        let restarted = Identity { incarnation: Incarnation(6), rejoins: 0, ..identity(ME) };
        let copy = Identity { address: ([10, 0, 0, 9], 9).into(), ..identity(ME) };
        for rival in [restarted, copy] {
            assert_eq!(examined(packet(identity(2), &[rival]), &known), Err(Refusal::Superseded { by: rival }));
        }
        let mut outdated = packet(identity(2), &[]);
        outdated.header.dst = earlier;
        assert_eq!(examined(outdated, &known), Err(Refusal::ForEarlierLife));
    }

    #[test]
    fn lives_of_another_node_are_told_apart() {
        let known = roster(2..=2);
        let copy = Identity { address: ([10, 0, 0, 9], 9).into(), ..identity(2) };
        assert_eq!(examined(packet(copy, &[]), &known), Err(Refusal::Duplicate { known: identity(2) }));
        let earlier = Identity { incarnation: Incarnation(4), ..copy };
        assert_eq!(examined(packet(earlier, &[]), &known), Err(Refusal::FromEarlierLife { known: identity(2) }));
        let later = Identity { incarnation: Incarnation(6), rejoins: 0, ..copy };
        assert_eq!(examined(packet(later, &[]), &known), Ok(vec![]));
    }
}
