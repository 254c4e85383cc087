//! Verification of a control node by a node that knows only the fingerprint in its join token.
//!
//! A control node sends the certificate of its authority with its own. The one with the right fingerprint is trusted.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, PeerIncompatible, RootCertStore, SignatureScheme};

use super::member::verify_control_node;
use crate::certificate::{self, Fingerprint};

/// Text of the error for a server of another cluster.
pub(crate) const OTHER_CLUSTER: &str = "this is not the cluster the token is for";

#[derive(Debug)]
pub(super) struct Verifier {
    authority: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    pub(super) fn new(authority: Fingerprint, provider: Arc<CryptoProvider>) -> Self {
        Self { authority, provider }
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
        let is_authority = |candidate: &&CertificateDer<'_>| {
            certificate::fingerprint(candidate).is_ok_and(|fingerprint| fingerprint == self.authority)
        };
        let Some(authority) = intermediates.iter().find(is_authority) else {
            return Err(Error::General(OTHER_CLUSTER.to_owned()));
        };
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        verify_control_node(certificate, intermediates, &roots, now, &self.provider)?;
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
