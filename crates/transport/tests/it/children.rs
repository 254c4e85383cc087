//! Processes of their own, which can be killed: this test program, started again with one of the tests below.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use model::id::Incarnation;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use transport::{Client, ClientOptions, Connected, Identity, KeepAlive, tether};

use crate::support::{Member, TestAnswers, hello};

const ADDRESS: &str = "OUTLAST_TEST_ADDRESS";
const IDENTITY: &str = "OUTLAST_TEST_IDENTITY";
const SPAWNER: &str = "OUTLAST_TEST_SPAWNER";

/// A process with a link to the control node. Killed when dropped.
pub struct Process(Child);

impl Process {
    /// Opens a link and does nothing more.
    pub fn link(address: &str, member: &Member) -> Self {
        Self::start("children::opens_a_link", address, member, Path::new(""))
    }

    /// Opens a link and a tether, and passes the tether to the Unix socket.
    pub fn tether(address: &str, member: &Member, spawner: &Path) -> Self {
        Self::start("children::passes_a_tether", address, member, spawner)
    }

    fn start(test: &str, address: &str, member: &Member, spawner: &Path) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(ADDRESS, address)
            .env(IDENTITY, member._directory.path())
            .env(SPAWNER, spawner)
            .stdout(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    /// Kills with SIGKILL and waits.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn connect(address: &str) -> Connected {
    let directory = std::env::var(IDENTITY).unwrap();
    let identity = Identity::open(Path::new(&directory)).unwrap().unwrap();
    let slow = Duration::from_secs(60);
    let keep_alive = KeepAlive { interval: slow, timeout: slow };
    let hello = hello(identity.node().node);
    let client = Client::new(identity, ClientOptions { keep_alive, ..ClientOptions::default() }).unwrap();
    client.connect(address, &hello, Arc::new(TestAnswers)).await.unwrap()
}

#[tokio::test]
#[ignore = "no test of its own: other tests start it as a process"]
async fn opens_a_link() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let _connected = connect(&address).await;
    std::future::pending::<()>().await;
}

#[tokio::test]
#[ignore = "no test of its own: other tests start it as a process"]
async fn passes_a_tether() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let connected = connect(&address).await;
    let proof = connected.requests.prepare_tether(Incarnation(4)).await.unwrap();
    let tether = tether::dial(address.parse().unwrap(), &proof, Duration::from_secs(10)).unwrap();
    let spawner = UnixStream::connect(std::env::var(SPAWNER).unwrap()).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [tether.as_fd()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(&spawner, &[IoSlice::new(b"x")], &mut ancillary, SendFlags::empty()).unwrap();
    std::future::pending::<()>().await;
}

/// Receives a passed file descriptor.
pub fn receive_descriptor(stream: &UnixStream) -> OwnedFd {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::empty()).unwrap();
    let mut descriptors = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    descriptors.next().expect("a file descriptor")
}
