//! Tethers: passed to the spawner, and to the next one after its death.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with};
use rustix::process::{Pid, Signal, kill_process};
use spawner::Channel;
use spawner::protocol::{Command, Event, Protections};

use crate::support::{DEADLINE, Fixture, Setup, attempt_ref, sandboxed, shell};

/// Both ends of a connection: for the spawner, and of the control node.
fn connection() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    peer.set_read_timeout(Some(DEADLINE)).unwrap();
    (own.into(), peer)
}

/// The process that holds a socket, once it is the only one.
async fn only_holder(inode: u64) -> Pid {
    let link = format!("socket:[{inode}]");
    let holds = |pid: i32| {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        descriptors.into_iter().any(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == &*link))
    };
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let found = async {
        loop {
            let pids = std::fs::read_dir("/proc").unwrap().flatten();
            let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
            let holders: Vec<i32> = pids.filter(|pid| holds(*pid)).collect();
            if let [holder] = holders[..]
                && holder != own
            {
                return Pid::from_raw(holder).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, found).await.expect("no process holds the tether alone")
}

async fn await_end(mut peer: TcpStream) {
    let ended = tokio::task::spawn_blocking(move || peer.read(&mut [0])).await.unwrap();
    assert_eq!(ended.expect("the tether is still open"), 0);
}

#[tokio::test]
async fn a_tether_ends_with_the_spawner_and_the_next_one_takes_a_new_tether() {
    let mut fixture = Fixture::with_slots().await;
    let mut generation = fixture.runner.spawner_generation();
    for (job, run) in [(1, sandboxed("sleep 600")), (2, shell("sleep 600"))] {
        fixture.run(attempt_ref(job), &run);
        fixture.started(attempt_ref(job)).await;
    }
    for expected in [1, 2] {
        assert_eq!(*generation.borrow_and_update(), expected);
        let (own, peer) = connection();
        let inode = rustix::fs::fstat(&own).unwrap().st_ino;
        assert!(fixture.runner.hold_tether(own));
        let spawner = only_holder(inode).await;
        kill_process(spawner, Signal::KILL).unwrap();
        await_end(peer).await;
        tokio::time::timeout(DEADLINE, generation.changed()).await.expect("no new spawner").unwrap();
    }
    fixture.runner.stop_spawner();
}

/// A spawner of protocol version 2 without attempts; returns the commands it received.
fn old_spawner(socket: &Path) -> std::thread::JoinHandle<Vec<Command>> {
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(socket).unwrap()).unwrap();
    listen(&listener, 1).unwrap();
    std::thread::spawn(move || {
        let channel = Channel::new(accept(&listener).unwrap());
        let mut received = Vec::new();
        while let Some((command, _)) = channel.receive::<Command>().unwrap() {
            match command {
                Command::Hello { .. } => {
                    let welcome = Event::Welcome { version: 2, pid: 1, protections: Protections::default() };
                    channel.send(&welcome, &[]).unwrap();
                    channel.send(&Event::Ready, &[]).unwrap();
                }
                Command::Quit => return received,
                other => received.push(other),
            }
        }
        received
    })
}

#[tokio::test]
async fn a_spawner_of_the_version_before_is_sent_no_tether() {
    let setup = Setup::new();
    let spawner = old_spawner(&setup.directory.path().join("spawner.sock"));
    let fixture = Fixture::start(setup).await;
    let (own, peer) = connection();
    assert!(!fixture.runner.hold_tether(own));
    await_end(peer).await;
    fixture.runner.stop_spawner();
    let received = tokio::task::spawn_blocking(|| spawner.join().unwrap()).await.unwrap();
    assert!(!received.contains(&Command::HoldTether), "{received:?}");
}
