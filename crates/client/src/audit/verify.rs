//! Going through an exported log without trusting whoever has it.

use std::collections::BTreeMap;
use std::str::FromStr;

use model::audit::Head;
use model::id::ShardId;
use model::view::{
    AuditEntryView, AuditHeadView, AuditReportView, BrokenView, ExportedEntry, ExportedHead, ShardAuditView,
};
use serde::Deserialize;

use crate::base64;

/// A link that was noted somewhere else: a chain that was written anew does not have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub shard: u16,
    pub number: u64,
    /// In hexadecimal.
    pub link: String,
}

/// Why a text is no [`Known`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a link of the audit log; write it like 0:17:<64 hexadecimal digits>: shard, number, link")]
pub struct NotKnown(String);

impl FromStr for Known {
    type Err = NotKnown;

    fn from_str(text: &str) -> Result<Self, NotKnown> {
        let wrong = || NotKnown(text.to_owned());
        let mut parts = text.splitn(3, ':');
        let mut next = || parts.next().ok_or_else(wrong);
        let shard = next()?.parse().map_err(|_| wrong())?;
        let number = next()?.parse().ok().filter(|number| *number > 0).ok_or_else(wrong)?;
        let link = next()?.to_ascii_lowercase();
        if link_bytes(&link).is_none() {
            return Err(wrong());
        }
        Ok(Self { shard, number, link })
    }
}

/// A line that is none of an exported log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it is no line of an exported audit log: {0}")]
pub struct Unreadable(String);

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Entry(Box<ExportedEntry>),
    Head(ExportedHead),
}

/// Takes the lines of an exported log in their order, and says in the end whether anything was changed or left out.
#[derive(Debug, Default)]
pub struct Verifier {
    chains: BTreeMap<u16, Chain>,
    known: Vec<Known>,
}

#[derive(Debug)]
struct Chain {
    at: Head,
    broken: Option<BrokenView>,
    /// Its last line was there.
    ended: bool,
}

impl Default for Chain {
    fn default() -> Self {
        Self { at: Head::START, broken: None, ended: false }
    }
}

impl Verifier {
    /// With links that must be in it.
    pub fn new(known: Vec<Known>) -> Self {
        Self { chains: BTreeMap::new(), known }
    }

    pub fn line(&mut self, line: &str) -> Result<(), Unreadable> {
        let line: Line = serde_json::from_str(line).map_err(|error| Unreadable(error.to_string()))?;
        let shard = match &line {
            Line::Entry(line) => line.entry.shard,
            Line::Head(line) => line.shard,
        };
        let chain = self.chains.entry(shard).or_default();
        if chain.broken.is_none() {
            chain.broken = match line {
                Line::Entry(line) => chain.follow(*line, &self.known),
                Line::Head(line) => chain.end(&line.head),
            };
        }
        Ok(())
    }

    /// What came of it. A log without any line has nothing that could be verified.
    pub fn finish(mut self) -> AuditReportView {
        for known in &self.known {
            let chain = self.chains.entry(known.shard).or_default();
            if chain.broken.is_none() && chain.at.number < known.number {
                let message = format!("the chain ends before entry {}, which is known to be there", known.number);
                chain.broken = Some(BrokenView { number: chain.at.number + 1, message });
            }
        }
        let shards: Vec<ShardAuditView> = self.chains.into_iter().map(|(shard, chain)| chain.report(shard)).collect();
        AuditReportView { ok: !shards.is_empty() && shards.iter().all(|shard| shard.ok), shards }
    }
}

impl Chain {
    fn follow(&mut self, line: ExportedEntry, known: &[Known]) -> Option<BrokenView> {
        let number = self.at.number + 1;
        let broken = |message: String| Some(BrokenView { number, message });
        if self.ended {
            return broken(format!("entry {number} comes behind the end of the chain"));
        }
        let (Some(link), Some(encoded)) = (link_bytes(&line.entry.link), base64::decode(&line.encoded)) else {
            return broken(format!("entry {number} cannot be read"));
        };
        let stored = [link.as_slice(), &encoded].concat();
        let entry = match self.at.follow(&stored) {
            Ok(entry) => entry,
            Err(wrong) => return Some(wrong.into()),
        };
        let shard = line.entry.shard;
        if AuditEntryView::new(ShardId(shard), self.at.link, entry) != line.entry {
            return broken(format!("what can be read of entry {number} is not what its link covers"));
        }
        let noted = known.iter().find(|known| known.shard == shard && known.number == number)?;
        if noted.link == line.entry.link {
            return None;
        }
        broken(format!("entry {number} has another link than the one that is known"))
    }

    fn end(&mut self, head: &AuditHeadView) -> Option<BrokenView> {
        self.ended = true;
        if self.at.number == head.number && self.at.link.to_string() == head.link {
            return None;
        }
        let message = format!("the chain should end with entry {}, and ends with {}", head.number, self.at.number);
        Some(BrokenView { number: self.at.number + 1, message })
    }

    fn report(self, shard: u16) -> ShardAuditView {
        let cut_off = || BrokenView {
            number: self.at.number + 1,
            message: format!("the end is missing: the log was cut off after entry {}", self.at.number),
        };
        let broken = self.broken.or_else(|| (!self.ended).then(cut_off));
        ShardAuditView { shard, entries: self.at.number, head: self.at.link.to_string(), ok: broken.is_none(), broken }
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
    use model::audit::{Action, Entry};
    use model::id::JobId;
    use proptest::prelude::*;

    use super::*;

    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    fn encode(bytes: &[u8]) -> String {
        let group = |chunk: &[u8]| {
            let mut padded = [0; 4];
            padded[1..=chunk.len()].copy_from_slice(chunk);
            let word = u32::from_be_bytes(padded);
            let digits = (0..4).map(|index| char::from(DIGITS[(word >> (18 - 6 * index) & 63) as usize]));
            digits.enumerate().map(|(at, digit)| if at <= chunk.len() { digit } else { '=' }).collect::<String>()
        };
        bytes.chunks(3).map(group).collect()
    }

    /// An exported log, and its end.
    fn exported(entries: u64) -> (Vec<String>, Head) {
        let mut head = Head::START;
        let mut lines = Vec::new();
        for number in 0..entries {
            let mut stored = Vec::new();
            let mut entry =
                Entry { job: Some(JobId(number)), by: Some("eve".to_owned()), ..Entry::of(Action::Approved) };
            head.append(&mut entry, &mut stored);
            let entry = AuditEntryView::new(ShardId(0), head.link, entry);
            let line = ExportedEntry { entry, encoded: encode(&stored[32..]) };
            lines.push(serde_json::to_string(&line).unwrap());
        }
        let end = AuditHeadView { number: head.number, link: head.link.to_string() };
        lines.push(serde_json::to_string(&ExportedHead { shard: 0, head: end }).unwrap());
        (lines, head)
    }

    fn verified(lines: &[String], known: Vec<Known>) -> AuditReportView {
        let mut verifier = Verifier::new(known);
        lines.iter().for_each(|line| verifier.line(line).unwrap());
        verifier.finish()
    }

    fn known(number: u64, link: &str) -> Vec<Known> {
        vec![Known { shard: 0, number, link: link.to_owned() }]
    }

    #[test]
    fn an_untouched_log_is_verified_to_its_end() {
        let (lines, head) = exported(5);
        let report = verified(&lines, known(5, &head.link.to_string()));
        assert!(report.ok, "{report:?}");
        assert_eq!((report.shards[0].entries, &report.shards[0].head), (5, &head.link.to_string()));
        assert!(verified(&exported(0).0, Vec::new()).ok, "a log may be empty, with its end");
    }

    #[test]
    fn what_is_missing_shows() {
        let (lines, _) = exported(5);
        for at in 0..lines.len() {
            let mut cut = lines.clone();
            cut.remove(at);
            assert!(!verified(&cut, Vec::new()).ok, "without line {at}");
        }
        assert!(!verified(&[], Vec::new()).ok, "nothing is no log");
        assert!(!verified(&lines, known(6, &"0".repeat(64))).ok, "an entry that is known to be there");
    }

    #[test]
    fn a_chain_that_was_written_anew_is_not_the_one_that_was_noted() {
        let (lines, _) = exported(5);
        let report = verified(&lines, known(3, &"a".repeat(64)));
        assert_eq!(report.shards[0].broken.as_ref().map(|broken| broken.number), Some(3));
    }

    #[test]
    fn what_people_read_is_what_the_link_covers() {
        let (mut lines, _) = exported(3);
        lines[1] = lines[1].replace("\"eve\"", "\"bob\"");
        let report = verified(&lines, Vec::new());
        assert_eq!(report.shards[0].broken.as_ref().map(|broken| broken.number), Some(2));
    }

    #[test]
    fn a_known_link_is_read_from_its_text() {
        let link = "AB".repeat(32);
        let read: Known = format!("3:17:{link}").parse().unwrap();
        assert_eq!(read, Known { shard: 3, number: 17, link: link.to_ascii_lowercase() });
        for text in ["", "1", "1:2", "1:0:x", &format!("1:0:{link}"), &format!("70000:1:{link}"), "1:2:zz"] {
            assert!(text.parse::<Known>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_single_changed_byte_of_an_entry_passes(line in 0_usize..4, at in 0_usize..10_000, other in 1_u8..128) {
            let (lines, _) = exported(4);
            let mut bytes = lines[line].clone().into_bytes();
            let at = at % bytes.len();
            bytes[at] ^= other;
            prop_assume!(bytes[at].is_ascii_graphic());
            let mut changed = lines.clone();
            changed[line] = String::from_utf8(bytes).unwrap();
            // Another way to write the same, such as a capital digit, is no change.
            let same = serde_json::from_str::<ExportedEntry>(&changed[line]).ok() == serde_json::from_str(&lines[line]).ok();
            prop_assume!(!same);
            let mut verifier = Verifier::default();
            let readable = changed.iter().all(|line| verifier.line(line).is_ok());
            prop_assert!(!readable || !verifier.finish().ok);
        }

        #[test]
        fn any_line_ends_without_a_panic(line in ".{0,200}") {
            let _ = Verifier::default().line(&line);
        }
    }
}
