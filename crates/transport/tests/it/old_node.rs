//! A node of protocol version 1, frozen: its messages are bytes, written by hand from that version's description. They stay as
//! they are when the protocol changes.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::id::NodeId;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::sync::mpsc;
use transport::{NodeIdentity, Role};

use crate::support::{Control, raw_tls_as, soon, wall_clock};

const NODE: NodeId = NodeId(77);

/// A frame with a hello: versions 1 to 1, software 0.1.0, node 77, incarnation 1, and a nonce.
const HELLO: &[u8] =
    b"\x00\x00\x00\x00\x23\x0a\x21\x08\x01\x10\x01\x1a\x050.1.0\x20\x4d\x28\x01\x32\x10sixteen bytes ok";
/// The same with versions 8 to 9.
const NEWER_HELLO: &[u8] =
    b"\x00\x00\x00\x00\x23\x0a\x21\x08\x08\x10\x09\x1a\x050.9.0\x20\x4d\x28\x01\x32\x10sixteen bytes ok";
/// A frame with two envelopes.
const ENVELOPES: &[u8] = b"\x00\x00\x00\x00\x0e\x12\x05first\x12\x05other";

/// Opens a link. What is sent to the channel is sent as it is.
async fn open(control: &Control, hello: &'static [u8]) -> (mpsc::UnboundedSender<Bytes>, Response<Incoming>) {
    let key = KeyPair::generate().unwrap();
    let request = CertificateParams::default().serialize_request(&key).unwrap();
    let name = NodeIdentity { cluster: control.authority.cluster(), node: NODE, role: Role::Runner };
    let certificate = control.authority.issue(request.der(), name, wall_clock()).unwrap();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let stream = raw_tls_as(control, Some((certificate, key))).await;
    let (mut send, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let (sender, receiver) = mpsc::unbounded_channel();
    sender.send(Bytes::from_static(hello)).unwrap();
    let messages = stream::unfold(receiver, |mut receiver: mpsc::UnboundedReceiver<Bytes>| async move {
        receiver.recv().await.map(|message| (message, receiver))
    });
    let body = StreamBody::new(messages.map(|message| Ok::<_, Infallible>(Frame::data(message))).boxed());
    let request = http::Request::post("https://outlast/outlast.transport.v1.Transport/Connect")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .unwrap();
    (sender, soon(send.send_request(request)).await.unwrap())
}

async fn receive(response: &mut Response<Incoming>) -> Bytes {
    soon(response.body_mut().frame()).await.unwrap().unwrap().into_data().unwrap()
}

#[tokio::test]
async fn a_node_of_the_first_protocol_version_is_served() {
    let mut control = Control::start().await;
    let (sender, mut response) = open(&control, HELLO).await;
    let hello = receive(&mut response).await;
    // A frame with a hello, whose lowest version is 1.
    assert_eq!((hello[0], hello[5], &hello[7..9]), (0, 0x0a, &b"\x08\x01"[..]), "{hello:x?}");
    let mut peer = soon(control.peers.recv()).await.unwrap();
    assert_eq!((peer.identity.node, peer.protocol, peer.hello.software_version.as_str()), (NODE, 1, "0.1.0"));
    sender.send(Bytes::from_static(ENVELOPES)).unwrap();
    assert_eq!(soon(peer.receiver.recv()).await.unwrap(), "first");
    assert_eq!(soon(peer.receiver.recv()).await.unwrap(), "other");
    peer.sender.try_send("reply".into()).unwrap();
    assert_eq!(receive(&mut response).await, &b"\x00\x00\x00\x00\x07\x12\x05reply"[..]);
}

#[tokio::test]
async fn a_node_of_an_incompatible_version_is_refused_with_the_reason() {
    let mut control = Control::start().await;
    let (_sender, response) = open(&control, NEWER_HELLO).await;
    let headers = match response.headers().contains_key("grpc-status") {
        true => response.headers().clone(),
        false => soon(response.into_body().collect()).await.unwrap().trailers().unwrap().clone(),
    };
    // Failed precondition.
    assert_eq!(headers["grpc-status"], "9");
    let text = headers["grpc-message"].to_str().unwrap().replace("%20", " ");
    assert!(text.contains("(Outlast 0.9.0) speaks protocol versions 8 to 9"), "{text}");
    assert!(text.ends_with(&format!("upgrade {}", NodeId(1))), "{text}");
    assert!(control.peers.try_recv().is_err(), "it is not connected");
}
