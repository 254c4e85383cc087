//! Certificates of the references: an authority, and a server and a client of it.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

const NAME: &str = "localhost";

/// In PEM.
pub struct Certificates {
    authority: String,
    server: (String, String),
    client: (String, String),
}

impl Certificates {
    pub fn new() -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key)?.pem();
        let issuer = Issuer::new(params, key);
        let issue = || -> anyhow::Result<(String, String)> {
            let key = KeyPair::generate()?;
            let certificate = CertificateParams::new(vec![NAME.to_owned()])?.signed_by(&key, &issuer)?;
            Ok((certificate.pem(), key.serialize_pem()))
        };
        Ok(Self { authority, server: issue()?, client: issue()? })
    }

    /// TLS 1.3 without client certificates.
    pub fn server_config(&self) -> anyhow::Result<ServerConfig> {
        let (certificate, key) = &self.server;
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13])?;
        Ok(config.with_no_client_auth().with_single_cert(vec![certificate], key)?)
    }

    /// With client certificates.
    pub fn tonic_server(&self) -> ServerTlsConfig {
        let (certificate, key) = &self.server;
        ServerTlsConfig::new()
            .identity(Identity::from_pem(certificate, key))
            .client_ca_root(Certificate::from_pem(&self.authority))
    }

    pub fn tonic_client(&self) -> ClientTlsConfig {
        let (certificate, key) = &self.client;
        ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&self.authority))
            .identity(Identity::from_pem(certificate, key))
            .domain_name(NAME)
    }
}
