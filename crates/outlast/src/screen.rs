//! Terminal lines that are redrawn in place.

use std::io::{self, IsTerminal};

use rustix::termios::tcgetwinsize;

use crate::output;
use crate::workflows::tree::width_of;

/// For terminals that do not report their size.
const DEFAULT_SIZE: Size = Size { width: 80, height: 24 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub width: usize,
    pub height: usize,
}

/// Size of the terminal, or `None` if standard output is not a terminal that can be redrawn.
pub fn size() -> Option<Size> {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if is_dumb || !io::stdout().is_terminal() {
        return None;
    }
    let reported = tcgetwinsize(io::stdout()).ok().filter(|reported| reported.ws_col > 0 && reported.ws_row > 1);
    Some(
        reported
            .map_or(DEFAULT_SIZE, |reported| Size { width: reported.ws_col.into(), height: reported.ws_row.into() }),
    )
}

/// Terminal width; practically unlimited without a terminal.
pub fn width() -> usize {
    size().map_or(usize::MAX / 8, |size| size.width)
}

/// Widths of the lines drawn last.
#[derive(Debug, Default)]
pub struct Screen {
    widths: Vec<usize>,
}

impl Screen {
    /// Replaces the previous lines.
    pub fn redraw(&mut self, lines: &[String], size: Size) -> io::Result<()> {
        output::write(self.replacement(lines, size).as_bytes())
    }

    /// The whole update as one write, to avoid flicker.
    fn replacement(&mut self, lines: &[String], size: Size) -> String {
        // A terminal that became narrower has wrapped the previous lines.
        let up: usize = self.widths.iter().map(|width| width.div_ceil(size.width.max(1)).max(1)).sum();
        let mut text = String::new();
        if up > 0 {
            text.push_str(&format!("\x1b[{up}A\r"));
        }
        for line in lines {
            text.push_str(line);
            text.push_str("\x1b[K\n");
        }
        text.push_str("\x1b[J");
        self.widths = lines.iter().map(|line| visible_width(line)).collect();
        text
    }
}

/// Width without colour codes.
fn visible_width(line: &str) -> usize {
    let mut width = 0;
    for (index, part) in line.split("\x1b[").enumerate() {
        let shown = if index == 0 { part } else { part.split_once('m').map_or("", |(_, shown)| shown) };
        width += width_of(shown);
    }
    width
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn each_drawing_replaces_the_previous_one() {
        let size = Size { width: 20, height: 10 };
        let mut screen = Screen::default();
        assert_eq!(screen.replacement(&lines(&["one", "two"]), size), "one\x1b[K\ntwo\x1b[K\n\x1b[J");
        assert_eq!(screen.replacement(&lines(&["three"]), size), "\x1b[2A\rthree\x1b[K\n\x1b[J");
        assert_eq!(screen.replacement(&[], size), "\x1b[1A\r\x1b[J");
    }

    #[test]
    fn lines_wrapped_by_a_narrower_terminal_are_replaced() {
        let mut screen = Screen::default();
        screen.replacement(&lines(&["\x1b[32mten\x1b[0m letters", "x", ""]), Size { width: 20, height: 10 });
        let narrow = Size { width: 5, height: 10 };
        assert!(
            screen.replacement(&[], narrow).starts_with("\x1b[5A"),
            "three rows for the first line, one for each of the others"
        );
    }
}
