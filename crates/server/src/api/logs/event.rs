//! Output as server-sent events, each with the place to go on from.

use std::fmt;
use std::str::FromStr;

use model::id::Attempt;
use model::time::Timestamp;
use runner::logs::{Piece, Stream};
use serde::Serialize;

use super::super::base64::base64;

/// How far a client has got: the attempt, and how much of each stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    pub attempt: Attempt,
    pub seen: [u64; 2],
}

impl Cursor {
    /// The beginning of an attempt.
    pub fn at(attempt: Attempt) -> Self {
        Self { attempt, seen: [0; 2] }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.attempt.0, self.seen[0], self.seen[1])
    }
}

impl FromStr for Cursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not an id of these events");
        let mut numbers = text.splitn(3, '.').map(|number| number.parse::<u64>().map_err(|_| bad()));
        let mut next = || numbers.next().unwrap_or_else(|| Err(bad()));
        let attempt = u32::try_from(next()?).map_err(|_| bad())?;
        Ok(Self { attempt: Attempt(attempt), seen: [next()?, next()?] })
    }
}

#[derive(Serialize)]
struct Output<'a> {
    attempt: u32,
    at: Timestamp,
    /// Bytes of the stream before this that were not kept.
    #[serde(skip_serializing_if = "is_zero")]
    missing: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    /// What is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde wants")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

pub(super) fn name(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    }
}

/// A piece as an event; `cursor` is the place after it.
pub(super) fn output(piece: &Piece, cursor: Cursor, to: &mut Vec<u8>) {
    let text = std::str::from_utf8(&piece.bytes).ok();
    let base64 = text.is_none().then(|| base64(&piece.bytes));
    let at = Timestamp(piece.at);
    let data = Output { attempt: cursor.attempt.0, at, missing: piece.missing, text, base64 };
    to.extend_from_slice(format!("id: {cursor}\nevent: {}\ndata: ", name(piece.stream)).as_bytes());
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(&mut *to, &data);
    to.extend_from_slice(b"\n\n");
}

/// The last event: nothing more will come.
pub(super) fn end(cursor: Cursor) -> Vec<u8> {
    format!("id: {cursor}\nevent: end\ndata: {{}}\n\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back() {
        let cursor = Cursor { attempt: Attempt(3), seen: [10, 20] };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["", "1", "1.2", "1.2.3.4", "x.1.2", "99999999999.1.1"] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }
}
