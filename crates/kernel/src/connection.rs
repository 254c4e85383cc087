//! The connection to the kernel: made when it is first needed, and made anew when the breaker opens.
//!
//! A connection to a machine that has vanished looks alive for many minutes. Rather than to ping the kernel, which many
//! gRPC servers take for an attack, the client drops the connection together with its trust: a probe that is to find
//! out whether the kernel is back starts at the beginning.

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
    /// Checks the options and reads the TLS files. Must be called within a runtime; does not connect yet.
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
            endpoint = endpoint.tls_config(config).map_err(|error| Error::BadTls { why: chain(&error) })?;
        }
        let channel = Mutex::new(endpoint.connect_lazy());
        Ok(Self { endpoint, channel, authority, encrypted })
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.lock().clone()
    }

    /// The next call makes a new connection; those under way keep theirs.
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
    let bad = |why: &str| Error::BadAddress { address: text.chars().take(200).collect(), why: why.to_owned() };
    let full = match (text.contains("://"), tls) {
        (true, _) => text.to_owned(),
        (false, true) => format!("https://{text}"),
        (false, false) => format!("http://{text}"),
    };
    let uri: Uri = full.parse().map_err(|_| bad("it cannot be understood"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(bad("it begins with neither http:// nor https://"));
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err(bad("it names no host"));
    }
    if uri.port_u16().is_none_or(|port| port == 0) {
        return Err(bad("it names no port"));
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(bad("it names a user, who would not be asked"));
    }
    if uri.path_and_query().is_some_and(|path| path.as_str() != "/") {
        return Err(bad("it names a path, which gRPC does not use"));
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

/// A file that has at least one block of the kind: rustls would take one without any, and trust nobody.
fn read_pem(path: &Path, what: &'static str, block: &str) -> Result<Vec<u8>, Error> {
    let unreadable = |source| Error::Unreadable { path: path.to_path_buf(), source };
    let bad = |why: &str| Error::BadPem { path: path.to_path_buf(), what, why: why.to_owned() };
    let mut content = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(PEM_BYTES_MAX + 1).read_to_end(&mut content).map_err(unreadable)?;
    if content.len() as u64 > PEM_BYTES_MAX {
        return Err(bad("it is larger than 1 MiB"));
    }
    let text = std::str::from_utf8(&content).map_err(|_| bad("it is no text"))?;
    if !text.lines().any(|line| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(block)) {
        return Err(bad("it has no such block"));
    }
    Ok(content)
}

/// An error with what is below it, each said once.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(cause) = below {
        let said = cause.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        below = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_short() {
        for (text, tls, expected) in [
            ("kernel:7080", false, "http://kernel:7080/"),
            ("kernel:7080", true, "https://kernel:7080/"),
            ("http://10.0.0.1:7080", false, "http://10.0.0.1:7080/"),
            ("https://[::1]:7080/", true, "https://[::1]:7080/"),
        ] {
            assert_eq!(address(text, tls).unwrap().to_string(), expected);
        }
        assert_eq!(authority(&address("https://Kernel:7080", true).unwrap()), "kernel:7080");
    }

    #[test]
    fn what_is_no_address_is_refused_with_its_reason() {
        for (text, why) in [
            ("", "understood"),
            ("kernel", "no port"),
            ("kernel:0", "no port"),
            (":7080", "host"),
            ("unix://kernel:7080", "neither"),
            ("http://ann@kernel:7080", "user"),
            ("http://kernel:7080/check", "path"),
            ("two words:7080", "understood"),
        ] {
            let error = address(text, false).unwrap_err().to_string();
            assert!(error.contains(why), "`{text}`: {error}");
        }
    }

    #[test]
    fn a_file_without_a_certificate_or_larger_than_its_limit_is_refused() {
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
