//! Garbage, slow and greedy clients on the port of a server.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use transport::ServerOptions;
use transport::token::Uses;

use crate::support::{Control, join_with, soon};

/// Reads until the server closes the connection.
async fn closed(mut stream: TcpStream) {
    let mut rest = Vec::new();
    let _ = soon(stream.read_to_end(&mut rest)).await;
}

async fn send(control: &Control, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(control.address()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

async fn no_connections(control: &Control) {
    soon(async {
        while control.server.connections() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn garbage_is_closed_and_the_server_goes_on() {
    let control = Control::start().await;
    let long = [b'x'; 100_000];
    let oversized_record = [0x16, 3, 1, 0xff, 0xff, 1, 0, 0, 0];
    let other: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"outlast-tether/1 node_0000000000001 1 00 00\n",
        &long,
        &oversized_record,
        b"\x16garbage garbage garbage garbage",
        b"\n",
    ];
    for bytes in other {
        closed(send(&control, bytes).await).await;
    }
    no_connections(&control).await;
    join_with(&control.address(), &control.token(Uses::Single), 2).await.unwrap();
}

#[tokio::test]
async fn slow_handshakes_are_closed_after_the_timeout() {
    let options = ServerOptions { handshake_timeout: Duration::from_millis(200), ..ServerOptions::default() };
    let control = Control::start_with(options).await;
    let silent = send(&control, b"").await;
    let half_tls = send(&control, &[0x16, 3, 1, 2, 0, 1]).await;
    let half_tether = send(&control, b"outlast-tether/1 node_").await;
    for stream in [silent, half_tls, half_tether] {
        closed(stream).await;
    }
    no_connections(&control).await;
}

#[tokio::test]
async fn connections_without_a_certificate_are_limited_and_members_still_connect() {
    let options = ServerOptions {
        unauthenticated_per_address_max: 5,
        handshake_timeout: Duration::from_secs(60),
        ..ServerOptions::default()
    };
    let mut control = Control::start_with(options).await;
    let member = control.member();
    let (mut connected, peer) = control.connect(&member).await;
    let mut silent = Vec::new();
    for _ in 0..5 {
        silent.push(send(&control, b"").await);
    }
    // The sixth is closed at once, long before the handshake timeout.
    closed(TcpStream::connect(control.address()).await.unwrap()).await;
    peer.sender.try_send("links in use go on".into()).unwrap();
    assert_eq!(soon(connected.receiver.recv()).await.unwrap(), "links in use go on");
    drop(silent);
    soon(async {
        // One connection is the link.
        while control.server.connections() > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    control.connect(&member).await;
}

#[tokio::test]
async fn a_client_without_a_certificate_is_disconnected_after_a_while() {
    let options = ServerOptions { join_timeout: Duration::from_millis(200), ..ServerOptions::default() };
    let control = Control::start_with(options).await;
    let idle = crate::support::raw_tls(&control).await;
    let (mut read, _write) = tokio::io::split(idle);
    let mut rest = Vec::new();
    let _ = soon(read.read_to_end(&mut rest)).await;
    no_connections(&control).await;
}

#[tokio::test]
async fn garbage_and_oversized_frames_within_tls_close_the_connection() {
    let control = Control::start().await;
    let preface: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    // Settings, then a frame that announces 16 MiB.
    let oversized = [preface, &[0, 0, 0, 4, 0, 0, 0, 0, 0], &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]].concat();
    // Half of the preface, then garbage.
    let garbage = [&preface[..10], b"garbage garbage garbage garbage"].concat();
    for bytes in [oversized, garbage] {
        let mut stream = crate::support::raw_tls(&control).await;
        stream.write_all(&bytes).await.unwrap();
        stream.flush().await.unwrap();
        let mut rest = Vec::new();
        let _ = soon(stream.read_to_end(&mut rest)).await;
    }
    no_connections(&control).await;
}
