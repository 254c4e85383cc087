//! Retention of the audit log: the oldest entries are removed in chunks, each with a signed checkpoint.
//!
//! A chunk is read from the store, its checkpoint is signed by the shell, and only then are its entries removed: one
//! commit holds the checkpoint, the removal and an entry about it. Nothing is stored before that commit, so after a crash
//! the next owner begins again.

use model::audit::{Action, AuditEntry, Checkpoint, Head, SignedCheckpoint};
use model::batch::Keyspace;
use model::codec;
use model::key;

use crate::fetch::{Fetch, OldAuditEntry};
use crate::input::{Effect, SignRequest};
use crate::shard::Shard;
use crate::step::Step;

/// With a smaller chunk the entry about a removal would take the place of the only removed one.
const CHUNK_MIN: usize = 2;

/// The removal of old entries that is under way.
#[derive(Debug, Default)]
pub(super) enum Removal {
    #[default]
    None,
    /// The oldest entries were requested from the store.
    Reading,
    /// The signature was requested.
    Signing {
        checkpoint: Checkpoint,
        /// There may be more old entries behind it.
        more: bool,
    },
}

impl Shard {
    /// Restores the beginning of a shortened chain. Call it before [`Shard::resume`].
    pub fn restore_audit_start(&mut self, start: SignedCheckpoint) {
        self.audit.start = Some(start);
    }

    /// The end of the removed part of the chain.
    fn removed_audit(&self) -> Head {
        self.audit.start.map_or(Head::START, |start| start.checkpoint.head())
    }

    /// Begins the removal of old entries. A signature that has not arrived since the last sweep is requested again.
    pub(crate) fn sweep_audit(&mut self, step: &mut Step) {
        match self.audit.removal {
            Removal::None => self.fetch_old_audit(step),
            Removal::Reading => {}
            Removal::Signing { checkpoint, .. } => self.request_signature(checkpoint, step),
        }
    }

    fn fetch_old_audit(&mut self, step: &mut Step) {
        let Some(retention) = self.config.audit_retention else { return };
        self.audit.removal = Removal::Reading;
        let (after, before) = (self.removed_audit(), self.now.saturating_sub(retention));
        let limit = self.config.sweep_chunk.max(CHUNK_MIN);
        step.effects.push(Effect::Fetch(Fetch::OldAudit { after, before, limit }));
    }

    fn request_signature(&mut self, checkpoint: Checkpoint, step: &mut Step) {
        let request = SignRequest { checkpoint, previous: self.audit.start };
        step.effects.push(Effect::SignAudit(Box::new(request)));
    }

    pub(crate) fn fetched_old_audit(&mut self, entries: &[OldAuditEntry], more: bool, step: &mut Step) {
        self.audit.removal = Removal::None;
        let Some(retention) = self.config.audit_retention else { return };
        let expired = self.now.saturating_sub(retention);
        let expected = self.removed_audit().number.saturating_add(1)..=self.audit.head.number;
        let is_next = |(entry, number): &(&OldAuditEntry, u64)| entry.number == *number && entry.at < expired;
        let old: Vec<&OldAuditEntry> =
            entries.iter().zip(expected).take_while(is_next).map(|(entry, _)| entry).collect();
        let Some(last) = old.last() else { return };
        // Otherwise an idle shard would remove the entry about the last removal, log that, and so on.
        if !more && old.iter().all(|entry| entry.action == Action::AuditShortened) {
            return;
        }
        let checkpoint = Checkpoint { shard: self.config.shard, number: last.number, link: last.link, at: self.now };
        self.audit.removal = Removal::Signing { checkpoint, more };
        self.request_signature(checkpoint, step);
    }

    /// Removes the entries up to a signed checkpoint. A signature that was not requested, or is no longer, is ignored.
    pub(crate) fn audit_signed(&mut self, signed: SignedCheckpoint, step: &mut Step) {
        let Removal::Signing { checkpoint, more } = self.audit.removal else { return };
        if signed.checkpoint != checkpoint {
            return;
        }
        let first = self.removed_audit().number + 1;
        for number in first..=checkpoint.number {
            step.batch.delete(Keyspace::Audit, &key::audit(number));
        }
        step.batch.put_with(Keyspace::Meta, key::META_AUDIT_START, |buffer| codec::encode_into(&signed, buffer));
        self.audit.start = Some(signed);
        self.audit.removal = Removal::None;
        let message = format!("entries {first} to {} removed; link {}", checkpoint.number, checkpoint.link);
        self.append_audit(AuditEntry { message: Some(message), ..AuditEntry::of(Action::AuditShortened) }, step);
        if more {
            self.fetch_old_audit(step);
        }
    }
}
