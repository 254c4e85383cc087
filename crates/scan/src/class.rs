//! Byte classes for the boundaries of a match.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Digit,
    Alphanumeric,
    /// Letters, digits and `_`.
    Word,
    /// Bytes of URL-safe tokens: letters, digits, `_` and `-`.
    Token,
    /// Base64 of the standard alphabet, with padding.
    Base64,
    /// Credentials after `Bearer`: letters, digits and `-._~+/=`.
    Credentials,
    /// Path of a URL.
    Path,
    /// Local part of an e-mail address.
    Mailbox,
    /// Scheme of a URL.
    Scheme,
    /// Name of a setting: letters, digits, `_`, `-` and `.`.
    Name,
    /// Unquoted value.
    Value,
}

impl Class {
    pub(crate) fn contains(self, byte: u8) -> bool {
        let alphanumeric = byte.is_ascii_alphanumeric();
        match self {
            Self::Digit => byte.is_ascii_digit(),
            Self::Alphanumeric => alphanumeric,
            Self::Word => alphanumeric || byte == b'_',
            Self::Token => alphanumeric || matches!(byte, b'_' | b'-'),
            Self::Base64 => alphanumeric || matches!(byte, b'+' | b'/' | b'='),
            Self::Credentials => alphanumeric || b"-._~+/=".contains(&byte),
            Self::Path => alphanumeric || b"-_/".contains(&byte),
            Self::Mailbox => alphanumeric || b"._%+-".contains(&byte),
            Self::Scheme => alphanumeric || b"+.-".contains(&byte),
            Self::Name => alphanumeric || b"_-.".contains(&byte),
            Self::Value => byte > b' ' && !b"\"'\\`,;&<>(){}[]|\x7f".contains(&byte),
        }
    }

    /// End of the run of this class that starts at `from`.
    pub(crate) fn run_end(self, bytes: &[u8], from: usize) -> usize {
        let rest = bytes.get(from..).unwrap_or_default();
        from + rest.iter().position(|&byte| !self.contains(byte)).unwrap_or(rest.len())
    }

    /// Start of the run of this class that ends before `to`, at most `bytes_max` bytes back.
    pub(crate) fn run_start(self, bytes: &[u8], to: usize, bytes_max: usize) -> usize {
        let before = &bytes[to.saturating_sub(bytes_max)..to];
        to - before.iter().rev().take_while(|&&byte| self.contains(byte)).count()
    }
}

/// Whether a run of this class may start here, and not in the middle of one. The letter of an escape such as `\n` does
/// not belong to a run.
pub(crate) fn is_run_start(bytes: &[u8], at: usize, class: Class) -> bool {
    let Some(before) = at.checked_sub(1) else { return true };
    if !class.contains(bytes[before]) {
        return true;
    }
    matches!(bytes[before], b'n' | b'r' | b't') && before > 0 && bytes[before - 1] == b'\\'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_with_its_class() {
        assert_eq!(Class::Alphanumeric.run_end(b"abc-def", 0), 3);
        assert_eq!(Class::Token.run_end(b"abc-def", 0), 7);
        assert_eq!(Class::Token.run_end(b"abc", 3), 3);
    }

    #[test]
    fn the_search_for_a_run_start_is_limited() {
        assert_eq!(Class::Mailbox.run_start(b"<jane.doe@", 9, 64), 1);
        assert_eq!(Class::Mailbox.run_start(b"<jane.doe@", 9, 3), 6);
        assert_eq!(Class::Mailbox.run_start(b"@", 0, 3), 0);
    }

    #[test]
    fn the_letter_of_an_escape_does_not_belong_to_a_run() {
        assert!(is_run_start(b"x", 0, Class::Word) && is_run_start(b" x", 1, Class::Word));
        assert!(!is_run_start(b"nx", 1, Class::Word));
        assert!(is_run_start(br"\nx", 2, Class::Word));
    }
}
