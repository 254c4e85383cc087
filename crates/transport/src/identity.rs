//! A node's key and certificate.
//!
//! [`Identity`] is kept in one file of the node's data directory. It is a cheap handle: all clones share the current
//! certificate, and a renewed one is used by the next connection. Connections in use keep the certificate they began
//! with.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minicbor::{Decode, Encode};
use model::time::Millis;
use parking_lot::RwLock;
use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use crate::authority::Authority;
use crate::certificate::{self, Fingerprint, Validity};
use crate::{ClusterKey, Error, NodeIdentity, Role, durable_file};

/// Names of the files in the node's data directory.
const FILE: &str = "identity";
const PENDING: &str = "pending_key";

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
    #[cbor(with = "minicbor::bytes")]
    authority: Vec<u8>,
    #[n(3)]
    cluster_key: ClusterKey,
}

/// A new key that waits for its certificate.
pub struct PendingKey {
    key: Vec<u8>,
    signing_request: Vec<u8>,
}

impl PendingKey {
    pub fn generate() -> Result<Self, Error> {
        Self::of(&KeyPair::generate().map_err(|_| Error::NoRandomness)?)
    }

    /// The key of an earlier join whose answer was lost, else a new one, which is kept until [`Identity::create`].
    pub fn open_or_generate(directory: &Path) -> Result<Self, Error> {
        let path = directory.join(PENDING);
        if let Some(bytes) = durable_file::read(&path).map_err(Error::io("read", &path))?
            && let Ok(pair) = KeyPair::try_from(bytes.as_slice())
        {
            return Self::of(&pair);
        }
        let key = Self::generate()?;
        durable_file::write(&path, &key.key).map_err(Error::io("write", &path))?;
        Ok(key)
    }

    fn of(pair: &KeyPair) -> Result<Self, Error> {
        let request = CertificateParams::default().serialize_request(pair).map_err(Error::certificate)?;
        Ok(Self { key: pair.serialize_der(), signing_request: request.der().to_vec() })
    }

    /// PKCS#10, DER.
    pub fn signing_request(&self) -> &[u8] {
        &self.signing_request
    }
}

/// Without the key.
impl fmt::Debug for PendingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingKey").finish_non_exhaustive()
    }
}

/// What a node gets when it joins.
#[derive(Debug, Clone)]
pub struct Credentials {
    pub certificate: CertificateDer<'static>,
    /// Certificate of the cluster's authority.
    pub authority: CertificateDer<'static>,
    pub cluster_key: ClusterKey,
}

/// The current certificate, ready for TLS.
struct Current {
    certified: Arc<CertifiedKey>,
    validity: Validity,
}

struct Shared {
    path: PathBuf,
    node: NodeIdentity,
    authority: CertificateDer<'static>,
    cluster_key: ClusterKey,
    current: RwLock<Current>,
}

/// Key and certificate of this node. Clones share them.
#[derive(Clone)]
pub struct Identity {
    shared: Arc<Shared>,
}

impl Identity {
    /// Reads the identity of a data directory. `None` if the node has not joined a cluster.
    pub fn open(directory: &Path) -> Result<Option<Self>, Error> {
        let path = directory.join(FILE);
        let Some(bytes) = durable_file::read(&path).map_err(Error::io("read", &path))? else { return Ok(None) };
        let damaged = |_| Error::DamagedIdentity { path: path.clone() };
        let stored: Stored = minicbor::decode(&bytes).map_err(|_| Error::DamagedIdentity { path: path.clone() })?;
        Self::load(path.clone(), stored).map(Some).map_err(damaged)
    }

    /// Stores the credentials of a join. Replaces an earlier identity.
    pub fn create(directory: &Path, key: PendingKey, credentials: Credentials) -> Result<Self, Error> {
        let Credentials { certificate, authority, cluster_key } = credentials;
        let path = directory.join(FILE);
        let (certificate, authority) = (certificate.to_vec(), authority.to_vec());
        let stored = Stored { key: key.key, certificate, authority, cluster_key };
        let bytes = minicbor::to_vec(&stored).map_err(Error::certificate)?;
        let identity = Self::load(path.clone(), stored)?;
        durable_file::write(&path, &bytes).map_err(Error::io("write", &path))?;
        let pending = directory.join(PENDING);
        match std::fs::remove_file(&pending) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", &pending)(error)),
            _ => Ok(identity),
        }
    }

    /// The identity of a control node that holds the authority. Issued anew if there is none, or one of another
    /// cluster or node, or if it needs renewal.
    pub fn open_or_issue(
        directory: &Path,
        authority: &Authority,
        node: model::id::NodeId,
        now: Millis,
    ) -> Result<Self, Error> {
        let wanted = NodeIdentity { cluster: authority.cluster(), node, role: Role::Control };
        match Self::open(directory)? {
            Some(identity) if identity.node() == wanted && !identity.needs_renewal(now) => return Ok(identity),
            Some(_) | None => {}
        }
        let key = PendingKey::generate()?;
        let credentials = Credentials {
            certificate: authority.issue(key.signing_request(), wanted, now)?,
            authority: authority.certificate().clone(),
            cluster_key: authority.cluster_key().clone(),
        };
        Self::create(directory, key, credentials)
    }

    fn load(path: PathBuf, stored: Stored) -> Result<Self, Error> {
        let authority = CertificateDer::from(stored.authority);
        let certificate = CertificateDer::from(stored.certificate);
        let node = certificate::identity(&certificate)?;
        let current = RwLock::new(Current::new(stored.key, certificate, &authority)?);
        let cluster_key = stored.cluster_key;
        Ok(Self { shared: Arc::new(Shared { path, node, authority, cluster_key, current }) })
    }

    pub fn node(&self) -> NodeIdentity {
        self.shared.node
    }

    pub fn cluster_key(&self) -> &ClusterKey {
        &self.shared.cluster_key
    }

    /// Certificate of the cluster's authority.
    pub fn authority(&self) -> &CertificateDer<'static> {
        &self.shared.authority
    }

    /// As in the join tokens of the cluster.
    pub fn authority_fingerprint(&self) -> Result<Fingerprint, Error> {
        certificate::fingerprint(&self.shared.authority)
    }

    pub fn validity(&self) -> Validity {
        self.shared.current.read().validity
    }

    pub fn needs_renewal(&self, now: Millis) -> bool {
        self.validity().needs_renewal(now)
    }

    /// Stores a renewed certificate. New connections use it. An invalid one leaves the current one in use.
    pub fn renew(&self, key: PendingKey, certificate: CertificateDer<'static>) -> Result<(), Error> {
        let found = certificate::identity(&certificate)?;
        if found != self.shared.node {
            let (expected, found) = (self.shared.node.to_string(), found.to_string());
            return Err(Error::OtherIdentity { expected, found });
        }
        let stored = Stored {
            key: key.key.clone(),
            certificate: certificate.to_vec(),
            authority: self.shared.authority.to_vec(),
            cluster_key: self.shared.cluster_key.clone(),
        };
        let renewed = Current::new(key.key, certificate, &self.shared.authority)?;
        let bytes = minicbor::to_vec(&stored).map_err(Error::certificate)?;
        // Holds the lock, so that file and memory change in the same order.
        let mut current = self.shared.current.write();
        durable_file::write(&self.shared.path, &bytes).map_err(Error::io("write", &self.shared.path))?;
        *current = renewed;
        Ok(())
    }

    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        self.shared.current.read().certified.clone()
    }
}

impl Current {
    /// The authority's certificate is part of the chain: a joining node finds its fingerprint there.
    fn new(
        key: Vec<u8>,
        certificate: CertificateDer<'static>,
        authority: &CertificateDer<'static>,
    ) -> Result<Self, Error> {
        let validity = certificate::validity(&certificate)?;
        let key = any_supported_type(&PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key)))?;
        let certified = CertifiedKey::new(vec![certificate, authority.clone()], key);
        certified.keys_match()?;
        Ok(Self { certified: Arc::new(certified), validity })
    }
}

/// Without the keys.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("node", &self.shared.node)
            .field("validity", &self.validity())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use model::id::NodeId;

    use super::*;

    const NOW: Millis = Millis::from_secs(1_800_000_000);
    const MONTH: Millis = Millis::from_secs(30 * 24 * 3600);

    // FEATURES: B9
    #[test]
    fn an_identity_is_kept_and_renewed_in_place() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::open_or_create(directory.path()).unwrap();
        assert!(Identity::open(directory.path()).unwrap().is_none());
        let identity = Identity::open_or_issue(directory.path(), &authority, NodeId(1), NOW).unwrap();
        let again = Identity::open_or_issue(directory.path(), &authority, NodeId(1), NOW).unwrap();
        assert_eq!(again.certified().cert, identity.certified().cert);
        assert!(!identity.needs_renewal(NOW));

        let late = NOW + Millis(MONTH.0 / 4 * 3);
        assert!(identity.needs_renewal(late));
        let key = PendingKey::generate().unwrap();
        let renewed = authority.issue(key.signing_request(), identity.node(), late).unwrap();
        let clone = identity.clone();
        identity.renew(key, renewed).unwrap();
        assert_eq!(clone.validity().until, late + MONTH, "clones share the certificate");
        let reopened = Identity::open(directory.path()).unwrap().unwrap();
        assert_eq!(reopened.validity(), clone.validity());
        assert_eq!(reopened.cluster_key(), authority.cluster_key());
    }

    #[test]
    fn the_key_of_a_join_without_an_answer_is_used_again() {
        let directory = tempfile::tempdir().unwrap();
        let first = PendingKey::open_or_generate(directory.path()).unwrap();
        let again = PendingKey::open_or_generate(directory.path()).unwrap();
        assert_eq!(first.key, again.key);
        let authority = Authority::open_or_create(directory.path()).unwrap();
        let node = NodeIdentity { cluster: authority.cluster(), node: NodeId(3), role: Role::Runner };
        let credentials = Credentials {
            certificate: authority.issue(again.signing_request(), node, NOW).unwrap(),
            authority: authority.certificate().clone(),
            cluster_key: authority.cluster_key().clone(),
        };
        Identity::create(directory.path(), again, credentials).unwrap();
        assert_ne!(PendingKey::open_or_generate(directory.path()).unwrap().key, first.key);
    }

    #[test]
    fn a_certificate_for_another_key_or_node_is_not_installed() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::open_or_create(directory.path()).unwrap();
        let identity = Identity::open_or_issue(directory.path(), &authority, NodeId(1), NOW).unwrap();
        let issue = |key: &PendingKey, node| {
            let node = NodeIdentity { node, ..identity.node() };
            authority.issue(key.signing_request(), node, NOW + MONTH).unwrap()
        };
        let (one, other) = (PendingKey::generate().unwrap(), PendingKey::generate().unwrap());
        let certificate = issue(&other, NodeId(1));
        assert!(matches!(identity.renew(one, certificate), Err(Error::Tls(_))));
        let certificate = issue(&other, NodeId(2));
        assert!(matches!(identity.renew(other, certificate), Err(Error::OtherIdentity { .. })));
        assert_eq!(identity.validity().until, NOW + MONTH);
    }
}
