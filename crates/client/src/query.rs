//! Query strings and path segments of request URLs.

use std::fmt::Write;

/// Builder of a query string. `None` values are omitted.
#[derive(Debug, Default)]
pub(crate) struct Query {
    text: String,
}

impl Query {
    pub(crate) fn with(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            self.text.push(if self.text.is_empty() { '?' } else { '&' });
            self.text.push_str(name);
            self.text.push('=');
            encode(&value.to_string(), &mut self.text);
        }
        self
    }

    /// The path with the query string appended.
    pub(crate) fn append_to(self, path: &str) -> String {
        format!("{path}{}", self.text)
    }
}

/// Percent-encodes a text as one path segment.
pub(crate) fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    encode(text, &mut encoded);
    encoded
}

/// Percent-encodes everything but the unreserved characters of RFC 3986.
fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded_and_absent_ones_omitted() {
        let query =
            Query::default().with("topic", Some("a b&c=ü")).with("queue", None::<String>).with("limit", Some(5));
        assert_eq!(query.append_to("/v1/jobs"), "/v1/jobs?topic=a%20b%26c%3D%C3%BC&limit=5");
        assert_eq!(Query::default().append_to("/x"), "/x");
        assert_eq!(segment("a/b?c"), "a%2Fb%3Fc");
    }
}
