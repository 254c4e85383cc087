//! Byte ranges of downloads and uploads.

use std::ops::Range;

/// Parses `bytes=a-b`, `bytes=a-` or `bytes=-n` for content of `bytes` bytes. The end is clamped to the content.
/// None for several ranges and for ranges outside of the content.
pub(crate) fn requested(header: &str, bytes: u64) -> Option<Range<u64>> {
    let (first, last) = header.trim().strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let range = match (first.trim(), last.trim()) {
        ("", last) => bytes.saturating_sub(number(last)?)..bytes,
        (first, "") => number(first)?..bytes,
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            first..last.saturating_add(1).min(bytes)
        }
    };
    (range.start < range.end).then_some(range)
}

/// A piece of an upload: its range and the size of the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub at: Range<u64>,
    pub total: u64,
}

impl Piece {
    /// Parses `bytes a-b/total`.
    pub fn parse(header: &str) -> Option<Self> {
        let (range, total) = header.trim().strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let (first, last, total) = (number(first)?, number(last)?, number(total)?);
        (first <= last && last < total).then_some(Self { at: first..last + 1, total })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_range_is_parsed() {
        assert_eq!(requested("bytes=0-0", 10), Some(0..1));
        assert_eq!(requested("bytes=2-5", 10), Some(2..6));
        assert_eq!(requested("bytes=2-99", 10), Some(2..10));
        assert_eq!(requested("bytes=7-", 10), Some(7..10));
        assert_eq!(requested("bytes=-3", 10), Some(7..10));
        assert_eq!(requested("bytes=-30", 10), Some(0..10));
        for wrong in ["", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=5-2", "bytes=10-", "bytes=-0", "items=0-1"]
        {
            assert_eq!(requested(wrong, 10), None, "{wrong}");
        }
        assert_eq!(requested("bytes=0-1,3-4", 10), None);
        assert_eq!(requested("bytes=0-0", 0), None);
        assert_eq!(requested(&format!("bytes=0-{}", u64::MAX), 10), Some(0..10));
    }

    #[test]
    fn a_piece_has_its_range() {
        assert_eq!(Piece::parse("bytes 0-9/10"), Some(Piece { at: 0..10, total: 10 }));
        assert_eq!(Piece::parse("bytes 4-5/10"), Some(Piece { at: 4..6, total: 10 }));
        for wrong in ["", "bytes", "bytes 0-9", "bytes 0-9/*", "bytes */10", "bytes 5-4/10", "bytes 0-10/10", "0-9/10"]
        {
            assert_eq!(Piece::parse(wrong), None, "{wrong}");
        }
    }

    proptest::proptest! {
        #[test]
        fn parsing_any_text_does_not_panic(text in ".{0,60}", bytes: u64) {
            if let Some(range) = requested(&text, bytes) {
                assert!(range.end <= bytes);
            }
            let _ = Piece::parse(&text);
        }
    }
}
