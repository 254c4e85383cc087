//! The trace of a run: the last lines for diagnosis, a hash of all lines to compare runs.

use std::collections::VecDeque;
use std::fmt;

/// Lines shown after a failure.
const LINES_STORED: usize = 100;

#[derive(Debug)]
pub struct Trace {
    lines: VecDeque<String>,
    hash: u64,
    count: u64,
    print: bool,
}

impl Trace {
    pub fn new(print: bool) -> Self {
        Self { lines: VecDeque::with_capacity(LINES_STORED), hash: 0xCBF2_9CE4_8422_2325, count: 0, print }
    }

    pub fn line(&mut self, now: u64, what: fmt::Arguments<'_>) {
        use fmt::Write;
        let mut line =
            if self.lines.len() == LINES_STORED { self.lines.pop_front().unwrap_or_default() } else { String::new() };
        line.clear();
        // A write to a String cannot fail.
        let _ = write!(line, "{:>8}.{:03} {what}", now / 1000, now % 1000);
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        self.count += 1;
        if self.print {
            println!("{line}");
        }
        self.lines.push_back(line);
    }

    /// Hash of all lines, including those no longer stored.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn last_lines(self) -> Vec<String> {
        self.lines.into()
    }
}
