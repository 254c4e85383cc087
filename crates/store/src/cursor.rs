//! Cursors of event streams.

use std::fmt;

use crate::{Position, StoreId};

/// Limit of the positions in a cursor: one for each shard.
const POSITIONS_MAX: usize = 1_024;

/// A place in the event streams of all shards: the last position read. A store whose shards share one log has one
/// position, others have one for each shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    store: StoreId,
    positions: Vec<Position>,
}

impl Cursor {
    pub fn new(store: StoreId, positions: Vec<Position>) -> Self {
        Self { store, positions }
    }

    pub fn store(&self) -> StoreId {
        self.store
    }

    pub fn positions(&self) -> &[Position] {
        &self.positions
    }

    /// Parses the text of a cursor. Cursors of earlier versions name no store and count as of `own`.
    pub fn parse(text: &str, own: StoreId) -> Option<Self> {
        let mut numbers = text.split('.').map(hexadecimal).collect::<Option<Vec<u64>>>()?;
        if numbers.len() > POSITIONS_MAX + 1 {
            return None;
        }
        let store = if numbers.len() == 1 { own } else { StoreId(numbers.remove(0)) };
        Some(Self { store, positions: numbers.into_iter().map(Position).collect() })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.store.0)?;
        self.positions.iter().try_for_each(|position| write!(f, ".{:x}", position.0))
    }
}

/// A number without sign or prefix.
fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_its_text() {
        let own = StoreId(7);
        for positions in [vec![Position(255)], vec![Position(0), Position(u64::MAX)]] {
            let cursor = Cursor::new(StoreId(u64::MAX), positions);
            assert_eq!(Cursor::parse(&cursor.to_string(), own), Some(cursor));
        }
        assert_eq!(Cursor::parse("ff", own), Some(Cursor::new(own, vec![Position(255)])), "of an earlier version");
        for bad in ["", ".", "1.", "+1.1", "1.x", &".1".repeat(POSITIONS_MAX + 2)] {
            assert_eq!(Cursor::parse(bad, own), None, "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn parsing_any_text_as_a_cursor_does_not_panic(text in ".{0,40}") {
            let _ = Cursor::parse(&text, StoreId(1));
        }
    }
}
