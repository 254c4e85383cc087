//! Prebuilt request heads.

use std::io::Write;

use crate::address::Address;

/// A request head up to the value of `Content-Length`.
#[derive(Debug, Clone)]
pub struct RequestHead {
    bytes: Vec<u8>,
}

impl RequestHead {
    /// `headers` are the names and values of headers other than `Host` and `Content-Length`.
    pub fn new(method: &str, address: &Address, path: &str, headers: &[(&str, &str)]) -> Self {
        let (path, host) = (address.path(path), address.authority());
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("Content-Length: ");
        Self { bytes: text.into_bytes() }
    }

    /// Replaces `out` with the complete request.
    pub fn write(&self, body: &[u8], out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.bytes);
        // Writing to a vector cannot fail.
        let _ = write!(out, "{}\r\n\r\n", body.len());
        out.extend_from_slice(body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_complete() {
        let address: Address = "http://localhost:7070/x".parse().unwrap();
        let head = RequestHead::new("POST", &address, "/v1/jobs", &[("Content-Type", "application/json")]);
        let mut out = b"old".to_vec();
        head.write(b"{}", &mut out);
        let expected = "POST /x/v1/jobs HTTP/1.1\r\nHost: localhost:7070\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
