//! The server's side: finds the spawner of its data directory, or starts one.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};

use crate::channel::Channel;
use crate::protocol::{Exit, Key, Order, Protections, VERSION, Word};
use crate::sandbox::root::Places;

/// The first argument that makes a program a spawner.
pub const ARGUMENT: &str = "--spawner";
/// The descriptor that a spawner finds its listener at.
const LISTENER: i32 = 3;
/// How long a spawner may take for its first words.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(20);

/// A spawner's settings.
#[derive(Debug, Clone)]
pub struct Options {
    pub places: Places,
    /// Names the node among others on the host.
    pub node: String,
    /// Without a server for this long it ends its attempts and itself.
    pub unclaimed: Duration,
    /// The same when it has nothing in hand.
    pub unclaimed_idle: Duration,
    /// Attempts run as this user of the host and the ones after it, where the node runs as root.
    pub first_user: u32,
    /// It was told to end.
    pub quit: bool,
}

impl Options {
    pub fn group_name(&self) -> String {
        format!("outlast-{}", self.node)
    }

    fn to_arguments(&self) -> Vec<OsString> {
        vec![
            ARGUMENT.into(),
            self.places.base.clone().into(),
            self.places.scratch.clone().into(),
            self.places.workers.clone().into(),
            self.node.clone().into(),
            self.unclaimed.as_millis().to_string().into(),
            self.unclaimed_idle.as_millis().to_string().into(),
            self.first_user.to_string().into(),
        ]
    }

    /// Reads back what `to_arguments` wrote, without the first.
    pub fn from_arguments(mut arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut path = || arguments.next().map(PathBuf::from);
        let places = Places { base: path()?, scratch: path()?, workers: path()? };
        let mut text = || arguments.next()?.into_string().ok();
        let node = text()?;
        let mut number = || text()?.parse::<u64>().ok();
        let (unclaimed, unclaimed_idle) = (Duration::from_millis(number()?), Duration::from_millis(number()?));
        let first_user = u32::try_from(number()?).ok()?;
        Some(Self { places, node, unclaimed, unclaimed_idle, first_user, quit: false })
    }
}

/// A spawner that this server now speaks for.
#[derive(Debug)]
pub struct Claimed {
    pub channel: Channel,
    /// The process, if it was started just now.
    pub child: Option<Child>,
    pub pid: u32,
    pub protections: Protections,
    /// Attempts of an earlier server.
    pub holding: Vec<Holding>,
}

/// An attempt of an earlier server, running or with its end, and that server's note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    pub key: Key,
    pub exit: Option<Exit>,
    pub note: Vec<u8>,
}

/// Takes over the spawner that listens at `socket`, or starts `program` as a new one. Blocks for a moment.
pub fn claim(options: &Options, program: &Path, socket: &Path, log: &Path) -> io::Result<Claimed> {
    // There must never be two: a new one is started only when there is none, or it is just ending.
    if let Ok(channel) = reach(socket) {
        match greet(channel, None) {
            Ok(claimed) => return Ok(claimed),
            Err(error) if is_gone(&error) => {}
            Err(error) => {
                let message = format!("the spawner of this data directory is running and cannot be used: {error}");
                return Err(io::Error::new(error.kind(), message));
            }
        }
    }
    let (child, channel) = start(options, program, socket, log)?;
    greet(channel, Some(child))
}

/// The other side has closed the connection.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

fn greet(channel: Channel, child: Option<Child>) -> io::Result<Claimed> {
    rustix::net::sockopt::set_socket_timeout(
        channel.socket(),
        rustix::net::sockopt::Timeout::Recv,
        Some(HANDSHAKE_PATIENCE),
    )?;
    channel.send(&Order::Hello { version: VERSION }, &[])?;
    let mut claimed = Claimed { channel, child, pid: 0, protections: Protections::default(), holding: Vec::new() };
    loop {
        match claimed.channel.receive::<Word>()? {
            Some((Word::Welcome { pid, protections, .. }, _)) => {
                claimed.pid = pid;
                claimed.protections = protections;
            }
            Some((Word::Holding { key, exit, note }, _)) => claimed.holding.push(Holding { key, exit, note }),
            // It ended while the others were told of.
            Some((Word::Ended { key, exit }, _)) => {
                if let Some(holding) = claimed.holding.iter_mut().find(|holding| holding.key == key) {
                    holding.exit = Some(exit);
                }
            }
            Some((Word::Ready, _)) => break,
            Some((Word::Mismatch { newest, oldest }, _)) => {
                // Too old to be spoken to, but it understands that.
                let _ = claimed.channel.send(&Order::Quit, &[]);
                let message = format!(
                    "the running spawner speaks versions {oldest} to {newest}, this server {VERSION}; it was told to end, start the server again"
                );
                return Err(io::Error::new(io::ErrorKind::Unsupported, message));
            }
            Some((Word::Samples { .. }, _)) => {}
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
    rustix::io::ioctl_fionbio(claimed.channel.socket(), true)?;
    Ok(claimed)
}

/// Names of sockets are short; directories may lie deep. Through a descriptor every name is short.
fn address(socket: &Path) -> io::Result<(OwnedFd, SocketAddrUnix)> {
    use rustix::fs::{Mode, OFlags, open};
    let (Some(directory), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let directory = open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    Ok((directory, SocketAddrUnix::new(path)?))
}

fn new_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

fn reach(socket: &Path) -> io::Result<Channel> {
    let (_directory, address) = address(socket)?;
    let connection = new_socket()?;
    connect(&connection, &address)?;
    Ok(Channel::new(connection))
}

fn start(options: &Options, program: &Path, socket: &Path, log: &Path) -> io::Result<(Child, Channel)> {
    for directory in [&options.places.base, &options.places.scratch, &options.places.workers] {
        std::fs::create_dir_all(directory)?;
    }
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let (_directory, address) = address(socket)?;
    let listener = new_socket()?;
    bind(&listener, &address)?;
    rustix::fs::chmod(socket, rustix::fs::Mode::from_raw_mode(0o600))?;
    listen(&listener, 4)?;
    let log = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
    let mut command = Command::new(program);
    command
        .arg0("outlast-spawner")
        .args(options.to_arguments())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        // A Ctrl-C in the server's terminal is the server's business.
        .process_group(0);
    hand_over(&mut command, listener.as_raw_fd());
    let child = command.spawn()?;
    drop(listener);
    Ok((child, reach(socket)?))
}

#[expect(unsafe_code, reason = "only code between fork and exec can place a descriptor; it is async-signal-safe")]
fn hand_over(command: &mut Command, listener: i32) {
    let place = move || {
        if listener == LISTENER {
            // It is in its place already, and must only stay open.
            return crate::sys::keep_open(listener);
        }
        crate::sys::redirect(listener, LISTENER)
    };
    // SAFETY: `place` makes a system call and allocates nothing.
    unsafe {
        command.pre_exec(place);
    }
}

/// Whether this process is to become a spawner.
pub fn is_asked_for() -> bool {
    std::env::args_os().nth(1).is_some_and(|first| first == ARGUMENT)
}

/// Becomes a spawner if the arguments say so, and then does not return. To be called before anything else, so that
/// there is one thread.
pub fn become_spawner_if_asked() {
    if !is_asked_for() {
        return;
    }
    let code = match Options::from_arguments(std::env::args_os().skip(2)) {
        Some(options) => crate::run(options, crate::sys::own(LISTENER)),
        None => {
            eprintln!("a spawner is started by its server, not by hand");
            2
        }
    };
    std::process::exit(code);
}
