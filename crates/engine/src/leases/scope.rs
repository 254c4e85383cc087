//! The identity of a limit, its home shard and its key on disk.

use minicbor::{Decode, Encode};
use model::codec::DecodeError;
use model::id::{ShardId, Shards, Slot};

const TENANT_BYTES: usize = 16;
const RULE_BYTES: usize = 8;
const SCOPE_BYTES: usize = 1 + TENANT_BYTES + RULE_BYTES;

/// Length of a grant record's key: scope, then shard. Below `model::batch::KEY_BYTES_MAX`.
pub const LEDGER_KEY_BYTES: usize = SCOPE_BYTES + 2;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum LimitKind {
    /// Jobs on runners: a slot each, given back when the attempt ends.
    #[n(0)]
    Running,
    /// Jobs that are not terminal: a slot each, given back when the job ends.
    #[n(1)]
    Live,
    /// Submissions per second: a token each, never given back.
    #[n(2)]
    Submits,
}

impl LimitKind {
    const ALL: [Self; 3] = [Self::Running, Self::Live, Self::Submits];

    /// Counted in tokens, which are used up, not in slots, which are given back.
    pub fn is_token(self) -> bool {
        match self {
            Self::Running | Self::Live => false,
            Self::Submits => true,
        }
    }

    fn code(self) -> u8 {
        self as u8
    }
}

/// The identity of a limit: its kind, its tenant, and the rule if it does not apply to all of the tenant's jobs.
///
/// Names are hashed, because scopes are copied, compared and stored often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Scope {
    #[n(0)]
    kind: LimitKind,
    #[cbor(n(1), with = "minicbor::bytes")]
    tenant: [u8; TENANT_BYTES],
    #[cbor(n(2), with = "minicbor::bytes")]
    rule: [u8; RULE_BYTES],
}

/// Truncated hash of a name.
fn digest<const BYTES: usize>(name: &str) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes.copy_from_slice(&blake3::hash(name.as_bytes()).as_bytes()[..BYTES]);
    bytes
}

impl Scope {
    pub fn of_tenant(kind: LimitKind, tenant: &str) -> Self {
        Self { kind, tenant: digest(tenant), rule: [0; RULE_BYTES] }
    }

    /// A limit that a policy rule sets for some of a tenant's jobs, in addition to the tenant's own.
    pub fn of_rule(kind: LimitKind, tenant: &str, rule: &str) -> Self {
        Self { rule: digest(rule), ..Self::of_tenant(kind, tenant) }
    }

    pub fn kind(self) -> LimitKind {
        self.kind
    }

    /// The home shard; the same for all limits of a tenant.
    pub fn home(self, shards: Shards) -> ShardId {
        let mut number = [0; 8];
        number.copy_from_slice(&self.tenant[..8]);
        shards.owner(Slot::of(u64::from_be_bytes(number)))
    }

    /// Key of the home's record of the slots granted to `shard`.
    pub fn ledger_key(self, shard: ShardId) -> [u8; LEDGER_KEY_BYTES] {
        let mut key = [0; LEDGER_KEY_BYTES];
        key[0] = self.kind.code();
        key[1..1 + TENANT_BYTES].copy_from_slice(&self.tenant);
        key[1 + TENANT_BYTES..SCOPE_BYTES].copy_from_slice(&self.rule);
        key[SCOPE_BYTES..].copy_from_slice(&shard.0.to_be_bytes());
        key
    }

    /// Inverse of [`Scope::ledger_key`].
    pub fn from_ledger_key(key: &[u8]) -> Result<(Self, ShardId), DecodeError> {
        let key: [u8; LEDGER_KEY_BYTES] =
            key.try_into().map_err(|_| DecodeError::Unknown { what: "grant key length", value: key.len() as u64 })?;
        let kind = LimitKind::ALL
            .into_iter()
            .find(|kind| kind.code() == key[0])
            .ok_or(DecodeError::Unknown { what: "limit kind", value: u64::from(key[0]) })?;
        let mut scope = Self { kind, tenant: [0; TENANT_BYTES], rule: [0; RULE_BYTES] };
        scope.tenant.copy_from_slice(&key[1..1 + TENANT_BYTES]);
        scope.rule.copy_from_slice(&key[1 + TENANT_BYTES..SCOPE_BYTES]);
        Ok((scope, ShardId(u16::from_be_bytes([key[SCOPE_BYTES], key[SCOPE_BYTES + 1]]))))
    }
}

#[cfg(test)]
mod tests {
    use model::batch::KEY_BYTES_MAX;
    use model::limits::NAME_BYTES_MAX;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_names_fit_a_key() {
        let long = "x".repeat(NAME_BYTES_MAX);
        let scope = Scope::of_rule(LimitKind::Submits, &long, &long);
        let key = scope.ledger_key(ShardId(1023));
        assert!(key.len() <= KEY_BYTES_MAX);
        assert_eq!(Scope::from_ledger_key(&key), Ok((scope, ShardId(1023))));
    }

    #[test]
    fn limits_differ_by_kind_tenant_and_rule_and_a_tenant_has_one_home() {
        let shards = Shards::new(16).unwrap();
        let scopes = [
            Scope::of_tenant(LimitKind::Running, "acme"),
            Scope::of_tenant(LimitKind::Live, "acme"),
            Scope::of_tenant(LimitKind::Submits, "acme"),
            Scope::of_rule(LimitKind::Running, "acme", "gpu"),
            Scope::of_rule(LimitKind::Running, "acme", "large"),
        ];
        for (index, scope) in scopes.iter().enumerate() {
            assert!(!scopes[..index].contains(scope));
            assert_eq!(scope.home(shards), scopes[0].home(shards));
        }
        assert_ne!(scopes[0], Scope::of_tenant(LimitKind::Running, "other"));
    }

    proptest! {
        #[test]
        fn arbitrary_key_bytes_are_refused_or_round_trip(key in prop::collection::vec(any::<u8>(), 0..30)) {
            if let Ok((scope, shard)) = Scope::from_ledger_key(&key) {
                prop_assert_eq!(&scope.ledger_key(shard)[..], &key[..]);
            }
        }
    }
}
