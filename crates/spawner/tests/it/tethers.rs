//! Tethers: held by the spawner alone, and exactly as long as it lives.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, socketpair};
use spawner::protocol::{AttemptKey, Command, Event, Exit, Profile};
use spawner::{Channel, TETHERS_MAX};

use crate::support::{Fixture, TIMEOUT, exited, launch};

/// The control node's end of a tether.
struct Peer {
    stream: TcpStream,
    /// Link of the spawner's end in /proc/<pid>/fd.
    held: String,
}

impl Peer {
    /// Whether the connection is open.
    fn is_open(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let open = matches!((&self.stream).read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
        self.stream.set_nonblocking(false).unwrap();
        open
    }

    fn await_end(&self) {
        self.stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        match (&self.stream).read(&mut [0]) {
            Ok(0) => {}
            // Closed with unread data.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("the tether is still open: {other:?}"),
        }
    }

    /// Processes with a copy of the spawner's end.
    fn holders(&self) -> Vec<u32> {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| self.is_held_by(*pid)).collect()
    }

    /// Descriptors of other users' processes are unreadable; none of those belongs to this spawner.
    fn is_held_by(&self, pid: u32) -> bool {
        let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        descriptors
            .flatten()
            .any(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == &*self.held))
    }

    fn await_holders(&self, expected: &[u32]) {
        let deadline = Instant::now() + TIMEOUT;
        while self.holders() != expected {
            assert!(Instant::now() < deadline, "held by {:?}", self.holders());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Passes a new tether to the spawner.
fn hold(fixture: &Fixture) -> Peer {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let held = format!("socket:[{}]", rustix::fs::fstat(&own).unwrap().st_ino);
    fixture.claimed.channel.send(&Command::HoldTether, &[own.as_fd()]).unwrap();
    drop(own);
    Peer { stream, held }
}

#[test]
fn a_tether_ends_with_the_spawner_and_no_attempt_has_a_copy_of_it() {
    let mut fixture = Fixture::new();
    let peer = hold(&fixture);
    fixture.scratch("none");
    let mut unsandboxed = launch(Profile::None, "echo up; sleep 1000");
    (unsandboxed.scratch, unsandboxed.bounds.processes) = (Some("none".to_owned()), None);
    for job in [launch(Profile::Standard, "echo up; sleep 1000"), unsandboxed] {
        let key = fixture.start(job);
        fixture.await_output(key, "up");
    }
    assert_eq!(fixture.sample().len(), 2, "both attempts are running");
    assert_eq!(peer.holders(), [fixture.claimed.pid]);
    assert!(peer.is_open());
    let child = fixture.claimed.child.as_mut().unwrap();
    child.kill().unwrap();
    peer.await_end();
    child.wait().unwrap();
}

#[test]
fn a_tether_survives_the_server_and_ends_with_an_orderly_shutdown() {
    let mut fixture = Fixture::new();
    let peer = hold(&fixture);
    peer.await_holders(&[fixture.claimed.pid]);
    let (unconnected, _) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    drop(std::mem::replace(&mut fixture.claimed.channel, Channel::new(unconnected)));
    fixture.replace_server();
    assert_eq!(peer.holders(), [fixture.claimed.pid]);
    assert!(peer.is_open());
    fixture.send(&Command::Quit);
    peer.await_end();
}

#[test]
fn beyond_the_limit_a_new_tether_replaces_the_oldest() {
    let fixture = Fixture::new();
    let peers: Vec<Peer> = (0..=TETHERS_MAX).map(|_| hold(&fixture)).collect();
    peers[0].await_end();
    assert!(peers[1..].iter().all(Peer::is_open));
    // One that the control node has closed makes room.
    peers[2].stream.shutdown(std::net::Shutdown::Both).unwrap();
    peers[2].await_holders(&[]);
    let next = hold(&fixture);
    next.await_holders(&[fixture.claimed.pid]);
    assert!([1, 3, 4].into_iter().all(|index| peers[index].is_open()));
}

#[test]
fn data_ends_a_tether() {
    let fixture = Fixture::new();
    let peer = hold(&fixture);
    (&peer.stream).write_all(b"x").unwrap();
    peer.await_end();
}

#[test]
fn a_command_without_its_descriptor_holds_nothing() {
    let mut fixture = Fixture::new();
    fixture.send(&Command::HoldTether);
    assert_eq!(fixture.sample(), [], "the spawner goes on");
}

#[test]
fn a_server_of_the_version_before_works_as_before() {
    let mut fixture = Fixture::new();
    let peer = hold(&fixture);
    peer.await_holders(&[fixture.claimed.pid]);
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(fixture.dir.path().join("spawner.sock")).unwrap()).unwrap();
    fixture.claimed.channel = Channel::new(socket);
    fixture.send(&Command::Hello { version: 2 });
    let receive = |fixture: &Fixture| fixture.claimed.channel.receive::<Event>().unwrap().unwrap().0;
    let welcome = receive(&fixture);
    assert!(matches!(welcome, Event::Welcome { version: 2, pid, .. } if pid == fixture.claimed.pid), "{welcome:?}");
    assert_eq!(receive(&fixture), Event::Ready);
    let key = fixture.start(launch(Profile::Standard, "exit 3"));
    assert_eq!(receive(&fixture), Event::Started { key });
    let exit_of = |event: Event, key: AttemptKey| -> Exit {
        match event {
            Event::Ended { key: ended, exit } if ended == key => exit,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(exited(&exit_of(receive(&fixture), key)), 3);
    assert!(peer.is_open(), "the tether of the server before it stays");
}
