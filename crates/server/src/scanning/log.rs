//! Scan of an attempt's log. Each of the two streams is scanned as one text, across the boundaries of its pieces.

use std::collections::BTreeMap;

use scan::{Findings, Limits, Mask, Scanner};
use spawner::log::{HEADER_BYTES, Header, Stream};

/// Findings per stream.
pub(super) struct LogFindings([Findings; 2]);

/// Scans a log in its stored format.
pub(super) fn scan(log: &[u8], scanner: &Scanner) -> Result<LogFindings, String> {
    let mut streams = Stream::ALL.map(|_| scanner.stream(Limits::default()));
    for_each_piece(log, |stream, range| streams[stream.index()].feed(&log[range]))?;
    Ok(LogFindings(streams.map(|stream| stream.finish())))
}

impl LogFindings {
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Findings::is_empty)
    }

    pub fn is_truncated(&self) -> bool {
        self.0.iter().any(|findings| findings.truncated)
    }

    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for (pattern, count) in self.0.iter().flat_map(|findings| &findings.counts) {
            *counts.entry(*pattern).or_default() += count;
        }
        counts
    }

    /// Overwrites findings with asterisks. Lengths stay the same, so the headers of the pieces stay valid.
    pub fn mask(&self, log: &mut [u8]) -> Result<(), String> {
        let mut pieces = Vec::new();
        for_each_piece(log, |stream, range| pieces.push((stream, range)))?;
        let masks = [Mask::new(&self.0[0]), Mask::new(&self.0[1])];
        let mut fed = [0u64; 2];
        for (stream, range) in pieces {
            let (index, length) = (stream.index(), range.len() as u64);
            masks[index].apply(fed[index], &mut log[range]);
            fed[index] += length;
        }
        Ok(())
    }
}

/// Visits the pieces of a log in order. Zeros between pieces are a hole: that part of the output was not stored.
fn for_each_piece(log: &[u8], mut visit: impl FnMut(Stream, std::ops::Range<usize>)) -> Result<(), String> {
    let mut at = 0;
    while at < log.len() {
        if log[at] == 0 {
            at += log[at..].iter().position(|byte| *byte != 0).unwrap_or(log.len() - at);
            continue;
        }
        let header = log.get(at..).and_then(|rest| rest.first_chunk::<HEADER_BYTES>()).and_then(Header::from_bytes);
        let header = header.ok_or("the log is damaged")?;
        let begin = at + HEADER_BYTES;
        let end = begin + header.len as usize;
        if end > log.len() {
            return Err("the log is truncated".to_owned());
        }
        visit(header.stream, begin..end);
        at = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(stream: Stream, before: u64, text: &str) -> Vec<u8> {
        let header = Header { stream, len: text.len() as u32, at: 0, before };
        [header.to_bytes().as_slice(), text.as_bytes()].concat()
    }

    /// Assembled at run time, so that scanners of source code do not report it.
    fn token() -> String {
        format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8")
    }

    #[test]
    fn a_secret_split_over_two_pieces_is_found_and_masked() {
        let token = token();
        let (first, second) = token.split_at(10);
        let log = [
            piece(Stream::Stdout, 0, &format!("token {first}")),
            piece(Stream::Stderr, 0, "between\n"),
            vec![0; 100],
            piece(Stream::Stdout, 16, &format!("{second} end\n")),
        ]
        .concat();
        let scanner = Scanner::new();
        let findings = scan(&log, &scanner).unwrap();
        assert!(!findings.is_empty(), "{:?}", findings.counts());
        let mut masked = log.clone();
        findings.mask(&mut masked).unwrap();
        assert_eq!(masked.len(), log.len());
        assert!(scan(&masked, &scanner).unwrap().is_empty());
        let mut text = String::new();
        for_each_piece(&masked, |_, range| text.push_str(&String::from_utf8_lossy(&masked[range]))).unwrap();
        assert!(text.starts_with("token ***") && text.contains("between\n") && text.ends_with(" end\n"), "{text}");
    }

    #[test]
    fn a_damaged_log_is_an_error() {
        assert!(scan(&[7; 40], &Scanner::new()).is_err());
        let mut cut = piece(Stream::Stdout, 0, "text");
        cut.pop();
        assert!(scan(&cut, &Scanner::new()).is_err());
    }
}
