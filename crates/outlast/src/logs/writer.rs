//! Writes job output to the right stream, optionally with timestamps.

use std::io::{self, Write};

use client::logs::{LogChunk, Stream};

use crate::output;
use crate::paint::{Paint, Tone};

/// Tracks line starts for the timestamps.
#[derive(Debug)]
pub struct LogWriter {
    separate: bool,
    timestamps: bool,
    /// Whether the last chunk of each stream ended within a line.
    within_line: [bool; 2],
}

impl LogWriter {
    /// `separate`: standard error goes to standard error. Otherwise everything goes to standard output.
    pub fn new(separate: bool, timestamps: bool) -> Self {
        Self { separate, timestamps, within_line: [false; 2] }
    }

    pub fn write(&mut self, chunk: &LogChunk) -> io::Result<()> {
        if chunk.missing > 0 {
            // On standard error, so that standard output contains only job output.
            let notice = format!("[outlast: {} bytes of {} were dropped]", chunk.missing, chunk.stream);
            writeln!(io::stderr().lock(), "{}", Paint::for_stderr().apply(Tone::Quiet, &notice))?;
        }
        let stamped;
        let bytes = if self.timestamps {
            stamped = self.stamp(chunk);
            &stamped[..]
        } else {
            &chunk.bytes[..]
        };
        match chunk.stream {
            Stream::Stderr if self.separate => io::stderr().lock().write_all(bytes),
            Stream::Stdout | Stream::Stderr => output::write(bytes),
        }
    }

    /// Adds the time before the first byte of each line. Later parts of the same line get none.
    fn stamp(&mut self, chunk: &LogChunk) -> Vec<u8> {
        let within_line = match chunk.stream {
            Stream::Stdout => &mut self.within_line[0],
            Stream::Stderr => &mut self.within_line[1],
        };
        let mut stamped = Vec::with_capacity(chunk.bytes.len() + 64);
        for line in chunk.bytes.split_inclusive(|byte| *byte == b'\n') {
            if !*within_line {
                stamped.extend_from_slice(format!("{} ", chunk.at).as_bytes());
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

    fn chunk(stream: Stream, at: u64, text: &'static str) -> LogChunk {
        LogChunk { stream, attempt: Attempt(1), at: Timestamp(Millis(at)), missing: 0, bytes: text.into() }
    }

    #[test]
    fn each_line_has_the_time_of_its_first_byte() {
        let mut writer = LogWriter::new(false, true);
        let mut stamp = |stream, at, text| String::from_utf8(writer.stamp(&chunk(stream, at, text))).unwrap();
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
