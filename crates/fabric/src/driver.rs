//! The membership on a UDP socket: one thread, so that a busy node still answers.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use model::id::{Incarnation, NodeId};
use model::time::Millis;
use parking_lot::RwLock;
use ring::rand::{SecureRandom, SystemRandom};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::identity::Role;
use crate::limits::{COMMANDS_MAX, DATAGRAM_BYTES_MAX, DATAGRAMS_AT_ONCE};
use crate::membership::{Counters, Membership};
use crate::options::{Options, OptionsError};
use crate::profile::Profile;
use crate::sealed::{Keyring, OpenCounters, SealError, Sealed};
use crate::view::{Event, MemberView, Source};

/// The thread looks for commands at least this often, even if its wake-up is lost.
const IDLE_MS_MAX: u64 = 500;

/// How long [`Driver::leave`] waits for the thread.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Priority of the thread, where the system permits it.
#[cfg(target_os = "linux")]
const NICENESS: i32 = -10;

/// How a node takes part in the cluster.
#[derive(Debug, Clone)]
pub struct DriverOptions {
    pub node: NodeId,
    /// Counts the starts of the node. Greater than at any earlier start.
    pub incarnation: Incarnation,
    pub role: Role,
    pub profile: Profile,
    /// Where the socket listens. Port 0: any free one.
    pub bind: SocketAddr,
    /// Where the other nodes reach this one. Port 0: the port of the socket.
    pub advertise: SocketAddr,
    /// Addresses of some nodes of the cluster.
    pub join: Vec<SocketAddr>,
    pub keyring: Keyring,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {address}: {error}")]
    Bind { address: SocketAddr, error: io::Error },
    #[error("cannot start the thread of the membership: {0}")]
    Thread(io::Error),
    #[error(transparent)]
    Options(#[from] OptionsError),
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// The thread has ended or is overloaded. The command was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error("the membership of this node has ended")]
    Ended,
    #[error("the membership of this node is overloaded; try again")]
    Overloaded,
}

/// Numbers for operators. They only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DriverCounters {
    pub membership: Counters,
    pub datagrams: OpenCounters,
    /// Datagrams that the system refused to send.
    pub send_errors: u64,
    /// 0 is healthy; at 8 this node's probes take nine times as long.
    pub health_score: u32,
}

enum Command {
    Join(Vec<SocketAddr>),
    DeclareDead {
        node: NodeId,
        incarnation: Incarnation,
        source: Source,
    },
    Forget(NodeId),
    SetKeys(Box<Keyring>),
    Leave {
        done: SyncSender<()>,
    },
    /// Ends the thread without a word.
    Stop,
}

#[derive(Debug)]
struct Snapshot {
    members: Arc<[MemberView]>,
    counters: DriverCounters,
}

/// Talks to the membership of this node from any thread.
#[derive(Debug, Clone)]
pub struct Handle {
    commands: SyncSender<Command>,
    snapshot: Arc<RwLock<Snapshot>>,
    socket: Arc<UdpSocket>,
    address: SocketAddr,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Command")
    }
}

impl Handle {
    /// Where the other nodes reach this one.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All members, this node among them, ordered by id. At least as new as the last event.
    pub fn members(&self) -> Arc<[MemberView]> {
        Arc::clone(&self.snapshot.read().members)
    }

    pub fn counters(&self) -> DriverCounters {
        self.snapshot.read().counters
    }

    /// Replaces the join addresses and joins.
    pub fn join(&self, addresses: Vec<SocketAddr>) -> Result<(), CommandError> {
        self.command(Command::Join(addresses))
    }

    /// Declares a member dead in this incarnation.
    pub fn declare_dead(&self, node: NodeId, incarnation: Incarnation, source: Source) -> Result<(), CommandError> {
        self.command(Command::DeclareDead { node, incarnation, source })
    }

    /// Removes a dead or departed member from the list.
    pub fn forget(&self, node: NodeId) -> Result<(), CommandError> {
        self.command(Command::Forget(node))
    }

    /// Replaces the keys. See [`Keyring`] for the order of steps.
    pub fn set_keys(&self, keyring: Keyring) -> Result<(), CommandError> {
        self.command(Command::SetKeys(Box::new(keyring)))
    }

    fn command(&self, command: Command) -> Result<(), CommandError> {
        self.commands.try_send(command).map_err(|error| match error {
            std::sync::mpsc::TrySendError::Full(_) => CommandError::Overloaded,
            std::sync::mpsc::TrySendError::Disconnected(_) => CommandError::Ended,
        })?;
        self.wake();
        Ok(())
    }

    /// Wakes the thread with an empty datagram. If it is lost, the socket is full and the thread awake.
    fn wake(&self) {
        if let Ok(mut to) = self.socket.local_addr() {
            match to.ip() {
                IpAddr::V4(ip) if ip.is_unspecified() => to.set_ip(Ipv4Addr::LOCALHOST.into()),
                IpAddr::V6(ip) if ip.is_unspecified() => to.set_ip(Ipv6Addr::LOCALHOST.into()),
                IpAddr::V4(_) | IpAddr::V6(_) => {}
            }
            let _ = self.socket.send_to(&[], to);
        }
    }
}

/// The running membership. Dropped without [`leave`](Self::leave), the node falls silent, and the others find it dead.
#[derive(Debug)]
pub struct Driver {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    /// Starts the thread. `on_event` runs on it and must not block.
    pub fn start(options: DriverOptions, on_event: impl FnMut(Event) + Send + 'static) -> Result<Self, StartError> {
        let bind = |error| StartError::Bind { address: options.bind, error };
        let socket = Arc::new(UdpSocket::bind(options.bind).map_err(bind)?);
        socket.set_nonblocking(true).map_err(bind)?;
        let mut address = options.advertise;
        if address.port() == 0 {
            address.set_port(socket.local_addr().map_err(bind)?.port());
        }
        let mut seed = [0; 8];
        SystemRandom::new().fill(&mut seed).map_err(|_| SealError)?;
        let mut membership = Membership::new(
            now(),
            Options {
                node: options.node,
                incarnation: options.incarnation,
                address,
                role: options.role,
                profile: options.profile,
                seed: u64::from_ne_bytes(seed),
            },
        )?;
        membership.join(now(), &options.join);
        let (commands, receiver) = sync_channel(COMMANDS_MAX);
        let snapshot = Snapshot { members: membership.members().into(), counters: DriverCounters::default() };
        let snapshot = Arc::new(RwLock::new(snapshot));
        let mut service = Service {
            membership,
            sealed: Sealed::new(&options.keyring)?,
            socket: Arc::clone(&socket),
            commands: receiver,
            snapshot: Arc::clone(&snapshot),
            published: 0,
            send_errors: 0,
            on_event,
        };
        let thread = std::thread::Builder::new()
            .name("membership".to_owned())
            .spawn(move || service.run())
            .map_err(StartError::Thread)?;
        Ok(Self { handle: Handle { commands, snapshot, socket, address }, thread: Some(thread) })
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Announces the departure to all members and ends.
    pub fn leave(mut self) {
        let (done, left) = sync_channel(1);
        if self.handle.command(Command::Leave { done }).is_ok() {
            // An error means that the thread has ended already.
            let _ = left.recv_timeout(LEAVE_TIMEOUT);
        }
        self.end();
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            let mut stopped = self.handle.command(Command::Stop);
            while stopped == Err(CommandError::Overloaded) {
                std::thread::yield_now();
                stopped = self.handle.command(Command::Stop);
            }
            // A panic of the thread was reported by the thread.
            let _ = thread.join();
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.end();
    }
}

fn now() -> Millis {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is negative.
    Millis(now.tv_sec.unsigned_abs() * 1_000 + now.tv_nsec.unsigned_abs() / 1_000_000)
}

struct Service<F> {
    membership: Membership,
    sealed: Sealed,
    socket: Arc<UdpSocket>,
    commands: Receiver<Command>,
    snapshot: Arc<RwLock<Snapshot>>,
    /// Version of the published member list.
    published: u64,
    send_errors: u64,
    on_event: F,
}

#[derive(PartialEq, Eq)]
enum Next {
    Continue,
    End,
}

impl<F: FnMut(Event)> Service<F> {
    fn run(&mut self) {
        // Without the permission the thread has the usual priority.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::setpriority_process(None, NICENESS);
        self.flush();
        loop {
            if let Err(error) = self.wait() {
                tracing::error!(%error, "the membership cannot wait for packets and ends: restart the node");
                return;
            }
            // Packets first: answers to probes may be among them.
            self.receive();
            let next = self.obey();
            self.membership.handle_timers(now());
            self.flush();
            if next == Next::End {
                return;
            }
        }
    }

    /// Waits for a packet, a command or a timer.
    fn wait(&self) -> Result<(), Errno> {
        let timer = self.membership.next_timer().map_or(IDLE_MS_MAX, |at| (at - now()).0);
        let wait_ms = timer.min(IDLE_MS_MAX);
        let timeout = Timespec { tv_sec: 0, tv_nsec: (wait_ms * 1_000_000).cast_signed() };
        let mut fds = [PollFd::new(&*self.socket, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn receive(&mut self) {
        // One byte more than permitted, to notice what is too long.
        let mut buffer = [0; DATAGRAM_BYTES_MAX + 1];
        for _ in 0..DATAGRAMS_AT_ONCE {
            match self.socket.recv_from(&mut buffer) {
                // A wake-up.
                Ok((0, _)) => {}
                Ok((len, _)) => {
                    if let Ok(packet) = self.sealed.open(&buffer[..len]) {
                        self.membership.handle_packet(now(), &packet);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The system reports here that an earlier datagram found no receiver.
                Err(_) => {}
            }
        }
    }

    fn obey(&mut self) -> Next {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Join(addresses)) => self.membership.join(now(), &addresses),
                Ok(Command::DeclareDead { node, incarnation, source }) => {
                    self.membership.declare_dead(now(), node, incarnation, source);
                }
                Ok(Command::Forget(node)) => self.membership.forget(now(), node),
                Ok(Command::SetKeys(keyring)) => {
                    if let Err(error) = self.sealed.rotate(&keyring) {
                        tracing::error!(%error, "the keys of the cluster were not replaced");
                    }
                }
                Ok(Command::Leave { done }) => {
                    self.membership.leave(now());
                    self.flush();
                    // An error means that nobody waits any more.
                    let _ = done.try_send(());
                    return Next::End;
                }
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return Next::End,
                Err(TryRecvError::Empty) => return Next::Continue,
            }
        }
    }

    /// Sends packets, publishes the members, then reports the events.
    fn flush(&mut self) {
        while let Some(transmit) = self.membership.poll_packet() {
            let Some(datagram) = self.sealed.seal(&transmit.payload) else { continue };
            if self.socket.send_to(&datagram, transmit.to).is_err() {
                self.send_errors += 1;
            }
        }
        let counters = DriverCounters {
            membership: self.membership.counters(),
            datagrams: self.sealed.counters(),
            send_errors: self.send_errors,
            health_score: self.membership.health_score(),
        };
        let version = self.membership.version();
        let members = (version != self.published).then(|| self.membership.members().into());
        self.published = version;
        {
            let mut snapshot = self.snapshot.write();
            snapshot.counters = counters;
            if let Some(members) = members {
                snapshot.members = members;
            }
        }
        while let Some(event) = self.membership.poll_event() {
            (self.on_event)(event);
        }
    }
}
