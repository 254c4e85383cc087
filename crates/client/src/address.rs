//! Server address: `http://host:port`, with an optional path prefix added by a proxy.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;

/// An invalid or unsupported server address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAddress {
    #[error("invalid server address `{0}`; expected a URL such as http://127.0.0.1:7070")]
    Malformed(String),
    #[error("`{0}` requires TLS, which this version does not support; use http:// or a local TLS proxy")]
    Tls(String),
}

/// Address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Host and port in the form of the `Host` header.
    authority: String,
    host: String,
    port: u16,
    /// Path prefix without a trailing slash.
    prefix: String,
}

impl Address {
    /// Parses one or more addresses, separated by commas.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, InvalidAddress> {
        text.split(',').map(|address| address.trim().parse()).collect()
    }

    /// Host and port in the form of the `Host` header.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Host and port to connect to; an IPv6 address is without brackets.
    pub fn host_and_port(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// Path of a request including the prefix.
    pub fn path(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    pub(crate) fn uri(&self, path: &str) -> Result<Uri, InvalidAddress> {
        let text = format!("http://{}{}{path}", self.authority, self.prefix);
        text.parse().map_err(|_| InvalidAddress::Malformed(text))
    }
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let malformed = || InvalidAddress::Malformed(text.to_owned());
        // Without a scheme, `localhost:7070` would parse as scheme `localhost`.
        let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = with_scheme.parse().map_err(|_| malformed())?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(InvalidAddress::Tls(text.to_owned())),
            Some(_) | None => return Err(malformed()),
        }
        let authority = uri.authority().ok_or_else(malformed)?;
        let host = authority.host();
        if host.is_empty() || authority.as_str().contains('@') || uri.query().is_some() {
            return Err(malformed());
        }
        Ok(Self {
            authority: authority.as_str().to_owned(),
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: authority.port_u16().unwrap_or(80),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_is_optional_and_a_prefix_is_allowed() {
        let address: Address = "localhost:7070".parse().unwrap();
        assert_eq!(address.to_string(), "http://localhost:7070");
        assert_eq!(address.host_and_port(), ("localhost", 7070));
        let address: Address = "http://[::1]:7070/outlast/".parse().unwrap();
        assert_eq!(address.host_and_port(), ("::1", 7070));
        assert_eq!(address.path("/v1/jobs"), "/outlast/v1/jobs");
        assert_eq!(address.uri("/v1/jobs").unwrap().to_string(), "http://[::1]:7070/outlast/v1/jobs");
        let address: Address = "http://example.org".parse().unwrap();
        assert_eq!(address.host_and_port(), ("example.org", 80));
    }

    #[test]
    fn a_list_has_at_least_one_address_and_no_empty_ones() {
        let shown =
            |text| Address::parse_list(text).map(|list| list.iter().map(Address::to_string).collect::<Vec<_>>());
        assert_eq!(shown("a:1, http://b:2/x").unwrap(), ["http://a:1", "http://b:2/x"]);
        assert_eq!(shown("a:1").unwrap(), ["http://a:1"]);
        for text in ["", "a:1,", ",", "a:1,,b:2", "a:1,ftp://b"] {
            assert!(matches!(shown(text), Err(InvalidAddress::Malformed(_))), "{text}");
        }
    }

    #[test]
    fn tls_is_rejected_with_its_own_error() {
        assert!(matches!("https://example.org".parse::<Address>(), Err(InvalidAddress::Tls(_))));
    }

    #[test]
    fn invalid_addresses_are_rejected() {
        for text in ["", "http://", "ftp://example.org", "http://a b", "http://user@host", "http://host/?x=1"] {
            assert!(matches!(text.parse::<Address>(), Err(InvalidAddress::Malformed(_))), "{text}");
        }
    }
}
