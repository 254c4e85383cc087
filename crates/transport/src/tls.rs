//! TLS 1.3 with the cluster's own authority.
//!
//! Host names do not matter: a server proves that it is a control node of the cluster, by the URI in its certificate.
//! Sessions are not resumed, so every connection is verified against the current certificates.

mod joining;
mod member;

use std::sync::Arc;

use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SignatureScheme, version};

use crate::certificate::Fingerprint;
use crate::{Error, Identity};

pub(crate) use joining::OTHER_CLUSTER;

/// Links and joins.
const HTTP2: &[u8] = b"h2";
/// HTTP/2 for transfers: the server waits longer for answers to its pings.
pub(crate) const BULK: &[u8] = b"h2-bulk";

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Link,
    Bulk,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(authority: &CertificateDer<'static>) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone())?;
    Ok(Arc::new(roots))
}

/// For the listener of a control node. Client certificates are optional, but must be of the cluster.
pub(crate) fn server_config(identity: &Identity) -> Result<Arc<ServerConfig>, Error> {
    let clients = WebPkiClientVerifier::builder_with_provider(roots(identity.authority())?, provider())
        .allow_unauthenticated()
        .build()
        .map_err(Error::certificate)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(Arc::new(Current(identity.clone())));
    config.alpn_protocols = vec![HTTP2.to_vec(), BULK.to_vec()];
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// For a member of the cluster: presents its certificate, and expects a control node.
pub(crate) fn member_config(identity: &Identity, purpose: Purpose) -> Result<Arc<ClientConfig>, Error> {
    let servers = member::Verifier::new(roots(identity.authority())?, identity.node().cluster, provider());
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(servers))
        .with_client_cert_resolver(Arc::new(Current(identity.clone())));
    Ok(client(config, purpose))
}

/// For a node that has only a token: expects the authority with this fingerprint.
pub(crate) fn joining_config(authority: Fingerprint) -> Result<Arc<ClientConfig>, Error> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(joining::Verifier::new(authority, provider())))
        .with_no_client_auth();
    Ok(client(config, Purpose::Link))
}

fn client(mut config: ClientConfig, purpose: Purpose) -> Arc<ClientConfig> {
    config.alpn_protocols = match purpose {
        Purpose::Link => vec![HTTP2.to_vec()],
        Purpose::Bulk => vec![BULK.to_vec()],
    };
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Arc::new(config)
}

/// Presents the current certificate of the node.
#[derive(Debug)]
struct Current(Identity);

impl ResolvesServerCert for Current {
    fn resolve(&self, _client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.certified())
    }
}

impl ResolvesClientCert for Current {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.certified())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
