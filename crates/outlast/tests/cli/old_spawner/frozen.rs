//! The frozen spawner.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, recvmsg, sendmsg, socket_with,
};

use super::cbor::{Item, head};

/// Answer to the first message of a server.
#[derive(Debug, Clone, Copy)]
pub enum Greeting {
    Version2,
    /// It supports versions 7 to 9.
    Mismatch,
}

struct Attempt {
    /// Job and attempt, encoded.
    key: Vec<u8>,
    note: Vec<u8>,
    exit_code: Option<u8>,
}

#[derive(Default)]
struct State {
    attempts: Vec<Attempt>,
    server: Option<Arc<OwnedFd>>,
    unknown_commands: usize,
    has_quit: bool,
}

impl State {
    fn send(&self, message: &[u8]) {
        let Some(server) = &self.server else { return };
        let bytes = [&[0], message].concat();
        // The server may be gone.
        let _ = sendmsg(server, &[IoSlice::new(&bytes)], &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL);
    }
}

pub struct FrozenSpawner(Arc<Mutex<State>>);

impl FrozenSpawner {
    /// Listens where the server of a data directory expects its spawner.
    pub fn start(data: &Path, greeting: Greeting) -> Self {
        let path = data.join("spawner.sock");
        let _ = std::fs::remove_file(&path);
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&listener, 4).unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        let data = data.to_owned();
        std::thread::spawn(move || {
            while !shared.lock().unwrap().has_quit {
                let server = Arc::new(accept(&listener).unwrap());
                shared.lock().unwrap().server = Some(server.clone());
                while let Some((message, descriptors)) = receive(&server) {
                    execute(&shared, &data, greeting, &message, descriptors);
                }
                shared.lock().unwrap().server = None;
            }
        });
        Self(state)
    }

    pub fn unknown_commands(&self) -> usize {
        self.0.lock().unwrap().unknown_commands
    }

    pub fn attempts(&self) -> usize {
        self.0.lock().unwrap().attempts.len()
    }

    pub fn has_quit(&self) -> bool {
        self.0.lock().unwrap().has_quit
    }
}

/// The next message without its first byte. `None` at the end of the connection.
fn receive(server: &OwnedFd) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let mut buffer = vec![0; 32 << 10];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(server, &mut [IoSliceMut::new(&mut buffer)], &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    let (kind, message) = buffer[..received.bytes].split_first()?;
    assert_eq!(*kind, 0, "a short message");
    Some((message.to_vec(), descriptors))
}

fn key_bytes(key: &Item) -> Vec<u8> {
    let numbers = key.list();
    [vec![0x82], head(0, numbers[0].number()), head(0, numbers[1].number())].concat()
}

/// An end with an exit code, without usage.
fn exit_bytes(code: u8) -> Vec<u8> {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    [vec![0x85, 0x82, 0, 0x81, code, 0xf4, 0, 0], head(0, now)].concat()
}

fn execute(state: &Arc<Mutex<State>>, data: &Path, greeting: Greeting, mut message: &[u8], descriptors: Vec<OwnedFd>) {
    let command = Item::read(&mut message);
    let (kind, fields) = (command.list()[0].number(), command.list()[1].list());
    let mut known = state.lock().unwrap();
    match (kind, greeting) {
        (0, Greeting::Mismatch) => known.send(&[0x82, 5, 0x82, 9, 7]),
        (0, Greeting::Version2) => {
            // Welcome: version 2, process id 1, no protections. Then the attempts, and that this is all.
            known.send(&[0x82, 0, 0x83, 2, 1, 0x81, 0x80]);
            for attempt in &known.attempts {
                let exit = attempt.exit_code.map_or(vec![0xf6], exit_bytes);
                let note = [head(2, attempt.note.len() as u64), attempt.note.clone()].concat();
                known.send(&[&[0x82, 1, 0x84], &attempt.key[..], &exit, &note, &[0xf5]].concat());
            }
            known.send(&[0x82, 2, 0x80]);
        }
        (1, _) => {
            let (key, launch) = (key_bytes(&fields[0]), fields[1].list().to_vec());
            known.attempts.push(Attempt { key: key.clone(), note: launch[7].bytes().to_vec(), exit_code: None });
            let (state, data) = (state.clone(), data.to_owned());
            std::thread::spawn(move || run(&state, &data, key, &launch, descriptors));
        }
        (3, _) => {
            let key = key_bytes(&fields[0]);
            known.attempts.retain(|attempt| attempt.key != key);
        }
        (4, _) => known.send(&[0x82, 4, 0x81, 0x80]),
        (5, _) => known.has_quit = true,
        // Stops are not needed here; a tether is not known to this version.
        _ => known.unknown_commands += 1,
    }
}

/// Runs a program without a sandbox, and stores its output in one chunk.
fn run(state: &Mutex<State>, data: &Path, key: Vec<u8>, launch: &[Item], descriptors: Vec<OwnedFd>) {
    let [log, input] = <[OwnedFd; 2]>::try_from(descriptors).unwrap();
    let words: Vec<&str> = launch[0].list().iter().map(Item::text).collect();
    let variables = launch[1].list().iter().map(|pair| (pair.list()[0].text(), pair.list()[1].text()));
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).envs(variables).stdin(input).stdout(Stdio::piped());
    if let Item::Text(scratch) = &launch[4] {
        command.current_dir(data.join("scratch").join(scratch));
    }
    let child = command.spawn().unwrap();
    state.lock().unwrap().send(&[&[0x82, 6, 0x81], &key[..]].concat());
    let output = child.wait_with_output().unwrap();
    let mut log = File::from(log);
    if !output.stdout.is_empty() {
        // Stream 1, length, time, and bytes before.
        let header = [&[1, 0, 0, 0][..], &(output.stdout.len() as u32).to_le_bytes(), &[0; 16]].concat();
        log.write_all(&[&header[..], &output.stdout].concat()).unwrap();
    }
    let code = output.status.code().unwrap() as u8;
    let mut known = state.lock().unwrap();
    known.attempts.iter_mut().filter(|attempt| attempt.key == key).for_each(|attempt| attempt.exit_code = Some(code));
    known.send(&[&[0x82, 3, 0x82], &key[..], &exit_bytes(code)].concat());
}
