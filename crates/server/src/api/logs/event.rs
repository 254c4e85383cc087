//! Output as server-sent events, each with a cursor to resume from.

use std::fmt;
use std::str::FromStr;

use ::api::LogPieceView;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::id::Attempt;
use model::time::Timestamp;
use runner::logs::{LogChunk, Stream};

/// Progress of a client: the attempt and the bytes of each stream.
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

pub(super) fn name(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    }
}

/// Writes a piece as an event. `cursor` is the position after it.
pub(super) fn output(piece: &LogChunk, cursor: Cursor, to: &mut Vec<u8>) {
    let text = std::str::from_utf8(&piece.bytes).ok();
    let base64 = text.is_none().then(|| STANDARD.encode(&piece.bytes));
    let at = Timestamp(piece.at);
    let data = LogPieceView { attempt: cursor.attempt, at, missing: piece.missing, text: text.map(Into::into), base64 };
    to.extend_from_slice(format!("id: {cursor}\nevent: {}\ndata: ", name(piece.stream)).as_bytes());
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(&mut *to, &data);
    to.extend_from_slice(b"\n\n");
}

/// The last event.
pub(super) fn end(cursor: Cursor) -> Vec<u8> {
    format!("id: {cursor}\nevent: end\ndata: {{}}\n\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use model::time::Millis;

    use super::*;

    #[test]
    fn binary_output_is_sent_as_padded_base64() {
        let cursor = Cursor::at(Attempt(1));
        for (bytes, expected) in [(&b"\xff"[..], "/w=="), (b"\xffo", "/28="), (b"\xffoo", "/29v")] {
            let chunk =
                LogChunk { stream: Stream::Stdout, at: Millis(0), before: 0, missing: 0, bytes: bytes.to_vec().into() };
            let mut event = Vec::new();
            output(&chunk, cursor, &mut event);
            let event = String::from_utf8(event).unwrap();
            assert!(event.contains(&format!(r#""base64":"{expected}""#)), "{event}");
        }
    }

    #[test]
    fn a_cursor_reads_back() {
        let cursor = Cursor { attempt: Attempt(3), seen: [10, 20] };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["", "1", "1.2", "1.2.3.4", "x.1.2", "99999999999.1.1"] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }
}
