//! The server's side: claims the spawner of its data directory, or starts one.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};

use crate::channel::Channel;
use crate::protocol::{
    self, AttemptKey, Event, Exit, LEASE_VERSION, Protections, STARTED_VERSION, TETHER_VERSION, VERSION,
};
use crate::sandbox::root::Directories;

/// First argument of a process that runs as a spawner.
pub const ARGUMENT: &str = "--spawner";
/// File descriptor of the listener in a new spawner.
const LISTENER: i32 = 3;
/// Time for a spawner to answer `Hello`, including its sandbox probes.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);

/// A spawner's settings.
#[derive(Debug, Clone)]
pub struct Options {
    pub directories: Directories,
    /// Unique among the nodes of this host; part of the control group name.
    pub node: String,
    /// Without a server for this long, the spawner stops its attempts and exits.
    pub unclaimed_timeout: Duration,
    /// As `unclaimed_timeout`, without attempts in flight.
    pub unclaimed_idle_timeout: Duration,
    /// First of the host's user ids that attempts run as, one per slot, where the node runs as root.
    pub first_user: u32,
    /// Set by a quit command or SIGTERM.
    pub quit: bool,
}

impl Options {
    pub fn group_name(&self) -> String {
        format!("outlast-{}", self.node)
    }

    fn to_arguments(&self) -> Vec<OsString> {
        vec![
            ARGUMENT.into(),
            self.directories.base.clone().into(),
            self.directories.scratch.clone().into(),
            self.directories.workers.clone().into(),
            self.node.clone().into(),
            self.unclaimed_timeout.as_millis().to_string().into(),
            self.unclaimed_idle_timeout.as_millis().to_string().into(),
            self.first_user.to_string().into(),
        ]
    }

    /// Inverse of `to_arguments`, without the first argument.
    pub fn from_arguments(mut arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut path = || arguments.next().map(PathBuf::from);
        let directories = Directories { base: path()?, scratch: path()?, workers: path()? };
        let mut text = || arguments.next()?.into_string().ok();
        let node = text()?;
        let mut number = || text()?.parse::<u64>().ok();
        let (unclaimed_timeout, unclaimed_idle_timeout) =
            (Duration::from_millis(number()?), Duration::from_millis(number()?));
        let first_user = u32::try_from(number()?).ok()?;
        Some(Self { directories, node, unclaimed_timeout, unclaimed_idle_timeout, first_user, quit: false })
    }
}

/// Connection of this server to its spawner.
#[derive(Debug)]
pub struct ClaimedSpawner {
    pub channel: Channel,
    /// Its process, if this call started it.
    pub child: Option<Child>,
    pub pid: u32,
    pub protections: Protections,
    /// Whether it reports the start of programs.
    pub reports_start: bool,
    /// Whether it understands [`protocol::Command::HoldTether`].
    pub holds_tethers: bool,
    /// Whether it kills attempts whose lease has run out.
    pub keeps_leases: bool,
    /// Attempts of an earlier server.
    pub in_flight: Vec<InFlightAttempt>,
}

/// Attempt of an earlier server, running or ended, with that server's note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlightAttempt {
    pub key: AttemptKey,
    pub exit: Option<Exit>,
    pub note: Vec<u8>,
    /// Its program was started. A spawner before version 2 does not say: counts as started.
    pub started: bool,
    /// When its lease runs out, on the [`crate::steady_clock`].
    pub lease_until: Option<u64>,
}

/// Takes over the spawner that listens at `socket`, or starts `program` as a new one. Blocks during the handshake.
pub fn claim(options: &Options, program: &Path, socket: &Path, log: &Path) -> io::Result<ClaimedSpawner> {
    // Never two spawners: a new one is started only if none is running or the running one is just exiting.
    if let Ok(channel) = connect_to(socket) {
        match handshake(channel, None) {
            Ok(claimed) => return Ok(claimed),
            Err(error) if is_disconnected(&error) => {}
            Err(error) => {
                let message = format!("the spawner of this data directory is running and cannot be used: {error}");
                return Err(io::Error::new(error.kind(), message));
            }
        }
    }
    let (child, channel) = start(options, program, socket, log)?;
    handshake(channel, Some(child))
}

fn is_disconnected(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

fn handshake(channel: Channel, child: Option<Child>) -> io::Result<ClaimedSpawner> {
    rustix::net::sockopt::set_socket_timeout(
        channel.socket(),
        rustix::net::sockopt::Timeout::Recv,
        Some(HANDSHAKE_TIMEOUT),
    )?;
    channel.send(&protocol::Command::Hello { version: VERSION }, &[])?;
    let mut claimed = ClaimedSpawner {
        channel,
        child,
        pid: 0,
        protections: Protections::default(),
        reports_start: false,
        holds_tethers: false,
        keeps_leases: false,
        in_flight: Vec::new(),
    };
    loop {
        match claimed.channel.receive::<Event>()? {
            Some((Event::Welcome { version, pid, protections }, _)) => {
                claimed.reports_start = version >= STARTED_VERSION;
                claimed.holds_tethers = version >= TETHER_VERSION;
                claimed.keeps_leases = version >= LEASE_VERSION;
                claimed.pid = pid;
                claimed.protections = protections;
            }
            Some((Event::InFlight { key, exit, note, started, lease_until }, _)) => {
                let started = started || !claimed.reports_start;
                claimed.in_flight.push(InFlightAttempt { key, exit, note, started, lease_until })
            }
            // Started during the handshake.
            Some((Event::Started { key }, _)) => {
                if let Some(attempt) = claimed.in_flight.iter_mut().find(|attempt| attempt.key == key) {
                    attempt.started = true;
                }
            }
            // Ended during the handshake.
            Some((Event::Ended { key, exit }, _)) => {
                if let Some(attempt) = claimed.in_flight.iter_mut().find(|attempt| attempt.key == key) {
                    attempt.exit = Some(exit);
                }
            }
            Some((Event::Ready, _)) => break,
            Some((Event::Mismatch { newest, oldest }, _)) => {
                // `Quit` is understood by every version.
                let _ = claimed.channel.send(&protocol::Command::Quit, &[]);
                let message = format!(
                    "the running spawner supports protocol versions {oldest} to {newest}, this server {VERSION}; the spawner was stopped: start the server again"
                );
                return Err(io::Error::new(io::ErrorKind::Unsupported, message));
            }
            Some((Event::Samples { .. }, _)) => {}
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
    rustix::io::ioctl_fionbio(claimed.channel.socket(), true)?;
    Ok(claimed)
}

/// Address of a socket through a descriptor of its directory: socket paths are limited to 108 bytes, data directories
/// are not.
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

fn connect_to(socket: &Path) -> io::Result<Channel> {
    let (_directory, address) = address(socket)?;
    let connection = new_socket()?;
    connect(&connection, &address)?;
    Ok(Channel::new(connection))
}

fn start(options: &Options, program: &Path, socket: &Path, log: &Path) -> io::Result<(Child, Channel)> {
    for directory in [&options.directories.base, &options.directories.scratch, &options.directories.workers] {
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
        // Ctrl-C in the server's terminal must not reach the spawner.
        .process_group(0);
    pass_listener(&mut command, listener.as_raw_fd());
    let child = command.spawn()?;
    drop(listener);
    Ok((child, connect_to(socket)?))
}

#[expect(
    unsafe_code,
    reason = "a descriptor can be duplicated only between fork and exec; the code is async-signal-safe"
)]
fn pass_listener(command: &mut Command, listener: i32) {
    let duplicate = move || {
        if listener == LISTENER {
            // Already at the right number: only clear close-on-exec.
            return crate::sys::keep_open(listener);
        }
        crate::sys::redirect(listener, LISTENER)
    };
    // SAFETY: `duplicate` makes a system call and allocates nothing.
    unsafe {
        command.pre_exec(duplicate);
    }
}

/// Whether this process was started to run as a spawner.
pub fn is_requested() -> bool {
    std::env::args_os().nth(1).is_some_and(|first| first == ARGUMENT)
}

/// Runs as a spawner if the arguments request it, and then does not return. To be called first in `main`, while the
/// process has one thread.
pub fn run_if_requested() {
    if !is_requested() {
        return;
    }
    let code = match Options::from_arguments(std::env::args_os().skip(2)) {
        Some(options) => crate::run(options, crate::sys::own(LISTENER)),
        None => {
            eprintln!("a spawner is started by a server, not by hand");
            2
        }
    };
    std::process::exit(code);
}
