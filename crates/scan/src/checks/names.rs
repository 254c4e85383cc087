//! Names of settings and JSON members that indicate a secret value.

/// Confidence that the value under a name is secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecretName {
    /// Every value is secret.
    Certain,
    /// Ambiguous, such as `token`: the value must look random as well.
    Possible,
}

/// Longer names are not checked.
const NAME_BYTES_MAX: usize = 128;

const CERTAIN: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "pwd",
    "secretkey",
    "clientsecret",
    "apikey",
    "apisecret",
    "accesskey",
    "privatekey",
    "signingkey",
    "encryptionkey",
    "authkey",
    "accesstoken",
    "refreshtoken",
    "authtoken",
    "bearertoken",
    "apitoken",
    "sessiontoken",
];

const POSSIBLE: &[&str] = &["secret", "token", "credential", "authorization", "connectionstring"];

/// Names that end like a secret's but are none: pagination cursors and token counts of language models.
const NOT_SECRET: &[&str] = &[
    "pagetoken",
    "nexttoken",
    "continuationtoken",
    "synctoken",
    "resumetoken",
    "maxtoken",
    "inputtoken",
    "outputtoken",
    "prompttoken",
    "completiontoken",
    "totaltoken",
    "eostoken",
    "bostoken",
    "padtoken",
    "unktoken",
    "publicaccesskey",
];

/// Classifies a name by its end: `db_password` is a secret, `password_policy` is not.
pub(crate) fn classify(name: &str) -> Option<SecretName> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let letters: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let letters = letters.trim_end_matches(|c: char| c.is_ascii_digit());
    let singular = letters.strip_suffix('s').unwrap_or(letters);
    let ends = |names: &[&str]| names.iter().any(|&end| letters.ends_with(end) || singular.ends_with(end));
    if ends(NOT_SECRET) {
        None
    } else if ends(CERTAIN) {
        Some(SecretName::Certain)
    } else if ends(POSSIBLE) {
        Some(SecretName::Possible)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_classified_by_their_end() {
        for name in ["password", "DB_PASSWORD", "db.password2", "clientSecret", "AWS_SECRET_ACCESS_KEY", "x-api-key"] {
            assert_eq!(classify(name), Some(SecretName::Certain), "{name}");
        }
        for name in ["token", "tokens", "GITHUB_TOKEN", "secret", "credentials", "Authorization"] {
            assert_eq!(classify(name), Some(SecretName::Possible), "{name}");
        }
        for name in ["", "password_policy", "secret_name", "token_count", "next_page_token", "max_tokens", "eos_token"]
        {
            assert_eq!(classify(name), None, "{name}");
        }
    }

    #[test]
    fn names_are_checked_up_to_the_length_limit() {
        let name = |bytes: usize| format!("{}password", "x".repeat(bytes - "password".len()));
        assert!(classify(&name(NAME_BYTES_MAX)).is_some());
        assert!(classify(&name(NAME_BYTES_MAX + 1)).is_none());
    }
}
