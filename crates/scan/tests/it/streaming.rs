//! A stream has the same findings as the complete text.

use proptest::prelude::*;
use scan::{BACK_BYTES_MAX, FINDINGS_MAX, Findings, Limits, MATCH_BYTES_MAX, WINDOW_BYTES};

use crate::support::{SCANNER, github_token, text};

fn scan_in_chunks<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, limits: Limits) -> Findings {
    let mut stream = SCANNER.stream(limits);
    chunks.into_iter().for_each(|chunk| stream.feed(chunk));
    stream.finish()
}

fn all() -> Limits {
    Limits { findings_max: FINDINGS_MAX }
}

/// Text larger than a window, with secrets in it.
fn large_text() -> impl Strategy<Value = Vec<u8>> {
    let filler = (0..9_000_usize).prop_map(|count| "nothing here. ".repeat(count).into_bytes());
    let bytes = prop::collection::vec(any::<u8>(), 0..200);
    prop::collection::vec(prop_oneof![text().prop_map(String::into_bytes), filler, bytes], 0..12)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_chunking_gives_the_same_findings(
        text in large_text(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(text.len());
        let mut start = 0;
        let chunks = cuts.iter().map(|&cut| &text[std::mem::replace(&mut start, cut)..cut]);
        let findings = scan_in_chunks(chunks, all());
        prop_assert_eq!(&findings, &scan_in_chunks([text.as_slice()], all()));
        prop_assert_eq!(findings, SCANNER.scan(&text));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        let findings = SCANNER.scan(&bytes);
        prop_assert_eq!(findings.bytes, bytes.len() as u64);
        prop_assert_eq!(findings, scan_in_chunks(bytes.chunks(1), all()));
    }
}

#[test]
fn a_secret_across_a_window_boundary_is_found() {
    let token = github_token();
    for start in (WINDOW_BYTES - token.len() - 2)..=(WINDOW_BYTES + 2) {
        let mut text = vec![b' '; 2 * WINDOW_BYTES];
        text[start..start + token.len()].copy_from_slice(token.as_bytes());
        let findings = scan_in_chunks(text.chunks(1_000), all());
        let (start, end) = (start as u64, (start + token.len()) as u64);
        assert_eq!(findings.items.iter().map(|item| (item.start, item.end)).collect::<Vec<_>>(), [(start, end)]);
    }
}

#[test]
fn a_private_key_longer_than_a_window_is_found_up_to_its_footer() {
    let key = format!("-----BEGIN {0}-----\n{1}\n-----END {0}-----", "PRIVATE KEY", "MIIEvQIBADAN\n".repeat(30_000));
    assert!(key.len() > 2 * WINDOW_BYTES);
    let text = format!("before {key} after");
    let findings = scan_in_chunks(text.as_bytes().chunks(4_096), all());
    assert_eq!(findings.counts["private_key"], 1);
    let (start, end) = (findings.items[0].start as usize, findings.items[0].end as usize);
    assert!(text[start..end] == key);
}

#[test]
fn a_private_key_without_a_footer_extends_to_the_end() {
    let text = format!("before -----BEGIN {}-----\n{}", "RSA PRIVATE KEY", "MIIEvQIBADAN\n".repeat(30_000));
    let findings = scan_in_chunks(text.as_bytes().chunks(4_096), all());
    assert_eq!((findings.items[0].start, findings.items[0].end), (7, text.len() as u64));
}

#[test]
fn an_unterminated_footer_is_included_up_to_its_limit() {
    let text = |footer: usize| format!("-----BEGIN {}-----\nMIIE\n-----END {}", "PRIVATE KEY", "X".repeat(footer));
    let ends = |text: &str| SCANNER.scan(text.as_bytes()).items[0].end;
    let before = text(0).len() - "-----END ".len();
    assert_eq!(ends(&text(119)), before as u64 + 128);
    assert_eq!(ends(&text(500)), before as u64 + 128);
}

#[test]
fn a_match_starts_at_most_the_limit_before_its_anchor() {
    for user_bytes in [BACK_BYTES_MAX, BACK_BYTES_MAX + 1] {
        let findings = SCANNER.scan(format!("{}@example.org", "u".repeat(user_bytes)).as_bytes());
        assert_eq!(findings.items[0].start, (user_bytes - BACK_BYTES_MAX) as u64);
    }
}

#[test]
fn a_token_longer_than_the_match_limit_is_found_completely() {
    let header_and_signature = "eyJhbGciOiJIUzI1NiJ9..x7Kq2mVb9LpR4tWy".len();
    for bytes in [MATCH_BYTES_MAX - 1, MATCH_BYTES_MAX, MATCH_BYTES_MAX + 1, 3 * WINDOW_BYTES] {
        let payload = "a".repeat(bytes - header_and_signature);
        let text = format!("[eyJhbGciOiJIUzI1NiJ9.{payload}.{}]", "x7Kq2mVb9LpR4tWy");
        let findings = scan_in_chunks(text.as_bytes().chunks(10_000), all());
        assert_eq!((findings.items[0].start, findings.items[0].end), (1, 1 + bytes as u64), "{bytes}");
        assert_eq!(findings.total(), 1, "{bytes}");
    }
}

#[test]
fn findings_are_listed_up_to_the_limit_and_counted_beyond_it() {
    let addresses = |count: usize| (0..count).map(|number| format!("user{number}@example.org\n")).collect::<String>();
    let limits = Limits { findings_max: 10 };
    let at_the_limit = scan_in_chunks([addresses(10).as_bytes()], limits);
    assert!(at_the_limit.items.len() == 10 && !at_the_limit.truncated);
    let beyond = scan_in_chunks([addresses(11).as_bytes()], limits);
    assert!(beyond.items.len() == 10 && beyond.truncated && beyond.counts["email"] == 11);
    assert_eq!(beyond.items, at_the_limit.items);
    let none = scan_in_chunks([addresses(3).as_bytes()], Limits { findings_max: 0 });
    assert!(none.items.is_empty() && none.truncated && none.total() == 3 && !none.is_empty());
}

#[test]
fn no_stream_lists_more_findings_than_the_global_limit() {
    let text = "a@b.org\n".repeat(FINDINGS_MAX + 1);
    let findings = scan_in_chunks([text.as_bytes()], Limits { findings_max: usize::MAX });
    assert_eq!(findings.items.len(), FINDINGS_MAX);
    assert!(findings.truncated && findings.counts["email"] == FINDINGS_MAX as u64 + 1);
    assert_eq!(findings, SCANNER.scan(text.as_bytes()));
}

#[test]
fn an_empty_stream_has_no_findings() {
    let findings = scan_in_chunks([], Limits::default());
    assert!(findings.is_empty() && findings.bytes == 0 && !findings.truncated);
    assert_eq!(scan_in_chunks([&b"a"[..]], Limits::default()).bytes, 1);
}
