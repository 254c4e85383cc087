//! Overwrites findings with asterisks; all offsets stay the same.

use crate::encoding::Encoding;
use crate::findings::{Finding, Findings};

/// Masks findings in a text that is processed in chunks.
#[derive(Clone, Debug)]
pub struct Mask {
    /// Sorted and disjoint.
    spans: Vec<(u64, u64)>,
    encoding: Encoding,
}

impl Mask {
    /// Creates a mask for these findings. If they are [truncated](Findings::truncated), the rest stays visible.
    pub fn new(findings: &Findings) -> Self {
        Self::of(&findings.items, findings.encoding)
    }

    fn of(findings: &[Finding], encoding: Encoding) -> Self {
        let mut spans: Vec<(u64, u64)> = findings.iter().map(|finding| (finding.start, finding.end)).collect();
        spans.sort_unstable();
        spans.dedup_by(|next, previous| {
            let joined = next.0 <= previous.1;
            if joined {
                previous.1 = previous.1.max(next.1);
            }
            joined
        });
        Self { spans, encoding }
    }

    /// Masks the findings in a chunk that starts at `offset` of the text. Line ends stay, for consumers that read
    /// lines.
    pub fn apply(&self, offset: u64, chunk: &mut [u8]) {
        let chunk_end = offset + chunk.len() as u64;
        let first = self.spans.partition_point(|&(_, end)| end <= offset);
        for &(start, end) in &self.spans[first..] {
            if start >= chunk_end {
                break;
            }
            for masked in start.max(offset)..end.min(chunk_end) {
                let byte = &mut chunk[(masked - offset) as usize];
                if !self.ends_line(*byte) {
                    *byte = self.encoding.mask_byte(masked);
                }
            }
        }
    }

    /// In UTF-16 a line end has two bytes, which may be in different chunks. Line ends are masked there.
    fn ends_line(&self, byte: u8) -> bool {
        match self.encoding {
            Encoding::Bytes => matches!(byte, b'\n' | b'\r'),
            Encoding::Utf16LittleEndian | Encoding::Utf16BigEndian => false,
        }
    }
}

/// Masks the findings, which may overlap, in a complete text. For chunks use [`Mask`].
pub fn redact(bytes: &[u8], findings: &[Finding]) -> Vec<u8> {
    let mut redacted = bytes.to_vec();
    Mask::of(findings, Encoding::of(bytes)).apply(0, &mut redacted);
    redacted
}
