//! Escapes and truncates text for a drawing.

use std::borrow::Cow;

/// Puts text on one line and replaces invisible characters and those that XML forbids.
pub(super) fn one_line(text: &str) -> Cow<'_, str> {
    let is_replaced = |character: char| character.is_control() || is_direction(character) || !is_xml(character);
    if !text.contains(is_replaced) {
        return Cow::Borrowed(text);
    }
    let plain = |character: char| match character {
        '\n' | '\r' | '\t' => ' ',
        other if is_replaced(other) => char::REPLACEMENT_CHARACTER,
        other => other,
    };
    Cow::Owned(text.chars().map(plain).collect())
}

/// Bidirectional control characters, which could make a name look like another.
fn is_direction(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn is_xml(character: char) -> bool {
    !matches!(character, '\u{fffe}' | '\u{ffff}')
}

/// Escapes text for XML elements and attributes.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in one_line(text).chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Upper bound of the width of a text in common sans-serif fonts.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(advance).sum::<f64>() * size
}

/// At least the widths of DejaVu Sans, the widest font that a browser is likely to choose.
fn advance(character: char) -> f64 {
    match character {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.4,
        'f' | 'r' | 't' | '-' | '(' | ')' | '[' | ']' | '/' | '\\' | '·' => 0.45,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' | '→' => 1.05,
        'A'..='Z' | '&' | '+' | '<' | '=' | '>' | '#' | '~' => 0.86,
        _ if character.is_ascii() => 0.66,
        // Other letters may be as wide as high, and emoji wider.
        _ if u32::from(character) < 0x1100 => 1.0,
        _ => 1.4,
    }
}

/// The text if it fits into `room`, else its start with an ellipsis.
pub(super) fn truncated(text: &str, size: f64, room: f64) -> Cow<'_, str> {
    if width(text, size) <= room {
        return Cow::Borrowed(text);
    }
    let mut left = room - width("…", size);
    let fits = |character: &char| {
        left -= advance(*character) * size;
        left >= 0.0
    };
    let start: String = text.chars().take_while(fits).collect();
    Cow::Owned(format!("{}…", start.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_escaped_and_forbidden_characters_are_replaced() {
        assert_eq!(escaped("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
        assert_eq!(escaped("a\nb\0c\u{ffff}\u{1b}[0m\u{202e}d"), "a b\u{fffd}c\u{fffd}\u{fffd}[0m\u{fffd}d");
        assert!(matches!(one_line("plain – ünïcode 🦀"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_long_text_is_truncated() {
        assert_eq!(truncated("build", 13.0, 200.0), "build");
        let long = "a-very-long-name-of-a-task-that-goes-on-and-on";
        let cut = truncated(long, 13.0, 120.0);
        assert!(cut.ends_with('…') && long.starts_with(cut.trim_end_matches('…')), "{cut}");
        assert!(width(&cut, 13.0) <= 120.0);
        assert_eq!(truncated(long, 13.0, 0.0), "…");
    }

    proptest::proptest! {
        #[test]
        fn a_truncated_text_fits(text in ".{0,80}", room in 20.0_f64..300.0) {
            proptest::prop_assert!(width(&truncated(&text, 13.0, room), 13.0) <= room);
        }
    }
}
