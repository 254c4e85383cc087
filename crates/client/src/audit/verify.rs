//! Local verification of an exported audit log, without trust in its source.

use std::collections::BTreeMap;
use std::str::FromStr;

use api::{AuditEntryView, AuditHeadView, AuditReportView, BrokenView, ExportedEntry, ExportedHead, ShardAuditView};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::audit::Head;
use model::id::ShardId;
use serde::Deserialize;

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
        if link_bytes(&link).is_none() {
            return Err(invalid());
        }
        Ok(Self { shard, number, link })
    }
}

/// A line that is not part of an exported log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a line of an exported audit log: {0}")]
pub struct InvalidLine(String);

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Entry(Box<ExportedEntry>),
    Head(ExportedHead),
}

/// Verifies the lines of an exported log, in order, for changes and omissions.
#[derive(Debug, Default)]
pub struct Verifier {
    chains: BTreeMap<u16, Chain>,
    known: Vec<KnownLink>,
}

#[derive(Debug)]
struct Chain {
    head: Head,
    broken: Option<BrokenView>,
    /// The chain's last line was read.
    ended: bool,
}

impl Default for Chain {
    fn default() -> Self {
        Self { head: Head::START, broken: None, ended: false }
    }
}

impl Verifier {
    /// The log must contain the `known` links.
    pub fn new(known: Vec<KnownLink>) -> Self {
        Self { chains: BTreeMap::new(), known }
    }

    pub fn line(&mut self, line: &str) -> Result<(), InvalidLine> {
        let line: Line = serde_json::from_str(line).map_err(|error| InvalidLine(error.to_string()))?;
        let shard = match &line {
            Line::Entry(line) => line.entry.shard,
            Line::Head(line) => line.shard,
        };
        let chain = self.chains.entry(shard).or_default();
        if chain.broken.is_none() {
            chain.broken = match line {
                Line::Entry(line) => chain.append(*line, &self.known),
                Line::Head(line) => chain.end(&line.head),
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
        AuditReportView { ok: !shards.is_empty() && shards.iter().all(|shard| shard.ok), shards }
    }
}

impl Chain {
    fn append(&mut self, line: ExportedEntry, known: &[KnownLink]) -> Option<BrokenView> {
        let number = self.head.number + 1;
        let broken = |message: String| Some(BrokenView { number, message });
        if self.ended {
            return broken(format!("entry {number} follows the end of the chain"));
        }
        let (Some(link), Ok(encoded)) = (link_bytes(&line.entry.link), STANDARD.decode(&line.encoded)) else {
            return broken(format!("entry {number} cannot be decoded"));
        };
        let stored = [link.as_slice(), &encoded].concat();
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
        ShardAuditView {
            shard,
            entries: self.head.number,
            head: self.head.link.to_string(),
            ok: broken.is_none(),
            broken,
        }
    }
}

fn link_bytes(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use model::audit::{Action, AuditEntry};
    use model::id::JobId;
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
        let mut verifier = Verifier::new(known);
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
