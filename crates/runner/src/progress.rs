//! Progress of running processes, read from output lines that begin with `::progress`.
//!
//! A task of a workflow reports progress by printing `::progress 40 compiling` on either stream. This needs no network
//! and no library. Only the newest report counts; the runner does not store it.

use std::path::PathBuf;

use crate::logs::Reader;

/// Prefix of a progress line.
const PREFIX: &[u8] = b"::progress ";
/// Bytes buffered of an incomplete line.
const LINE_BYTES_MAX: usize = 1024;
/// Chunks read per poll; the rest waits for the next one.
const CHUNKS_MAX: usize = 256;

/// Progress reported by a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgressReport {
    pub percent: u8,
    pub message: Option<String>,
}

/// Reads progress reports from the log of a running attempt.
#[derive(Debug)]
pub(crate) struct ProgressReader {
    path: PathBuf,
    reader: Option<Reader>,
    /// Incomplete line of each stream.
    lines: [Vec<u8>; 2],
    last_reported: Option<ProgressReport>,
}

impl ProgressReader {
    pub fn new(path: PathBuf) -> Self {
        Self { path, reader: None, lines: [Vec::new(), Vec::new()], last_reported: None }
    }

    /// Newest report since the last poll, if it differs from the last one returned.
    pub fn poll(&mut self) -> Option<ProgressReport> {
        if self.reader.is_none() {
            self.reader = Reader::open(&self.path).ok().flatten();
        }
        let mut newest = None;
        for _ in 0..CHUNKS_MAX {
            // A read error counts as no output; the next poll tries again.
            let Some(chunk) = self.reader.as_mut().and_then(|reader| reader.next().ok().flatten()) else { break };
            let line = &mut self.lines[chunk.stream.index()];
            for part in chunk.bytes.split_inclusive(|byte| *byte == b'\n') {
                let room = LINE_BYTES_MAX.saturating_sub(line.len());
                line.extend_from_slice(&part[..part.len().min(room)]);
                if part.ends_with(b"\n") {
                    newest = parse(line).or(newest);
                    line.clear();
                }
            }
        }
        let newest = newest.filter(|report| self.last_reported.as_ref() != Some(report))?;
        self.last_reported = Some(newest.clone());
        Some(newest)
    }
}

/// Parses a progress line.
fn parse(line: &[u8]) -> Option<ProgressReport> {
    let text = String::from_utf8_lossy(line.strip_prefix(PREFIX)?);
    let text = text.trim();
    let (percent, message) = text.split_once(' ').unwrap_or((text, ""));
    let percent: u8 = percent.strip_suffix('%').unwrap_or(percent).parse().ok()?;
    let message = Some(message.trim()).filter(|message| !message.is_empty()).map(str::to_owned);
    (percent <= 100).then_some(ProgressReport { percent, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(percent: u8, message: Option<&str>) -> Option<ProgressReport> {
        Some(ProgressReport { percent, message: message.map(str::to_owned) })
    }

    #[test]
    fn progress_lines_are_parsed() {
        assert_eq!(parse(b"::progress 40 compiling\n"), report(40, Some("compiling")));
        assert_eq!(parse(b"::progress 100%\n"), report(100, None));
        assert_eq!(parse(b"::progress 7 \n"), report(7, None));
        for other in ["progress 4", "::progress", "::progress x", "::progress 101", "::progress -1", " ::progress 4"] {
            assert_eq!(parse(other.as_bytes()), None, "{other}");
        }
    }

    proptest::proptest! {
        #[test]
        fn parsing_an_arbitrary_line_does_not_panic(line: Vec<u8>) {
            let _ = parse(&[PREFIX, &line].concat());
        }
    }
}
