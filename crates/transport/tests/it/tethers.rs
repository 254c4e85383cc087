//! Tethers, and processes that are killed.

use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use model::id::Incarnation;
use transport::tether::{self, Proof, TetherEnd, TetherEvent};
use transport::{CloseReason, Connected, KeepAlive, ServerOptions};

use crate::children::{Process, receive_descriptor};
use crate::support::{Control, soon};

const TIMEOUT: Duration = Duration::from_secs(10);
const SLOW: KeepAlive = KeepAlive { interval: Duration::from_secs(60), timeout: Duration::from_secs(60) };

async fn dial(control: &Control, proof: &Proof) -> std::io::Result<TcpStream> {
    let (address, proof) = (control.server.local_addr(), proof.clone());
    tokio::task::spawn_blocking(move || tether::dial(address, &proof, TIMEOUT)).await.unwrap()
}

async fn proof(connected: &Connected) -> Proof {
    soon(connected.requests.prepare_tether(Incarnation(3))).await.unwrap()
}

#[tokio::test]
async fn a_tether_is_reported_from_its_opening_to_its_end() {
    let mut control = Control::start().await;
    let member = control.member();
    let (connected, _peer) = control.connect(&member).await;
    let tether = dial(&control, &proof(&connected).await).await.unwrap();
    let TetherEvent::Opened { tether: id, node, incarnation } = soon(control.tethers.recv()).await.unwrap() else {
        panic!("not opened")
    };
    assert_eq!((node, incarnation), (member.node(), Incarnation(3)));
    let started = Instant::now();
    drop(tether);
    let reason = TetherEnd::Closed;
    let expected = TetherEvent::Closed { tether: id, node, incarnation, reason };
    assert_eq!(soon(control.tethers.recv()).await.unwrap(), expected);
    println!("the end of a tether was noticed after {:?}", started.elapsed());

    let tether = dial(&control, &proof(&connected).await).await.unwrap();
    soon(control.tethers.recv()).await.unwrap();
    rustix::net::sockopt::set_socket_linger(&tether, Some(Duration::ZERO)).unwrap();
    drop(tether);
    let event = soon(control.tethers.recv()).await.unwrap();
    assert!(matches!(event, TetherEvent::Closed { reason: TetherEnd::Reset, .. }), "{event:?}");

    let mut talking = dial(&control, &proof(&connected).await).await.unwrap();
    soon(control.tethers.recv()).await.unwrap();
    std::io::Write::write_all(&mut talking, b"hello?").unwrap();
    let event = soon(control.tethers.recv()).await.unwrap();
    assert!(matches!(event, TetherEvent::Closed { reason: TetherEnd::Protocol, .. }), "{event:?}");
}

#[tokio::test]
async fn a_proof_is_used_once() {
    let mut control = Control::start().await;
    let member = control.member();
    let (connected, _peer) = control.connect(&member).await;
    let proof = proof(&connected).await;
    let _tether = dial(&control, &proof).await.unwrap();
    assert!(dial(&control, &proof).await.is_err());
    soon(control.tethers.recv()).await.unwrap();
    assert!(control.tethers.try_recv().is_err());
}

#[tokio::test]
async fn a_passed_tether_outlives_the_process_that_opened_it() {
    let mut control = Control::start_with(ServerOptions { keep_alive: SLOW, ..ServerOptions::default() }).await;
    let member = control.member();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("spawner");
    let spawner = UnixListener::bind(&path).unwrap();
    let mut process = Process::tether(&control.address(), &member, &path);
    let received = tokio::task::spawn_blocking(move || receive_descriptor(&spawner.accept().unwrap().0));
    let passed = soon(received).await.unwrap();
    let opened = soon(control.tethers.recv()).await.unwrap();
    assert!(matches!(opened, TetherEvent::Opened { incarnation: Incarnation(4), .. }), "{opened:?}");
    let mut peer = soon(control.peers.recv()).await.unwrap();

    process.kill();
    let reason = soon(peer.receiver.recv()).await.unwrap_err();
    assert!(matches!(reason, CloseReason::Reset(_)), "{reason}");
    // The link is gone and the tether is not: the events of a later tether come next.
    let other = control.member();
    let (connected, _peer) = control.connect(&other).await;
    drop(dial(&control, &proof(&connected).await).await.unwrap());
    for _ in 0..2 {
        let (TetherEvent::Opened { node, .. } | TetherEvent::Closed { node, .. }) =
            soon(control.tethers.recv()).await.unwrap();
        assert_eq!(node, other.node());
    }
    drop(passed);
    let closed = soon(control.tethers.recv()).await.unwrap();
    let TetherEvent::Closed { node, reason, .. } = closed else { panic!("{closed:?}") };
    assert_eq!((node, reason), (member.node(), TetherEnd::Closed));
}

#[tokio::test]
async fn a_killed_peer_is_noticed_at_once() {
    let mut control = Control::start_with(ServerOptions { keep_alive: SLOW, ..ServerOptions::default() }).await;
    let member = control.member();
    let mut process = Process::link(&control.address(), &member);
    let peer = soon(control.peers.recv()).await.unwrap();
    process.kill();
    let killed = Instant::now();
    let reason = soon(peer.sender.closed()).await;
    println!("a killed peer was noticed after {:?}", killed.elapsed());
    assert!(matches!(reason, CloseReason::Reset(_)), "{reason}");
}

#[tokio::test]
async fn a_shutdown_ends_tethers() {
    let mut control = Control::start().await;
    let member = control.member();
    let (connected, _peer) = control.connect(&member).await;
    let _tether = dial(&control, &proof(&connected).await).await.unwrap();
    soon(control.tethers.recv()).await.unwrap();
    soon(control.server.shutdown()).await;
    let event = control.tethers.recv().await.unwrap();
    assert!(matches!(event, TetherEvent::Closed { reason: TetherEnd::Shutdown, .. }), "{event:?}");
}
