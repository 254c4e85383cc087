//! The runner node: a client of the production transport with the runner's end of the link. It ends each task at once.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use link::{Action, InFlight, RunnerEnd};
use model::codec;
use model::envelope::{FromNode, ToNode};
use model::id::{Incarnation, NodeId, RunnerId, ShardId};
use model::job::{End, Outcome};
use model::message::{Capacity, Profile};
use model::spec::ExecutorKind;
use tokio::sync::oneshot;
use transport::{
    Answers, Authority, ByteStream, Client, ClientOptions, Credentials, Identity, NodeIdentity, PendingKey, Refusal,
    RefusalKind, Role, async_trait,
};

use super::Clock;
use super::control::{hello, wall_clock};

const RUNNER: NodeId = NodeId(2);

struct NoAnswers;

#[async_trait]
impl Answers for NoAnswers {
    async fn answer(&self, _method: &str, _body: Bytes) -> Result<ByteStream, Refusal> {
        Err(Refusal::new(RefusalKind::NotFound, "not in this benchmark"))
    }
}

/// Runs until the control node has closed the link.
pub async fn run(authority: Arc<Authority>, address: String, started: oneshot::Sender<()>) -> anyhow::Result<()> {
    let directory = tempfile::tempdir_in(".")?;
    let key = PendingKey::generate()?;
    let name = NodeIdentity { cluster: authority.cluster(), node: RUNNER, role: Role::Runner };
    let credentials = Credentials {
        certificate: authority.issue(key.signing_request(), name, wall_clock()?)?,
        authority: authority.certificate().clone(),
        cluster_key: authority.cluster_key().clone(),
    };
    let identity = Identity::create(directory.path(), key, credentials)?;
    let client = Client::new(identity, ClientOptions::default())?;
    let mut connected = client.connect(&address, &hello(RUNNER)?, Arc::new(NoAnswers)).await?;
    let clock = Clock(Instant::now());
    let capacity = Capacity { process: 1_000, echo: 1_000, wasm: 1_000 };
    let identity = (RunnerId(RUNNER.0), Incarnation(1));
    let mut end = RunnerEnd::new(clock.now(), identity, capacity, Arc::new(Profile::default()), []);
    let _ = started.send(());
    while let Ok(envelope) = connected.receiver.recv().await {
        if let ToNode::Messages { messages, .. } = codec::decode(&envelope)? {
            for message in messages {
                end.receive(clock.now(), message);
                act(&mut end, &clock);
            }
        }
        while let Some(frame) = end.poll(clock.now()) {
            let envelope = FromNode::Frame { shard: ShardId(0), frame };
            connected.sender.try_send(Bytes::from(codec::encode(&envelope)))?;
        }
    }
    Ok(())
}

fn act(end: &mut RunnerEnd<()>, clock: &Clock) {
    while let Some(action) = end.next_action(clock.now()) {
        match action {
            Action::Run { attempt_ref, .. } => {
                end.add(attempt_ref, InFlight::new(ExecutorKind::Echo, ()));
                end.send_ended(clock.now(), attempt_ref, Outcome::of(End::Succeeded));
            }
            Action::Stop { .. } | Action::Committed { .. } | Action::Renewed { .. } => {}
        }
    }
}
