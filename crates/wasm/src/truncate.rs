//! Truncation of texts from or about a guest.

use crate::TEXT_BYTES_MAX;

/// Truncates at a character boundary.
pub fn truncate(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    text
}

/// The names that fit, then the number of omitted ones.
pub(crate) fn truncate_names(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut shown: Vec<String> = Vec::new();
    let (mut bytes, mut omitted) = (0, 0_usize);
    for name in names {
        bytes += name.len();
        if bytes <= TEXT_BYTES_MAX {
            shown.push(name);
        } else {
            omitted += 1;
        }
    }
    if omitted > 0 {
        shown.push(format!("and {omitted} more"));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_truncated_at_a_character_boundary() {
        assert_eq!(truncate("x".repeat(TEXT_BYTES_MAX)).len(), TEXT_BYTES_MAX);
        assert_eq!(truncate(format!("x{}", "ä".repeat(TEXT_BYTES_MAX))).len(), TEXT_BYTES_MAX - 1);
    }

    #[test]
    fn omitted_names_are_counted() {
        let half = || "n".repeat(TEXT_BYTES_MAX / 2);
        assert_eq!(truncate_names([half(), half()].into_iter()), [half(), half()]);
        assert_eq!(truncate_names([half(), half(), "n".into()].into_iter()), [half(), half(), "and 1 more".into()]);
    }
}
