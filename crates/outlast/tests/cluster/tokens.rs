//! Join tokens that are refused.

use api::{CreateJoinToken, NewJoinTokenView};

use crate::support::{Cluster, Node, wait_until};

fn token(cluster: &Cluster, reusable: bool, expires_in_ms: Option<u64>) -> NewJoinTokenView {
    let request = CreateJoinToken { reusable, expires_in_ms, note: None };
    cluster.ask(cluster.client().create_join_token(&request))
}

fn state_of_token(cluster: &Cluster, id: &str) -> String {
    let tokens = cluster.ask(cluster.client().join_tokens()).items;
    tokens.into_iter().find(|token| token.id == id).unwrap().state
}

/// Runs `outlast join` on a new machine: it ends with an exit code and a reason.
fn assert_refused(cluster: &Cluster, newcomer: &Node, token: &str, code: i32, reason: &str) {
    let (data, address) = (newcomer.data().display().to_string(), cluster.cluster_address().to_string());
    let output = newcomer.run(["join", "--token", token, "--data-dir", &data, &address]).expect(code);
    assert!(output.stderr.contains(reason), "`{reason}` is expected: {}", output.stderr);
}

// FEATURES: B9
#[test]
fn a_token_that_cannot_be_used_is_refused_with_its_reason() {
    let mut cluster = Cluster::start_control();
    let (valid, address) = (token(&cluster, true, None).token, cluster.cluster_address().to_string());
    let mut newcomer = cluster.new_node("newcomer", &["join", "--name", "newcomer", "--token", &valid, &address]);

    assert_refused(&cluster, &newcomer, "secret", 2, "not a join token");
    assert_refused(&cluster, &newcomer, &valid[..valid.len() - 3], 2, "mistyped or incomplete");
    let mut mistyped = valid.clone();
    mistyped.replace_range(20..21, if &valid[20..21] == "a" { "b" } else { "a" });
    assert_refused(&cluster, &newcomer, &mistyped, 2, "mistyped or incomplete");

    let expiring = token(&cluster, true, Some(1));
    wait_until("the token expires", || state_of_token(&cluster, &expiring.id) == "expired");
    assert_refused(&cluster, &newcomer, &expiring.token, 1, "expired at");

    let revoked = token(&cluster, true, None);
    cluster.run(["nodes", "revoke-token", &revoked.id]).expect(0);
    assert_eq!(state_of_token(&cluster, &revoked.id), "revoked");
    assert_refused(&cluster, &newcomer, &revoked.token, 1, "is revoked");

    let single = token(&cluster, false, None);
    cluster.add_runner("first", &single.token);
    cluster.wait_until_joined("first");
    assert_eq!(state_of_token(&cluster, &single.id), "used");
    assert_refused(&cluster, &newcomer, &single.token, 1, "is used");

    assert_eq!(cluster.ask(cluster.client().nodes()).items.len(), 2, "nobody else has joined");
    // The data directory of the refused newcomer is not spoilt.
    newcomer.start();
    cluster.wait_until_joined("newcomer");
}

// FEATURES: B9
#[test]
fn a_node_of_another_cluster_is_refused() {
    let mut cluster = Cluster::start(1);
    let mut other = cluster.new_node("other", &["up", "--cluster-listen", "0.0.0.0:7071"]);
    other.start();
    wait_until("the other control node is ready", || other.run(["nodes"]).code == Some(0));
    let other_address = format!("{}:7071", other.host().address());
    let created = other.run(["nodes", "join-token", "--output", "json"]).expect(0).stdout;
    let created: NewJoinTokenView = serde_json::from_str(&created).unwrap();

    // A token of the other cluster is not even sent.
    let mut stray = cluster.new_node("stray", &["join", "--name", "stray"]);
    assert_refused(&cluster, &stray, &created.token, 1, "not the cluster the token is for");

    stray.set_arguments(&["join", "--name", "stray", "--token", &created.token, &other_address]);
    stray.start();
    wait_until("the node joins the other cluster", || stray.log().contains("Connected to"));
    stray.kill();

    // Its certificate is of no use here, nor does it take a token of this cluster.
    let here = cluster.cluster_address().to_string();
    let token = token(&cluster, true, None).token;
    assert_refused(&cluster, &stray, &token, 2, "another cluster");
    stray.set_arguments(&["join", "--name", "stray", &here]);
    stray.start();
    wait_until("the node is refused", || stray.log().contains("Waiting: "));
    println!("{}", stray.log());
    assert!(stray.log().contains(&format!("{here} is not a control node of this cluster")), "{}", stray.log());
    let nodes = cluster.ask(cluster.client().nodes()).items;
    assert!(nodes.iter().all(|node| node.name != "stray"), "{nodes:?}");
    assert_eq!(cluster.node(0).state, "ready");
}
