//! Redaction of JSON documents.

use proptest::prelude::*;
use scan::{BASE64_BYTES_MAX, BASE64_BYTES_MIN, JSON_BYTES_MAX, JSON_DEPTH_MAX, JsonError, Scanner};
use serde_json::{Value, json};

use crate::support::{SCANNER, github_token, text};

fn redacted(json: &str) -> String {
    SCANNER.redact_json(json).expect("valid JSON within the limits").text
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |group: &[u8]| -> String {
        let mut word = [0; 4];
        word[1..=group.len()].copy_from_slice(group);
        let word = u32::from_be_bytes(word);
        let digit = |place: usize| char::from(DIGITS[(word >> (18 - 6 * place)) as usize & 63]);
        (0..4).map(|place| if place <= group.len() { digit(place) } else { '=' }).collect()
    };
    bytes.chunks(3).map(group).collect()
}

#[test]
fn findings_in_strings_are_redacted_and_everything_else_is_copied_verbatim() {
    let token = github_token();
    let json = format!(
        "{{ \"n\": 1.50e+3, \"big\":123456789012345678901,\n\t\"log\": \"use {token} \\u00e4\", \"x\": [null,true] }}"
    );
    let result = SCANNER.redact_json(&json).unwrap();
    assert_eq!(
        result.text,
        "{ \"n\": 1.50e+3, \"big\":123456789012345678901,\n\t\"log\": \"use [redacted:github_token] ä\", \"x\": [null,true] }"
    );
    assert_eq!(result.counts.into_iter().collect::<Vec<_>>(), [("github_token", 1)]);
}

#[test]
fn redacted_examples_are_not_found_by_a_scan_of_the_bytes() {
    for pattern in Scanner::known() {
        let json = json!({ "log": format!("before {} after", pattern.example()), "n": 1 }).to_string();
        let result = SCANNER.redact_json(&json).unwrap();
        assert!(result.counts.contains_key(pattern.name), "{}: {:?}", pattern.name, result.counts);
        let findings = SCANNER.scan(result.text.as_bytes());
        assert!(findings.is_empty(), "{}: {findings:?} in {}", pattern.name, result.text);
    }
}

#[test]
fn a_document_without_findings_is_unchanged() {
    for json in ["{}", " [ ] ", "\"plain \\u0061\"", "1", "null", "{\"a\":{\"b\":[1,2,\"\\ud800\"]}}"] {
        let result = SCANNER.redact_json(json).unwrap();
        assert_eq!((result.text.as_str(), result.counts.len()), (json, 0));
    }
}

#[test]
fn a_secret_behind_escapes_is_found() {
    let token = github_token();
    let escaped: String = token.bytes().map(|byte| format!("\\u{byte:04x}")).collect();
    assert!(SCANNER.scan(escaped.as_bytes()).is_empty());
    assert_eq!(redacted(&format!("[\"{escaped}\"]")), "[\"[redacted:github_token]\"]");
}

#[test]
fn findings_in_member_names_are_redacted_and_names_stay_unique() {
    let json = r#"{"a@example.org":1,"b@example.org":2,"[redacted:email]":3,"in":{"c@example.org":4}}"#;
    let expected =
        r#"{"[redacted:email]":1,"[redacted:email]#2":2,"[redacted:email]#3":3,"in":{"[redacted:email]":4}}"#;
    assert_eq!(redacted(json), expected);
    assert_eq!(redacted(expected), expected);
}

#[test]
fn a_value_under_a_secret_name_is_redacted() {
    let json = r#"{"db_password":"correct horse","token":"Paris","tokens":["x7Kq2mVb"],"password_policy":"twelve letters","pwd":"abc"}"#;
    let result = SCANNER.redact_json(json).unwrap();
    let expected = json!({
        "db_password": "[redacted:generic_secret]", "token": "Paris", "tokens": ["[redacted:generic_secret]"],
        "password_policy": "twelve letters", "pwd": "abc",
    });
    assert_eq!(serde_json::from_str::<Value>(&result.text).unwrap(), expected);
    assert_eq!(result.counts["generic_secret"], 2);
}

#[test]
fn a_secret_name_applies_to_its_own_value_only() {
    let json = r#"{"password":null,"note":"not secret","apiKey":{"note":"not secret"},"passwords":["a1b2c3"],"next":["fine"]}"#;
    let expected = json.replace("a1b2c3", "[redacted:generic_secret]");
    assert_eq!(redacted(json), expected);
}

#[test]
fn a_specific_pattern_takes_precedence_over_the_generic_one() {
    let json = json!({ "token": github_token(), "password": format!("{} and more", github_token()) }).to_string();
    let expected = json!({ "token": "[redacted:github_token]", "password": "[redacted:generic_secret]" }).to_string();
    assert_eq!(redacted(&json), expected);
}

#[test]
fn a_password_is_redacted_from_the_minimum_length_on() {
    assert_eq!(redacted(r#"{"pwd":"abcd"}"#), r#"{"pwd":"[redacted:generic_secret]"}"#);
    assert_eq!(redacted(r#"{"pwd":"abc"}"#), r#"{"pwd":"abc"}"#);
}

#[test]
fn secrets_that_appear_after_redaction_of_others_are_redacted_too() {
    // Each token matches only after the one that follows it is redacted.
    let token = Scanner::known().find(|pattern| pattern.name == "npm_token").unwrap().example();
    let redacted_chain = |tokens: usize| redacted(&json!(token.repeat(tokens)).to_string());
    assert_eq!(redacted_chain(4), format!("\"{}\"", "[redacted:npm_token]".repeat(4)));
    assert_eq!(redacted_chain(5), "\"[redacted:npm_token]\"", "after too many rounds the whole string is replaced");
}

#[test]
fn names_are_not_checked_without_the_generic_pattern() {
    let json = r#"{"password":"c0rrecth0rse7"}"#;
    assert_eq!(Scanner::with(["email"]).unwrap().redact_json(json).unwrap().text, json);
}

#[test]
fn a_card_number_becomes_a_string() {
    assert_eq!(redacted("{\"card\":4111111111111111}"), "{\"card\":\"[redacted:credit_card]\"}");
    assert_eq!(redacted("[0.4111111111111111,4111111111111112]"), "[0.4111111111111111,4111111111111112]");
}

/// A partially replaced value, such as `-[redacted:credit_card]`, would be redacted again by its name.
#[test]
fn a_redacted_value_under_a_secret_name_is_not_redacted_again() {
    for (json, expected) in [
        (r#"{"password": -4144924691492629085}"#, r#"{"password": "[redacted:credit_card]"}"#),
        (r#"{"password":[4111111111111111.5]}"#, r#"{"password":["[redacted:credit_card]"]}"#),
        (r#"{"token":"4111=536-22-8726"}"#, r#"{"token":"[redacted:generic_secret]"}"#),
    ] {
        assert_eq!(redacted(json), expected);
        assert_eq!(redacted(expected), expected);
    }
}

#[test]
fn base64_is_decoded_one_level_deep() {
    let once = base64(format!("login with {}", github_token()).as_bytes());
    assert_eq!(redacted(&json!([once]).to_string()), "[\"[redacted:github_token]\"]");
    let twice = json!([base64(once.as_bytes())]).to_string();
    assert_eq!(redacted(&twice), twice);
    let binary = json!([base64(&[&[0xff; 30], github_token().as_bytes()].concat())]).to_string();
    assert_eq!(redacted(&binary), binary);
}

#[test]
fn base64_is_decoded_within_its_length_limits() {
    let finds = |text: String| !SCANNER.redact_json(&json!([text]).to_string()).unwrap().counts.is_empty();
    let mail = |bytes: usize| format!("{}@b.org", "a".repeat(bytes - 6));
    let shortest = base64(mail(12).as_bytes());
    assert!(shortest.len() == BASE64_BYTES_MIN && finds(shortest));
    assert!(!finds(base64(mail(9).as_bytes())));
    let padded = |bytes: usize| format!("{} a@b.org", " ".repeat(bytes - 8));
    let longest = base64(padded(BASE64_BYTES_MAX / 4 * 3).as_bytes());
    assert!(longest.len() == BASE64_BYTES_MAX && finds(longest));
    assert!(!finds(base64(padded(BASE64_BYTES_MAX / 4 * 3 + 3).as_bytes())));
}

#[test]
fn invalid_json_is_rejected() {
    for text in ["", "{", "[1,]", "{\"a\":1}x", "'a'", "{\"a\"}", "\"\\x\"", "01", "nul"] {
        assert!(matches!(SCANNER.redact_json(text), Err(JsonError::NotJson { .. })), "{text}");
    }
}

#[test]
fn json_is_accepted_up_to_the_limits_of_depth_and_size() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(redacted(&nested(JSON_DEPTH_MAX)), nested(JSON_DEPTH_MAX));
    assert!(matches!(SCANNER.redact_json(&nested(JSON_DEPTH_MAX + 1)), Err(JsonError::TooDeep { .. })));
    let sized = |bytes: usize| format!("{}1", " ".repeat(bytes - 1));
    assert!(SCANNER.redact_json(&sized(JSON_BYTES_MAX)).is_ok());
    assert!(matches!(SCANNER.redact_json(&sized(JSON_BYTES_MAX + 1)), Err(JsonError::TooLarge { .. })));
}

fn document() -> impl Strategy<Value = Value> {
    let wrapped = text().prop_map(|text| base64(text.as_bytes()));
    let leaf = prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => Just(Value::from(4_111_111_111_111_111_u64)),
        8 => text().prop_map(Value::from),
        2 => wrapped.prop_map(Value::from),
    ];
    let name = prop_oneof![4 => text(), 1 => Just("password".to_string()), 1 => Just("api_token".to_string())];
    leaf.prop_recursive(4, 24, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::hash_map(name.clone(), inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Whether both documents have the same nesting and sizes. A leaf may become a string.
fn same_shape(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Array(before), Value::Array(after)) => {
            before.len() == after.len() && before.iter().zip(after).all(|(before, after)| same_shape(before, after))
        }
        (Value::Object(before), Value::Object(after)) => before.len() == after.len(),
        (Value::Array(_) | Value::Object(_), _) | (_, Value::Array(_) | Value::Object(_)) => false,
        (before, after) => before == after || after.is_string(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_redacted_document_parses_has_the_same_shape_and_no_findings(document in document()) {
        let result = SCANNER.redact_json(&document.to_string()).unwrap();
        let after: Value = serde_json::from_str(&result.text).unwrap();
        prop_assert!(same_shape(&document, &after), "{} became {}", document, after);
        let again = SCANNER.redact_json(&result.text).unwrap();
        prop_assert!(again.counts.is_empty(), "{:?} in {}", again.counts, result.text);
        prop_assert_eq!(&again.text, &result.text);
    }

    #[test]
    fn arbitrary_text_as_json_never_panics(text in "[\\[\\]{}\",:\\\\u0-9a-f.e+-]{0,60}") {
        if let Ok(result) = SCANNER.redact_json(&text) {
            prop_assert!(serde_json::from_str::<serde::de::IgnoredAny>(&result.text).is_ok());
        }
    }
}
