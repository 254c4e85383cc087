//! The query part of an address.

use std::fmt::Write;

/// Collects `name=value` pairs; absent values leave no trace.
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

    /// The path, with everything that was collected behind it.
    pub(crate) fn after(self, path: &str) -> String {
        format!("{path}{}", self.text)
    }
}

/// A text as one segment of a path.
pub(crate) fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    encode(text, &mut encoded);
    encoded
}

/// Everything but the unreserved characters of RFC 3986 is written as `%XX`.
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
    fn values_are_encoded_and_absent_ones_left_out() {
        let query =
            Query::default().with("topic", Some("a b&c=ü")).with("queue", None::<String>).with("limit", Some(5));
        assert_eq!(query.after("/v1/jobs"), "/v1/jobs?topic=a%20b%26c%3D%C3%BC&limit=5");
        assert_eq!(Query::default().after("/x"), "/x");
        assert_eq!(segment("a/b?c"), "a%2Fb%3Fc");
    }
}
