//! Base64 decoder.

/// Decodes base64 of the standard or the URL-safe alphabet, with or without padding. `None` for any other text.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let padding = text.iter().rev().take_while(|&&byte| byte == b'=').count();
    let digits = &text[..text.len() - padding];
    let length_is_valid = digits.len() % 4 != 1;
    let padding_is_valid = padding == 0 || (padding <= 2 && text.len().is_multiple_of(4));
    if !length_is_valid || !padding_is_valid {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 3);
    for group in digits.chunks(4) {
        let mut word = 0;
        for &digit in group {
            word = word << 6 | value(digit)?;
        }
        // The missing digits of an incomplete last group count as zero bits.
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
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded_with_and_without_padding() {
        for (text, bytes) in [("", &b""[..]), ("Zg==", b"f"), ("Zg", b"f"), ("Zm8=", b"fo"), ("Zm9vYmFy", b"foobar")] {
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes), "{text}");
        }
        assert_eq!(decode(b"/+8A"), Some(vec![0xff, 0xef, 0]));
        assert_eq!(decode(b"_-8A"), Some(vec![0xff, 0xef, 0]));
    }

    #[test]
    fn invalid_base64_is_rejected() {
        for text in ["Z", "Zg=", "Z===", "====", "Zm9*", "Zg==Zg=="] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}
