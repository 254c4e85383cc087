//! Puts stars over findings, byte for byte: nothing else moves.

use crate::encoding::Encoding;
use crate::findings::{Finding, Findings};

/// Hides findings in a text that comes in chunks.
#[derive(Clone, Debug)]
pub struct Mask {
    /// In order, and apart from each other.
    spans: Vec<(u64, u64)>,
    encoding: Encoding,
}

impl Mask {
    /// Hides what these findings say. If they are [truncated](Findings::truncated), that is not all there is.
    pub fn new(findings: &Findings) -> Self {
        Self::of(&findings.items, findings.encoding)
    }

    fn of(findings: &[Finding], encoding: Encoding) -> Self {
        let mut spans: Vec<(u64, u64)> = findings.iter().map(|finding| (finding.start, finding.end)).collect();
        spans.sort_unstable();
        spans.dedup_by(|next, kept| {
            let joined = next.0 <= kept.1;
            if joined {
                kept.1 = kept.1.max(next.1);
            }
            joined
        });
        Self { spans, encoding }
    }

    /// Hides the findings in a chunk that begins at this byte of the text. Line ends stay: they are no secret, and who
    /// reads lines counts on them.
    pub fn apply(&self, offset: u64, chunk: &mut [u8]) {
        let chunk_end = offset + chunk.len() as u64;
        let first = self.spans.partition_point(|&(_, end)| end <= offset);
        for &(start, end) in &self.spans[first..] {
            if start >= chunk_end {
                break;
            }
            for place in start.max(offset)..end.min(chunk_end) {
                let byte = &mut chunk[(place - offset) as usize];
                if !self.ends_line(*byte) {
                    *byte = self.encoding.star(place);
                }
            }
        }
    }

    /// In UTF-16 a line end is two bytes, which a chunk may part. Line ends there are hidden with the rest.
    fn ends_line(&self, byte: u8) -> bool {
        match self.encoding {
            Encoding::Bytes => matches!(byte, b'\n' | b'\r'),
            Encoding::Utf16LittleEndian | Encoding::Utf16BigEndian => false,
        }
    }
}

/// A text of the same length with stars over the findings, which may overlap. For a text as a whole, from its first
/// byte; chunks of one go through a [`Mask`].
pub fn redact(bytes: &[u8], findings: &[Finding]) -> Vec<u8> {
    let mut redacted = bytes.to_vec();
    Mask::of(findings, Encoding::of(bytes)).apply(0, &mut redacted);
    redacted
}
