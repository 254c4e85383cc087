//! A control node and a runner.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use model::id::{Incarnation, NodeId};
use model::time::Millis;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tonic::async_trait;
use transport::limits::CHUNK_BYTES_MAX;
use transport::tether::TetherEvent;
use transport::{
    Action, Answers, Authority, ByteStream, Client, ClientOptions, Connected, Content, Credentials, Hello, Identity,
    JoinRequest, NodeIdentity, PROTOCOL, Peer, PendingKey, ProcessNonce, Refusal, RefusalKind, Role, Server,
    ServerOptions, Service, Setup,
};

use crate::{OBJECT_BYTES, Result, Times, envelope};

/// Echoes envelopes, and serves one object.
struct Echo;

fn refusal() -> Refusal {
    Refusal::new(RefusalKind::NotFound, "not in this benchmark")
}

#[async_trait]
impl Service for Echo {
    async fn join(&self, _request: JoinRequest) -> std::result::Result<Role, Refusal> {
        Err(refusal())
    }

    fn authorize(&self, _peer: &NodeIdentity, _action: Action) -> std::result::Result<(), Refusal> {
        Ok(())
    }

    async fn connected(&self, mut peer: Peer) -> std::result::Result<(), Refusal> {
        tokio::spawn(async move {
            while let Ok(envelope) = peer.receiver.recv().await {
                if peer.sender.send(envelope).await.is_err() {
                    return;
                }
            }
        });
        Ok(())
    }

    async fn get_object(
        &self,
        _peer: NodeIdentity,
        _kind: &str,
        _id: Bytes,
        _offset: u64,
    ) -> std::result::Result<ByteStream, Refusal> {
        let chunk = Bytes::from(vec![7; CHUNK_BYTES_MAX]);
        Ok(stream::repeat(chunk).map(Ok).take(OBJECT_BYTES / CHUNK_BYTES_MAX).boxed())
    }

    async fn put_object(
        &self,
        _peer: NodeIdentity,
        _kind: &str,
        _id: Bytes,
        _content: ByteStream,
    ) -> std::result::Result<Bytes, Refusal> {
        Err(refusal())
    }

    async fn call(&self, _peer: NodeIdentity, _method: &str, _body: Bytes) -> std::result::Result<ByteStream, Refusal> {
        Err(refusal())
    }

    fn tether(&self, _event: TetherEvent) {}
}

struct NoAnswers;

#[async_trait]
impl Answers for NoAnswers {
    async fn answer(&self, _method: &str, _body: Bytes) -> std::result::Result<ByteStream, Refusal> {
        Err(refusal())
    }
}

pub struct Node {
    connected: Connected,
    _server: Server,
    _directories: [TempDir; 2],
}

fn hello(node: NodeId) -> Result<Hello> {
    let (software_version, process) = (String::new(), ProcessNonce::random()?);
    Ok(Hello { protocol: PROTOCOL, software_version, node, incarnation: Incarnation(1), process })
}

impl Node {
    pub async fn start() -> Result<Self> {
        let directories = [tempfile::tempdir()?, tempfile::tempdir()?];
        let authority = Arc::new(Authority::open_or_create(directories[0].path())?);
        let now = Millis(std::time::UNIX_EPOCH.elapsed()?.as_millis() as u64);
        let (control, runner) = (NodeId(1), NodeId(2));
        let identity = Identity::open_or_issue(directories[0].path(), &authority, control, now)?;
        let key = PendingKey::generate()?;
        let name = NodeIdentity { cluster: authority.cluster(), node: runner, role: Role::Runner };
        let credentials = Credentials {
            certificate: authority.issue(key.signing_request(), name, now)?,
            authority: authority.certificate().clone(),
            cluster_key: authority.cluster_key().clone(),
        };
        let setup = Setup { authority, identity, hello: hello(control)?, service: Arc::new(Echo) };
        let server = Server::start(TcpListener::bind("127.0.0.1:0").await?, setup, ServerOptions::default())?;
        let identity = Identity::create(directories[1].path(), key, credentials)?;
        let client = Client::new(identity, ClientOptions::default())?;
        let address = server.local_addr().to_string();
        let connected = client.connect(&address, &hello(runner)?, Arc::new(NoAnswers)).await?;
        Ok(Self { connected, _server: server, _directories: directories })
    }

    /// Sends envelopes and receives them again.
    pub async fn echo(&mut self, in_flight: usize, count: usize) -> Result<Times> {
        let (mut sent_at, mut each) = (VecDeque::new(), Vec::with_capacity(count));
        let started = Instant::now();
        while each.len() < count {
            while sent_at.len() < in_flight {
                sent_at.push_back(Instant::now());
                self.connected.sender.try_send(envelope())?;
            }
            self.connected.receiver.recv().await.map_err(|reason| reason.to_string())?;
            each.extend(sent_at.pop_front().map(|sent_at| sent_at.elapsed()));
        }
        let all = started.elapsed();
        for _ in sent_at {
            self.connected.receiver.recv().await.map_err(|reason| reason.to_string())?;
        }
        Ok(Times { each, all })
    }

    pub async fn object(&self) -> Result<Content> {
        Ok(self.connected.requests.get_object("blob", Bytes::new(), 0).await?)
    }
}
