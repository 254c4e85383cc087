//! How a piece of output is shown: on which stream, with or without the time.

use std::io::{self, Write};

use client::logs::{Piece, Stream};

use crate::output;
use crate::paint::{Paint, Tone};

/// Remembers where lines begin.
#[derive(Debug)]
pub struct Show {
    apart: bool,
    timestamps: bool,
    /// Whether the last piece of a stream ended within a line.
    within_line: [bool; 2],
}

impl Show {
    /// `apart`: standard error goes to standard error; else what was asked for is the output, whichever it is.
    pub fn new(apart: bool, timestamps: bool) -> Self {
        Self { apart, timestamps, within_line: [false; 2] }
    }

    pub fn piece(&mut self, piece: &Piece) -> io::Result<()> {
        if piece.missing > 0 {
            // Beside the output, so that whoever processes it gets nothing but output.
            let mark = format!("[outlast: {} bytes of {} were not kept]", piece.missing, piece.stream);
            writeln!(io::stderr().lock(), "{}", Paint::for_stderr().apply(Tone::Quiet, &mark))?;
        }
        let stamped;
        let bytes = if self.timestamps {
            stamped = self.stamp(piece);
            &stamped[..]
        } else {
            &piece.bytes[..]
        };
        match piece.stream {
            Stream::Stderr if self.apart => io::stderr().lock().write_all(bytes),
            Stream::Stdout | Stream::Stderr => output::write(bytes),
        }
    }

    /// The time stands before the first byte of a line; what comes later of the same line follows without.
    fn stamp(&mut self, piece: &Piece) -> Vec<u8> {
        let within_line = match piece.stream {
            Stream::Stdout => &mut self.within_line[0],
            Stream::Stderr => &mut self.within_line[1],
        };
        let mut stamped = Vec::with_capacity(piece.bytes.len() + 64);
        for line in piece.bytes.split_inclusive(|byte| *byte == b'\n') {
            if !*within_line {
                stamped.extend_from_slice(format!("{} ", piece.at).as_bytes());
            }
            stamped.extend_from_slice(line);
            *within_line = !line.ends_with(b"\n");
        }
        stamped
    }
}

#[cfg(test)]
mod tests {
    use model::id::Attempt;
    use model::time::{Millis, Timestamp};

    use super::*;

    fn piece(stream: Stream, at: u64, text: &'static str) -> Piece {
        Piece { stream, attempt: Attempt(1), at: Timestamp(Millis(at)), missing: 0, bytes: text.into() }
    }

    #[test]
    fn each_line_has_the_time_at_which_it_began() {
        let mut show = Show::new(false, true);
        let mut stamp = |stream, at, text| String::from_utf8(show.stamp(&piece(stream, at, text))).unwrap();
        assert_eq!(
            stamp(Stream::Stdout, 1, "one\n\ntwo, "),
            "1970-01-01T00:00:00.001Z one\n1970-01-01T00:00:00.001Z \n1970-01-01T00:00:00.001Z two, "
        );
        assert_eq!(stamp(Stream::Stderr, 2, "oops\n"), "1970-01-01T00:00:00.002Z oops\n");
        assert_eq!(stamp(Stream::Stdout, 3, "three\nfour"), "three\n1970-01-01T00:00:00.003Z four");
        assert_eq!(stamp(Stream::Stdout, 4, "\n"), "\n");
        assert_eq!(stamp(Stream::Stdout, 5, "five"), "1970-01-01T00:00:00.005Z five");
    }
}
