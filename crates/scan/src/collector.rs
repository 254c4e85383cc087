//! Collects findings: joins overlapping ones of the same pattern, counts all, and stores a limited number.

use crate::encoding::Encoding;
use crate::findings::{Finding, Findings};
use crate::pattern::Pattern;

/// The latest finding of a pattern, which may still be extended.
#[derive(Clone, Copy, Debug)]
struct Latest {
    start: u64,
    end: u64,
    /// It reaches the end of the available bytes, and continues at `end` with the next ones.
    open: bool,
    /// Index in `items`, unless the limit was reached.
    item: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Collector {
    latest: Vec<Option<Latest>>,
    counts: Vec<u64>,
    items: Vec<Finding>,
    findings_max: usize,
}

impl Collector {
    pub(crate) fn new(patterns: usize, findings_max: usize) -> Self {
        Self { latest: vec![None; patterns], counts: vec![0; patterns], items: Vec::new(), findings_max }
    }

    /// Resets the collector for another text.
    pub(crate) fn clear(&mut self) {
        if !self.is_empty() {
            self.latest.fill(None);
            self.counts.fill(0);
            self.items.clear();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.counts.iter().all(|&count| count == 0)
    }

    pub(crate) fn items(&self) -> &[Finding] {
        &self.items
    }

    /// Whether a finding of the pattern covers this offset already, so that the pattern need not be tried there.
    pub(crate) fn covers(&self, pattern: usize, offset: u64) -> bool {
        self.latest[pattern].is_some_and(|latest| latest.open || (latest.start <= offset && offset < latest.end))
    }

    /// Offset at which an open finding of the pattern continues.
    pub(crate) fn open_end(&self, pattern: usize) -> Option<u64> {
        self.latest[pattern].filter(|latest| latest.open).map(|latest| latest.end)
    }

    pub(crate) fn add(&mut self, index: usize, pattern: &'static Pattern, (start, end, open): (u64, u64, bool)) {
        if let Some(latest) = &mut self.latest[index]
            && (latest.open || (start < latest.end && latest.start < end))
        {
            latest.start = latest.start.min(start);
            latest.end = latest.end.max(end);
            latest.open = open;
            if let Some(item) = latest.item {
                (self.items[item].start, self.items[item].end) = (latest.start, latest.end);
            }
            return;
        }
        self.counts[index] += 1;
        let item = (self.items.len() < self.findings_max).then_some(self.items.len());
        if item.is_some() {
            self.items.push(Finding { start, end, pattern: pattern.name, kind: pattern.kind });
        }
        self.latest[index] = Some(Latest { start, end, open, item });
    }

    pub(crate) fn finish(
        mut self,
        names: impl Iterator<Item = &'static str>,
        bytes: u64,
        encoding: Encoding,
    ) -> Findings {
        let mut findings = Findings { bytes, encoding, ..Findings::default() };
        findings.counts = names.zip(self.counts).filter(|&(_, count)| count > 0).collect();
        findings.truncated = findings.total() > self.items.len() as u64;
        self.items.sort_unstable();
        for item in &mut self.items {
            (item.start, item.end) = (encoding.original_offset(item.start), encoding.original_offset(item.end));
        }
        findings.items = self.items;
        findings
    }
}
