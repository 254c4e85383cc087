//! Reading certificates. Signatures are verified by rustls.

use std::fmt;

use model::time::Millis;
use ring::digest;
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::{Error, NodeIdentity};

/// SHA-256 of a public key (its SubjectPublicKeyInfo in DER).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    pub(crate) fn of_public_key(spki: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest::digest(&digest::SHA256, spki).as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// Period in which a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    pub from: Millis,
    pub until: Millis,
}

impl Validity {
    /// After two thirds of its life.
    pub fn needs_renewal(self, now: Millis) -> bool {
        now >= self.from + Millis(self.until.saturating_sub(self.from).0 / 3 * 2)
    }
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, Error> {
    match X509Certificate::from_der(certificate) {
        Ok(([], parsed)) => Ok(parsed),
        Ok(_) => Err(Error::certificate("data after its end")),
        Err(error) => Err(Error::certificate(error)),
    }
}

/// The node that a certificate names.
pub(crate) fn identity(certificate: &CertificateDer<'_>) -> Result<NodeIdentity, Error> {
    let parsed = parse(certificate)?;
    let names = parsed.subject_alternative_name().map_err(Error::certificate)?;
    let mut uris = names.iter().flat_map(|names| &names.value.general_names).filter_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    });
    match (uris.next(), uris.next()) {
        (Some(uri), None) => uri.parse().map_err(Error::certificate),
        (None, _) => Err(Error::certificate("it names no node")),
        (Some(_), Some(_)) => Err(Error::certificate("it names several nodes")),
    }
}

pub(crate) fn validity(certificate: &CertificateDer<'_>) -> Result<Validity, Error> {
    let parsed = parse(certificate)?;
    let millis = |secs: i64| Millis(u64::try_from(secs).unwrap_or(0).saturating_mul(1000));
    let (from, until) = (parsed.validity().not_before, parsed.validity().not_after);
    Ok(Validity { from: millis(from.timestamp()), until: millis(until.timestamp()) })
}

/// Fingerprint of the certificate's public key.
pub(crate) fn fingerprint(certificate: &CertificateDer<'_>) -> Result<Fingerprint, Error> {
    Ok(Fingerprint::of_public_key(parse(certificate)?.public_key().raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_after_two_thirds_of_its_life() {
        let validity = Validity { from: Millis(1_000), until: Millis(31_000) };
        assert!(!validity.needs_renewal(Millis(20_999)));
        assert!(validity.needs_renewal(Millis(21_000)));
    }
}
