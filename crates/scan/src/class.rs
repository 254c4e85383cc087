//! Classes of bytes that matter at the edges of a match.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Digit,
    Alphanumeric,
    /// Letters, digits and `_`.
    Word,
    /// What URL-safe tokens consist of: letters, digits, `_` and `-`.
    Token,
    /// Base64 of the usual alphabet, with its padding.
    Base64,
    /// What may follow `Bearer`: letters, digits and `-._~+/=`.
    Credentials,
    /// The part of a path after a host.
    Path,
    /// What stands before the `@` of an e-mail address.
    Mailbox,
    /// What stands before the `://` of an address.
    Scheme,
    /// The name of a setting: letters, digits, `_`, `-` and `.`.
    Name,
    /// A value without quotes around it.
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

    /// Where the run of this class that begins at `from` ends.
    pub(crate) fn run_end(self, bytes: &[u8], from: usize) -> usize {
        let rest = bytes.get(from..).unwrap_or_default();
        from + rest.iter().position(|&byte| !self.contains(byte)).unwrap_or(rest.len())
    }

    /// Where the run of this class that ends before `to` begins, looking back over at most so many bytes.
    pub(crate) fn run_start(self, bytes: &[u8], to: usize, bytes_max: usize) -> usize {
        let before = &bytes[to.saturating_sub(bytes_max)..to];
        to - before.iter().rev().take_while(|&&byte| self.contains(byte)).count()
    }
}

/// Whether something may begin here: not in the middle of a word. An escape such as `\n` is no part of a word,
/// though it ends in a letter.
pub(crate) fn begins_here(bytes: &[u8], at: usize, class: Class) -> bool {
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
    fn a_run_ends_where_its_class_ends() {
        assert_eq!(Class::Alphanumeric.run_end(b"abc-def", 0), 3);
        assert_eq!(Class::Token.run_end(b"abc-def", 0), 7);
        assert_eq!(Class::Token.run_end(b"abc", 3), 3);
    }

    #[test]
    fn a_run_is_followed_back_only_so_far() {
        assert_eq!(Class::Mailbox.run_start(b"<jane.doe@", 9, 64), 1);
        assert_eq!(Class::Mailbox.run_start(b"<jane.doe@", 9, 3), 6);
        assert_eq!(Class::Mailbox.run_start(b"@", 0, 3), 0);
    }

    #[test]
    fn the_letter_of_an_escape_is_no_part_of_a_word() {
        assert!(begins_here(b"x", 0, Class::Word) && begins_here(b" x", 1, Class::Word));
        assert!(!begins_here(b"nx", 1, Class::Word));
        assert!(begins_here(br"\nx", 2, Class::Word));
    }
}
