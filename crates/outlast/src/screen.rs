//! A few lines on a terminal that are drawn again and again in the same place.

use std::io::{self, IsTerminal};

use rustix::termios::tcgetwinsize;

use crate::output;
use crate::workflows::tree::width_of;

/// For terminals that do not tell.
const USUAL: Size = Size { width: 80, height: 24 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub width: usize,
    pub height: usize,
}

/// The terminal that standard output is, if it can be drawn on.
pub fn size() -> Option<Size> {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if is_dumb || !io::stdout().is_terminal() {
        return None;
    }
    let told = tcgetwinsize(io::stdout()).ok().filter(|told| told.ws_col > 0 && told.ws_row > 1);
    Some(told.map_or(USUAL, |told| Size { width: told.ws_col.into(), height: told.ws_row.into() }))
}

/// How wide lines may be where there is no terminal.
pub fn width() -> usize {
    size().map_or(usize::MAX / 8, |size| size.width)
}

/// What was drawn last.
#[derive(Debug, Default)]
pub struct Screen {
    widths: Vec<usize>,
}

impl Screen {
    /// Draws these lines in the place of the last ones.
    pub fn redraw(&mut self, lines: &[String], size: Size) -> io::Result<()> {
        output::write(self.replaced(lines, size).as_bytes())
    }

    /// In one piece, so that nothing flickers.
    fn replaced(&mut self, lines: &[String], size: Size) -> String {
        // A terminal that has become narrower has broken the lines that were drawn before.
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

/// Without the colours.
fn visible_width(line: &str) -> usize {
    let mut width = 0;
    for (at, piece) in line.split("\x1b[").enumerate() {
        let shown = if at == 0 { piece } else { piece.split_once('m').map_or("", |(_, shown)| shown) };
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
    fn each_drawing_takes_the_place_of_the_one_before() {
        let size = Size { width: 20, height: 10 };
        let mut screen = Screen::default();
        assert_eq!(screen.replaced(&lines(&["one", "two"]), size), "one\x1b[K\ntwo\x1b[K\n\x1b[J");
        assert_eq!(screen.replaced(&lines(&["three"]), size), "\x1b[2A\rthree\x1b[K\n\x1b[J");
        assert_eq!(screen.replaced(&[], size), "\x1b[1A\r\x1b[J");
    }

    #[test]
    fn lines_that_a_narrower_terminal_has_broken_are_replaced_as_well() {
        let mut screen = Screen::default();
        screen.replaced(&lines(&["\x1b[32mten\x1b[0m letters", "x", ""]), Size { width: 20, height: 10 });
        let narrow = Size { width: 5, height: 10 };
        assert!(screen.replaced(&[], narrow).starts_with("\x1b[5A"), "three for the first, one for each of the others");
    }
}
