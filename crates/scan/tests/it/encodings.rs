//! Text in UTF-16, and binary data.

use proptest::prelude::*;
use scan::{Encoding, redact};

use crate::support::{SCANNER, github_token, names, text};

fn utf16(text: &str, encoding: Encoding) -> Vec<u8> {
    let units = std::iter::once(0xfeff).chain(text.encode_utf16());
    match encoding {
        Encoding::Bytes => text.as_bytes().to_vec(),
        Encoding::Utf16LittleEndian => units.flat_map(u16::to_le_bytes).collect(),
        Encoding::Utf16BigEndian => units.flat_map(u16::to_be_bytes).collect(),
    }
}

const UTF16: [Encoding; 2] = [Encoding::Utf16LittleEndian, Encoding::Utf16BigEndian];

#[test]
fn a_secret_in_utf16_is_found_and_masked() {
    let token = github_token();
    for encoding in UTF16 {
        let bytes = utf16(&format!("für 😀 {token} ende"), encoding);
        let findings = SCANNER.scan(&bytes);
        assert_eq!((names(&findings), findings.encoding), (vec!["github_token"], encoding));
        let start = 2 + 2 * "für XX ".chars().count() as u64;
        assert_eq!((findings.items[0].start, findings.items[0].end), (start, start + 2 * token.len() as u64));
        let redacted = redact(&bytes, &findings.items);
        assert_eq!(redacted, utf16(&format!("für 😀 {} ende", "*".repeat(token.len())), encoding));
    }
}

#[test]
fn an_incomplete_utf16_unit_at_the_end_is_ignored() {
    let mut bytes = utf16(&github_token(), Encoding::Utf16LittleEndian);
    bytes.push(b'x');
    let findings = SCANNER.scan(&bytes);
    assert_eq!(findings.items[0].end, bytes.len() as u64 - 1);
    assert_eq!(findings.bytes, bytes.len() as u64);
}

#[test]
fn a_utf8_byte_order_mark_and_zero_bytes_do_not_hide_secrets() {
    let token = github_token();
    let marked = [b"\xef\xbb\xbf", token.as_bytes()].concat();
    assert_eq!(SCANNER.scan(&marked).items[0].start, 3);
    let binary = [&[0; 500], token.as_bytes(), &[0, 1, 2, 255]].concat();
    let findings = SCANNER.scan(&binary);
    assert_eq!((findings.items[0].start, findings.total()), (500, 1));
}

proptest! {
    #[test]
    fn utf16_has_the_findings_of_utf8_for_any_chunking(text in text(), cut in any::<prop::sample::Index>()) {
        // ASCII only: other characters have different numbers of UTF-16 units and UTF-8 bytes.
        let text: String = text.chars().filter(char::is_ascii).collect();
        let expected = SCANNER.scan(text.as_bytes());
        for encoding in UTF16 {
            let bytes = utf16(&text, encoding);
            let (first, rest) = bytes.split_at(cut.index(bytes.len() + 1));
            let mut stream = SCANNER.stream(scan::Limits::default());
            stream.feed(first);
            stream.feed(rest);
            let findings = stream.finish();
            prop_assert_eq!(&findings.counts, &expected.counts);
            let offsets = |items: &[scan::Finding]| items.iter().map(|item| (item.start, item.end)).collect::<Vec<_>>();
            let doubled = |&(start, end): &(u64, u64)| (2 + 2 * start, 2 + 2 * end);
            let doubled: Vec<_> = offsets(&expected.items).iter().map(doubled).collect();
            prop_assert_eq!(offsets(&findings.items), doubled);
        }
    }
}
