//! Joining with good and bad tokens.

use std::time::Instant;

use model::id::NodeId;
use model::time::Millis;
use transport::token::{ParseTokenError, Secret, Token, Uses};
use transport::{
    Authority, Identity, JoinError, JoinOptions, Joiner, PendingKey, RefusalKind, Role, ServerOptions, join,
};

use crate::support::{Control, join_with, soon, wall_clock};

fn kind(error: JoinError) -> RefusalKind {
    match error {
        JoinError::Refused(refusal) => refusal.kind(),
        other => panic!("{other}"),
    }
}

// FEATURES: B9
#[tokio::test]
async fn a_node_joins_and_its_certificate_survives_a_restart_of_the_server() {
    let control = Control::start().await;
    let token: Token = control.token(Uses::Single).to_string().parse().unwrap();
    let joiner = Joiner { node: NodeId(7), name: String::new(), software_version: String::new(), addresses: vec![] };
    let key = PendingKey::generate().unwrap();
    let address = control.address();
    let nobody = "127.0.0.1:1".to_owned();
    let credentials = soon(join(&[nobody, address.clone()], &token, &joiner, &key, &JoinOptions::default())).await;
    let directory = tempfile::tempdir().unwrap();
    let identity = Identity::create(directory.path(), key, credentials.unwrap()).unwrap();
    assert_eq!(identity.node().node, NodeId(7));
    assert_eq!(identity.node().role, Role::Runner);
    assert_eq!(identity.node().cluster, control.authority.cluster());
    assert_eq!(identity.cluster_key(), control.authority.cluster_key());

    let Control { directory: of_control, server, .. } = control;
    let listen = server.local_addr();
    soon(server.shutdown()).await;
    let mut control = Control::start_in(of_control, listen, ServerOptions::default()).await;
    let identity = Identity::open(directory.path()).unwrap().unwrap();
    let member = crate::support::Member { _directory: directory, identity };
    let (connected, peer) = control.connect(&member).await;
    assert_eq!(peer.identity, member.identity.node());
    assert_eq!(connected.hello.node, NodeId(1));
}

#[tokio::test]
async fn a_bad_token_is_refused_with_its_reason() {
    let control = Control::start().await;
    let address = control.address();
    let single = control.token(Uses::Single);
    join_with(&address, &single, 2).await.unwrap();
    assert_eq!(kind(join_with(&address, &single, 3).await.unwrap_err()), RefusalKind::TokenUsed);

    let expired = control.token_until(Uses::Reusable, Some(Millis(wall_clock().0 - 1)));
    assert_eq!(kind(join_with(&address, &expired, 3).await.unwrap_err()), RefusalKind::TokenExpired);

    let revoked = control.token(Uses::Reusable);
    control.service.tokens.lock().get_mut(&revoked.id()).unwrap().revoked = true;
    assert_eq!(kind(join_with(&address, &revoked, 3).await.unwrap_err()), RefusalKind::TokenRevoked);

    let unknown = Token::generate(control.authority.fingerprint()).unwrap();
    assert_eq!(kind(join_with(&address, &unknown, 3).await.unwrap_err()), RefusalKind::TokenUnknown);

    let wrong = control.token(Uses::Reusable);
    let hash = unknown.record(Millis(0), None, Uses::Reusable, String::new()).secret_hash;
    control.service.tokens.lock().get_mut(&wrong.id()).unwrap().secret_hash = hash;
    assert_ne!(wrong.secret(), &Secret::from_bytes([0; 32]));
    let error = join_with(&address, &wrong, 3).await.unwrap_err();
    assert_eq!(error.to_string(), "the secret of the join token is wrong: create a new token");
    assert_eq!(kind(error), RefusalKind::TokenWrong);

    let mut mistyped = control.token(Uses::Reusable).to_string();
    mistyped.replace_range(30..31, if &mistyped[30..31] == "A" { "B" } else { "A" });
    assert_eq!(mistyped.parse::<Token>(), Err(ParseTokenError::Mistyped));
}

#[tokio::test]
async fn a_token_of_another_cluster_is_recognised_before_its_secret_is_sent() {
    let control = Control::start().await;
    let other = Authority::open_or_create(tempfile::tempdir().unwrap().path()).unwrap();
    let token = Token::generate(other.fingerprint()).unwrap();
    let error = join_with(&control.address(), &token, 2).await.unwrap_err();
    assert!(matches!(error, JoinError::OtherCluster { .. }), "{error}");
    assert!(error.to_string().ends_with("this is not the cluster the token is for"), "{error}");
}

#[tokio::test]
async fn a_runner_cannot_pose_as_a_control_node_for_joining_nodes() {
    let control = Control::start().await;
    let runner = control.member();
    let token = control.token(Uses::Reusable);
    let setup = transport::Setup {
        authority: control.authority.clone(),
        identity: runner.identity.clone(),
        hello: crate::support::hello(runner.node()),
        service: control.service.clone(),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let impostor = transport::Server::start(listener, setup, ServerOptions::default()).unwrap();
    let error = join_with(&impostor.local_addr().to_string(), &token, 2).await.unwrap_err();
    assert!(error.to_string().contains("is a runner, not a control node"), "{error}");
    let error = control.member().connect(&impostor.local_addr().to_string()).await.unwrap_err();
    assert!(error.to_string().contains("is a runner, not a control node"), "{error}");
}

#[tokio::test]
async fn a_hundred_nodes_join_at_once() {
    let control = Control::start().await;
    let token = control.token(Uses::Reusable);
    let address = control.address();
    let started = Instant::now();
    let joins: Vec<_> = (0..100)
        .map(|node| {
            let (address, token) = (address.clone(), token.clone());
            tokio::spawn(async move { join_with(&address, &token, 1000 + node).await })
        })
        .collect();
    for join in joins {
        join.await.unwrap().unwrap();
    }
    println!("100 joins took {:?}", started.elapsed());
    assert_eq!(control.service.tokens.lock()[&token.id()].used_count, 100);
}

#[tokio::test]
async fn joins_of_one_address_are_limited() {
    let options = ServerOptions { join_burst: 3, joins_per_sec: 0, ..ServerOptions::default() };
    let control = Control::start_with(options).await;
    let token = control.token(Uses::Reusable);
    for node in 0..3 {
        join_with(&control.address(), &token, 10 + node).await.unwrap();
    }
    assert_eq!(kind(join_with(&control.address(), &token, 20).await.unwrap_err()), RefusalKind::Busy);
}
