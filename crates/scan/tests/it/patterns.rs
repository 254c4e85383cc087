//! True and false positives of each pattern.

use std::collections::HashSet;

use scan::{Error, Kind, Scanner};

use crate::support::{SCANNER, found, github_token, names};

#[test]
fn every_pattern_finds_its_example_and_not_its_counter_example() {
    for pattern in Scanner::known() {
        let (name, description) = (pattern.name, pattern.description);
        let findings = SCANNER.scan(pattern.example().as_bytes());
        assert_eq!(findings.counts.get(name), Some(&1), "{name} ({description}): {findings:?}");
        let findings = SCANNER.scan(pattern.counter_example().as_bytes());
        assert_eq!(findings.counts.get(name), None, "{name} ({description}): {findings:?}");
    }
}

#[test]
fn every_pattern_finds_its_example_in_any_context() {
    let contexts =
        [("", " and on"), ("said \"", "\""), ("line\n", "\nline"), ("a: ", ", b"), ("\u{e4} ", "\u{e4}"), ("\0", "\0")];
    for pattern in Scanner::known() {
        for (before, after) in contexts {
            let text = format!("{before}{}{after}", pattern.example());
            let findings = SCANNER.scan(text.as_bytes());
            assert!(findings.counts.contains_key(pattern.name), "{} between {before:?} and {after:?}", pattern.name);
        }
    }
}

#[test]
fn names_are_unique_and_valid_in_a_redaction_mark() {
    let mut seen = HashSet::new();
    for pattern in Scanner::known() {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(pattern.name.chars().all(plain) && seen.insert(pattern.name), "{}", pattern.name);
    }
    assert!(seen.len() >= 30);
}

#[test]
fn ordinary_text_has_no_findings() {
    let ordinary = [
        "2026-01-02T03:04:05.678Z INFO worker 17 took 1234567890123 ns for 42 jobs (token bucket refilled, 3 tokens left)",
        "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b by task-runner-production-eu-west-1-blue",
        "loss=0.4111111111111111 accuracy=0.5105105105105100 step 4000 4001 4002 4003",
        "GET /v1/jobs/018f3c1e-7a1b-7c3d-9e2f-4a5b6c7d8e9f HTTP/1.1 200 1234 https://example.org/a?page_token=CAESBggBEAE",
        "password: string; secret: SecretStore; token = getToken(); let api_key: Option<String> = None;",
        "icon@2x.png loaded, unit user@1000.service started, cloned git@github.com:acme/tool.git, react@18.2.0",
        "range +100 -200, 2024-01-02 2024-01-03, 123-45 678, +0100, version 10.0.0.1, 1e+30",
        "Authorization: Bearer authentication is required; see the bearer-token documentation",
        "postgres://localhost:5432/main and https://example.org:8443/a@b and amqp://user:${PASSWORD}@host",
        "password=******** secret=<secret> token=${TOKEN} api_key=[redacted:generic_secret]",
        "secret_path=/run/secrets/db-password-1 token_endpoint: https://login.example.org/oauth2/v2.0/token",
    ];
    for text in ordinary {
        assert_eq!(found(text), [], "{text}");
    }
}

#[test]
fn a_finding_is_the_secret_without_its_context() {
    let token = github_token();
    assert_eq!(found(&format!("use {token}, please")), [("github_token", token.clone())]);
    assert_eq!(found("db_password='c0rrecth0rse7'; next"), [("generic_secret", "c0rrecth0rse7".to_string())]);
    assert_eq!(found("amqp://app:s3cr/t@h amqp://app:tr0ub4dor@mq/x"), [("url_password", "tr0ub4dor".to_string())]);
    assert_eq!(found("mail <jane.doe@example.org>."), [("email", "jane.doe@example.org".to_string())]);
    assert_eq!(found("jane@example.org - or jane@example.org--").len(), 2);
    assert_eq!(found("BE68 5390 0754 7034 PAID"), [("iban", "BE68 5390 0754 7034".to_string())]);
    assert_eq!(found("on 2024-01-02 4111111111111111 paid"), [("credit_card", "4111111111111111".to_string())]);
}

#[test]
fn adjacent_findings_of_one_pattern_are_separate() {
    let addresses = ["a@example.org", "b@example.org", "c@example.org"];
    let expected: Vec<_> = addresses.iter().map(|address| ("email", address.to_string())).collect();
    assert_eq!(found(&addresses.join(",")), expected);
}

#[test]
fn a_setting_is_found_in_all_common_notations() {
    let notations = [
        "PASSWORD=VALUE",
        "password: VALUE",
        "\"password\": \"VALUE\"",
        "\\\"password\\\":\\\"VALUE\\\"",
        "password => 'VALUE'",
        "--password=VALUE",
        "dbPassword := \"VALUE\"",
        "export API_KEY=VALUE",
        "?access_token=VALUE&x=1",
        "client-secret = VALUE",
    ];
    for notation in notations {
        let text = notation.replace("VALUE", "c0rrecth0rse7");
        assert_eq!(found(&text), [("generic_secret", "c0rrecth0rse7".to_string())], "{text}");
    }
}

#[test]
fn a_secret_after_an_escape_is_found() {
    let token = github_token();
    let text = format!(r#"{{"log":"done\n{token}\ncard:\n4111111111111111\n"}}"#);
    assert_eq!(found(&text), [("github_token", token), ("credit_card", "4111111111111111".to_string())]);
}

#[test]
fn patterns_are_selected_and_excluded_by_name() {
    let text = format!("{} jane@example.org", github_token());
    let only = Scanner::with(["email"]).unwrap();
    assert_eq!(only.patterns().map(|pattern| pattern.name).collect::<Vec<_>>(), ["email"]);
    assert_eq!(names(&only.scan(text.as_bytes())), ["email"]);
    let all_but = Scanner::without(["email"]).unwrap();
    assert_eq!(names(&all_but.scan(text.as_bytes())), ["github_token"]);
    let digits_only = Scanner::with(["credit_card"]).unwrap();
    assert_eq!(names(&digits_only.scan(b"4111111111111111 jane@example.org")), ["credit_card"]);
    assert!(SCANNER.patterns().any(|pattern| pattern.kind == Kind::Personal));
}

#[test]
fn an_unknown_pattern_is_rejected_with_a_list_of_known_ones() {
    let error = Scanner::with(["email", "emial"]).unwrap_err();
    assert!(matches!(&error, Error::UnknownPattern { name, known } if name == "emial" && known.contains("email")));
    assert_eq!(Scanner::with([]).unwrap_err(), Error::NoPatterns);
    let all = Scanner::known().map(|pattern| pattern.name);
    assert_eq!(Scanner::without(all).unwrap_err(), Error::NoPatterns);
}
