//! Verification of a shard's chain, in chunks.

use ::api::{AuditReportView, BrokenView, CheckpointView, ShardAuditView, VerifiedCheckpointView};
use bytes::Bytes;
use model::audit::{Broken, Head, SignedCheckpoint};
use model::batch::Keyspace;
use model::codec;
use model::id::ShardId;
use model::key;
use store::{Key, Order, Range};
use tokio::sync::watch;

use super::super::Core;
use super::super::problem::{ProblemKind, Refused};
use crate::error::Error;

/// Entries read at once.
const CHUNK: usize = 1_000;

/// The recorded head of a shard's chain.
pub(super) fn head(core: &Core, shard: ShardId) -> Result<Head, Refused> {
    match core.store().get(shard, Keyspace::Meta, key::META_AUDIT)? {
        Some(value) => Ok(codec::decode(&value).map_err(|source| Error::record(shard, source))?),
        None => Ok(Head::START),
    }
}

/// The recorded beginning of a shard's chain. Absent: no entry was removed.
pub(super) fn start(core: &Core, shard: ShardId) -> Result<Option<SignedCheckpoint>, Refused> {
    let stored = core.store().get(shard, Keyspace::Meta, key::META_AUDIT_START)?;
    let decode = |value: Bytes| codec::decode(&value).map_err(|source| Error::record(shard, source));
    Ok(stored.map(decode).transpose()?)
}

/// The end of the removed part of a chain.
pub(super) fn removed(start: Option<&SignedCheckpoint>) -> Head {
    start.map_or(Head::START, |signed| signed.checkpoint.head())
}

/// The beginning of a chain whose next entry is missing, if entries beyond `number` were removed meanwhile.
pub(super) fn moved_start(core: &Core, shard: ShardId, number: u64) -> Result<Option<SignedCheckpoint>, Refused> {
    Ok(start(core, shard)?.filter(|signed| signed.checkpoint.number > number))
}

/// A chunk of stored entries after a number.
pub(super) fn chunk(core: &Core, shard: ShardId, after: u64) -> Result<Vec<(Key, Bytes)>, store::Error> {
    let range = Range::all().after(&Key::new(&key::audit(after)));
    core.store().scan(shard, Keyspace::Audit, range, Order::Ascending, CHUNK)
}

/// Verifies all chains up to their recorded heads. Blocks on the store.
pub(super) fn verify(core: &Core, stopping: &watch::Receiver<bool>) -> Result<AuditReportView, Refused> {
    let mut shards = Vec::new();
    for shard in core.shards.all() {
        shards.push(verify_shard(core, shard, stopping)?);
    }
    let public_key = Some(core.audit_key.public().to_string());
    Ok(AuditReportView { ok: shards.iter().all(|shard| shard.ok), public_key, shards })
}

fn verify_shard(core: &Core, shard: ShardId, stopping: &watch::Receiver<bool>) -> Result<ShardAuditView, Refused> {
    let mut start = start(core, shard)?;
    // Entries that are appended later are beyond it.
    let mut end = head(core, shard)?;
    let mut at = removed(start.as_ref());
    let broken = loop {
        if at.number >= end.number {
            // The same length with another link: entries were rewritten.
            break (at != end).then_some(Broken::Changed { number: at.number });
        }
        if *stopping.borrow() {
            return Err(Refused::new(ProblemKind::Stopping));
        }
        let entries = chunk(core, shard, at.number)?;
        let Some(broken) = follow(&mut at, end, &entries) else { continue };
        match moved_start(core, shard, at.number)? {
            Some(moved) => {
                at = moved.checkpoint.head();
                start = Some(moved);
                end = head(core, shard)?;
            }
            None => break Some(broken),
        }
    };
    let invalid = start.as_ref().and_then(|signed| core.audit_key.verify_own(signed, shard).err());
    let removed = removed(start.as_ref()).number;
    let broken = match invalid {
        Some(invalid) => Some(BrokenView::checkpoint(removed, invalid)),
        None => broken.map(BrokenView::from),
    };
    let valid = invalid.is_none();
    Ok(ShardAuditView {
        shard: shard.0,
        first: removed.saturating_add(1),
        entries: at.number - removed,
        last: at.number,
        head: at.link.to_string(),
        checkpoint: start.map(|signed| VerifiedCheckpointView { checkpoint: CheckpointView::new(&signed), valid }),
        ok: broken.is_none(),
        broken,
    })
}

/// Follows some entries, not beyond the end. Returns the first fault.
fn follow(at: &mut Head, end: Head, entries: &[(Key, Bytes)]) -> Option<Broken> {
    if entries.is_empty() {
        return Some(Broken::Unreadable { number: at.number + 1 });
    }
    for (_, stored) in entries {
        if at.number == end.number {
            break;
        }
        if let Err(broken) = at.follow(stored) {
            return Some(broken);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use model::audit::{Action, AuditEntry};

    use super::*;

    fn chain(length: u64) -> (Head, Vec<(Key, Bytes)>) {
        let mut head = Head::START;
        let entries = (1..=length).map(|number| {
            let mut buffer = Vec::new();
            head.append(&mut AuditEntry::of(Action::Allowed), &mut buffer);
            (Key::new(&key::audit(number)), Bytes::from(buffer))
        });
        let entries = entries.collect();
        (head, entries)
    }

    #[test]
    fn a_chain_is_followed_to_its_end_and_not_beyond() {
        let (_, entries) = chain(5);
        let (end, _) = chain(3);
        let mut at = Head::START;
        assert_eq!(follow(&mut at, end, &entries), None);
        assert_eq!(at, end);
    }

    #[test]
    fn a_chain_with_missing_entries_is_broken() {
        let (end, entries) = chain(5);
        let mut at = Head::START;
        assert_eq!(follow(&mut at, end, &entries[..2]), None);
        assert_eq!(follow(&mut at, end, &[]), Some(Broken::Unreadable { number: 3 }));
        assert_eq!(follow(&mut at, end, &entries[3..]), Some(Broken::Missing { number: 3, found: 4 }));
    }
}
