//! TLS to the kernel: whom the client believes, and what it does not do without.

use std::path::{Path, PathBuf};

use kernel::{Client, Error, Identity, Options, Tls, Why};
use model::verdict::Verdict;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

use crate::common::{Kernel, client, job, options};

/// A CA and what it has signed, as files.
struct Authority {
    directory: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { directory, issuer }
    }

    fn ca(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// A certificate for a name, and its key.
    fn sign(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        let path = |ending: &str| self.directory.path().join(format!("{name}.{ending}"));
        let identity = Identity { certificate: path("pem"), key: path("key") };
        std::fs::write(&identity.certificate, signed.pem()).unwrap();
        std::fs::write(&identity.key, key.serialize_pem()).unwrap();
        identity
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

async fn kernel_with(identity: &Identity, more: &[&str]) -> Kernel {
    let (certificate, key) = (text(&identity.certificate), text(&identity.key));
    let arguments = ["--listen", "127.0.0.1:0", "--tls-certificate", certificate, "--tls-key", key];
    Kernel::start_with(&[&arguments, more].concat()).await
}

fn secure(address: &str, tls: Tls) -> Options {
    Options { tls: Some(tls), require_tls: true, ..options(address) }
}

fn trusting(authority: &Authority) -> Tls {
    Tls { ca: authority.ca(), domain: None, identity: None }
}

async fn refused(options: Options) -> String {
    let error = Client::connect_lazy(options).unwrap().check(&job()).await.unwrap_err();
    assert_eq!(error.why, Why::Failed);
    error.message
}

// FEATURES: D9
#[tokio::test]
async fn a_kernel_with_a_certificate_of_the_right_ca_is_believed() {
    let authority = Authority::new();
    let kernel = kernel_with(&authority.sign("127.0.0.1"), &[]).await;
    let client = Client::connect_lazy(secure(&kernel.address, trusting(&authority))).unwrap();
    assert_eq!(client.check(&job()).await.unwrap().decision.verdict, Verdict::Allow);
    assert!(client.status().tls);
    let https = format!("https://{}", kernel.address);
    let client = Client::connect_lazy(secure(&https, trusting(&authority))).unwrap();
    assert_eq!(client.check(&job()).await.unwrap().decision.verdict, Verdict::Allow);
}

// FEATURES: D9
#[tokio::test]
async fn a_kernel_with_a_certificate_of_another_ca_is_refused() {
    let kernel = kernel_with(&Authority::new().sign("127.0.0.1"), &[]).await;
    let message = refused(secure(&kernel.address, trusting(&Authority::new()))).await;
    assert!(message.contains("certificate"), "{message}");
}

#[tokio::test]
async fn the_name_in_the_certificate_must_be_the_one_expected() {
    let authority = Authority::new();
    let kernel = kernel_with(&authority.sign("kernel.test"), &[]).await;
    let message = refused(secure(&kernel.address, trusting(&authority))).await;
    assert!(message.contains("certificate"), "{message}");
    let named = Tls { domain: Some("kernel.test".to_owned()), ..trusting(&authority) };
    let client = Client::connect_lazy(secure(&kernel.address, named)).unwrap();
    assert_eq!(client.check(&job()).await.unwrap().decision.verdict, Verdict::Allow);
}

#[tokio::test]
async fn a_kernel_that_asks_who_we_are_is_shown_our_certificate() {
    let authority = Authority::new();
    let ca = authority.ca();
    let kernel = kernel_with(&authority.sign("127.0.0.1"), &["--client-ca", text(&ca)]).await;
    refused(secure(&kernel.address, trusting(&authority))).await;
    let known = Tls { identity: Some(authority.sign("outlast.test")), ..trusting(&authority) };
    let client = Client::connect_lazy(secure(&kernel.address, known)).unwrap();
    assert_eq!(client.check(&job()).await.unwrap().decision.verdict, Verdict::Allow);
}

// FEATURES: D9
#[tokio::test]
async fn where_tls_is_required_there_is_no_way_without() {
    let authority = Authority::new();
    let plain = Kernel::start().await;
    refused(secure(&plain.address, trusting(&authority))).await;
    let without = Client::connect_lazy(Options { require_tls: true, ..options(&plain.address) });
    assert!(matches!(without, Err(Error::TlsRequired { .. })));
    let without = Client::connect_lazy(options(&format!("https://{}", plain.address)));
    assert!(matches!(without, Err(Error::CaMissing { .. })));
    let plainly = Client::connect_lazy(secure(&format!("http://{}", plain.address), trusting(&authority)));
    assert!(matches!(plainly, Err(Error::NotHttps { .. })));
    assert!(!client(&plain.address).status().tls);
}

#[tokio::test]
async fn a_kernel_with_tls_is_not_reached_without() {
    let kernel = kernel_with(&Authority::new().sign("127.0.0.1"), &[]).await;
    refused(options(&kernel.address)).await;
}

#[tokio::test]
async fn tls_files_that_cannot_be_used_are_refused_at_once() {
    let authority = Authority::new();
    let nowhere = Tls { ca: authority.directory.path().join("nowhere.pem"), ..trusting(&authority) };
    assert!(matches!(Client::connect_lazy(secure("127.0.0.1:1", nowhere)), Err(Error::Unreadable { .. })));
    let (one, other) = (authority.sign("one.test"), authority.sign("other.test"));
    let mixed = Identity { certificate: one.certificate, key: other.key.clone() };
    let mixed = Tls { identity: Some(mixed), ..trusting(&authority) };
    assert!(matches!(Client::connect_lazy(secure("127.0.0.1:1", mixed)), Err(Error::BadTls { .. })));
    let swapped = Identity { certificate: other.key, key: other.certificate };
    let swapped = Tls { identity: Some(swapped), ..trusting(&authority) };
    assert!(matches!(Client::connect_lazy(secure("127.0.0.1:1", swapped)), Err(Error::BadPem { .. })));
}
