//! Fixtures of the unit tests.

use model::id::{Incarnation, NodeId};
use model::time::Millis;

use crate::identity::Role;
use crate::view::{MemberView, Source, State};

pub(crate) fn member(node: u64, role: Role, state: State) -> MemberView {
    MemberView {
        node: NodeId(node),
        incarnation: Incarnation(1),
        address: ([127, 0, 0, 1], 7_000).into(),
        role,
        state,
        changed_at: Millis(0),
        source: Source::Probe,
    }
}
