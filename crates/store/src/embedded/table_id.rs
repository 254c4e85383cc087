//! The tables of the embedded store: one per keyspace, and the system table.

use model::batch::Keyspace;

pub(crate) const TABLES: usize = Keyspace::ALL.len() + 1;

/// In-memory number of a table. On disk tables are identified by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableId(u8);

impl TableId {
    /// The system table, with the owners of the shards.
    pub const SYSTEM: Self = Self(Keyspace::ALL.len() as u8);

    pub fn of(keyspace: Keyspace) -> Self {
        // Codes count from 1, in the order of `ALL`. A test checks this.
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
    fn every_keyspace_has_its_own_table() {
        for keyspace in Keyspace::ALL {
            assert_eq!(TableId::of(keyspace).keyspace(), Some(keyspace));
        }
        assert_eq!(TableId::SYSTEM.keyspace(), None);
        assert_eq!(TableId::all().count(), TABLES);
    }
}
