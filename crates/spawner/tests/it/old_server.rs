//! Servers of earlier protocol versions, frozen: their messages are bytes, written by hand from those versions' descriptions.
//! They stay as they are when the protocol changes.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, socket_with,
};
use spawner::log::Stream;
use spawner::protocol::AttemptKey;

use crate::support::{Fixture, TIMEOUT};

const KEY: AttemptKey = AttemptKey { job: 42, attempt: 1 };
/// Runs `echo old; exit 3` as attempt 1 of job 42, in a standard sandbox, with limits and a note.
const START: &[u8] = b"\x00\x82\x01\x82\x82\x18\x2a\x01\x88\
    \x83\x62sh\x62-c\x70echo old; exit 3\x81\x82\x64PATH\x6d/usr/bin:/bin\x01\xf4\xf6\xf6\
    \x87\xf6\xf6\x18\x40\xf6\xf6\x1a\x00\x10\x00\x00\x1a\x00\x10\x00\x00\x44note";
const STARTED: &[u8] = b"\x00\x82\x06\x81\x82\x18\x2a\x01";
/// Followed by usage and time.
const ENDED: &[u8] = b"\x00\x82\x03\x82\x82\x18\x2a\x01\x85\x82\x00\x81\x03\xf4";
/// The same attempt, as the next server is told.
const IN_FLIGHT: &[u8] = b"\x00\x82\x01\x84\x82\x18\x2a\x01\x85\x82\x00\x81\x03\xf4";
const FORGET: &[u8] = b"\x00\x82\x03\x81\x82\x18\x2a\x01";
const READY: &[u8] = b"\x00\x82\x02\x80";

struct OldServer(OwnedFd);

impl OldServer {
    /// Takes over the spawner. Returns the events up to `Ready`.
    fn claim(fixture: &Fixture, version: u8) -> (Self, Vec<Vec<u8>>) {
        let server = Self::connect(fixture);
        server.send(&[0, 0x82, 0, 0x81, version], &[]);
        let mut events = Vec::new();
        loop {
            let event = server.receive();
            if event == READY {
                return (server, events);
            }
            events.push(event);
        }
    }

    fn connect(fixture: &Fixture) -> Self {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(fixture.dir.path().join("spawner.sock")).unwrap()).unwrap();
        set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT)).unwrap();
        Self(socket)
    }

    fn send(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
        }
        sendmsg(&self.0, &[IoSlice::new(message)], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
    }

    fn receive(&self) -> Vec<u8> {
        let mut buffer = vec![0; 32 << 10];
        let mut ancillary = RecvAncillaryBuffer::default();
        let received = recvmsg(&self.0, &mut [IoSliceMut::new(&mut buffer)], &mut ancillary, RecvFlags::empty());
        buffer.truncate(received.unwrap().bytes);
        buffer
    }

    fn start(&self, fixture: &Fixture) {
        let log = File::create(fixture.log_path(KEY)).unwrap();
        let input = spawner::memfd_with(b"").unwrap();
        self.send(START, &[log.as_fd(), input.as_fd()]);
    }
}

fn begins_with(message: &[u8], expected: &[u8]) {
    assert!(message.starts_with(expected), "{expected:x?} is expected: {message:x?}");
}

#[test]
fn a_server_of_version_2_is_served() {
    let mut fixture = Fixture::new();
    let (server, events) = OldServer::claim(&fixture, 2);
    // Welcome, with the version of the server.
    begins_with(&events[0], b"\x00\x82\x00\x83\x02");
    assert_eq!(events.len(), 1);
    server.start(&fixture);
    assert_eq!(server.receive(), STARTED);
    begins_with(&server.receive(), ENDED);
    assert_eq!(fixture.output(KEY, Stream::Stdout), "old\n");
    // The next server is told, until the attempt is forgotten.
    let (server, events) = OldServer::claim(&fixture, 2);
    begins_with(&events[1], IN_FLIGHT);
    assert!(events[1].ends_with(b"\x44note\xf5"), "{:x?}", events[1]);
    server.send(FORGET, &[]);
    assert_eq!(OldServer::claim(&fixture, 2).1.len(), 1);
    fixture.replace_server();
}

#[test]
fn a_server_of_version_1_is_not_told_of_starts() {
    let mut fixture = Fixture::new();
    let (server, events) = OldServer::claim(&fixture, 1);
    begins_with(&events[0], b"\x00\x82\x00\x83\x01");
    server.start(&fixture);
    begins_with(&server.receive(), ENDED);
    fixture.replace_server();
}

#[test]
fn a_server_of_a_version_before_is_refused_with_the_versions() {
    let mut fixture = Fixture::new();
    let server = OldServer::connect(&fixture);
    server.send(b"\x00\x82\x00\x81\x00", &[]);
    let refusal = server.receive();
    // A mismatch: newest and oldest version.
    begins_with(&refusal, b"\x00\x82\x05\x82");
    assert!(refusal[4] >= 3 && refusal[5] == 1, "{refusal:x?}");
    // A server that it knows is served, also after that.
    fixture.replace_server();
}
