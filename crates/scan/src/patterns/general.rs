//! Patterns of secrets that are recognised by their context, not by a provider's prefix.

use crate::checks::Check;
use crate::class::Class;
use crate::pattern::{After, Anchor, Begin, Kind, Pattern};

pub(super) const PATTERNS: &[Pattern] = &[
    Pattern {
        name: "jwt",
        kind: Kind::Secret,
        description: "JSON web token",
        anchor: Anchor::Words(&["eyJ"]),
        begin: Begin::Edge(Class::Token),
        regex: r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?",
        after: After::Run(Class::Name),
        check: Check::Jwt,
        example: &["eyJhbGciOiJIUzI1NiJ9", ".", "eyJzdWIiOiIxMjM0NTY3ODkwIn0", ".", "x7Kq2mVb9LpR4tWy8ZnC5sDf"],
        counter_example: &["eyJub3QiOiJhIGhlYWRlciJ9", ".", "eyJzdWIiOiIxMjM0NTY3ODkwIn0", ".", "x7Kq2mVb9LpR4tWy8ZnC"],
    },
    Pattern {
        name: "url_password",
        kind: Kind::Secret,
        description: "Password in the URL of a database or another server",
        anchor: Anchor::Words(&["://"]),
        begin: Begin::Run(Class::Scheme, 32),
        regex: r#"[A-Za-z0-9+.-]{2,32}://[^\s/?#"'<>@:\\]{0,128}:([^\s/?#"'<>\\]{1,256})@[A-Za-z0-9\[._-]"#,
        after: After::Anything,
        check: Check::NoPlaceholder,
        example: &["postgres://app", ":", "tr0ub4dor", "@db.internal:5432/main"],
        counter_example: &["postgres://app", ":", "${DB_PASSWORD}", "@db.internal:5432/main"],
    },
    Pattern {
        name: "authorization",
        kind: Kind::Secret,
        description: "Credentials of an HTTP request",
        anchor: Anchor::WordsInAnyCase(&["authorization", "bearer"]),
        begin: Begin::Edge(Class::Alphanumeric),
        regex: concat!(
            r#"(?i)(?:authorization(?:\\?["'])?\s{0,4}[:=]\s{0,4}(?:\\?["'])?"#,
            r"(?:bearer|basic|token|apikey|api-key|negotiate)|bearer)\s{1,4}([a-z0-9._~+/=-]{8,})"
        ),
        after: After::Run(Class::Credentials),
        check: Check::Credentials,
        example: &["Authorization: Ba", "sic ", "YXBwOnRyMHViNGRvcg=="],
        counter_example: &["Authorization: Ba", "sic ", "authentication"],
    },
    Pattern {
        // The expression is unambiguous, which makes matching fast.
        name: super::GENERIC_SECRET,
        kind: Kind::Secret,
        description: "Random-looking value under a name that indicates a secret",
        anchor: Anchor::WordsInAnyCase(&[
            "password",
            "passwd",
            "passphrase",
            "passcode",
            "pwd",
            "secret",
            "token",
            "api_key",
            "api-key",
            "apikey",
            "access_key",
            "access-key",
            "accesskey",
            "private_key",
            "privatekey",
            "signing_key",
            "signingkey",
            "auth_key",
            "encryption_key",
            "encryptionkey",
            "credential",
        ]),
        begin: Begin::Run(Class::Name, 32),
        regex: concat!(
            r#"[A-Za-z0-9_.-]{1,96}(?:\\?["'])?[ \t]{0,4}(?:=[=>]?|:=?)[ \t]{0,4}"#,
            r#"(?:\\?(?:"([^"\\\s]{8,64})|'([^'\\\s]{8,64}))|"#,
            r#"([^\x00- "'\\`,;&<>(){}\[\]|=:\x7f][^\x00- "'\\`,;&<>(){}\[\]|\x7f]{7,63}))"#
        ),
        after: After::Run(Class::Value),
        check: Check::Assignment,
        example: &["db_password", " = ", "'c0rrecth0rse7'"],
        counter_example: &["secret_name", " = ", "'database-main-7'"],
    },
];
