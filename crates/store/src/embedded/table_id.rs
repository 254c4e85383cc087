//! The tables of the embedded store: one per keyspace, and one of its own.

use model::batch::Keyspace;

pub(crate) const TABLES: usize = Keyspace::ALL.len() + 1;

/// Which table. Not stored anywhere: names are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableId(u8);

impl TableId {
    /// The store's own table: who owns which shard.
    pub const SYSTEM: Self = Self(Keyspace::ALL.len() as u8);

    pub fn of(keyspace: Keyspace) -> Self {
        // Codes count from 1, in the order of `ALL`; a test keeps it so.
        Self(keyspace as u8 - 1)
    }

    pub fn all() -> impl Iterator<Item = Self> {
        (0..TABLES as u8).map(Self)
    }

    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    pub fn keyspace(self) -> Option<Keyspace> {
        Keyspace::ALL.get(self.index()).copied()
    }

    pub fn name(self) -> &'static str {
        self.keyspace().map_or("system", Keyspace::name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_keyspace_has_its_table() {
        for keyspace in Keyspace::ALL {
            assert_eq!(TableId::of(keyspace).keyspace(), Some(keyspace));
        }
        assert_eq!(TableId::SYSTEM.keyspace(), None);
        assert_eq!(TableId::all().count(), TABLES);
    }
}
