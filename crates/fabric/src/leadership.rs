//! Leadership without election: advice about who should act. The store decides who may.

use model::id::NodeId;

use crate::identity::Role;
use crate::view::MemberView;

/// The control node with the lowest id that is not dead. `members` contains this node. A suspected leader leads until it is
/// dead, so that a suspicion alone moves nothing.
pub fn leader(members: &[MemberView]) -> Option<NodeId> {
    members
        .iter()
        .filter(|member| member.role == Role::Control && member.state.is_running())
        .map(|member| member.node)
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::member;
    use crate::view::State;

    // FEATURES: A7
    #[test]
    fn the_lowest_control_node_that_is_not_dead_leads() {
        let mut members = vec![
            member(9, Role::Control, State::Alive),
            member(3, Role::Control, State::Suspected),
            member(2, Role::Control, State::Dead),
            member(1, Role::Runner, State::Alive),
        ];
        assert_eq!(leader(&members), Some(NodeId(3)));
        members[1].state = State::Left;
        assert_eq!(leader(&members), Some(NodeId(9)));
        members[0].state = State::Dead;
        assert_eq!(leader(&members), None);
    }
}
