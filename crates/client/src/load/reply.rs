//! Minimal parser of HTTP/1.1 responses: status, length, body.

/// An invalid or unsupported response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid or unsupported HTTP/1.1 response: {0}")]
pub struct Malformed(pub &'static str);

/// Limit of the response head.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    Known(usize),
    Chunked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub status: u16,
    pub length: Length,
    /// Size of the head in bytes.
    pub size: usize,
    /// The server closes the connection after this response.
    pub closes: bool,
}

/// Parses the head at the beginning of `bytes`; `None` while it is incomplete.
pub(super) fn parse_head(bytes: &[u8]) -> Result<Option<Head>, Malformed> {
    let Some(end) = find(bytes, b"\r\n\r\n") else {
        return if bytes.len() > HEAD_BYTES_MAX { Err(Malformed("the head is too long")) } else { Ok(None) };
    };
    let mut lines = bytes[..end].split(|byte| *byte == b'\n');
    let status = lines.next().and_then(parse_status).ok_or(Malformed("the first line has no status"))?;
    let mut head = Head { status, length: Length::Known(0), size: end + 4, closes: false };
    for line in lines {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            head.length = Length::Known(parse_number(value, 10).ok_or(Malformed("Content-Length is not a number"))?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") && value.eq_ignore_ascii_case(b"chunked") {
            head.length = Length::Chunked;
        } else if name.eq_ignore_ascii_case(b"connection") && value.eq_ignore_ascii_case(b"close") {
            head.closes = true;
        }
    }
    Ok(Some(head))
}

/// Decodes a chunked body into `content` and returns its encoded length; `None` while it is incomplete.
pub(super) fn parse_chunks(bytes: &[u8], content: &mut Vec<u8>) -> Result<Option<usize>, Malformed> {
    content.clear();
    let mut at = 0;
    loop {
        let Some(end) = find(&bytes[at..], b"\r\n") else { return Ok(None) };
        let line = bytes[at..at + end].split(|byte| *byte == b';').next().unwrap_or_default();
        let size = parse_number(line.trim_ascii(), 16).ok_or(Malformed("a chunk size is not a number"))?;
        let start = at + end + 2;
        let Some(next) = start.checked_add(size).and_then(|stop| stop.checked_add(2)) else {
            return Err(Malformed("a chunk is too large"));
        };
        if bytes.len() < next {
            return Ok(None);
        }
        if &bytes[next - 2..next] != b"\r\n" {
            return Err(Malformed("a chunk does not end with CRLF"));
        }
        if size == 0 {
            return Ok(Some(next));
        }
        content.extend_from_slice(&bytes[start..next - 2]);
        at = next;
    }
}

fn parse_status(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/1.1 ")?;
    parse_number(rest.get(..3)?, 10).and_then(|status| u16::try_from(status).ok())
}

fn parse_number(text: &[u8], radix: u32) -> Option<usize> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    usize::from_str_radix(std::str::from_utf8(text).ok()?, radix).ok()
}

pub(super) fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_head_is_parsed_once_complete() {
        let text = b"HTTP/1.1 201 Created\r\ncontent-type: text/plain\r\nContent-Length:  12 \r\nConnection: close\r\n\r\nbody";
        for cut in 0..text.len() - 4 {
            assert_eq!(parse_head(&text[..cut]), Ok(None));
        }
        let head = Head { status: 201, length: Length::Known(12), size: text.len() - 4, closes: true };
        assert_eq!(parse_head(text), Ok(Some(head)));
        assert!(parse_head(b"HTTP/2 200\r\n\r\n").is_err());
        assert!(parse_head(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n").is_err());
        assert!(parse_head(&[b'x'; HEAD_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn chunked_bodies_are_decoded() {
        let text = b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n";
        let mut content = Vec::new();
        for cut in 0..text.len() {
            assert_eq!(parse_chunks(&text[..cut], &mut content), Ok(None));
        }
        assert_eq!(parse_chunks(text, &mut content), Ok(Some(text.len())));
        assert_eq!(content, b"hello world");
        assert!(parse_chunks(b"ffffffffffffffff\r\n", &mut content).is_err());
        assert!(parse_chunks(b"1\r\nabc\r\n", &mut content).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>, text in "(HTTP/1.1 )?[0-9a-f:\r\n]{0,30}\r\n\r\n") {
            let _ = parse_head(&bytes);
            let _ = parse_head(text.as_bytes());
            let _ = parse_chunks(&bytes, &mut Vec::new());
            let _ = parse_chunks(text.as_bytes(), &mut Vec::new());
        }
    }
}
