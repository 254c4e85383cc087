//! The control node: a server of the production transport with the shard's end of the link.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Instant, UNIX_EPOCH};

use anyhow::Context;
use bytes::Bytes;
use link::ShardEnd;
use model::codec;
use model::envelope::{FromNode, ToNode};
use model::id::{Attempt, Epoch, Incarnation, JobId, NodeId, ShardId};
use model::message::{AttemptRef, RunnerMessage, Session, ShardMessage, ToRunner};
use model::time::Millis;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use transport::tether::TetherEvent;
use transport::{
    Action, Authority, ByteStream, Hello, Identity, JoinRequest, NodeIdentity, PROTOCOL, Peer, ProcessNonce, Refusal,
    RefusalKind, Role, Server, ServerOptions, Service, Setup, async_trait,
};

use super::{Clock, Times, on_thread, runner};

const SPEC: &[u8] = br#"{"topic":"bench","run":{"echo":{"value":"hello"}}}"#;
const SHARD: ShardId = ShardId(0);
const CONTROL: NodeId = NodeId(1);

/// Hands over the peer that has connected.
struct Connections(mpsc::UnboundedSender<Peer>);

fn refusal() -> Refusal {
    Refusal::new(RefusalKind::NotFound, "not in this benchmark")
}

#[async_trait]
impl Service for Connections {
    async fn join(&self, _request: JoinRequest) -> Result<Role, Refusal> {
        Err(refusal())
    }

    fn authorize(&self, _peer: &NodeIdentity, _action: Action) -> Result<(), Refusal> {
        Ok(())
    }

    async fn connected(&self, peer: Peer) -> Result<(), Refusal> {
        self.0.send(peer).map_err(|_| refusal())
    }

    async fn get_object(
        &self,
        _peer: NodeIdentity,
        _kind: &str,
        _id: Bytes,
        _offset: u64,
    ) -> Result<ByteStream, Refusal> {
        Err(refusal())
    }

    async fn put_object(
        &self,
        _peer: NodeIdentity,
        _kind: &str,
        _id: Bytes,
        _content: ByteStream,
    ) -> Result<Bytes, Refusal> {
        Err(refusal())
    }

    async fn call(&self, _peer: NodeIdentity, _method: &str, _body: Bytes) -> Result<ByteStream, Refusal> {
        Err(refusal())
    }

    fn tether(&self, _event: TetherEvent) {}
}

pub fn hello(node: NodeId) -> anyhow::Result<Hello> {
    let (software_version, process) = (String::new(), ProcessNonce::random()?);
    Ok(Hello { protocol: PROTOCOL, software_version, node, incarnation: Incarnation(1), process })
}

pub fn wall_clock() -> anyhow::Result<Millis> {
    Ok(Millis(UNIX_EPOCH.elapsed()?.as_millis() as u64))
}

fn run_message(number: u64) -> ShardMessage {
    ShardMessage::Run {
        attempt_ref: AttemptRef { job: JobId(number), attempt: Attempt(1) },
        valid_for: Millis(60_000),
        spec: Bytes::from_static(SPEC),
        constraints: None,
        lease: None,
    }
}

/// Size of one dispatch.
pub fn dispatch_bytes() -> usize {
    let mut end = ShardEnd::new(Millis(1), Session { epoch: Epoch(1), number: 1 });
    let messages = vec![end.send(Millis(1), run_message(1 << 40))];
    codec::encode(&ToNode::Messages { shard: SHARD, messages }).len()
}

pub struct Control {
    peer: Peer,
    end: ShardEnd,
    clock: Clock,
    /// Of the runner's messages, received and not acknowledged.
    to_acknowledge: Option<u64>,
    next_job: u64,
    _server: Server,
    _directory: TempDir,
}

impl Control {
    /// Starts both nodes.
    pub async fn start() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir_in(".")?;
        let authority = Arc::new(Authority::open_or_create(directory.path())?);
        let identity = Identity::open_or_issue(directory.path(), &authority, CONTROL, wall_clock()?)?;
        let (sender, mut connections) = mpsc::unbounded_channel();
        let service = Arc::new(Connections(sender));
        let setup = Setup { authority: authority.clone(), identity, hello: hello(CONTROL)?, service };
        let server = Server::start(TcpListener::bind("127.0.0.1:0").await?, setup, ServerOptions::default())?;
        let address = server.local_addr().to_string();
        on_thread(move |started| runner::run(authority, address, started)).await?;
        let peer = connections.recv().await.context("the runner node has not connected")?;
        let session = Session { epoch: Epoch(1), number: 1 };
        let clock = Clock(Instant::now());
        Ok(Self {
            peer,
            end: ShardEnd::new(clock.now(), session),
            clock,
            to_acknowledge: None,
            next_job: 1 << 40,
            _server: server,
            _directory: directory,
        })
    }

    /// Dispatches tasks, so many in flight, and waits for their ends.
    pub async fn run(&mut self, in_flight: usize, count: u64) -> anyhow::Result<Times> {
        let count = count as usize;
        let (mut sent_at, mut each, mut sent) = (VecDeque::new(), Vec::with_capacity(count), 0);
        let started = Instant::now();
        while each.len() < count {
            let mut messages: Vec<ToRunner> =
                self.to_acknowledge.take().map(|last| self.end.acknowledge(last)).into_iter().collect();
            while sent_at.len() < in_flight && sent < count {
                sent_at.push_back(Instant::now());
                messages.push(self.end.send(self.clock.now(), run_message(self.next_job)));
                (self.next_job, sent) = (self.next_job + 1, sent + 1);
            }
            if !messages.is_empty() {
                let envelope = ToNode::Messages { shard: SHARD, messages };
                self.peer.sender.try_send(Bytes::from(codec::encode(&envelope)))?;
            }
            for _ in 0..self.receive().await? {
                each.extend(sent_at.pop_front().map(|sent_at| sent_at.elapsed()));
            }
        }
        Ok(Times { each, all: started.elapsed() })
    }

    /// The number of tasks that have ended.
    async fn receive(&mut self) -> anyhow::Result<usize> {
        let envelope = self.peer.receiver.recv().await.map_err(|reason| anyhow::anyhow!("{reason}"))?;
        let FromNode::Frame { frame, .. } = codec::decode(&envelope)? else { return Ok(0) };
        self.end.receive(self.clock.now(), &frame.header);
        self.to_acknowledge = frame.messages.last().map(|message| message.sequence).or(self.to_acknowledge);
        Ok(frame.messages.iter().filter(|from| matches!(from.message, RunnerMessage::Ended { .. })).count())
    }
}
