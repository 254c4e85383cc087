//! A member that stays connected.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use transport::{Client, ClientOptions, ConnectError, LinkEvent, ServerOptions, connect_loop};

use crate::support::{Control, TestAnswers, hello, soon};

#[tokio::test]
async fn a_member_reconnects_after_a_restart_of_the_server() {
    let control = Control::start().await;
    let member = control.member();
    let options = ClientOptions { backoff_max: Duration::from_millis(200), ..ClientOptions::default() };
    let client = Client::new(member.identity.clone(), options).unwrap();
    let (events, mut received) = mpsc::channel(1);
    // Nobody listens at the first address.
    let addresses = vec!["127.0.0.1:1".to_owned(), control.address()];
    let looping = tokio::spawn(connect_loop(client, addresses, hello(member.node()), Arc::new(TestAnswers), events));
    let LinkEvent::Up(first) = soon(received.recv()).await.unwrap() else { panic!("not up") };
    assert_eq!(first.address, control.address());

    let Control { directory, server, .. } = control;
    let listen = server.local_addr();
    soon(server.shutdown()).await;
    let event = soon(received.recv()).await.unwrap();
    let LinkEvent::Down { retry_in, .. } = event else { panic!("{event:?}") };
    assert!(retry_in <= Duration::from_millis(50), "{retry_in:?}");
    let event = soon(received.recv()).await.unwrap();
    let LinkEvent::Unreachable { errors, .. } = event else { panic!("{event:?}") };
    assert_eq!(errors.len(), 2);
    assert!(errors.iter().all(|error| matches!(error, ConnectError::Unreachable { .. })), "{errors:?}");

    let mut control = Control::start_in(directory, listen, ServerOptions::default()).await;
    let second = loop {
        match soon(received.recv()).await.unwrap() {
            LinkEvent::Up(connected) => break connected,
            LinkEvent::Unreachable { .. } => {}
            event @ LinkEvent::Down { .. } => panic!("{event:?}"),
        }
    };
    let mut peer = soon(control.peers.recv()).await.unwrap();
    second.sender.try_send("again".into()).unwrap();
    assert_eq!(soon(peer.receiver.recv()).await.unwrap(), "again");
    drop(received);
    soon(looping).await.unwrap();
}
