//! What must hold of a match beyond its form.

pub(crate) mod names;
mod numbers;
mod words;

use std::ops::Range;

pub(crate) use words::{is_placeholder, looks_random};

use crate::base64;
use crate::class::Class;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Check {
    /// The form says enough.
    Nothing,
    /// Looks drawn at random: no word, no name of a file.
    Random,
    /// Is a value, not the name of one to be filled in.
    NoPlaceholder,
    Jwt,
    /// What follows `Authorization`.
    Credentials,
    /// A name that says the value is secret, and a value that looks so.
    Assignment,
    Email,
    Card,
    Iban,
    SocialSecurity,
    Phone,
    Passport,
}

/// A match of a pattern's form.
pub(crate) struct Candidate<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) whole: Range<usize>,
    /// The part that would be the finding.
    pub(crate) value: Range<usize>,
    /// There was more to match than a pattern gets to see.
    pub(crate) cut: bool,
}

impl Candidate<'_> {
    fn value(&self) -> &[u8] {
        &self.bytes[self.value.clone()]
    }

    /// The byte before the match, and the one after it.
    fn neighbours(&self) -> (Option<u8>, Option<u8>) {
        let before = self.whole.start.checked_sub(1).map(|at| self.bytes[at]);
        (before, self.bytes.get(self.whole.end).copied())
    }
}

impl Check {
    /// The finding, which may be shorter than the match, or nothing.
    pub(crate) fn passes(self, candidate: &Candidate<'_>) -> Option<Range<usize>> {
        let value = candidate.value();
        let passed = match self {
            Self::Nothing => true,
            Self::Random => looks_random(value),
            Self::NoPlaceholder => !is_placeholder(value),
            Self::Jwt => is_web_token(value, candidate.cut),
            Self::Credentials => are_credentials(value),
            Self::Assignment => is_assignment(candidate),
            Self::Email => words::is_mailbox(value),
            Self::Card => numbers::is_card(candidate.neighbours(), value),
            Self::SocialSecurity => numbers::is_social_security(value),
            Self::Passport => numbers::is_passport(value),
            Self::Iban => return numbers::iban(candidate),
            Self::Phone => return numbers::phone(candidate),
        };
        passed.then(|| candidate.value.clone())
    }
}

/// Three parts, of which the first is a JSON object that names an algorithm. Of a token that is longer than a pattern
/// sees, the first part decides.
fn is_web_token(value: &[u8], cut: bool) -> bool {
    let mut parts = value.split(|&byte| byte == b'.');
    let (header, _, signature) = (parts.next(), parts.next(), parts.next());
    let names_algorithm = || {
        let header = base64::decode(header?)?;
        let header: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&header).ok()?;
        header.get("alg")?.is_string().then_some(())
    };
    let complete = cut || signature.is_some_and(|signature| signature.len() >= SIGNATURE_BYTES_MIN);
    complete && names_algorithm().is_some()
}

/// Shorter ones are no signatures, but the end of something else.
const SIGNATURE_BYTES_MIN: usize = 16;

/// A user and a password in base64, or something that looks random.
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
    if !looks_random(value) || is_placeholder(value) || words::is_place(value) {
        return false;
    }
    let name_end = Class::Name.run_end(candidate.bytes, candidate.whole.start);
    let name = std::str::from_utf8(&candidate.bytes[candidate.whole.start..name_end]);
    // Bytes of this class are ASCII; if they were not, it would be no name.
    name.is_ok_and(|name| names::says_secret(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_web_token_names_its_algorithm() {
        let signature = "x7Kq2mVb9LpR4tWy";
        // {"alg":"HS256"}, {"kid":"1"}, [1,2]
        for (header, right) in
            [("eyJhbGciOiJIUzI1NiJ9", true), ("eyJraWQiOiIxIn0", false), ("WzEsMl0", false), ("eyJ%", false)]
        {
            let token = format!("{header}.e30.{signature}");
            assert_eq!(is_web_token(token.as_bytes(), false), right, "{header}");
        }
        assert!(!is_web_token(b"eyJhbGciOiJIUzI1NiJ9.e30", false));
        assert!(is_web_token(b"eyJhbGciOiJIUzI1NiJ9.e30", true));
    }

    #[test]
    fn credentials_are_a_user_with_a_password_or_look_random() {
        assert!(are_credentials(b"YTpi"), "a:b");
        assert!(!are_credentials(b"YWJj"), "abc");
        assert!(are_credentials(b"x7Kq2mVb9LpR4tWy"));
        assert!(!are_credentials(b"authentication-required"));
    }
}
