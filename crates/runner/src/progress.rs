//! How far a running process says it is: lines of its output that begin with `::progress`.
//!
//! A task of a workflow reports progress by printing `::progress 40 compiling` on either stream. It needs no network and
//! no library. What is said is not kept by the runner, and the newest word counts.

use std::path::PathBuf;

use crate::logs::Reader;

/// A line that says how far its program is begins with this.
const MARK: &[u8] = b"::progress ";
/// Of an unfinished line this much is kept.
const LINE_BYTES_MAX: usize = 1024;
/// How much output is looked through in one go; the rest waits for the next look.
const PIECES_MAX: usize = 256;

/// How far a program says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub percent: u8,
    pub message: Option<String>,
}

/// Looks through the output of one attempt as it comes.
#[derive(Debug)]
pub(crate) struct Watch {
    path: PathBuf,
    reader: Option<Reader>,
    /// The unfinished line of each stream.
    lines: [Vec<u8>; 2],
    told: Option<Said>,
}

impl Watch {
    pub fn new(path: PathBuf) -> Self {
        Self { path, reader: None, lines: [Vec::new(), Vec::new()], told: None }
    }

    /// The newest word since the last look, if it is new.
    pub fn look(&mut self) -> Option<Said> {
        if self.reader.is_none() {
            self.reader = Reader::open(&self.path).ok().flatten();
        }
        let mut newest = None;
        for _ in 0..PIECES_MAX {
            // Output that cannot be read now says nothing now.
            let Some(piece) = self.reader.as_mut().and_then(|reader| reader.next().ok().flatten()) else { break };
            let line = &mut self.lines[piece.stream.index()];
            for part in piece.bytes.split_inclusive(|byte| *byte == b'\n') {
                let room = LINE_BYTES_MAX.saturating_sub(line.len());
                line.extend_from_slice(&part[..part.len().min(room)]);
                if part.ends_with(b"\n") {
                    newest = parse(line).or(newest);
                    line.clear();
                }
            }
        }
        let newest = newest.filter(|said| self.told.as_ref() != Some(said))?;
        self.told = Some(newest.clone());
        Some(newest)
    }
}

/// A line that says how far its program is.
fn parse(line: &[u8]) -> Option<Said> {
    let text = String::from_utf8_lossy(line.strip_prefix(MARK)?);
    let text = text.trim();
    let (percent, message) = text.split_once(' ').unwrap_or((text, ""));
    let percent: u8 = percent.strip_suffix('%').unwrap_or(percent).parse().ok()?;
    let message = Some(message.trim()).filter(|message| !message.is_empty()).map(str::to_owned);
    (percent <= 100).then_some(Said { percent, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(percent: u8, message: Option<&str>) -> Option<Said> {
        Some(Said { percent, message: message.map(str::to_owned) })
    }

    #[test]
    fn a_line_says_how_far_its_program_is() {
        assert_eq!(parse(b"::progress 40 compiling\n"), said(40, Some("compiling")));
        assert_eq!(parse(b"::progress 100%\n"), said(100, None));
        assert_eq!(parse(b"::progress 7 \n"), said(7, None));
        for other in ["progress 4", "::progress", "::progress x", "::progress 101", "::progress -1", " ::progress 4"] {
            assert_eq!(parse(other.as_bytes()), None, "{other}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_line_ends_without_a_panic(line: Vec<u8>) {
            let _ = parse(&[MARK, &line].concat());
        }
    }
}
