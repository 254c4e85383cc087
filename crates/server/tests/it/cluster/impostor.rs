//! A member of the cluster that does not keep to the rules.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use model::codec;
use model::envelope::{FromNode, NodeReport};
use model::id::{Attempt, Epoch, Incarnation, JobId, NodeId, RunnerId, ShardId};
use model::job::{End, Outcome};
use model::json::Json;
use model::message::{AttemptRef, Capacity, FromRunner, Profile, RunnerFrame, RunnerHeader, RunnerMessage, Session};
use model::time::Millis;
use tempfile::TempDir;
use transport::{
    Answers, ByteStream, Client, ClientOptions, Connected, Hello, Identity, JoinOptions, Joiner, PROTOCOL, PendingKey,
    ProcessNonce, Refusal, RefusalKind, join,
};

use crate::http::within;

const NODE: NodeId = NodeId(4242);
const INCARNATION: Incarnation = Incarnation(1);

pub struct Impostor {
    link: Connected,
    sequence: u64,
    _directory: TempDir,
}

struct NoAnswers;

#[transport::async_trait]
impl Answers for NoAnswers {
    async fn answer(&self, _method: &str, _body: Bytes) -> Result<ByteStream, Refusal> {
        Err(Refusal::new(RefusalKind::NotFound, "no answers"))
    }
}

impl Impostor {
    /// Joins in the usual way.
    pub async fn join(token: &str, address: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let key = PendingKey::generate().unwrap();
        let joiner = Joiner {
            node: NODE,
            name: "impostor".to_owned(),
            software_version: "9.9".to_owned(),
            addresses: Vec::new(),
        };
        let (addresses, token) = ([address.to_owned()], token.parse().unwrap());
        let options = JoinOptions::default();
        let joined = join(&addresses, &token, &joiner, &key, &options);
        let credentials = within("a join", joined).await.unwrap();
        let identity = Identity::create(directory.path(), key, credentials).unwrap();
        let client = Client::new(identity, ClientOptions::default()).unwrap();
        let hello = Hello {
            protocol: PROTOCOL,
            software_version: "9.9".to_owned(),
            node: NODE,
            incarnation: INCARNATION,
            process: ProcessNonce::random().unwrap(),
        };
        let link = within("a link", client.connect(address, &hello, Arc::new(NoAnswers))).await.unwrap();
        Self { link, sequence: 0, _directory: directory }
    }

    fn send(&self, envelope: Bytes) {
        self.link.sender.try_send(envelope).unwrap();
    }

    fn send_message(&mut self, runner: RunnerId, message: RunnerMessage) {
        self.sequence += 1;
        let (incarnation, sequence) = (INCARNATION, self.sequence);
        let session = Session { epoch: Epoch(0), number: 0 };
        let header = RunnerHeader { runner, incarnation, session, received: 0, at: Millis(1) };
        let messages = vec![FromRunner { runner, incarnation, sequence, message }];
        let frame = RunnerFrame { header, messages };
        self.send(codec::encode(&FromNode::Frame { shard: ShardId(0), frame }).into());
    }

    /// Registers without slots.
    pub fn register(&mut self) {
        let register = RunnerMessage::Register {
            capacity: Capacity::default(),
            profile: Arc::new(Profile::default()),
            in_flight: Vec::new(),
            request: 0,
            oldest_kept: 1,
        };
        self.send_message(RunnerId(NODE.0), register);
    }

    /// Reports a result for an attempt that it never had.
    pub fn claims_success_of(&mut self, job: &str, attempt: u32) {
        let attempt_ref = AttemptRef { job: job.parse::<JobId>().unwrap(), attempt: Attempt(attempt) };
        let outcome = Outcome { result: Some(Json::of(&"forged")), ..Outcome::of(End::Succeeded) };
        self.send_message(RunnerId(NODE.0), RunnerMessage::Ended { attempt_ref, outcome: Box::new(outcome) });
    }

    /// Sends a message under the id of the runner that has the attempt.
    pub fn speaks_for_another_runner(&mut self, job: &str) {
        let attempt_ref = AttemptRef { job: job.parse::<JobId>().unwrap(), attempt: Attempt(1) };
        let control = RunnerId(self.link.hello.node.0);
        let ended = RunnerMessage::Ended { attempt_ref, outcome: Box::new(Outcome::of(End::Succeeded)) };
        self.send_message(control, ended);
        self.sequence -= 1;
    }

    pub fn sends_garbage(&self) {
        self.send(Bytes::from_static(b"garbage"));
        self.send(Bytes::new());
    }

    pub fn sends_an_endless_report(&self) {
        let pools: BTreeSet<String> = (0..10_000).map(|number| format!("pool-{number}")).collect();
        let report = NodeReport { profile: Profile { pools, ..Profile::default() }, ..NodeReport::default() };
        self.send(codec::encode(&FromNode::Report(Box::new(report))).into());
    }
}
