//! The address of a server: `http://host:port`, with a path in front of the API if a proxy puts one there.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;

/// A text that is no address this client can talk to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    #[error("`{0}` is not the address of a server; write it like http://127.0.0.1:7070")]
    Malformed(String),
    #[error("`{0}` asks for TLS, which this version does not speak yet; use http:// or a proxy on this machine")]
    Tls(String),
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Host and port, as the `Host` header has them.
    authority: String,
    host: String,
    port: u16,
    /// Without a slash at its end.
    prefix: String,
}

impl Address {
    /// Host and port as the `Host` header wants them.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// What to connect to; an IPv6 address without its brackets.
    pub fn host_and_port(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// The path of a request as it is sent.
    pub fn path(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    pub(crate) fn uri(&self, path: &str) -> Result<Uri, BadAddress> {
        let text = format!("http://{}{}{path}", self.authority, self.prefix);
        text.parse().map_err(|_| BadAddress::Malformed(text))
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let malformed = || BadAddress::Malformed(text.to_owned());
        // People leave the scheme out, and then `localhost:7070` would read as scheme `localhost`.
        let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = with_scheme.parse().map_err(|_| malformed())?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(BadAddress::Tls(text.to_owned())),
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
    fn an_address_may_leave_out_its_scheme_and_have_a_prefix() {
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
    fn tls_is_refused_by_name() {
        assert!(matches!("https://example.org".parse::<Address>(), Err(BadAddress::Tls(_))));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "http://", "ftp://example.org", "http://a b", "http://user@host", "http://host/?x=1"] {
            assert!(matches!(text.parse::<Address>(), Err(BadAddress::Malformed(_))), "{text}");
        }
    }
}
