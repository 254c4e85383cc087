//! Words that come from a guest, or are about one, in as much room as there is for them.

use crate::TEXT_BYTES_MAX;

/// Cut at a whole character.
pub(crate) fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    text
}

/// As many names as there is room for, and how many more there are.
pub(crate) fn cut_names(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    let (mut bytes, mut left_out) = (0, 0_usize);
    for name in names {
        bytes += name.len();
        if bytes <= TEXT_BYTES_MAX {
            kept.push(name);
        } else {
            left_out += 1;
        }
    }
    if left_out > 0 {
        kept.push(format!("and {left_out} more"));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_at_a_whole_character() {
        assert_eq!(cut("x".repeat(TEXT_BYTES_MAX)).len(), TEXT_BYTES_MAX);
        assert_eq!(cut(format!("x{}", "ä".repeat(TEXT_BYTES_MAX))).len(), TEXT_BYTES_MAX - 1);
    }

    #[test]
    fn names_beyond_the_room_for_them_are_counted() {
        let half = || "n".repeat(TEXT_BYTES_MAX / 2);
        assert_eq!(cut_names([half(), half()].into_iter()), [half(), half()]);
        assert_eq!(cut_names([half(), half(), "n".into()].into_iter()), [half(), half(), "and 1 more".into()]);
    }
}
