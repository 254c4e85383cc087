//! Coloured line, truncated to the width of the terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::paint::{Paint, Tone, sanitize};

/// Display width of a text in columns.
pub fn width_of(text: &str) -> usize {
    text.width()
}

/// Styled parts of a line.
#[derive(Debug, Default)]
pub struct Line {
    parts: Vec<(Tone, String)>,
    width: usize,
}

impl Line {
    pub fn push(&mut self, tone: Tone, text: &str) {
        if text.is_empty() {
            return;
        }
        let text = sanitize(text);
        self.width += width_of(&text);
        self.parts.push((tone, text));
    }

    /// Pads with spaces up to a column.
    pub fn pad_to(&mut self, column: usize) {
        self.push(Tone::Plain, &" ".repeat(column.saturating_sub(self.width)));
    }

    /// The line, truncated to `width`.
    pub fn render(mut self, width: usize, paint: Paint) -> String {
        self.trim_end();
        let is_cut = self.width > width;
        let mut room = if is_cut { width.saturating_sub(1) } else { width };
        let mut text = String::new();
        for (tone, part) in &self.parts {
            let kept = cut(part, room);
            room -= width_of(kept);
            text.push_str(&paint.apply(*tone, kept));
            if kept.len() < part.len() {
                break;
            }
        }
        if is_cut && width > 0 {
            text.push('…');
        }
        text
    }

    fn trim_end(&mut self) {
        while let Some((_, last)) = self.parts.last_mut() {
            let kept = last.trim_end().len();
            self.width -= last.len() - kept;
            last.truncate(kept);
            if kept > 0 {
                return;
            }
            self.parts.pop();
        }
    }
}

/// Truncates a text to `room` columns.
pub fn cut(text: &str, room: usize) -> &str {
    let mut used = 0;
    for (at, character) in text.char_indices() {
        used += character.width().unwrap_or(0);
        if used > room {
            return &text[..at];
        }
    }
    text
}

/// Truncates a text to `width` columns, with an ellipsis.
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

    fn line(parts: &[&str]) -> Line {
        let mut line = Line::default();
        parts.iter().for_each(|part| line.push(Tone::Good, part));
        line
    }

    #[test]
    fn a_line_is_truncated_to_the_width_of_the_terminal() {
        assert_eq!(line(&["abc", "def"]).render(6, Paint::NONE), "abcdef");
        assert_eq!(line(&["abc", "def"]).render(5, Paint::NONE), "abcd…");
        assert_eq!(line(&["abc", "def"]).render(1, Paint::NONE), "…");
        assert_eq!(line(&["abc", "def"]).render(0, Paint::NONE), "");
        assert_eq!(line(&["漢字", "x"]).render(4, Paint::NONE), "漢…", "wide characters take two columns");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(line(&["a\x1b[2J\nb  "]).render(80, Paint::NONE), "a·[2J·b");
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_its_terminal(
            parts in proptest::collection::vec(".{0,12}", 0..5),
            width in 0usize..40,
        ) {
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            prop_assert!(width_of(&line(&parts).render(width, Paint::NONE)) <= width);
        }
    }
}
