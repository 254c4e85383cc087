//! A line in colours that is never wider than its terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::paint::{Paint, Tone, tame};

/// How many columns a text takes.
pub fn width_of(text: &str) -> usize {
    text.width()
}

/// Pieces of text, each in its tone.
#[derive(Debug, Default)]
pub struct Line {
    pieces: Vec<(Tone, String)>,
    width: usize,
}

impl Line {
    pub fn push(&mut self, tone: Tone, text: &str) {
        if text.is_empty() {
            return;
        }
        let text = tame(text);
        self.width += width_of(&text);
        self.pieces.push((tone, text));
    }

    /// Spaces up to a column.
    pub fn pad_to(&mut self, column: usize) {
        self.push(Tone::Plain, &" ".repeat(column.saturating_sub(self.width)));
    }

    /// The whole line, cut where the terminal ends.
    pub fn render(mut self, width: usize, paint: Paint) -> String {
        self.trim_end();
        let is_cut = self.width > width;
        let mut room = if is_cut { width.saturating_sub(1) } else { width };
        let mut text = String::new();
        for (tone, piece) in &self.pieces {
            let kept = cut(piece, room);
            room -= width_of(kept);
            text.push_str(&paint.apply(*tone, kept));
            if kept.len() < piece.len() {
                break;
            }
        }
        if is_cut && width > 0 {
            text.push('…');
        }
        text
    }

    fn trim_end(&mut self) {
        while let Some((_, last)) = self.pieces.last_mut() {
            let kept = last.trim_end().len();
            self.width -= last.len() - kept;
            last.truncate(kept);
            if kept > 0 {
                return;
            }
            self.pieces.pop();
        }
    }
}

/// As much of a text as has room.
pub fn cut(text: &str, room: usize) -> &str {
    let mut used = 0;
    for (at, letter) in text.char_indices() {
        used += letter.width().unwrap_or(0);
        if used > room {
            return &text[..at];
        }
    }
    text
}

/// The text, with a sign at its end if it had to be cut.
pub fn shortened(text: &str, width: usize) -> String {
    if width_of(text) <= width {
        return text.to_owned();
    }
    if width == 0 { String::new() } else { format!("{}…", cut(text, width - 1)) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(pieces: &[&str]) -> Line {
        let mut line = Line::default();
        pieces.iter().for_each(|piece| line.push(Tone::Good, piece));
        line
    }

    #[test]
    fn a_line_is_cut_where_the_terminal_ends() {
        assert_eq!(line(&["abc", "def"]).render(6, Paint::NONE), "abcdef");
        assert_eq!(line(&["abc", "def"]).render(5, Paint::NONE), "abcd…");
        assert_eq!(line(&["abc", "def"]).render(1, Paint::NONE), "…");
        assert_eq!(line(&["abc", "def"]).render(0, Paint::NONE), "");
        assert_eq!(line(&["漢字", "x"]).render(4, Paint::NONE), "漢…", "wide letters take two columns");
    }

    #[test]
    fn what_others_wrote_has_no_power_over_the_terminal() {
        assert_eq!(line(&["a\x1b[2J\nb  "]).render(80, Paint::NONE), "a·[2J·b");
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_its_terminal(
            pieces in proptest::collection::vec(".{0,12}", 0..5),
            width in 0usize..40,
        ) {
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            prop_assert!(width_of(&line(&pieces).render(width, Paint::NONE)) <= width);
        }
    }
}
