//! TLS: trusted and untrusted certificates, and required TLS.

use std::path::{Path, PathBuf};

use model::verdict::Verdict;
use policy_service::{Client, Error, Identity, Options, Tls, UnavailableReason};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

use crate::support::{ServiceProcess, client, job, options};

/// A CA with its files and those of the certificates it signed.
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

    /// Signs a certificate for a host name.
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

async fn start_with(identity: &Identity, more: &[&str]) -> ServiceProcess {
    let (certificate, key) = (text(&identity.certificate), text(&identity.key));
    let arguments = ["--listen", "127.0.0.1:0", "--tls-certificate", certificate, "--tls-key", key];
    ServiceProcess::start_with(&[&arguments, more].concat()).await
}

fn tls_options(address: &str, tls: Tls) -> Options {
    Options { tls: Some(tls), require_tls: true, ..options(address) }
}

fn trusting(authority: &Authority) -> Tls {
    Tls { ca: authority.ca(), domain: None, identity: None }
}

async fn failure(options: Options) -> String {
    let error = Client::connect_lazy(options).unwrap().check(&job()).await.unwrap_err();
    assert_eq!(error.reason, UnavailableReason::Failed);
    error.message
}

// FEATURES: D9
#[tokio::test]
async fn a_certificate_of_the_configured_ca_is_trusted() {
    let authority = Authority::new();
    let service = start_with(&authority.sign("127.0.0.1"), &[]).await;
    let client = Client::connect_lazy(tls_options(&service.address, trusting(&authority))).unwrap();
    assert_eq!(client.check(&job()).await.unwrap().decision.verdict, Verdict::Allow);
    assert!(client.status().tls);
    let https = format!("https://{}", service.address);
    let client = Client::connect_lazy(tls_options(&https, trusting(&authority))).unwrap();
    assert_eq!(client.check(&job()).await.unwrap().decision.verdict, Verdict::Allow);
}

// FEATURES: D9
#[tokio::test]
async fn a_certificate_of_another_ca_is_rejected() {
    let service = start_with(&Authority::new().sign("127.0.0.1"), &[]).await;
    let message = failure(tls_options(&service.address, trusting(&Authority::new()))).await;
    assert!(message.contains("certificate"), "{message}");
}

#[tokio::test]
async fn the_certificate_must_have_the_expected_host_name() {
    let authority = Authority::new();
    let service = start_with(&authority.sign("policy.test"), &[]).await;
    let message = failure(tls_options(&service.address, trusting(&authority))).await;
    assert!(message.contains("certificate"), "{message}");
    let named = Tls { domain: Some("policy.test".to_owned()), ..trusting(&authority) };
    let client = Client::connect_lazy(tls_options(&service.address, named)).unwrap();
    assert_eq!(client.check(&job()).await.unwrap().decision.verdict, Verdict::Allow);
}

#[tokio::test]
async fn the_client_certificate_is_sent_on_request() {
    let authority = Authority::new();
    let ca = authority.ca();
    let service = start_with(&authority.sign("127.0.0.1"), &["--client-ca", text(&ca)]).await;
    failure(tls_options(&service.address, trusting(&authority))).await;
    let known = Tls { identity: Some(authority.sign("outlast.test")), ..trusting(&authority) };
    let client = Client::connect_lazy(tls_options(&service.address, known)).unwrap();
    assert_eq!(client.check(&job()).await.unwrap().decision.verdict, Verdict::Allow);
}

// FEATURES: D9
#[tokio::test]
async fn required_tls_rules_out_plain_connections() {
    let authority = Authority::new();
    let plain = ServiceProcess::start().await;
    failure(tls_options(&plain.address, trusting(&authority))).await;
    let without = Client::connect_lazy(Options { require_tls: true, ..options(&plain.address) });
    assert!(matches!(without, Err(Error::TlsRequired { .. })));
    let without = Client::connect_lazy(options(&format!("https://{}", plain.address)));
    assert!(matches!(without, Err(Error::CaMissing { .. })));
    let plainly = Client::connect_lazy(tls_options(&format!("http://{}", plain.address), trusting(&authority)));
    assert!(matches!(plainly, Err(Error::NotHttps { .. })));
    assert!(!client(&plain.address).status().tls);
}

#[tokio::test]
async fn a_service_with_tls_rejects_plain_connections() {
    let service = start_with(&Authority::new().sign("127.0.0.1"), &[]).await;
    failure(options(&service.address)).await;
}

#[tokio::test]
async fn invalid_tls_files_are_rejected_at_once() {
    let authority = Authority::new();
    let nowhere = Tls { ca: authority.directory.path().join("nowhere.pem"), ..trusting(&authority) };
    assert!(matches!(Client::connect_lazy(tls_options("127.0.0.1:1", nowhere)), Err(Error::Unreadable { .. })));
    let (one, other) = (authority.sign("one.test"), authority.sign("other.test"));
    let mixed = Identity { certificate: one.certificate, key: other.key.clone() };
    let mixed = Tls { identity: Some(mixed), ..trusting(&authority) };
    assert!(matches!(Client::connect_lazy(tls_options("127.0.0.1:1", mixed)), Err(Error::BadTls { .. })));
    let swapped = Identity { certificate: other.key, key: other.certificate };
    let swapped = Tls { identity: Some(swapped), ..trusting(&authority) };
    assert!(matches!(Client::connect_lazy(tls_options("127.0.0.1:1", swapped)), Err(Error::BadPem { .. })));
}
