//! Checks of a match beyond its regular expression.

pub(crate) mod names;
mod numbers;
mod values;

use std::ops::Range;

pub(crate) use values::{is_placeholder, looks_random};

use crate::base64;
use crate::class::Class;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Check {
    /// The regular expression is sufficient.
    Nothing,
    /// The value looks random, unlike a word or a file name.
    Random,
    /// The value is not a placeholder.
    NoPlaceholder,
    Jwt,
    /// The credentials of an `Authorization` header.
    Credentials,
    /// The name indicates a secret, and the value looks random.
    Assignment,
    Email,
    Card,
    Iban,
    SocialSecurity,
    Phone,
    Passport,
}

/// A match of a pattern's regular expression.
pub(crate) struct Candidate<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) whole: Range<usize>,
    /// The part that becomes the finding.
    pub(crate) value: Range<usize>,
    /// The match reached [`MATCH_BYTES_MAX`](crate::MATCH_BYTES_MAX) and may be incomplete.
    pub(crate) truncated: bool,
}

impl Candidate<'_> {
    fn value(&self) -> &[u8] {
        &self.bytes[self.value.clone()]
    }

    /// The bytes before and after the match.
    fn neighbours(&self) -> (Option<u8>, Option<u8>) {
        let before = self.whole.start.checked_sub(1).map(|at| self.bytes[at]);
        (before, self.bytes.get(self.whole.end).copied())
    }
}

impl Check {
    /// Returns the finding, which may be shorter than the match, or `None` if the check fails.
    pub(crate) fn apply(self, candidate: &Candidate<'_>) -> Option<Range<usize>> {
        let value = candidate.value();
        let passed = match self {
            Self::Nothing => true,
            Self::Random => looks_random(value),
            Self::NoPlaceholder => !is_placeholder(value),
            Self::Jwt => is_json_web_token(value, candidate.truncated),
            Self::Credentials => are_credentials(value),
            Self::Assignment => is_assignment(candidate),
            Self::Email => values::is_mailbox(value),
            Self::Card => numbers::is_card(candidate.neighbours(), value),
            Self::SocialSecurity => numbers::is_social_security(value),
            Self::Passport => numbers::is_passport(value),
            Self::Iban => return numbers::iban(candidate),
            Self::Phone => return numbers::phone(candidate),
        };
        passed.then(|| candidate.value.clone())
    }
}

/// Whether a value has three parts, the first of which is a JSON object with an algorithm. For a truncated token the
/// first part is sufficient.
fn is_json_web_token(value: &[u8], truncated: bool) -> bool {
    let mut parts = value.split(|&byte| byte == b'.');
    let (header, _, signature) = (parts.next(), parts.next(), parts.next());
    let names_algorithm = || {
        let header = base64::decode(header?)?;
        let header: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&header).ok()?;
        header.get("alg")?.is_string().then_some(())
    };
    let complete = truncated || signature.is_some_and(|signature| signature.len() >= SIGNATURE_BYTES_MIN);
    complete && names_algorithm().is_some()
}

/// Minimum length of a signature.
const SIGNATURE_BYTES_MIN: usize = 16;

/// Whether a value is `user:password` in base64, or looks random.
fn are_credentials(value: &[u8]) -> bool {
    let user_and_password = || {
        let decoded = base64::decode(value)?;
        let text = std::str::from_utf8(&decoded).ok()?;
        (text.contains(':') && !text.contains(char::is_control)).then_some(())
    };
    (value.len() >= 16 && looks_random(value)) || user_and_password().is_some()
}

fn is_assignment(candidate: &Candidate<'_>) -> bool {
    let value = candidate.value();
    if !looks_random(value) || is_placeholder(value) || values::is_location(value) {
        return false;
    }
    let name_end = Class::Name.run_end(candidate.bytes, candidate.whole.start);
    let name = std::str::from_utf8(&candidate.bytes[candidate.whole.start..name_end]);
    // Bytes of this class are ASCII, so the conversion succeeds.
    name.is_ok_and(|name| names::classify(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_web_token_has_an_algorithm() {
        let signature = "x7Kq2mVb9LpR4tWy";
        // {"alg":"HS256"}, {"kid":"1"}, [1,2]
        for (header, expected) in
            [("eyJhbGciOiJIUzI1NiJ9", true), ("eyJraWQiOiIxIn0", false), ("WzEsMl0", false), ("eyJ%", false)]
        {
            let token = format!("{header}.e30.{signature}");
            assert_eq!(is_json_web_token(token.as_bytes(), false), expected, "{header}");
        }
        assert!(!is_json_web_token(b"eyJhbGciOiJIUzI1NiJ9.e30", false));
        assert!(is_json_web_token(b"eyJhbGciOiJIUzI1NiJ9.e30", true));
    }

    #[test]
    fn credentials_are_user_and_password_or_look_random() {
        assert!(are_credentials(b"YTpi"), "a:b");
        assert!(!are_credentials(b"YWJj"), "abc");
        assert!(are_credentials(b"x7Kq2mVb9LpR4tWy"));
        assert!(!are_credentials(b"authentication-required"));
    }
}
