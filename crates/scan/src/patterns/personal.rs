//! Patterns of personal data. Numbers are found only with valid check digits or in valid ranges.

use crate::checks::Check;
use crate::class::Class;
use crate::pattern::{After, Anchor, Begin, Digits, Kind, Pattern};

pub(super) const PATTERNS: &[Pattern] = &[
    Pattern {
        name: "email",
        kind: Kind::Personal,
        description: "E-mail address",
        anchor: Anchor::Words(&["@"]),
        begin: Begin::Run(Class::Mailbox, 64),
        regex: r"[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})\.){1,8}[A-Za-z]{2,24}",
        after: After::No(Class::Alphanumeric),
        check: Check::Email,
        example: &["jane.doe", "@", "mail.example.org"],
        counter_example: &["getty", "@", "tty1.service"],
    },
    Pattern {
        name: "credit_card",
        kind: Kind::Personal,
        description: "Payment card number with a valid check digit",
        anchor: Anchor::Digits(Digits::Card),
        begin: Begin::Edge(Class::Word),
        regex: concat!(
            r"(?:\d{13,19}|\d{4}(?: \d{4}){3}|\d{4}(?:-\d{4}){3}|",
            r"\d{4} \d{6} \d{4,5}|\d{4}-\d{6}-\d{4,5})"
        ),
        after: After::No(Class::Word),
        check: Check::Card,
        example: &["4111 1111", " 1111 1111"],
        counter_example: &["4111 1111", " 1111 1112"],
    },
    Pattern {
        name: "iban",
        kind: Kind::Personal,
        description: "Bank account number (IBAN) with valid check digits",
        anchor: Anchor::Digits(Digits::Iban),
        begin: Begin::Before(2),
        regex: r"[A-Z]{2}\d{2}(?:[A-Z0-9]{11,30}|(?: [A-Z0-9]{4}){2,7}(?: [A-Z0-9]{1,3})?)",
        after: After::Anything,
        check: Check::Iban,
        example: &["DE89 3704 0044", " 0532 0130 00"],
        counter_example: &["DE88 3704 0044", " 0532 0130 00"],
    },
    Pattern {
        name: "us_ssn",
        kind: Kind::Personal,
        description: "US social security number",
        anchor: Anchor::Digits(Digits::SocialSecurity),
        begin: Begin::Edge(Class::Token),
        regex: r"\d{3}-\d{2}-\d{4}",
        after: After::No(Class::Token),
        check: Check::SocialSecurity,
        example: &["536-", "22-", "8726"],
        counter_example: &["666-", "22-", "8726"],
    },
    Pattern {
        name: "phone_number",
        kind: Kind::Personal,
        description: "Phone number with country code (E.164)",
        anchor: Anchor::Digits(Digits::Phone),
        begin: Begin::Before(1),
        regex: r"\+[1-9]\d{0,14}(?:[ .-]?(?:\(\d{1,5}\)|\d{1,14})){0,7}",
        after: After::No(Class::Alphanumeric),
        check: Check::Phone,
        example: &["+1 415", " 555 2671"],
        counter_example: &["+1 415", " 555"],
    },
    Pattern {
        name: "passport",
        kind: Kind::Personal,
        description: "Machine-readable lines of a passport",
        anchor: Anchor::Words(&["P<"]),
        begin: Begin::Edge(Class::Word),
        regex: r"P<[A-Z<]{3}[A-Z<]{39}(?:\r?\n|\\n| )[A-Z0-9<]{44}",
        after: After::No(Class::Alphanumeric),
        check: Check::Passport,
        example: &[
            "P<UTOERIKSSON<<ANNA<MARIA<<<<<<<<<<<<<<<<<<<",
            "\n",
            "L898902C36UTO7408122F1204159ZE184226B<<<<<10",
        ],
        counter_example: &[
            "P<UTOERIKSSON<<ANNA<MARIA<<<<<<<<<<<<<<<<<<<",
            "\n",
            "L898902C37UTO7408122F1204159ZE184226B<<<<<10",
        ],
    },
];
