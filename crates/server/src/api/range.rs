//! Parts of content: which one is asked for, and which one is sent.

use std::ops::Range;

/// Reads `bytes=a-b`, `bytes=a-` or `bytes=-n` of content with so many bytes. An end behind the content's is the
/// content's. Several parts, and parts that are not there, are none.
pub(crate) fn asked_for(header: &str, bytes: u64) -> Option<Range<u64>> {
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

/// A piece of an upload: where it belongs, and how large the whole is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub at: Range<u64>,
    pub total: u64,
}

impl Piece {
    /// Reads `bytes a-b/total`.
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
    fn one_part_can_be_asked_for() {
        assert_eq!(asked_for("bytes=0-0", 10), Some(0..1));
        assert_eq!(asked_for("bytes=2-5", 10), Some(2..6));
        assert_eq!(asked_for("bytes=2-99", 10), Some(2..10));
        assert_eq!(asked_for("bytes=7-", 10), Some(7..10));
        assert_eq!(asked_for("bytes=-3", 10), Some(7..10));
        assert_eq!(asked_for("bytes=-30", 10), Some(0..10));
        for wrong in ["", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=5-2", "bytes=10-", "bytes=-0", "items=0-1"]
        {
            assert_eq!(asked_for(wrong, 10), None, "{wrong}");
        }
        assert_eq!(asked_for("bytes=0-1,3-4", 10), None);
        assert_eq!(asked_for("bytes=0-0", 0), None);
        assert_eq!(asked_for(&format!("bytes=0-{}", u64::MAX), 10), Some(0..10));
    }

    #[test]
    fn a_piece_says_where_it_belongs() {
        assert_eq!(Piece::parse("bytes 0-9/10"), Some(Piece { at: 0..10, total: 10 }));
        assert_eq!(Piece::parse("bytes 4-5/10"), Some(Piece { at: 4..6, total: 10 }));
        for wrong in ["", "bytes", "bytes 0-9", "bytes 0-9/*", "bytes */10", "bytes 5-4/10", "bytes 0-10/10", "0-9/10"]
        {
            assert_eq!(Piece::parse(wrong), None, "{wrong}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,60}", bytes: u64) {
            if let Some(range) = asked_for(&text, bytes) {
                assert!(range.end <= bytes);
            }
            let _ = Piece::parse(&text);
        }
    }
}
