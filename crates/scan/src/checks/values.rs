//! Heuristics that distinguish random values from words, placeholders and locations.

/// Minimum entropy of a random value, in bits per byte.
const ENTROPY_BITS_MIN: f64 = 2.75;
/// Minimum length of a random value. Shorter values are often words.
const RANDOM_BYTES_MIN: usize = 8;
/// Minimum length and entropy of a random value without digits.
const LETTERS_BYTES_MIN: usize = 20;
const LETTERS_ENTROPY_BITS_MIN: f64 = 3.7;

/// Whether a value has letters and digits, or many letters of both cases, with sufficient entropy.
pub(crate) fn looks_random(value: &[u8]) -> bool {
    let has = |class: fn(&u8) -> bool| value.iter().any(class);
    if value.len() < RANDOM_BYTES_MIN || !has(u8::is_ascii_alphabetic) {
        return false;
    }
    if has(u8::is_ascii_digit) {
        return entropy_bits(value) >= ENTROPY_BITS_MIN;
    }
    // Joined words have few capitals; in random letters about half are capitals.
    let many = |class: fn(&&u8) -> bool| value.iter().filter(class).count() * 10 >= value.len() * 3;
    let alphabetic = value.iter().all(u8::is_ascii_alphabetic);
    let both_cases = many(|byte| byte.is_ascii_uppercase()) && many(|byte| byte.is_ascii_lowercase());
    let long = value.len() >= LETTERS_BYTES_MIN;
    long && alphabetic && both_cases && entropy_bits(value) >= LETTERS_ENTROPY_BITS_MIN
}

/// Shannon entropy in bits per byte, from 0 to 8.
fn entropy_bits(value: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for &byte in value {
        counts[usize::from(byte)] += 1;
    }
    let length = value.len() as f64;
    let share = |count: u32| f64::from(count) / length;
    counts.into_iter().filter(|&count| count > 0).map(|count| -share(count) * share(count).log2()).sum()
}

/// Whether a value is a variable, a mask or a redaction mark.
pub(crate) fn is_placeholder(value: &[u8]) -> bool {
    let (Some(&first), Some(&last)) = (value.first(), value.last()) else { return true };
    let all_equal = value.iter().all(|&byte| byte == first);
    let masked = value.iter().all(|byte| b"*xX.#-_".contains(byte));
    let bracketed = matches!((first, last), (b'<', b'>') | (b'{', b'}') | (b'%', b'%'));
    let variable = first == b'$' && value.get(1).is_some_and(|&byte| byte == b'{' || byte == b'(') && last != b'$';
    let word = PLACEHOLDERS.iter().any(|word| value.eq_ignore_ascii_case(word.as_bytes()));
    all_equal || masked || bracketed || variable || word || is_redacted(value)
}

const PLACEHOLDERS: &[&str] = &[
    "null",
    "none",
    "nil",
    "true",
    "false",
    "undefined",
    "empty",
    "redacted",
    "hidden",
    "masked",
    "string",
    "optional",
];

/// Whether a value is exactly one redaction mark.
fn is_redacted(value: &[u8]) -> bool {
    let name = value.strip_prefix(b"[redacted:").and_then(|rest| rest.strip_suffix(b"]"));
    name.is_some_and(|name| name.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_'))
}

/// Whether a value is a path or a URL. A password in a URL is found by another pattern.
pub(crate) fn is_location(value: &[u8]) -> bool {
    let starts = |prefix: &[u8]| value.starts_with(prefix);
    starts(b"/") || starts(b"./") || starts(b"../") || starts(b"~/") || value.windows(3).any(|part| part == b"://")
}

/// Suffixes of files and systemd units, which are not top-level domains.
const NOT_DOMAINS: &[&str] = &[
    "png", "jpg", "jpeg", "gif", "svg", "webp", "css", "js", "mjs", "json", "html", "map", "service", "socket",
    "target", "mount", "slice", "timer", "scope", "path", "local", "lock", "toml", "yaml", "yml",
];

/// Maximum length of an address (RFC 5321).
const MAILBOX_BYTES_MAX: usize = 254;

pub(super) fn is_mailbox(value: &[u8]) -> bool {
    let Some(at) = value.iter().position(|&byte| byte == b'@') else { return false };
    let (user, domain) = (&value[..at], &value[at + 1..]);
    let top = domain.rsplit(|&byte| byte == b'.').next().unwrap_or_default();
    let is_domain = !NOT_DOMAINS.iter().any(|name| top.eq_ignore_ascii_case(name.as_bytes()));
    let has_invalid_dots = user.starts_with(b".") || user.ends_with(b".") || user.windows(2).any(|pair| pair == b"..");
    // `git@` is the user of repository URLs, not a person.
    value.len() <= MAILBOX_BYTES_MAX && is_domain && !has_invalid_dots && user != b"git"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_values_are_distinguished_from_words() {
        for value in ["c0rrecth0rse7", "passw0rd", "x7Kq2mVb9LpR4tWy", "0f1e2d3c4b5a6978", "xKqmVbLpRtWyZnCsDfGh"] {
            assert!(looks_random(value.as_bytes()), "{value}");
        }
        let words =
            ["disabled", "authentication", "getTheTokenFromTheVault", "12345678", "aaaaaaa1", "a1b2c3d", "1111-aaa"];
        for value in words {
            assert!(!looks_random(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn entropy_is_zero_for_one_letter_and_three_bits_for_eight() {
        assert_eq!(entropy_bits(b"aaaa"), 0.0);
        assert_eq!(entropy_bits(b"abcdefgh"), 3.0);
    }

    #[test]
    fn placeholders_are_distinguished_from_values() {
        let placeholders = [
            "",
            "********",
            "xxxx",
            "<password>",
            "${PASSWORD}",
            "$(cat key)",
            "{{ password }}",
            "None",
            "[redacted:jwt]",
        ];
        for value in placeholders {
            assert!(is_placeholder(value.as_bytes()), "{value}");
        }
        for value in ["$ecret", "hunter2", "[redacted:jwt] hunter2", "[redacted:jwt]x]", "x.y"] {
            assert!(!is_placeholder(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn mailboxes_are_distinguished_from_units_files_and_repositories() {
        assert!(is_mailbox(b"jane@example.org"));
        for value in ["user@1000.service", "icon@2x.png", "git@github.com", ".jane@example.org", "a..b@example.org"] {
            assert!(!is_mailbox(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn mailboxes_are_found_up_to_the_length_limit() {
        let domain = |bytes: usize| format!("{}.org", "d".repeat(bytes - 4));
        assert!(is_mailbox(format!("a@{}", domain(MAILBOX_BYTES_MAX - 2)).as_bytes()));
        assert!(!is_mailbox(format!("a@{}", domain(MAILBOX_BYTES_MAX - 1)).as_bytes()));
    }
}
