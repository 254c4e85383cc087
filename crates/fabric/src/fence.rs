//! Self-fencing: whether this node sees enough of the cluster to act for others.

use model::id::NodeId;

use crate::identity::Role;
use crate::view::{MemberView, State};

/// How many of the other control nodes this node sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contact {
    /// Control nodes except this one. Those that left do not count; dead ones do until they are forgotten.
    pub others: usize,
    /// Those among them that are neither suspected nor dead.
    pub visible: usize,
}

impl Contact {
    /// The contact of the node `me`. `members` is its member list; it may contain `me`.
    pub fn of(me: NodeId, members: &[MemberView]) -> Self {
        let others = members
            .iter()
            .filter(|member| member.node != me && member.role == Role::Control && member.state != State::Left);
        let visible = others.clone().filter(|member| member.state.is_visible()).count();
        Self { others: others.count(), visible }
    }

    /// Whether more than half of the others are out of sight. Then this node and those it sees are no majority of all
    /// control nodes: of two halves of a divided cluster at most one is not fenced.
    pub fn is_fenced(self) -> bool {
        (self.others - self.visible) * 2 > self.others
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::member;

    // FEATURES: A6
    #[test]
    fn at_most_one_part_of_a_divided_cluster_is_not_fenced() {
        for nodes in 1..=9usize {
            for split in 0..=nodes {
                let fenced = |mine: usize| Contact { others: nodes - 1, visible: mine - 1 }.is_fenced();
                let free = [split, nodes - split].into_iter().filter(|part| *part > 0 && !fenced(*part)).count();
                let majority = split * 2 != nodes;
                assert_eq!(free, usize::from(majority), "{nodes} nodes, {split} on one side");
            }
        }
    }

    // FEATURES: A6
    #[test]
    fn only_control_nodes_count_and_departed_ones_do_not() {
        let members = [
            member(1, Role::Control, State::Alive),
            member(2, Role::Control, State::ProbeFailed),
            member(3, Role::Control, State::Suspected),
            member(4, Role::Control, State::Dead),
            member(5, Role::Control, State::Left),
            member(6, Role::Runner, State::Alive),
            member(7, Role::Runner, State::Alive),
        ];
        let contact = Contact::of(NodeId(1), &members);
        assert_eq!(contact, Contact { others: 3, visible: 1 });
        assert!(contact.is_fenced());
        assert!(!Contact::of(NodeId(1), &members[..3]).is_fenced());
        assert!(!Contact::of(NodeId(1), &[]).is_fenced(), "a single node acts alone");
    }
}
