//! Many nodes that join at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::CreateJoinToken;
use bytes::Bytes;
use model::id::{Incarnation, NodeId};
use transport::{
    Answers, ByteStream, Client, ClientOptions, Connected, Hello, Identity, JoinError, JoinOptions, Joiner, PROTOCOL,
    PendingKey, ProcessNonce, Refusal, RefusalKind, join,
};

use crate::support::{Cluster, Gate, Node};

const JOINERS: u64 = 100;
/// Node ids that no node of the test has by itself.
const FIRST_NODE: u64 = 1 << 40;

struct NoAnswers;

#[transport::async_trait]
impl Answers for NoAnswers {
    async fn answer(&self, _method: &str, _body: Bytes) -> Result<ByteStream, Refusal> {
        Err(Refusal::new(RefusalKind::NotFound, "no answers"))
    }
}

/// Joins, and opens a link. A node that is refused because of a limit tries again.
async fn join_one(address: String, token: String, node: NodeId) -> Result<Connected, JoinError> {
    let directory = tempfile::tempdir().unwrap();
    let key = PendingKey::generate().unwrap();
    let (name, software_version) = (format!("storm{}", node.0 - FIRST_NODE), "0.1.0".to_owned());
    let joiner = Joiner { node, name, software_version: software_version.clone(), addresses: Vec::new() };
    let (addresses, token) = ([address.clone()], token.parse().unwrap());
    let credentials = loop {
        match join(&addresses, &token, &joiner, &key, &JoinOptions::default()).await {
            Err(JoinError::Refused(refusal)) if refusal.kind() == RefusalKind::Busy => tokio::task::yield_now().await,
            joined => break joined?,
        }
    };
    let client = Client::new(Identity::create(directory.path(), key, credentials).unwrap(), ClientOptions::default());
    let process = ProcessNonce::random().unwrap();
    let hello = Hello { protocol: PROTOCOL, software_version, node, incarnation: Incarnation(1), process };
    Ok(client.unwrap().connect(&address, &hello, Arc::new(NoAnswers)).await.unwrap())
}

/// All nodes join at once from one host; `meanwhile` runs until they are done. The links end with the runtime.
fn storm(host: &Node, address: &str, token: &str, mut meanwhile: impl FnMut()) -> Vec<Result<(), JoinError>> {
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let joining = scope.spawn(|| {
            let results = host.host().run(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let joiners: Vec<_> = (0..JOINERS)
                        .map(|number| NodeId(FIRST_NODE + number))
                        .map(|node| tokio::spawn(join_one(address.to_owned(), token.to_owned(), node)))
                        .collect();
                    let mut joined = Vec::new();
                    for joiner in joiners {
                        joined.push(joiner.await.unwrap());
                    }
                    joined.into_iter().map(|joined| joined.map(drop)).collect()
                })
            });
            done.store(1, Ordering::Relaxed);
            results
        });
        while done.load(Ordering::Relaxed) == 0 && !joining.is_finished() {
            meanwhile();
        }
        joining.join().unwrap()
    })
}

// FEATURES: B9
#[test]
fn a_hundred_nodes_join_at_once_and_disturb_nothing() {
    let mut cluster = Cluster::start(2);
    let mut gate = cluster.gate("gate");
    let ([long], _) = cluster.start_on(0, &gate, ["long"]);
    let (crowd, address) = (cluster.new_node("crowd", &[]), cluster.cluster_address().to_string());
    let token = cluster.join_token(CreateJoinToken { reusable: true, ..CreateJoinToken::default() });
    let mut accepted = Vec::new();
    let results = storm(&crowd, &address, &token, || {
        accepted.push(cluster.submit(&serde_json::json!({"run": {"echo": {}}, "labels": cluster.anywhere()})));
    });
    assert!(results.iter().all(Result::is_ok), "{:?}", results.iter().find(|result| result.is_err()));
    assert!(!accepted.is_empty());
    let names: Vec<String> = cluster.ask(cluster.client().nodes()).items.into_iter().map(|node| node.name).collect();
    for number in 0..JOINERS {
        assert!(names.contains(&format!("storm{number}")), "{names:?}");
    }
    for id in accepted {
        assert_eq!(cluster.wait_for_success(id).attempt.0, 1);
    }
    gate.open();
    assert_eq!(cluster.wait_for_success(long).result, Some(Gate::result("long", 1)));
    (0..2).for_each(|index| cluster.assert_never_lost(index));
}

// FEATURES: B9
#[test]
fn of_a_hundred_nodes_with_one_token_for_one_node_one_joins() {
    let mut cluster = Cluster::start_control();
    let token = cluster.join_token(CreateJoinToken::default());
    let (crowd, address) = (cluster.new_node("crowd", &[]), cluster.cluster_address().to_string());
    let results = storm(&crowd, &address, &token, || drop(cluster.ask(cluster.client().nodes())));
    let mut joined = 0;
    for result in results {
        match result {
            Ok(()) => joined += 1,
            Err(error) => assert!(error.to_string().contains("is used"), "{error}"),
        }
    }
    assert_eq!(joined, 1);
    assert_eq!(cluster.ask(cluster.client().nodes()).items.len(), 2);
}
