//! Scans a stream in chunks of any size, and buffers only a window.

use std::sync::Arc;

use crate::collector::Collector;
use crate::encoding::{Encoding, MARK_BYTES};
use crate::findings::Findings;
use crate::matcher::{Matcher, View};
use crate::{BACK_BYTES_MAX, FINDINGS_MAX, MATCH_BYTES_MAX, WINDOW_BYTES};

/// Bytes retained before a window: the maximum distance from match to anchor, and two bytes before the match, because
/// an escape has two bytes.
const LOOK_BACK_BYTES: usize = BACK_BYTES_MAX + 2;

/// Bytes required after a window: the maximum length of a match, and the byte after it.
const LOOK_AHEAD_BYTES: usize = MATCH_BYTES_MAX + 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of findings to list, at most [`FINDINGS_MAX`](crate::FINDINGS_MAX). All are counted.
    pub findings_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { findings_max: 10_000 }
    }
}

/// Scan of a stream: [`feed`](Self::feed) all chunks in order, then [`finish`](Self::finish). The chunking does not
/// affect the findings.
#[derive(Debug)]
pub struct Stream {
    matcher: Arc<Matcher>,
    collector: Collector,
    /// An incomplete UTF-16 unit, or an incomplete byte order mark.
    pending: Vec<u8>,
    /// `None` until enough bytes for a byte order mark have been fed.
    encoding: Option<Encoding>,
    /// Total number of bytes fed.
    fed: u64,
    buffer: Vec<u8>,
    /// Offset of the buffer in the text.
    base: u64,
    /// All anchors in the buffer before this index have been tried.
    swept: usize,
    window_bytes: usize,
}

impl Stream {
    pub(crate) fn new(matcher: Arc<Matcher>, limits: Limits) -> Self {
        let collector = Collector::new(matcher.len(), limits.findings_max.min(FINDINGS_MAX));
        Self {
            matcher,
            collector,
            pending: Vec::new(),
            encoding: None,
            fed: 0,
            buffer: Vec::new(),
            base: 0,
            swept: 0,
            window_bytes: WINDOW_BYTES,
        }
    }

    pub fn feed(&mut self, chunk: &[u8]) {
        self.fed += chunk.len() as u64;
        let (encoding, chunk) = match self.encoding {
            Some(encoding) => (encoding, chunk),
            None => {
                let needed = MARK_BYTES.saturating_sub(self.pending.len()).min(chunk.len());
                let (first, rest) = chunk.split_at(needed);
                self.pending.extend_from_slice(first);
                if self.pending.len() < MARK_BYTES {
                    return;
                }
                (self.detect_encoding(), rest)
            }
        };
        self.decode(encoding, chunk);
    }

    /// Detects the encoding by the first bytes, and processes them.
    fn detect_encoding(&mut self) -> Encoding {
        let encoding = Encoding::of(&self.pending);
        self.encoding = Some(encoding);
        let first_bytes = std::mem::take(&mut self.pending);
        self.decode(encoding, &first_bytes[encoding.mark_bytes()..]);
        encoding
    }

    fn decode(&mut self, encoding: Encoding, mut chunk: &[u8]) {
        match encoding {
            Encoding::Bytes => self.push(chunk.len(), |buffer, part| buffer.extend_from_slice(&chunk[part])),
            Encoding::Utf16LittleEndian | Encoding::Utf16BigEndian => {
                if let (Some(&half), Some((&first, rest))) = (self.pending.first(), chunk.split_first()) {
                    self.pending.clear();
                    self.push(1, |buffer, _| buffer.push(encoding.narrow([half, first])));
                    chunk = rest;
                }
                let (units, half) = chunk.as_chunks::<2>();
                self.push(units.len(), |buffer, part| {
                    buffer.extend(units[part].iter().map(|&unit| encoding.narrow(unit)));
                });
                self.pending.extend_from_slice(half);
            }
        }
    }

    /// Adds `count` bytes to the buffer in parts, and scans whenever a window is complete.
    fn push(&mut self, count: usize, copy: impl Fn(&mut Vec<u8>, std::ops::Range<usize>)) {
        let mut done = 0;
        while done < count {
            let full = self.swept + self.window_bytes + LOOK_AHEAD_BYTES;
            let part = done..count.min(done + full - self.buffer.len());
            done = part.end;
            copy(&mut self.buffer, part);
            if self.buffer.len() == full {
                self.sweep_window();
            }
        }
    }

    fn sweep_window(&mut self) {
        let end = self.swept + self.window_bytes;
        let view = View { bytes: &self.buffer, base: self.base, last: false };
        self.matcher.sweep(view, self.swept..end, &mut self.collector);
        let dropped = end.saturating_sub(LOOK_BACK_BYTES);
        self.buffer.drain(..dropped);
        self.base += dropped as u64;
        self.swept = end - dropped;
    }

    pub fn finish(mut self) -> Findings {
        let encoding = match self.encoding {
            Some(encoding) => encoding,
            None => self.detect_encoding(),
        };
        let view = View { bytes: &self.buffer, base: self.base, last: true };
        // An open finding must be closed even if no bytes followed.
        self.matcher.resume(view, &mut self.collector);
        while self.swept < self.buffer.len() {
            let end = self.buffer.len().min(self.swept + self.window_bytes);
            self.matcher.sweep(view, self.swept..end, &mut self.collector);
            self.swept = end;
        }
        let names = self.matcher.patterns().map(|pattern| pattern.name);
        self.collector.finish(names, self.fed, encoding)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Scanner;

    /// Examples, secrets much longer than a pattern matches, and text between them.
    fn fragment() -> impl Strategy<Value = Vec<u8>> {
        let examples: Vec<String> = Scanner::known().map(|pattern| pattern.example()).collect();
        let counter_examples: Vec<String> = Scanner::known().map(|pattern| pattern.counter_example()).collect();
        let glue =
            vec![" ", "\n", "\t", "\"", "\\n", ",", "x", "7", "=", "@", "token=", "-----BEGIN ", "eyJ", "+", "\0"];
        prop_oneof![
            8 => prop::sample::select(examples).prop_map(String::into_bytes),
            2 => prop::sample::select(counter_examples).prop_map(String::into_bytes),
            6 => prop::sample::select(glue).prop_map(|glue| glue.as_bytes().to_vec()),
            3 => (0..400_usize).prop_map(|count| "all is well ".repeat(count).into_bytes()),
            1 => (0..12_000_usize).prop_map(|count| {
                format!("eyJhbGciOiJIUzI1NiJ9.{}.{}", "e30a".repeat(count / 4), "x7Kq2mVb9LpR4tWy").into_bytes()
            }),
            1 => (0..12_000_usize).prop_map(|count| {
                format!("-----BEGIN {}-----\n{}-----END X-----", "PRIVATE KEY", "MIIE".repeat(count / 4)).into_bytes()
            }),
            1 => Just(format!("-----BEGIN {}-----", "PRIVATE KEY").into_bytes()),
            2 => prop::collection::vec(any::<u8>(), 0..40),
        ]
    }

    /// Scans one chunk with windows of this size.
    fn scan_in_windows(scanner: &Scanner, text: &[u8], window_bytes: usize) -> Findings {
        let mut stream = scanner.stream(Limits { findings_max: FINDINGS_MAX });
        stream.window_bytes = window_bytes;
        stream.feed(text);
        assert!(stream.buffer.len() <= LOOK_BACK_BYTES + window_bytes + LOOK_AHEAD_BYTES);
        stream.finish()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn the_window_size_does_not_affect_the_findings(
            fragments in prop::collection::vec(fragment(), 0..40),
            window_bytes in 1..6_000_usize,
        ) {
            let scanner = Scanner::new();
            let text = fragments.concat();
            prop_assert_eq!(scan_in_windows(&scanner, &text, window_bytes), scanner.scan(&text));
        }
    }
}
