//! The cluster's certificate authority.
//!
//! A control node creates it once and keeps it in its data directory, in one file: key, certificate, cluster id and
//! cluster key. The authority outlasts the server: certificates issued before a restart stay valid.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use minicbor::{Decode, Encode};
use model::time::Millis;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber,
};
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer};

use crate::certificate::{self, Fingerprint};
use crate::limits::{CERTIFICATE_LIFETIME, CLOCK_SKEW_MAX};
use crate::{ClusterId, ClusterKey, Error, NodeIdentity, durable_file, random};

/// Name of the file in the directory of the authority.
const FILE: &str = "authority";
const LIFETIME_YEARS: i32 = 100;

#[derive(Encode, Decode)]
struct Stored {
    /// PKCS#8.
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    key: Vec<u8>,
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    certificate: Vec<u8>,
    #[n(2)]
    cluster: ClusterId,
    #[n(3)]
    cluster_key: ClusterKey,
}

/// Issues the certificates of a cluster's nodes.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    fingerprint: Fingerprint,
    cluster: ClusterId,
    cluster_key: ClusterKey,
    lifetime: Duration,
}

impl Authority {
    /// Reads the authority of the directory. Creates it, with a new cluster id, if there is none.
    pub fn open_or_create(directory: &Path) -> Result<Self, Error> {
        let path = directory.join(FILE);
        let damaged = || Error::DamagedAuthority { path: path.clone() };
        let stored: Stored = match durable_file::read(&path).map_err(Error::io("read", &path))? {
            Some(bytes) => minicbor::decode(&bytes).map_err(|_| damaged())?,
            None => {
                let stored = create()?;
                let bytes = minicbor::to_vec(&stored).map_err(Error::certificate)?;
                durable_file::write(&path, &bytes).map_err(Error::io("write", &path))?;
                stored
            }
        };
        let key = KeyPair::try_from(stored.key.as_slice()).map_err(|_| damaged())?;
        let certificate = CertificateDer::from(stored.certificate);
        let fingerprint = certificate::fingerprint(&certificate).map_err(|_| damaged())?;
        if fingerprint != Fingerprint::of_public_key(&key.subject_public_key_info()) {
            return Err(damaged());
        }
        Ok(Self {
            issuer: Issuer::from_ca_cert_der(&certificate, key).map_err(|_| damaged())?,
            certificate,
            fingerprint,
            cluster: stored.cluster,
            cluster_key: stored.cluster_key,
            lifetime: CERTIFICATE_LIFETIME,
        })
    }

    /// Lifetime of the certificates to be issued. Default: 30 days.
    pub fn with_lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = lifetime;
        self
    }

    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    pub fn cluster_key(&self) -> &ClusterKey {
        &self.cluster_key
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// SHA-256 of the public key. Join tokens contain it.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Issues a certificate for the public key of a signing request. The request's names are ignored.
    pub fn issue(
        &self,
        signing_request: &[u8],
        identity: NodeIdentity,
        now: Millis,
    ) -> Result<CertificateDer<'static>, Error> {
        if identity.cluster != self.cluster {
            let (expected, found) = (self.cluster.to_string(), identity.cluster.to_string());
            return Err(Error::OtherIdentity { expected, found });
        }
        let public_key = read_signing_request(signing_request)?.public_key;
        let mut params = CertificateParams::default();
        let name = identity.to_string();
        params.distinguished_name.push(DnType::CommonName, identity.node.to_string());
        params.subject_alt_names = vec![SanType::URI(name.try_into().map_err(Error::certificate)?)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(SerialNumber::from(random::bytes::<16>()?.to_vec()));
        let unix_epoch = rcgen::date_time_ymd(1970, 1, 1);
        let now = Duration::from_millis(now.0);
        params.not_before = unix_epoch + now.saturating_sub(CLOCK_SKEW_MAX);
        params.not_after = unix_epoch + now + self.lifetime;
        let issued = params.signed_by(&public_key, &self.issuer).map_err(Error::certificate)?;
        Ok(issued.der().clone())
    }
}

/// Without the keys.
impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("cluster", &self.cluster)
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

fn create() -> Result<Stored, Error> {
    let cluster = ClusterId::random()?;
    let key = KeyPair::generate().map_err(|_| Error::NoRandomness)?;
    let bytes = key.serialize_der();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, format!("Outlast cluster {cluster}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2020 + LIFETIME_YEARS, 1, 1);
    let issuer = CertifiedIssuer::self_signed(params, key).map_err(Error::certificate)?;
    Ok(Stored { key: bytes, certificate: issuer.der().to_vec(), cluster, cluster_key: ClusterKey::random()? })
}

/// Parses a signing request and verifies its signature, which proves possession of the key.
fn read_signing_request(der: &[u8]) -> Result<CertificateSigningRequestParams, Error> {
    CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(der))
        .map_err(|error| Error::SigningRequest { reason: error.to_string() })
}

/// Fingerprint of the public key in a signing request.
pub(crate) fn requested_key(signing_request: &[u8]) -> Result<Fingerprint, Error> {
    let request = read_signing_request(signing_request)?;
    Ok(Fingerprint::of_public_key(&request.public_key.subject_public_key_info()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use model::id::NodeId;

    use super::*;
    use crate::Role;
    use crate::identity::PendingKey;

    const NOW: Millis = Millis::from_secs(1_800_000_000);

    // FEATURES: B9
    #[test]
    fn an_authority_is_created_once() {
        let directory = tempfile::tempdir().unwrap();
        let first = Authority::open_or_create(directory.path()).unwrap();
        let again = Authority::open_or_create(directory.path()).unwrap();
        assert_eq!(first.fingerprint(), again.fingerprint());
        assert_eq!(first.cluster(), again.cluster());
        assert_eq!(first.cluster_key(), again.cluster_key());
        assert_eq!(first.certificate(), again.certificate());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let other = Authority::open_or_create(tempfile::tempdir().unwrap().path()).unwrap();
        assert_ne!(other.cluster(), first.cluster());
        assert_ne!(other.fingerprint(), first.fingerprint());
    }

    #[test]
    fn a_damaged_authority_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        fs::write(&path, "damaged").unwrap();
        let error = Authority::open_or_create(directory.path()).unwrap_err();
        assert!(matches!(error, Error::DamagedAuthority { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"damaged");
    }

    #[test]
    fn a_certificate_names_its_node_and_expires() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::open_or_create(directory.path()).unwrap();
        let identity = NodeIdentity { cluster: authority.cluster(), node: NodeId(7), role: Role::Runner };
        let key = PendingKey::generate().unwrap();
        let issued = authority.issue(key.signing_request(), identity, NOW).unwrap();
        assert_eq!(certificate::identity(&issued).unwrap(), identity);
        let validity = certificate::validity(&issued).unwrap();
        assert_eq!(validity.until, NOW + Millis::from_secs(30 * 24 * 3600));
        assert!(validity.from < NOW);
        assert_eq!(certificate::fingerprint(&issued).unwrap(), requested_key(key.signing_request()).unwrap());
    }

    #[test]
    fn a_request_for_another_cluster_or_with_a_broken_signature_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::open_or_create(directory.path()).unwrap();
        let identity = NodeIdentity { cluster: authority.cluster(), node: NodeId(7), role: Role::Runner };
        let key = PendingKey::generate().unwrap();
        let foreign = NodeIdentity { cluster: ClusterId::from_bytes([9; 16]), ..identity };
        let error = authority.issue(key.signing_request(), foreign, NOW).unwrap_err();
        assert!(matches!(error, Error::OtherIdentity { .. }), "{error}");
        let mut broken = key.signing_request().to_vec();
        *broken.last_mut().unwrap() ^= 1;
        for request in [&broken[..], b"", b"garbage"] {
            let error = authority.issue(request, identity, NOW).unwrap_err();
            assert!(matches!(error, Error::SigningRequest { .. }), "{error}");
        }
    }
}
