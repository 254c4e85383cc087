//! Findings masked with asterisks, byte by byte.

use proptest::prelude::*;
use scan::{Finding, Kind, Mask, Scanner, redact};

use crate::support::{SCANNER, github_token, text};

fn finding(start: u64, end: u64) -> Finding {
    Finding { start, end, pattern: "email", kind: Kind::Personal }
}

#[test]
fn exactly_the_findings_are_masked() {
    let text = format!("push with {} now, jane@example.org", github_token());
    let findings = SCANNER.scan(text.as_bytes());
    let redacted = String::from_utf8(redact(text.as_bytes(), &findings.items)).unwrap();
    assert_eq!(redacted, format!("push with {} now, {}", "*".repeat(github_token().len()), "*".repeat(16)));
}

#[test]
fn overlapping_findings_and_findings_beyond_the_text_are_masked() {
    let findings = [finding(6, 100), finding(1, 3), finding(2, 4), finding(50, 60)];
    assert_eq!(redact(b"abcdefgh", &findings), b"a***ef**");
    assert_eq!(redact(b"abc", &[finding(1, 1)]), b"abc");
    assert_eq!(redact(b"", &findings), b"");
}

#[test]
fn line_ends_are_not_masked() {
    let key = format!("a\n-----BEGIN {0}-----\r\nMIIE\r\n-----END {0}-----\nb", "PRIVATE KEY");
    let redacted = redact(key.as_bytes(), &SCANNER.scan(key.as_bytes()).items);
    let redacted = String::from_utf8(redacted).unwrap();
    assert_eq!(redacted, format!("a\n{}\r\n****\r\n{}\nb", "*".repeat(27), "*".repeat(25)));
}

#[test]
fn a_mask_gives_the_same_result_for_any_chunk_size() {
    let text = format!("one {} two jane@example.org three", github_token());
    let findings = SCANNER.scan(text.as_bytes());
    let mask = Mask::new(&findings);
    for size in 1..text.len() {
        let mut chunked = text.clone().into_bytes();
        let mut offset = 0;
        for chunk in chunked.chunks_mut(size) {
            mask.apply(offset, chunk);
            offset += chunk.len() as u64;
        }
        assert_eq!(chunked, redact(text.as_bytes(), &findings.items));
    }
}

#[test]
fn masked_examples_are_not_found_again() {
    for pattern in Scanner::known() {
        let text = format!("before {} after", pattern.example());
        let redacted = redact(text.as_bytes(), &SCANNER.scan(text.as_bytes()).items);
        let again = SCANNER.scan(&redacted);
        assert!(again.is_empty(), "{}: {again:?} in {}", pattern.name, String::from_utf8_lossy(&redacted));
    }
}

proptest! {
    #[test]
    fn a_masked_text_has_the_same_length_and_no_findings(text in text()) {
        let findings = SCANNER.scan(text.as_bytes());
        let redacted = redact(text.as_bytes(), &findings.items);
        prop_assert_eq!(redacted.len(), text.len());
        for (offset, (&before, &after)) in text.as_bytes().iter().zip(&redacted).enumerate() {
            let within = findings.items.iter().any(|item| (item.start..item.end).contains(&(offset as u64)));
            let expected = if within && !matches!(before, b'\n' | b'\r') { b'*' } else { before };
            prop_assert_eq!(after, expected);
        }
    }
}
