//! Verification of a shard's chain, in chunks.

use ::api::{AuditReportView, BrokenView, CheckpointView, ShardAuditView, VerifiedCheckpointView};
use bytes::Bytes;
use model::audit::{Broken, Head};
use model::id::ShardId;
use store::Key;
use tokio::sync::watch;

use super::super::Core;
use super::super::problem::{ProblemKind, Refused};
use super::log::{Log, StoredLog, removed};

/// Verifies all chains up to their recorded heads. Blocks on the store.
pub(super) fn verify(core: &Core, stopping: &watch::Receiver<bool>) -> Result<AuditReportView, Refused> {
    let mut shards = Vec::new();
    for shard in core.shards.all() {
        let log = StoredLog { store: core.store(), shard };
        shards.push(verify_shard(&log, shard, &core.audit_key, stopping)?);
    }
    let public_key = Some(core.audit_key.public().to_string());
    Ok(AuditReportView { ok: shards.iter().all(|shard| shard.ok), public_key, shards })
}

fn verify_shard(
    log: &impl Log,
    shard: ShardId,
    audit_key: &signing::Key,
    stopping: &watch::Receiver<bool>,
) -> Result<ShardAuditView, Refused> {
    let mut start = log.start()?;
    // Entries that are appended later are beyond it.
    let mut end = log.head()?;
    let mut at = removed(start.as_ref());
    let broken = loop {
        if at.number >= end.number {
            // The same length with another link: entries were rewritten.
            break (at != end).then_some(Broken::Changed { number: at.number });
        }
        if *stopping.borrow() {
            return Err(Refused::new(ProblemKind::Stopping));
        }
        let entries = log.chunk(at.number)?;
        let Some(broken) = follow(&mut at, end, &entries) else { continue };
        match log.moved_start(at.number)? {
            Some(moved) => {
                at = moved.checkpoint.head();
                start = Some(moved);
                end = log.head()?;
            }
            None => break Some(broken),
        }
    };
    let invalid = start.as_ref().and_then(|signed| audit_key.verify_own(signed, shard).err());
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
    use model::key;

    use super::super::log::shortening::{OVERTAKING, SHARD, ShorteningLog};
    use super::*;

    #[test]
    fn a_log_that_is_being_shortened_is_intact() {
        for removals in OVERTAKING {
            let log = ShorteningLog::new(20, 4, removals);
            let (_stop, stopping) = watch::channel(false);
            let report = verify_shard(&log, SHARD, &log.key, &stopping);
            let report = report.unwrap_or_else(|refused| panic!("{:?}", refused.problem()));
            assert!(report.ok, "{removals:?}: {report:?}");
            assert_eq!(report.first + report.entries, report.last + 1, "{removals:?}: {report:?}");
            assert!(report.last >= 20, "{removals:?}: {report:?}");
        }
    }

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
