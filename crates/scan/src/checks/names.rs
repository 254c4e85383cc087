//! Names of settings and members that say their value is secret.

/// How much a name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// Whatever stands here is secret.
    Certainly,
    /// Could be: a `token` may be a word of a text. The value has to look like a secret as well.
    Perhaps,
}

/// Longer names are not looked at: they are texts.
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

/// End like secrets and are none: places in a list, and the words of models of language.
const HARMLESS: &[&str] = &[
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

/// By how the name ends: `db_password` is one, `password_policy` describes one.
pub(crate) fn says_secret(name: &str) -> Option<Says> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let letters: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let letters = letters.trim_end_matches(|c: char| c.is_ascii_digit());
    let singular = letters.strip_suffix('s').unwrap_or(letters);
    let ends = |names: &[&str]| names.iter().any(|&end| letters.ends_with(end) || singular.ends_with(end));
    if ends(HARMLESS) {
        None
    } else if ends(CERTAIN) {
        Some(Says::Certainly)
    } else if ends(POSSIBLE) {
        Some(Says::Perhaps)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_by_its_end_whether_its_value_is_secret() {
        for name in ["password", "DB_PASSWORD", "db.password2", "clientSecret", "AWS_SECRET_ACCESS_KEY", "x-api-key"] {
            assert_eq!(says_secret(name), Some(Says::Certainly), "{name}");
        }
        for name in ["token", "tokens", "GITHUB_TOKEN", "secret", "credentials", "Authorization"] {
            assert_eq!(says_secret(name), Some(Says::Perhaps), "{name}");
        }
        for name in ["", "password_policy", "secret_name", "token_count", "next_page_token", "max_tokens", "eos_token"]
        {
            assert_eq!(says_secret(name), None, "{name}");
        }
    }

    #[test]
    fn a_name_is_looked_at_up_to_its_limit() {
        let name = |bytes: usize| format!("{}password", "x".repeat(bytes - "password".len()));
        assert!(says_secret(&name(NAME_BYTES_MAX)).is_some());
        assert!(says_secret(&name(NAME_BYTES_MAX + 1)).is_none());
    }
}
