//! Certificates and hellos of members.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::id::NodeId;
use model::time::Millis;
use rcgen::{CertificateParams, CertificateSigningRequestParams, Issuer, KeyPair, SanType};
use transport::{Client, ClientOptions, ConnectError, RefusalKind, RequestError, Role, Versions};

use crate::support::{Control, TestAnswers, hello, raw_tls, soon, wall_clock, whole};

const MONTH: Millis = Millis::from_secs(30 * 24 * 3600);

#[tokio::test]
async fn a_certificate_of_another_cluster_is_rejected_by_both_sides() {
    let (control, other) = (Control::start().await, Control::start().await);
    let error = soon(other.member().connect(&control.address())).await.unwrap_err();
    assert!(matches!(error, ConnectError::WrongServer { .. }), "{error}");

    // A forged certificate: it names a node of this cluster, but is signed by another authority.
    let key = transport::PendingKey::generate().unwrap();
    let mut params = CertificateSigningRequestParams::from_der(&key.signing_request().into()).unwrap();
    let name = control.member().identity.node();
    params.params.subject_alt_names = vec![SanType::URI(name.to_string().try_into().unwrap())];
    let forger = Issuer::new(CertificateParams::default(), KeyPair::generate().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let credentials = transport::Credentials {
        certificate: params.signed_by(&forger).unwrap().der().clone(),
        authority: control.authority.certificate().clone(),
        cluster_key: control.authority.cluster_key().clone(),
    };
    let identity = transport::Identity::create(directory.path(), key, credentials).unwrap();
    let client = Client::new(identity, ClientOptions::default()).unwrap();
    let connected = soon(client.connect(&control.address(), &hello(name.node), Arc::new(TestAnswers))).await;
    let error = connected.unwrap_err();
    assert!(matches!(error, ConnectError::CertificateRejected { .. }), "{error}");
}

#[tokio::test]
async fn a_client_without_a_certificate_can_only_join() {
    let control = Control::start().await;
    let stream = raw_tls(&control).await;
    let (mut send, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for method in ["Renew", "Connect", "GetObject", "PutObject", "Call", "Asks", "Answer", "PrepareTether"] {
        let empty_message = Full::new(Bytes::from_static(&[0; 5]));
        let request = http::Request::post(format!("https://outlast/outlast.transport.v1.Transport/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(empty_message)
            .unwrap();
        let response = soon(send.send_request(request)).await.unwrap();
        assert_eq!(response.headers()["grpc-status"], "16", "{method}");
    }
}

#[tokio::test]
async fn an_expired_certificate_is_rejected() {
    let control = Control::start().await;
    let expired = control.member_at(NodeId(5), Role::Runner, Millis(wall_clock().0 - MONTH.0 - 5_000));
    assert!(expired.identity.needs_renewal(wall_clock()));
    let error = soon(expired.connect(&control.address())).await.unwrap_err();
    assert!(matches!(error, ConnectError::CertificateRejected { .. }), "{error}");
}

#[tokio::test]
async fn a_renewed_certificate_is_used_without_dropping_the_link() {
    let mut control = Control::start().await;
    let early = Millis(wall_clock().0 - MONTH.0 / 4 * 3);
    let member = control.member_at(NodeId(5), Role::Runner, early);
    assert!(member.identity.needs_renewal(wall_clock()));
    let (connected, mut peer) = control.connect(&member).await;
    soon(connected.requests.renew()).await.unwrap();
    assert!(!member.identity.needs_renewal(wall_clock()));
    connected.sender.try_send("after the renewal".into()).unwrap();
    assert_eq!(soon(peer.receiver.recv()).await.unwrap(), "after the renewal");
    let (_second, second) = control.connect(&member).await;
    assert_eq!(second.identity, member.identity.node());
}

#[tokio::test]
async fn a_removed_node_is_refused() {
    let mut control = Control::start().await;
    let member = control.member();
    let (connected, _peer) = control.connect(&member).await;
    control.service.removed.lock().insert(member.node());
    let error = soon(member.connect(&control.address())).await.unwrap_err();
    let ConnectError::Refused(refusal) = error else { panic!("{error}") };
    assert_eq!(refusal.kind(), RefusalKind::NotAllowed);
    let error = soon(connected.requests.renew()).await.unwrap_err();
    assert!(matches!(&error, RequestError::Refused(refusal) if refusal.kind() == RefusalKind::NotAllowed), "{error}");
}

#[tokio::test]
async fn a_hello_must_match_the_certificate_and_the_protocol() {
    let control = Control::start().await;
    let member = control.member();
    let client = Client::new(member.identity.clone(), ClientOptions::default()).unwrap();
    let connect = async |hello| {
        let connected = soon(client.connect(&control.address(), &hello, Arc::new(TestAnswers))).await;
        match connected.unwrap_err() {
            ConnectError::Refused(refusal) => refusal,
            error => panic!("{error}"),
        }
    };
    let refusal = connect(hello(NodeId(999))).await;
    assert_eq!(refusal.kind(), RefusalKind::NotAllowed);
    assert!(refusal.text().contains(&member.node().to_string()), "{refusal}");

    let newer = transport::Hello { protocol: Versions { min: 7, max: 9 }, ..hello(member.node()) };
    let refusal = connect(newer).await;
    assert_eq!(refusal.kind(), RefusalKind::Incompatible);
    assert!(refusal.text().ends_with(&format!("upgrade {}", NodeId(1))), "{refusal}");

    let invalid = transport::Hello { protocol: Versions { min: 2, max: 1 }, ..hello(member.node()) };
    assert_eq!(connect(invalid).await.kind(), RefusalKind::Invalid);
}

#[tokio::test]
async fn the_server_knows_who_calls() {
    let mut control = Control::start().await;
    let member = control.member();
    let (connected, _peer) = control.connect(&member).await;
    let who = soon(connected.requests.call("who", "".into())).await.unwrap();
    assert_eq!(whole(who).await, member.identity.node().to_string().as_bytes());
}
