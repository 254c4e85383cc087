//! Local verification of an exported audit log, without trust in its source.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::str::FromStr;

use api::{
    AuditEntryView, AuditHeadView, AuditReportView, BrokenView, CheckpointView, ExportedCheckpoint, ExportedEntry,
    ExportedHead, ExportedLine, ShardAuditView, VerifiedCheckpointView,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::audit::{Head, Invalid, Link, PublicKey};
use model::id::ShardId;

/// A link recorded elsewhere. A rewritten chain does not contain it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownLink {
    pub shard: u16,
    pub number: u64,
    /// In hexadecimal.
    pub link: String,
}

/// Parse error of a [`KnownLink`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid audit log link `{0}`; expected SHARD:NUMBER:LINK, with 64 hexadecimal digits for LINK")]
pub struct InvalidKnownLink(String);

impl FromStr for KnownLink {
    type Err = InvalidKnownLink;

    fn from_str(text: &str) -> Result<Self, InvalidKnownLink> {
        let invalid = || InvalidKnownLink(text.to_owned());
        let mut parts = text.splitn(3, ':');
        let mut next = || parts.next().ok_or_else(invalid);
        let shard = next()?.parse().map_err(|_| invalid())?;
        let number = next()?.parse().ok().filter(|number| *number > 0).ok_or_else(invalid)?;
        let link = next()?.to_ascii_lowercase();
        if link.parse::<Link>().is_err() {
            return Err(invalid());
        }
        Ok(Self { shard, number, link })
    }
}

impl KnownLink {
    /// Compares the link with a checkpoint of its shard. Returns the problem; `None` as well for an entry after it.
    pub fn compare(&self, checkpoint: &CheckpointView) -> Option<String> {
        let number = self.number;
        match number.cmp(&checkpoint.number) {
            Ordering::Less => Some(format!(
                "entry {number} was removed after its retention and cannot be compared any more: record a newer link"
            )),
            Ordering::Equal if self.link != checkpoint.link => {
                Some(format!("entry {number} has a different link than the known one"))
            }
            Ordering::Equal | Ordering::Greater => None,
        }
    }
}

/// A line that is not part of an exported log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a line of an exported audit log: {0}")]
pub struct InvalidLine(String);

/// Verifies the lines of an exported log, in order, for changes and omissions.
#[derive(Debug, Default)]
pub struct Verifier {
    chains: BTreeMap<u16, Chain>,
    known: Vec<KnownLink>,
    /// The key that must have signed all checkpoints. Absent: any key.
    key: Option<PublicKey>,
}

#[derive(Debug)]
struct Chain {
    head: Head,
    checkpoint: Option<VerifiedCheckpointView>,
    broken: Option<BrokenView>,
    /// The chain's last line was read.
    ended: bool,
}

impl Default for Chain {
    fn default() -> Self {
        Self { head: Head::START, checkpoint: None, broken: None, ended: false }
    }
}

impl Verifier {
    /// The log must contain the `known` links, and its checkpoints must be signed with `key`.
    pub fn new(known: Vec<KnownLink>, key: Option<PublicKey>) -> Self {
        Self { chains: BTreeMap::new(), known, key }
    }

    pub fn line(&mut self, line: &str) -> Result<(), InvalidLine> {
        let line: ExportedLine = serde_json::from_str(line).map_err(|error| InvalidLine(error.to_string()))?;
        let shard = match &line {
            ExportedLine::Entry(line) => line.entry.shard,
            ExportedLine::Checkpoint(line) => line.shard,
            ExportedLine::Head(line) => line.shard,
        };
        let chain = self.chains.entry(shard).or_default();
        if chain.broken.is_none() {
            chain.broken = match line {
                ExportedLine::Entry(line) => chain.append(line, &self.known),
                ExportedLine::Checkpoint(line) => chain.begin(line, &self.known, self.key),
                ExportedLine::Head(ExportedHead { head, .. }) => chain.end(&head),
            };
        }
        Ok(())
    }

    /// The report. An empty input fails verification.
    pub fn finish(mut self) -> AuditReportView {
        for known in &self.known {
            let chain = self.chains.entry(known.shard).or_default();
            if chain.broken.is_none() && chain.head.number < known.number {
                let message = format!("the chain ends before entry {}, which is known to exist", known.number);
                chain.broken = Some(BrokenView { number: chain.head.number + 1, message });
            }
        }
        let shards: Vec<ShardAuditView> = self.chains.into_iter().map(|(shard, chain)| chain.report(shard)).collect();
        AuditReportView { ok: !shards.is_empty() && shards.iter().all(|shard| shard.ok), public_key: None, shards }
    }
}

impl Chain {
    /// Continues after the removed entries.
    fn begin(&mut self, line: ExportedCheckpoint, known: &[KnownLink], key: Option<PublicKey>) -> Option<BrokenView> {
        let ExportedCheckpoint { shard, checkpoint, encoded } = line;
        let removed = self.head.number..=checkpoint.number;
        let broken = |message: String| Some(BrokenView { number: checkpoint.number.saturating_add(1), message });
        let Some(signed) = checkpoint.signed(ShardId(shard)).filter(|_| checkpoint.number < u64::MAX) else {
            return broken("the checkpoint cannot be decoded".to_owned());
        };
        let is_known_key = key.is_none_or(|key| key == signed.public_key);
        let verified = match signing::verify(&signed, ShardId(shard)) {
            Ok(()) if !is_known_key => Err(Invalid::OtherKey(signed.public_key)),
            verified => verified,
        };
        self.checkpoint = Some(VerifiedCheckpointView { checkpoint: checkpoint.clone(), valid: verified.is_ok() });
        let head = std::mem::replace(&mut self.head, signed.checkpoint.head());
        if let Err(invalid) = verified {
            return Some(BrokenView::checkpoint(checkpoint.number, invalid));
        }
        if STANDARD.encode(signed.checkpoint.bytes_to_sign()) != encoded {
            return broken("the readable fields of the checkpoint do not match the signed content".to_owned());
        }
        if self.ended || removed.is_empty() || (head.number == self.head.number && head.link != self.head.link) {
            return broken(format!("the checkpoint does not continue the chain after entry {}", head.number));
        }
        let mut known = known.iter().filter(|known| known.shard == shard && known.number > head.number);
        known.find_map(|known| known.compare(&checkpoint)).and_then(broken)
    }

    fn append(&mut self, line: ExportedEntry, known: &[KnownLink]) -> Option<BrokenView> {
        let number = self.head.number + 1;
        let broken = |message: String| Some(BrokenView { number, message });
        if self.ended {
            return broken(format!("entry {number} follows the end of the chain"));
        }
        let (Ok(link), Ok(encoded)) = (line.entry.link.parse::<Link>(), STANDARD.decode(&line.encoded)) else {
            return broken(format!("entry {number} cannot be decoded"));
        };
        let stored = [link.0.as_slice(), &encoded].concat();
        let entry = match self.head.follow(&stored) {
            Ok(entry) => entry,
            Err(error) => return Some(error.into()),
        };
        let shard = line.entry.shard;
        if AuditEntryView::new(ShardId(shard), self.head.link, entry) != line.entry {
            return broken(format!("the readable fields of entry {number} do not match the hashed content"));
        }
        let expected = known.iter().find(|known| known.shard == shard && known.number == number)?;
        if expected.link == line.entry.link {
            return None;
        }
        broken(format!("entry {number} has a different link than the known one"))
    }

    fn end(&mut self, head: &AuditHeadView) -> Option<BrokenView> {
        self.ended = true;
        if self.head.number == head.number && self.head.link.to_string() == head.link {
            return None;
        }
        let message = format!("the chain should end with entry {} but ends with {}", head.number, self.head.number);
        Some(BrokenView { number: self.head.number + 1, message })
    }

    fn report(self, shard: u16) -> ShardAuditView {
        let cut_off = || BrokenView {
            number: self.head.number + 1,
            message: format!("the log is truncated after entry {}", self.head.number),
        };
        let broken = self.broken.or_else(|| (!self.ended).then(cut_off));
        let first = self.checkpoint.as_ref().map_or(0, |verified| verified.checkpoint.number) + 1;
        ShardAuditView {
            shard,
            first,
            entries: self.head.number + 1 - first,
            last: self.head.number,
            head: self.head.link.to_string(),
            checkpoint: self.checkpoint,
            ok: broken.is_none(),
            broken,
        }
    }
}

#[cfg(test)]
mod tests {
    use model::audit::{Action, AuditEntry, Checkpoint, SignedCheckpoint};
    use model::id::JobId;
    use model::time::Millis;
    use proptest::prelude::*;

    use super::*;

    /// An exported log and its head.
    fn exported(entries: u64) -> (Vec<String>, Head) {
        let mut head = Head::START;
        let mut lines = Vec::new();
        for number in 0..entries {
            let mut stored = Vec::new();
            let mut entry =
                AuditEntry { job: Some(JobId(number)), by: Some("eve".to_owned()), ..AuditEntry::of(Action::Approved) };
            head.append(&mut entry, &mut stored);
            let entry = AuditEntryView::new(ShardId(0), head.link, entry);
            let line = ExportedEntry { entry, encoded: STANDARD.encode(&stored[32..]) };
            lines.push(serde_json::to_string(&line).unwrap());
        }
        let end = AuditHeadView { number: head.number, link: head.link.to_string() };
        lines.push(serde_json::to_string(&ExportedHead { shard: 0, head: end }).unwrap());
        (lines, head)
    }

    fn verified(lines: &[String], known: Vec<KnownLink>) -> AuditReportView {
        let mut verifier = Verifier::new(known, None);
        lines.iter().for_each(|line| verifier.line(line).unwrap());
        verifier.finish()
    }

    fn known(number: u64, link: &str) -> Vec<KnownLink> {
        vec![KnownLink { shard: 0, number, link: link.to_owned() }]
    }

    #[test]
    fn an_intact_log_is_verified_to_its_end() {
        let (lines, head) = exported(5);
        let report = verified(&lines, known(5, &head.link.to_string()));
        assert!(report.ok, "{report:?}");
        assert_eq!((report.shards[0].entries, &report.shards[0].head), (5, &head.link.to_string()));
        assert!(verified(&exported(0).0, Vec::new()).ok, "an empty log with its head is valid");
    }

    #[test]
    fn missing_lines_are_detected() {
        let (lines, _) = exported(5);
        for at in 0..lines.len() {
            let mut cut = lines.clone();
            cut.remove(at);
            assert!(!verified(&cut, Vec::new()).ok, "without line {at}");
        }
        assert!(!verified(&[], Vec::new()).ok, "an empty input is not a log");
        assert!(!verified(&lines, known(6, &"0".repeat(64))).ok, "a known entry is missing");
    }

    #[test]
    fn a_rewritten_chain_does_not_match_a_known_link() {
        let (lines, _) = exported(5);
        let report = verified(&lines, known(3, &"a".repeat(64)));
        assert_eq!(report.shards[0].broken.as_ref().map(|broken| broken.number), Some(3));
    }

    #[test]
    fn readable_fields_must_match_the_hashed_content() {
        let (mut lines, _) = exported(3);
        lines[1] = lines[1].replace("\"eve\"", "\"bob\"");
        let report = verified(&lines, Vec::new());
        assert_eq!(report.shards[0].broken.as_ref().map(|broken| broken.number), Some(2));
    }

    /// A log of five entries whose first three were removed: its lines, its checkpoint and the key.
    fn shortened() -> (Vec<String>, SignedCheckpoint, signing::Key) {
        let directory = tempfile::tempdir().unwrap();
        let key = signing::Key::open(&directory.path().join("audit.key")).unwrap();
        let (mut lines, _) = exported(5);
        let entry: ExportedEntry = serde_json::from_str(&lines[2]).unwrap();
        let link = entry.entry.link.parse().unwrap();
        let checkpoint = Checkpoint { shard: ShardId(0), number: 3, link, at: Millis(1_000) };
        let signed = key.sign(checkpoint, None).unwrap();
        lines.splice(..3, [checkpoint_line(&signed)]);
        (lines, signed, key)
    }

    fn checkpoint_line(signed: &SignedCheckpoint) -> String {
        let encoded = STANDARD.encode(signed.checkpoint.bytes_to_sign());
        let line = ExportedCheckpoint { shard: 0, checkpoint: CheckpointView::new(signed), encoded };
        serde_json::to_string(&line).unwrap()
    }

    #[test]
    fn a_shortened_log_is_verified_from_its_checkpoint() {
        let (lines, signed, key) = shortened();
        let report = verified(&lines, Vec::new());
        assert!(report.ok, "{report:?}");
        let shard = &report.shards[0];
        assert_eq!((shard.first, shard.entries, shard.last), (4, 2, 5));
        let checkpoint = shard.checkpoint.as_ref().unwrap();
        assert_eq!((checkpoint.checkpoint.number, checkpoint.valid), (3, true));
        for (known_key, ok) in [(key.public(), true), (PublicKey([1; 32]), false)] {
            let mut verifier = Verifier::new(Vec::new(), Some(known_key));
            lines.iter().for_each(|line| verifier.line(line).unwrap());
            let report = verifier.finish();
            assert_eq!((report.ok, report.shards[0].checkpoint.as_ref().unwrap().valid), (ok, ok));
        }
        assert!(!verified(&lines[1..], Vec::new()).ok, "without the checkpoint");
        assert!(!verified(&[lines[0].clone(), lines[2].clone(), lines[3].clone()], Vec::new()).ok, "without an entry");
        let link = signed.checkpoint.link.to_string();
        assert!(verified(&lines, known(3, &link)).ok, "the checkpoint has the link of the last removed entry");
        assert!(!verified(&lines, known(3, &"0".repeat(64))).ok);
        let report = verified(&lines, known(2, &link));
        assert!(report.shards[0].broken.as_ref().unwrap().message.contains("cannot be compared"), "{report:?}");
    }

    #[test]
    fn a_changed_checkpoint_is_detected() {
        let (lines, signed, _) = shortened();
        let checkpoint = signed.checkpoint;
        for changed in [
            Checkpoint { number: 2, ..checkpoint },
            Checkpoint { number: u64::MAX, ..checkpoint },
            Checkpoint { link: Link([1; 32]), ..checkpoint },
            Checkpoint { at: Millis(7), ..checkpoint },
            Checkpoint { shard: ShardId(1), ..checkpoint },
        ] {
            let mut lines = lines.clone();
            lines[0] = checkpoint_line(&SignedCheckpoint { checkpoint: changed, ..signed });
            let report = verified(&lines, Vec::new());
            assert!(!report.ok && report.shards[0].broken.is_some(), "{changed:?}");
        }
        let mut lines = lines.clone();
        let mut line: ExportedCheckpoint = serde_json::from_str(&lines[0]).unwrap();
        line.encoded = STANDARD.encode(b"other bytes");
        lines[0] = serde_json::to_string(&line).unwrap();
        assert!(!verified(&lines, Vec::new()).ok);
    }

    /// Entries may be removed while the log is being exported.
    #[test]
    fn a_later_checkpoint_continues_the_chain() {
        let (mut lines, signed, key) = shortened();
        let (all, _) = exported(5);
        lines.splice(..0, all[..2].iter().cloned());
        let report = verified(&lines, Vec::new());
        assert!(report.ok, "{report:?}");
        let back = key.sign(Checkpoint { number: 1, ..signed.checkpoint }, None).unwrap();
        lines.insert(4, checkpoint_line(&back));
        assert!(!verified(&lines, Vec::new()).ok, "a checkpoint cannot go back");
        lines[4] = lines[2].clone();
        lines.push(lines[2].clone());
        assert!(!verified(&lines, Vec::new()).ok, "nothing follows the end");
    }

    #[test]
    fn known_links_are_parsed() {
        let link = "AB".repeat(32);
        let read: KnownLink = format!("3:17:{link}").parse().unwrap();
        assert_eq!(read, KnownLink { shard: 3, number: 17, link: link.to_ascii_lowercase() });
        for text in ["", "1", "1:2", "1:0:x", &format!("1:0:{link}"), &format!("70000:1:{link}"), "1:2:zz"] {
            assert!(text.parse::<KnownLink>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_single_changed_byte_of_an_entry_is_detected(line in 0_usize..4, at in 0_usize..10_000, other in 1_u8..128) {
            let (lines, _) = exported(4);
            let mut bytes = lines[line].clone().into_bytes();
            let at = at % bytes.len();
            bytes[at] ^= other;
            prop_assume!(bytes[at].is_ascii_graphic());
            let mut changed = lines.clone();
            changed[line] = String::from_utf8(bytes).unwrap();
            // Another notation of the same value, such as an upper-case digit, is no change.
            let same = serde_json::from_str::<ExportedEntry>(&changed[line]).ok() == serde_json::from_str(&lines[line]).ok();
            prop_assume!(!same);
            let mut verifier = Verifier::default();
            let readable = changed.iter().all(|line| verifier.line(line).is_ok());
            prop_assert!(!readable || !verifier.finish().ok);
        }

        #[test]
        fn arbitrary_lines_do_not_panic(line in ".{0,200}") {
            let _ = Verifier::default().line(&line);
        }
    }
}
