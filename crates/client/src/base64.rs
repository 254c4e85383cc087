//! Reading base64, in which the API carries bytes that are not text.

/// The bytes, or nothing where it is no padded base64 of the usual alphabet.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    if !text.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in digits.as_bytes().chunks(4) {
        let mut word = 0;
        for &digit in group {
            word = word << 6 | value(digit)?;
        }
        // The missing digits of a last group stand for bits that are not there.
        let [_, first, second, third] = (word << (6 * (4 - group.len()))).to_be_bytes();
        bytes.extend_from_slice(&[first, second, third][..group.len() - 1]);
    }
    Some(bytes)
}

fn value(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_is_read_back() {
        for (text, bytes) in
            [("", &b""[..]), ("Zg==", b"f"), ("Zm8=", b"fo"), ("Zm9v", b"foo"), ("Zm9vYmFy", b"foobar")]
        {
            assert_eq!(decode(text).as_deref(), Some(bytes), "{text}");
        }
        assert_eq!(decode("/+8A"), Some(vec![0xff, 0xef, 0]));
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for text in ["Z", "Zg", "Zg=", "Z===", "====", "Zm9*", "Zg==Zg=="] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
