//! A control node with its server, and nodes that join it.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use model::id::{Incarnation, NodeId};
use model::time::Millis;
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::async_trait;
use transport::tether::TetherEvent;
use transport::token::{Token, TokenId, TokenRecord, Uses, check};
use transport::{
    Action, Answers, Authority, ByteStream, Client, ClientOptions, ConnectError, Connected, Content, Credentials,
    Hello, Identity, JoinError, JoinOptions, JoinRequest, Joiner, NodeIdentity, PROTOCOL, Peer, PendingKey,
    ProcessNonce, Refusal, RefusalKind, Role, Server, ServerOptions, Service, Setup, join,
};

/// Longest wait for a condition.
pub const DEADLINE: Duration = Duration::from_secs(30);

pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.expect("the condition should hold soon")
}

pub fn wall_clock() -> Millis {
    Millis(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64)
}

pub struct TestService {
    pub tokens: Mutex<HashMap<TokenId, TokenRecord>>,
    pub removed: Mutex<HashSet<NodeId>>,
    pub objects: Mutex<HashMap<Bytes, Bytes>>,
    peers: mpsc::UnboundedSender<Peer>,
    tethers: mpsc::UnboundedSender<TetherEvent>,
}

fn not_found() -> Refusal {
    Refusal::new(RefusalKind::NotFound, "no such object")
}

#[async_trait]
impl Service for TestService {
    async fn join(&self, request: JoinRequest) -> Result<Role, Refusal> {
        let mut tokens = self.tokens.lock();
        check(tokens.get(&request.token), &request.secret, wall_clock())?;
        tokens.get_mut(&request.token).unwrap().used_count += 1;
        Ok(Role::Runner)
    }

    fn authorize(&self, peer: &NodeIdentity, _action: Action) -> Result<(), Refusal> {
        match self.removed.lock().contains(&peer.node) {
            true => Err(Refusal::new(RefusalKind::NotAllowed, "this node was removed from the cluster")),
            false => Ok(()),
        }
    }

    async fn connected(&self, peer: Peer) -> Result<(), Refusal> {
        let _ = self.peers.send(peer);
        Ok(())
    }

    async fn get_object(
        &self,
        _peer: NodeIdentity,
        _kind: &str,
        id: Bytes,
        offset: u64,
    ) -> Result<ByteStream, Refusal> {
        let content = self.objects.lock().get(&id).cloned().ok_or_else(not_found)?;
        Ok(stream::iter([Ok(content.slice(offset as usize..))]).boxed())
    }

    async fn put_object(
        &self,
        _peer: NodeIdentity,
        _kind: &str,
        id: Bytes,
        mut content: ByteStream,
    ) -> Result<Bytes, Refusal> {
        let mut whole = Vec::new();
        while let Some(part) = content.next().await {
            whole.extend_from_slice(&part?);
        }
        let bytes = whole.len().to_string();
        self.objects.lock().insert(id, whole.into());
        Ok(bytes.into())
    }

    async fn call(&self, peer: NodeIdentity, method: &str, body: Bytes) -> Result<ByteStream, Refusal> {
        match method {
            "echo" => Ok(stream::iter([Ok(body)]).boxed()),
            "who" => Ok(stream::iter([Ok(peer.to_string().into())]).boxed()),
            "breaks" => Ok(stream::iter([Ok(body), Err(Refusal::new(RefusalKind::Failed, "a disk failed"))]).boxed()),
            _ => Err(not_found()),
        }
    }

    fn tether(&self, event: TetherEvent) {
        let _ = self.tethers.send(event);
    }
}

/// A control node.
pub struct Control {
    pub directory: TempDir,
    pub authority: Arc<Authority>,
    pub service: Arc<TestService>,
    pub server: Server,
    pub peers: mpsc::UnboundedReceiver<Peer>,
    pub tethers: mpsc::UnboundedReceiver<TetherEvent>,
}

pub fn hello(node: NodeId) -> Hello {
    Hello {
        protocol: PROTOCOL,
        software_version: "1.0".to_owned(),
        node,
        incarnation: Incarnation(1),
        process: ProcessNonce::random().unwrap(),
    }
}

impl Control {
    pub async fn start() -> Self {
        Self::start_with(ServerOptions::default()).await
    }

    pub async fn start_with(options: ServerOptions) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), "127.0.0.1:0".parse().unwrap(), options).await
    }

    /// Starts with the authority of the directory.
    pub async fn start_in(directory: TempDir, address: SocketAddr, options: ServerOptions) -> Self {
        let authority = Arc::new(Authority::open_or_create(directory.path()).unwrap());
        let node = NodeId(1);
        let identity = Identity::open_or_issue(directory.path(), &authority, node, wall_clock()).unwrap();
        let (peers, peers_received) = mpsc::unbounded_channel();
        let (tethers, tethers_received) = mpsc::unbounded_channel();
        let service = Arc::new(TestService {
            tokens: Mutex::default(),
            removed: Mutex::default(),
            objects: Mutex::default(),
            peers,
            tethers,
        });
        let setup = Setup { authority: authority.clone(), identity, hello: hello(node), service: service.clone() };
        let server = Server::start(TcpListener::bind(address).await.unwrap(), setup, options).unwrap();
        Self { directory, authority, service, server, peers: peers_received, tethers: tethers_received }
    }

    pub fn address(&self) -> String {
        self.server.local_addr().to_string()
    }

    pub fn token(&self, uses: Uses) -> Token {
        self.token_until(uses, None)
    }

    pub fn token_until(&self, uses: Uses, expires_at: Option<Millis>) -> Token {
        let token = Token::generate(self.authority.fingerprint()).unwrap();
        let record = token.record(wall_clock(), expires_at, uses, String::new());
        self.service.tokens.lock().insert(token.id(), record);
        token
    }

    /// Issues an identity without a join, as if at that time.
    pub fn member_at(&self, node: NodeId, role: Role, now: Millis) -> Member {
        let directory = tempfile::tempdir().unwrap();
        let key = PendingKey::generate().unwrap();
        let identity = NodeIdentity { cluster: self.authority.cluster(), node, role };
        let credentials = Credentials {
            certificate: self.authority.issue(key.signing_request(), identity, now).unwrap(),
            authority: self.authority.certificate().clone(),
            cluster_key: self.authority.cluster_key().clone(),
        };
        let identity = Identity::create(directory.path(), key, credentials).unwrap();
        Member { _directory: directory, identity }
    }

    pub fn member(&self) -> Member {
        static NODES: AtomicU64 = AtomicU64::new(100);
        self.member_at(NodeId(NODES.fetch_add(1, Ordering::Relaxed)), Role::Runner, wall_clock())
    }

    /// Connects a new member.
    pub async fn connect(&mut self, member: &Member) -> (Connected, Peer) {
        self.connect_with(member, ClientOptions::default()).await
    }

    pub async fn connect_with(&mut self, member: &Member, options: ClientOptions) -> (Connected, Peer) {
        let connected = soon(member.connect_with(&self.address(), options)).await.unwrap();
        (connected, soon(self.peers.recv()).await.unwrap())
    }
}

pub struct Member {
    pub _directory: TempDir,
    pub identity: Identity,
}

impl Member {
    pub fn node(&self) -> NodeId {
        self.identity.node().node
    }

    pub async fn connect(&self, address: &str) -> Result<Connected, ConnectError> {
        self.connect_with(address, ClientOptions::default()).await
    }

    pub async fn connect_with(&self, address: &str, options: ClientOptions) -> Result<Connected, ConnectError> {
        let client = Client::new(self.identity.clone(), options).unwrap();
        client.connect(address, &hello(self.node()), Arc::new(TestAnswers)).await
    }
}

/// Answers of a test node.
pub struct TestAnswers;

#[async_trait]
impl Answers for TestAnswers {
    async fn answer(&self, method: &str, body: Bytes) -> Result<ByteStream, Refusal> {
        match method {
            "echo" => Ok(stream::iter([Ok(body)]).boxed()),
            "endless" => Ok(stream::repeat_with(|| Ok(Bytes::from_static(&[7; 4096]))).boxed()),
            "never" => std::future::pending().await,
            _ => Err(Refusal::new(RefusalKind::NotFound, format!("no method {method}"))),
        }
    }
}

pub async fn join_with(address: &str, token: &Token, node: u64) -> Result<Credentials, JoinError> {
    let joiner = Joiner {
        node: NodeId(node),
        name: "runner".to_owned(),
        software_version: "1.0".to_owned(),
        addresses: vec!["10.0.0.1:7070".to_owned()],
    };
    let key = PendingKey::generate().unwrap();
    soon(join(&[address.to_owned()], token, &joiner, &key, &JoinOptions::default())).await
}

pub async fn whole(mut content: Content) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(part) = soon(content.next()).await {
        whole.extend_from_slice(&part.unwrap());
    }
    whole
}

/// A TLS connection without a client certificate, which trusts any server.
pub async fn raw_tls(control: &Control) -> TlsStream<TcpStream> {
    raw_tls_as(control, None).await
}

/// The same with a client certificate and its key.
pub async fn raw_tls_as(
    control: &Control,
    identity: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
) -> TlsStream<TcpStream> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(TrustsAnybody(provider.signature_verification_algorithms));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        Some((certificate, key)) => config.with_client_auth_cert(vec![certificate], key).unwrap(),
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(control.server.local_addr()).await.unwrap();
    let name = ServerName::from(std::net::Ipv4Addr::LOCALHOST);
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

#[derive(Debug)]
struct TrustsAnybody(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for TrustsAnybody {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
