//! Connections and packets that are not of the cluster.

use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};

use api::CreateJoinToken;

use crate::support::{Cluster, Gate};

/// More than are accepted from one address.
const CONNECTIONS: usize = 300;
const DATAGRAMS: usize = 3_000;

/// Bytes without a pattern, from a small generator.
fn noise(seed: &mut u64, bytes: usize) -> Vec<u8> {
    let mut next = || {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// Opens connections: idle, with half a TLS hello, with noise. They stay open while the result is kept.
fn disturb(control: SocketAddr, seed: &mut u64) -> Vec<TcpStream> {
    // A handshake record of 512 bytes, of which 4 arrive: a client hello.
    let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc];
    let mut open = Vec::new();
    for number in 0..CONNECTIONS {
        let Ok(mut stream) = TcpStream::connect(control) else { continue };
        // The other side may have closed it.
        let _ = match number % 3 {
            0 => Ok(()),
            1 => stream.write_all(&hello),
            _ => stream.write_all(&noise(seed, 1 + number * 7)),
        };
        open.push(stream);
    }
    open
}

#[test]
fn garbage_does_not_disturb_the_cluster() {
    let mut cluster = Cluster::start(4);
    let mut gate = cluster.gate("gate");
    let id = cluster.submit(&gate.job("a", &cluster.pin(0)));
    gate.wait_for_attempt("a", 1);
    let control = cluster.cluster_address();
    let mut targets = vec![control];
    targets.extend((0..4).map(|index| SocketAddr::new(cluster.runner(index).host().address().into(), 7071)));
    let stranger = cluster.new_node("stranger", &[]);
    let mut seed = 1;
    let open = stranger.host().run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for number in 0..DATAGRAMS {
            // A full queue of the sender or the receiver loses some.
            let _ = socket.send_to(&noise(&mut seed, number % 1_400), targets[number % targets.len()]);
        }
        disturb(control, &mut seed)
    });
    // The same from a machine of the cluster.
    let inside = cluster.runner(1).host().run(|| disturb(control, &mut seed));
    assert!(open.len() + inside.len() > CONNECTIONS);

    let second = cluster.submit(&gate.job("b", &cluster.pin(1)));
    gate.wait_for_attempt("b", 1);
    // Nodes connect while the other connections are open.
    let token = cluster.join_token(CreateJoinToken::default());
    cluster.add_runner("late", &token);
    cluster.wait_until_joined("late");
    cluster.runner(0).kill_server();
    cluster.runner(0).start();
    cluster.wait_until_ready(0);
    gate.open();
    assert_eq!(cluster.wait_for_success(id).result, Some(Gate::result("a", 1)));
    assert_eq!(cluster.wait_for_success(second).result, Some(Gate::result("b", 1)));
    (0..4).for_each(|index| cluster.assert_never_lost(index));
    for node in 1..4 {
        assert_eq!(cluster.timeline(node).iter().filter(|event| *event == "connected").count(), 1);
    }
    drop((open, inside));
}
