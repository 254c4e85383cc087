//! Connection to the policy service: opened on first use, replaced when the breaker opens.
//!
//! A connection to a vanished machine looks alive for many minutes. Many gRPC servers treat HTTP/2 pings as abuse, so
//! the client does not ping. Instead it drops the connection when the breaker opens, and probes use a new one.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use parking_lot::Mutex;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, Uri};

use crate::error::Error;
use crate::limits::PEM_BYTES_MAX;
use crate::options::{Options, Tls};

#[derive(Debug)]
pub(crate) struct Connection {
    endpoint: Endpoint,
    channel: Mutex<Channel>,
    authority: String,
    encrypted: bool,
}

impl Connection {
    /// Validates the options and reads the TLS files. Must be called within a tokio runtime. Does not connect yet.
    pub(crate) fn prepare(options: &Options) -> Result<Self, Error> {
        let uri = address(&options.address, options.tls.is_some())?;
        let (authority, encrypted) = (authority(&uri), options.tls.is_some());
        match (&options.tls, uri.scheme_str() == Some("https")) {
            (None, _) if options.require_tls => return Err(Error::TlsRequired { address: options.address.clone() }),
            (None, true) => return Err(Error::CaMissing { address: options.address.clone() }),
            (Some(_), false) => return Err(Error::NotHttps { address: options.address.clone() }),
            (None, false) | (Some(_), true) => {}
        }
        let mut endpoint = Endpoint::from(uri).connect_timeout(options.timeout).tcp_nodelay(true);
        if let Some(tls) = &options.tls {
            let config = tls_config(tls, options)?;
            endpoint = endpoint.tls_config(config).map_err(|error| Error::BadTls { reason: chain(&error) })?;
        }
        let channel = Mutex::new(endpoint.connect_lazy());
        Ok(Self { endpoint, channel, authority, encrypted })
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.lock().clone()
    }

    /// The next call opens a new connection; calls in flight keep theirs.
    pub(crate) fn renew(&self) {
        *self.channel.lock() = self.endpoint.connect_lazy();
    }

    /// `host:port`.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    pub(crate) fn encrypted(&self) -> bool {
        self.encrypted
    }
}

fn address(text: &str, tls: bool) -> Result<Uri, Error> {
    let bad = |reason: &str| Error::BadAddress { address: text.chars().take(200).collect(), reason: reason.to_owned() };
    let full = match (text.contains("://"), tls) {
        (true, _) => text.to_owned(),
        (false, true) => format!("https://{text}"),
        (false, false) => format!("http://{text}"),
    };
    let uri: Uri = full.parse().map_err(|_| bad("not a URL"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(bad("the scheme is neither http nor https"));
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err(bad("no host"));
    }
    if uri.port_u16().is_none_or(|port| port == 0) {
        return Err(bad("no port"));
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(bad("user names are not supported"));
    }
    if uri.path_and_query().is_some_and(|path| path.as_str() != "/") {
        return Err(bad("paths are not supported"));
    }
    Ok(uri)
}

fn authority(uri: &Uri) -> String {
    uri.authority().map(|authority| authority.as_str().to_ascii_lowercase()).unwrap_or_default()
}

fn tls_config(tls: &Tls, options: &Options) -> Result<ClientTlsConfig, Error> {
    let authorities = read_pem(&tls.ca, "certificate", "CERTIFICATE-----")?;
    let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authorities)).timeout(options.timeout);
    if let Some(domain) = &tls.domain {
        config = config.domain_name(domain);
    }
    if let Some(identity) = &tls.identity {
        let certificate = read_pem(&identity.certificate, "certificate", "CERTIFICATE-----")?;
        let key = read_pem(&identity.key, "key", "PRIVATE KEY-----")?;
        config = config.identity(Identity::from_pem(certificate, key));
    }
    Ok(config)
}

/// Reads a file with at least one PEM block of the kind. rustls would accept a file without any, and trust nobody.
fn read_pem(path: &Path, kind: &'static str, block: &str) -> Result<Vec<u8>, Error> {
    let unreadable = |source| Error::Unreadable { path: path.to_path_buf(), source };
    let bad = |reason: &str| Error::BadPem { path: path.to_path_buf(), kind, reason: reason.to_owned() };
    let mut content = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(PEM_BYTES_MAX + 1).read_to_end(&mut content).map_err(unreadable)?;
    if content.len() as u64 > PEM_BYTES_MAX {
        return Err(bad("it is larger than 1 MiB"));
    }
    let text = std::str::from_utf8(&content).map_err(|_| bad("it is not text"))?;
    if !text.lines().any(|line| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(block)) {
        return Err(bad("no such PEM block"));
    }
    Ok(content)
}

/// An error and its sources, without repetitions.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let message = cause.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_of_an_address_is_optional() {
        for (text, tls, expected) in [
            ("policy:7080", false, "http://policy:7080/"),
            ("policy:7080", true, "https://policy:7080/"),
            ("http://10.0.0.1:7080", false, "http://10.0.0.1:7080/"),
            ("https://[::1]:7080/", true, "https://[::1]:7080/"),
        ] {
            assert_eq!(address(text, tls).unwrap().to_string(), expected);
        }
        assert_eq!(authority(&address("https://Policy:7080", true).unwrap()), "policy:7080");
    }

    #[test]
    fn an_invalid_address_is_rejected_with_its_reason() {
        for (text, reason) in [
            ("", "not a URL"),
            ("policy", "no port"),
            ("policy:0", "no port"),
            (":7080", "host"),
            ("unix://policy:7080", "neither"),
            ("http://ann@policy:7080", "user"),
            ("http://policy:7080/check", "path"),
            ("two words:7080", "not a URL"),
        ] {
            let error = address(text, false).unwrap_err().to_string();
            assert!(error.contains(reason), "`{text}`: {error}");
        }
    }

    #[test]
    fn a_pem_file_without_a_certificate_or_beyond_the_size_limit_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let read = |content: &[u8]| {
            std::fs::write(&path, content).unwrap();
            read_pem(&path, "certificate", "CERTIFICATE-----").map(|content| content.len() as u64)
        };
        let begin = b"-----BEGIN CERTIFICATE-----\n".to_vec();
        let mut largest = begin.clone();
        largest.resize(PEM_BYTES_MAX as usize, b' ');
        assert_eq!(read(&largest).unwrap(), PEM_BYTES_MAX);
        largest.push(b' ');
        assert!(matches!(read(&largest), Err(Error::BadPem { .. })));
        assert!(matches!(read(b"-----BEGIN PRIVATE KEY-----"), Err(Error::BadPem { .. })));
        assert!(matches!(read(b"\xff"), Err(Error::BadPem { .. })));
        assert!(matches!(read(b""), Err(Error::BadPem { .. })));
        let nowhere = read_pem(&directory.path().join("nowhere"), "certificate", "CERTIFICATE-----");
        assert!(matches!(nowhere, Err(Error::Unreadable { .. })));
    }
}
