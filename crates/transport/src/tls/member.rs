//! Verification of a control node by a member of its cluster.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerIncompatible, RootCertStore, SignatureScheme};

use crate::{ClusterId, Role, certificate};

#[derive(Debug)]
pub(super) struct Verifier {
    roots: Arc<RootCertStore>,
    cluster: ClusterId,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    pub(super) fn new(roots: Arc<RootCertStore>, cluster: ClusterId, provider: Arc<CryptoProvider>) -> Self {
        Self { roots, cluster, provider }
    }
}

/// Verifies that a certificate was signed by the authority and names a control node.
pub(super) fn verify_control_node(
    certificate: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    roots: &RootCertStore,
    now: UnixTime,
    provider: &CryptoProvider,
) -> Result<ClusterId, Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    let algorithms = provider.signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&parsed, roots, intermediates, now, algorithms)?;
    let identity = certificate::identity(certificate)
        .map_err(|_| Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))?;
    match identity.role {
        Role::Control => Ok(identity.cluster),
        Role::Runner => Err(Error::General(format!("{} is a runner, not a control node", identity.node))),
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let cluster = verify_control_node(certificate, intermediates, &self.roots, now, &self.provider)?;
        if cluster != self.cluster {
            return Err(Error::General(format!("this is cluster {cluster}, not {}", self.cluster)));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
