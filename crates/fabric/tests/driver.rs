//! The driver on real sockets.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fabric::{
    ClusterId, ClusterKey, Driver, DriverOptions, Event, Keyring, MemberView, Profile, Role, Source, State, leadership,
};
use model::id::{Incarnation, NodeId};
use parking_lot::Mutex;

const DEADLINE: Duration = Duration::from_secs(30);
const LOCALHOST: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

struct Node {
    driver: Driver,
    events: Arc<Mutex<Vec<Event>>>,
}

fn keyring(key: u8, also: Option<u8>) -> Keyring {
    Keyring {
        cluster: ClusterId([7; 16]),
        seal_with: ClusterKey::new([key; 32]),
        also_accept: also.map(|key| ClusterKey::new([key; 32])),
    }
}

fn options(node: u64, incarnation: u64, join: &[&Node]) -> DriverOptions {
    DriverOptions {
        node: NodeId(node),
        incarnation: Incarnation(incarnation),
        role: Role::Control,
        profile: Profile::default(),
        bind: LOCALHOST.into(),
        advertise: LOCALHOST.into(),
        join: join.iter().map(|node| node.address()).collect(),
        keyring: keyring(1, None),
    }
}

impl Node {
    fn start(options: DriverOptions) -> Self {
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        let driver = Driver::start(options, move |event| sink.lock().push(event)).expect("the driver starts");
        Self { driver, events }
    }

    fn address(&self) -> SocketAddr {
        self.driver.handle().address()
    }

    fn member(&self, node: u64) -> Option<MemberView> {
        self.driver.handle().members().iter().find(|member| member.node == NodeId(node)).copied()
    }

    fn sees(&self, node: u64, state: State) -> bool {
        self.member(node).is_some_and(|member| member.state == state)
    }

    fn has(&self, event: impl Fn(&Event) -> bool) -> bool {
        self.events.lock().iter().any(event)
    }
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < DEADLINE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
    started.elapsed()
}

/// Nodes 1, 2 and 3, which know each other.
fn three() -> [Node; 3] {
    let a = Node::start(options(1, 1, &[]));
    let b = Node::start(options(2, 1, &[&a]));
    let c = Node::start(options(3, 1, &[&a]));
    let nodes = [a, b, c];
    wait_for("three nodes find each other", || {
        nodes.iter().all(|node| (1..=3).all(|other| node.sees(other, State::Alive)))
    });
    nodes
}

// FEATURES: A5, A7
#[test]
fn a_node_that_falls_silent_is_dead_for_the_others() {
    let [a, b, c] = three();
    assert_eq!(leadership::leader(&b.driver.handle().members()), Some(NodeId(1)));
    drop(a);
    let found = wait_for("the death is known", || b.sees(1, State::Dead) && c.sees(1, State::Dead));
    println!("a dead node of three was found after {found:?}");
    assert_eq!(leadership::leader(&b.driver.handle().members()), Some(NodeId(2)));
    assert_eq!(leadership::leader(&c.driver.handle().members()), Some(NodeId(2)));
}

// FEATURES: A5
#[test]
fn a_node_that_leaves_is_gone_at_once() {
    let [a, b, c] = three();
    c.driver.leave();
    let found = wait_for("the departure is known", || a.sees(3, State::Left) && b.sees(3, State::Left));
    println!("a departure was known after {found:?}");
    let accused = |event: &Event| matches!(event, Event::Changed { member, .. } if member.state == State::Dead);
    assert!(!a.has(accused) && !b.has(accused));
}

// FEATURES: A5
#[test]
fn a_restarted_node_is_seen_as_restarted() {
    let [a, b, c] = three();
    drop(c);
    let c = Node::start(options(3, 2, &[&a]));
    let restarted = |event: &Event| {
        matches!(event, Event::Restarted { member, previous, .. }
            if member.node == NodeId(3) && member.incarnation == Incarnation(2) && *previous == Incarnation(1))
    };
    wait_for("the restart is known", || a.has(restarted) && b.has(restarted));
    wait_for("the node knows the others", || (1..=3).all(|node| c.sees(node, State::Alive)));
    wait_for("the others know its address", || {
        [&a, &b].iter().all(|node| {
            node.member(3).is_some_and(|member| member.address == c.address() && member.state == State::Alive)
        })
    });
}

#[test]
fn garbage_is_counted_and_changes_nothing() {
    let [a, b, c] = three();
    let stranger = UdpSocket::bind(SocketAddr::from(LOCALHOST)).unwrap();
    let to = a.address();
    for len in [1, 30, 44, 45, 46, 500, 1_232, 1_233, 9_000] {
        stranger.send_to(&vec![1; len], to).unwrap();
        stranger.send_to(&vec![0xA5; len], to).unwrap();
    }
    wait_for("all of it is counted", || {
        let counters = a.driver.handle().counters().datagrams;
        counters.truncated >= 6 && counters.oversize >= 4 && counters.wrong_version >= 4 && counters.unknown_key >= 4
    });
    assert!([&a, &b, &c].iter().all(|node| node.driver.handle().members().len() == 3));
    assert!((1..=3).all(|node| a.member(node).is_some_and(|member| member.state.is_running())));
}

#[test]
fn a_node_with_another_key_does_not_join() {
    let a = Node::start(options(1, 1, &[]));
    let stranger = Node::start(DriverOptions { keyring: keyring(2, None), ..options(2, 1, &[&a]) });
    wait_for("its packets are refused", || a.driver.handle().counters().datagrams.unknown_key >= 2);
    assert_eq!((a.driver.handle().members().len(), stranger.driver.handle().members().len()), (1, 1));
    // With the key it joins.
    stranger.driver.handle().set_keys(keyring(1, None)).unwrap();
    wait_for("the nodes find each other", || a.sees(2, State::Alive) && stranger.sees(1, State::Alive));
}

#[test]
fn the_key_is_replaced_while_the_cluster_runs() {
    let nodes = three();
    for (key, also) in [(1, Some(2)), (2, Some(1)), (2, None)] {
        for node in &nodes {
            node.driver.handle().set_keys(keyring(key, also)).unwrap();
        }
        let opened = |node: &Node| node.driver.handle().counters().datagrams.opened;
        let before: Vec<_> = nodes.iter().map(opened).collect();
        wait_for("the nodes talk on", || nodes.iter().zip(&before).all(|(node, before)| opened(node) >= before + 5));
    }
    let died = |event: &Event| matches!(event, Event::Changed { member, .. } if !member.state.is_running());
    assert!(nodes.iter().all(|node| !node.has(died)));
}

#[test]
fn a_second_process_with_the_same_id_is_refused() {
    let [a, b, c] = three();
    let copy = Node::start(options(3, 1, &[&a, &b]));
    wait_for("the copy is told", || copy.has(|event| matches!(event, Event::Superseded { .. })));
    let refused = |event: &Event| matches!(event, Event::DuplicateRefused { .. });
    wait_for("the others report it", || a.has(refused) || b.has(refused));
    assert!([&a, &b].iter().all(|node| node.member(3).is_some_and(|member| member.address == c.address())));
}

// FEATURES: A5
#[test]
fn the_transport_and_operators_can_declare_a_node_dead_and_forget_it() {
    let [a, b, c] = three();
    drop(c);
    a.driver.handle().declare_dead(NodeId(3), Incarnation(1), Source::Transport).unwrap();
    wait_for("the death is known", || a.sees(3, State::Dead) && b.sees(3, State::Dead));
    a.driver.handle().forget(NodeId(3)).unwrap();
    wait_for("the node is forgotten", || a.member(3).is_none());
}

// FEATURES: A5
#[test]
fn nobody_is_declared_dead_while_all_cores_are_busy() {
    let nodes = three();
    let stop = Arc::new(AtomicBool::new(false));
    let threads = 2 * std::thread::available_parallelism().map_or(2, usize::from);
    let burners: Vec<_> = (0..threads)
        .map(|_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {})
        })
        .collect();
    let received = |node: &Node| node.driver.handle().counters().membership.packets_received;
    let before: Vec<_> = nodes.iter().map(received).collect();
    wait_for("hundreds of packets", || nodes.iter().zip(&before).all(|(node, before)| received(node) >= before + 100));
    stop.store(true, Ordering::Relaxed);
    for burner in burners {
        burner.join().unwrap();
    }
    let died = |event: &Event| matches!(event, Event::Changed { member, .. } if member.state == State::Dead);
    assert!(nodes.iter().all(|node| !node.has(died)));
}
