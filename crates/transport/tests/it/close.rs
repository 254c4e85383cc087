//! The end of a link, and its reason.

use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use transport::{ClientOptions, CloseReason, KeepAlive, SendError, ServerOptions, TrySendError};

use crate::support::{Control, soon};

/// No test waits for these pings.
const SLOW: KeepAlive = KeepAlive { interval: Duration::from_secs(60), timeout: Duration::from_secs(60) };
const FAST: KeepAlive = KeepAlive { interval: Duration::from_millis(50), timeout: Duration::from_millis(200) };

fn server(keep_alive: KeepAlive) -> ServerOptions {
    ServerOptions { keep_alive, ..ServerOptions::default() }
}

fn client(keep_alive: KeepAlive) -> ClientOptions {
    ClientOptions { keep_alive, ..ClientOptions::default() }
}

#[tokio::test]
async fn a_link_closed_by_the_client_is_closed_at_the_server() {
    let mut control = Control::start_with(server(SLOW)).await;
    let member = control.member();
    let (connected, mut peer) = control.connect_with(&member, client(SLOW)).await;
    connected.sender.try_send("last words".into()).unwrap();
    connected.sender.close();
    assert_eq!(soon(peer.receiver.recv()).await.unwrap(), "last words");
    assert_eq!(soon(peer.receiver.recv()).await.unwrap_err(), CloseReason::ClosedByPeer);
    assert_eq!(soon(peer.receiver.recv()).await.unwrap_err(), CloseReason::ClosedByPeer);
    let refused = connected.sender.try_send("more".into());
    assert_eq!(refused, Err(TrySendError::Send(SendError::Closed(CloseReason::Local))));
}

#[tokio::test]
async fn a_link_dropped_by_either_side_is_closed_at_the_other() {
    let mut control = Control::start_with(server(SLOW)).await;
    let member = control.member();
    let (connected, peer) = control.connect_with(&member, client(SLOW)).await;
    drop((connected.sender, connected.receiver, connected.requests));
    assert_eq!(soon(peer.sender.closed()).await, CloseReason::ClosedByPeer);

    let (connected, peer) = control.connect_with(&member, client(SLOW)).await;
    drop(peer);
    assert_eq!(soon(connected.sender.closed()).await, CloseReason::ClosedByPeer);
    let (mut connected, peer) = control.connect_with(&member, client(SLOW)).await;
    drop(peer);
    assert_eq!(soon(connected.receiver.recv()).await.unwrap_err(), CloseReason::ClosedByPeer);
}

#[tokio::test]
async fn a_shutdown_of_the_server_closes_its_links() {
    let mut control = Control::start_with(server(SLOW)).await;
    let member = control.member();
    let (mut connected, peer) = control.connect_with(&member, client(SLOW)).await;
    let shutdown = tokio::spawn(control.server.shutdown());
    let reason = soon(connected.receiver.recv()).await.unwrap_err();
    assert!(matches!(reason, CloseReason::ClosedByPeer | CloseReason::Reset(_)), "{reason}");
    assert!(matches!(soon(peer.sender.closed()).await, CloseReason::Local | CloseReason::ClosedByPeer));
    soon(shutdown).await.unwrap();
}

/// Forwards connections, until it is frozen or reset.
struct Proxy {
    address: String,
    mode: watch::Sender<Mode>,
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Forward,
    /// Connections stay open, and nothing is forwarded.
    Frozen,
    Reset,
}

impl Proxy {
    async fn start(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (mode, observer) = watch::channel(Mode::Forward);
        tokio::spawn(async move {
            while let Ok((mut inner, _)) = listener.accept().await {
                let mut outer = TcpStream::connect(&target).await.unwrap();
                let mut mode = observer.clone();
                tokio::spawn(async move {
                    tokio::select! {
                        _ = copy_bidirectional(&mut inner, &mut outer) => {}
                        _ = mode.wait_for(|mode| *mode != Mode::Forward) => {}
                    }
                    let _ = mode.wait_for(|mode| *mode == Mode::Reset).await;
                    // Both peers get a RST.
                    inner.set_zero_linger().unwrap();
                    outer.set_zero_linger().unwrap();
                });
            }
        });
        Self { address, mode }
    }
}

#[tokio::test]
async fn a_vanished_peer_is_noticed_by_keep_alive_on_both_sides() {
    let mut control = Control::start_with(server(FAST)).await;
    let proxy = Proxy::start(control.address()).await;
    let member = control.member();
    let mut connected = soon(member.connect_with(&proxy.address, client(FAST))).await.unwrap();
    let mut peer = soon(control.peers.recv()).await.unwrap();
    connected.sender.try_send("alive".into()).unwrap();
    assert_eq!(soon(peer.receiver.recv()).await.unwrap(), "alive");
    proxy.mode.send_replace(Mode::Frozen);
    assert_eq!(soon(connected.receiver.recv()).await.unwrap_err(), CloseReason::KeepAliveTimeout);
    assert_eq!(soon(peer.sender.closed()).await, CloseReason::KeepAliveTimeout);
    assert_eq!(soon(connected.sender.closed()).await, CloseReason::KeepAliveTimeout);
}

#[tokio::test]
async fn a_reset_is_noticed_at_once_on_both_sides_even_if_nobody_reads() {
    let mut control = Control::start_with(server(SLOW)).await;
    let proxy = Proxy::start(control.address()).await;
    let member = control.member();
    let connected = soon(member.connect_with(&proxy.address, client(SLOW))).await.unwrap();
    let mut peer = soon(control.peers.recv()).await.unwrap();
    proxy.mode.send_replace(Mode::Reset);
    for reason in [soon(connected.sender.closed()).await, soon(peer.receiver.recv()).await.unwrap_err()] {
        assert!(matches!(reason, CloseReason::Reset(_)), "{reason}");
    }
}

#[tokio::test]
async fn pings_keep_an_idle_and_a_stalled_link_open() {
    let mut control = Control::start_with(server(FAST)).await;
    let member = control.member();
    let (connected, mut peer) = control.connect_with(&member, client(FAST)).await;
    connected.sender.try_send("before".into()).unwrap();
    // Longer than interval and timeout: what does not happen cannot be waited for otherwise.
    let silence = FAST.interval + FAST.timeout * 3;
    assert!(tokio::time::timeout(silence, peer.sender.closed()).await.is_err());
    assert_eq!(soon(peer.receiver.recv()).await.unwrap(), "before");
}
