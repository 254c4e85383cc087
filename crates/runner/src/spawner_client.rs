//! The runner's connection to its node's spawner: sends commands, receives exits, and starts a new spawner if it dies.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::id::{Attempt, JobId, NodeId};
use model::message::AttemptRef;
use parking_lot::Mutex;
use spawner::protocol::{AttemptKey, Command, Event, Exit, ExitStatus, Launch, Protections, Sample};
use spawner::{Channel, ClaimedSpawner, InFlightAttempt};
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{HomeId, kill_orphans};

/// Interval between tries to reach or start a spawner.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// Location and settings of a node's spawner.
#[derive(Debug, Clone)]
pub struct SpawnerOptions {
    pub options: spawner::Options,
    /// Executable of a spawner.
    pub program: PathBuf,
    pub socket: PathBuf,
    /// File for a spawner's standard error.
    pub log: PathBuf,
}

impl SpawnerOptions {
    /// Connects to the running spawner, or starts one. Blocks during the handshake.
    pub fn claim(&self) -> io::Result<ClaimedSpawner> {
        spawner::claim(&self.options, &self.program, &self.socket, &self.log)
    }
}

pub(crate) fn key_of(attempt_ref: AttemptRef) -> AttemptKey {
    AttemptKey { job: attempt_ref.job.0, attempt: attempt_ref.attempt.0 }
}

pub(crate) fn attempt_of(key: AttemptKey) -> AttemptRef {
    AttemptRef { job: JobId(key.job), attempt: Attempt(key.attempt) }
}

/// Command with its file descriptors.
type Message = (Command, Vec<OwnedFd>);

/// State shared by all handles and the connection task.
#[derive(Debug)]
struct Shared {
    pending: Mutex<BTreeMap<AttemptKey, PendingAttempt>>,
    protections: Mutex<Protections>,
    samples: watch::Sender<Vec<Sample>>,
    /// Whether the spawner reports the start of programs.
    reports_start: AtomicBool,
    /// Whether the spawner can hold tethers.
    holds_tethers: AtomicBool,
    /// Whether the spawner kills attempts whose lease has run out.
    keeps_leases: AtomicBool,
    /// Counts the connections to spawners.
    generation: watch::Sender<u64>,
}

/// Attempt of an earlier server, with its future exit.
#[derive(Debug)]
pub(crate) struct InheritedAttempt {
    pub attempt_ref: AttemptRef,
    pub note: Vec<u8>,
    /// When its lease runs out.
    pub lease_until: Option<u64>,
    pub progress: AttemptProgress,
}

/// Future events of an attempt.
#[derive(Debug)]
pub(crate) struct AttemptProgress {
    /// Resolves when the program is started; fails if it never is.
    pub started: oneshot::Receiver<()>,
    pub exit: oneshot::Receiver<Exit>,
}

/// Senders of an attempt's events.
#[derive(Debug)]
struct PendingAttempt {
    started: Option<oneshot::Sender<()>>,
    exit: oneshot::Sender<Exit>,
}

impl PendingAttempt {
    fn new() -> (Self, AttemptProgress) {
        let ((started, on_start), (exit, on_exit)) = (oneshot::channel(), oneshot::channel());
        (Self { started: Some(started), exit }, AttemptProgress { started: on_start, exit: on_exit })
    }

    fn note_start(&mut self) {
        if let Some(started) = self.started.take() {
            // Fails if nobody waits for it any more.
            let _ = started.send(());
        }
    }
}

/// Handle of the connection; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct SpawnerClient {
    commands: mpsc::UnboundedSender<Message>,
    shared: Arc<Shared>,
}

impl SpawnerClient {
    /// Starts the connection task of a claimed spawner.
    pub fn new(
        settings: SpawnerOptions,
        node: (NodeId, HomeId),
        claimed: ClaimedSpawner,
    ) -> (Self, Vec<InheritedAttempt>) {
        let (commands, inbox) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            pending: Mutex::default(),
            protections: Mutex::new(claimed.protections.clone()),
            samples: watch::Sender::new(Vec::new()),
            reports_start: AtomicBool::new(claimed.reports_start),
            holds_tethers: AtomicBool::new(claimed.holds_tethers),
            keeps_leases: AtomicBool::new(claimed.keeps_leases),
            generation: watch::Sender::new(1),
        });
        let ClaimedSpawner { channel, child, in_flight, .. } = claimed;
        let this = Self { commands, shared: shared.clone() };
        // Before the connection task starts: an exit must find its receiver.
        let inherited = in_flight.into_iter().map(|InFlightAttempt { key, exit, note, started, lease_until }| {
            let (mut pending, progress) = PendingAttempt::new();
            if started {
                pending.note_start();
            }
            match exit {
                Some(exit) => drop(pending.exit.send(exit)),
                None => drop(this.shared.pending.lock().insert(key, pending)),
            }
            InheritedAttempt { attempt_ref: attempt_of(key), note, lease_until, progress }
        });
        let inherited = inherited.collect();
        reap_in_background(child);
        tokio::spawn(serve(settings, node, channel, inbox, shared));
        (this, inherited)
    }

    /// Starts an attempt.
    pub fn start(&self, key: AttemptKey, launch: Launch, log: File, input: OwnedFd) -> AttemptProgress {
        let (mut pending, progress) = PendingAttempt::new();
        if !self.shared.reports_start.load(Ordering::Relaxed) {
            pending.note_start();
        }
        self.shared.pending.lock().insert(key, pending);
        self.send(Command::Start { key, launch: Box::new(launch) }, vec![log.into(), input]);
        progress
    }

    pub fn send(&self, command: Command, descriptors: Vec<OwnedFd>) {
        // Fails only while this node stops.
        let _ = self.commands.send((command, descriptors));
    }

    /// Whether the spawner kills attempts whose lease has run out. One of an older version does not.
    pub fn keeps_leases(&self) -> bool {
        self.shared.keeps_leases.load(Ordering::Relaxed)
    }

    /// Passes a tether to the spawner. `false` if the spawner cannot hold it.
    pub fn hold_tether(&self, connection: OwnedFd) -> bool {
        let can_hold = self.shared.can_hold_tethers();
        if can_hold {
            self.send(Command::HoldTether, vec![connection]);
        }
        can_hold
    }

    /// Counts the connections to spawners, from 1.
    pub fn generation(&self) -> watch::Receiver<u64> {
        self.shared.generation.subscribe()
    }

    /// Whether attempts are in flight.
    pub fn is_busy(&self) -> bool {
        !self.shared.pending.lock().is_empty()
    }

    pub fn protections(&self) -> Protections {
        self.shared.protections.lock().clone()
    }

    pub fn samples(&self) -> watch::Receiver<Vec<Sample>> {
        self.shared.samples.subscribe()
    }
}

impl Shared {
    fn can_hold_tethers(&self) -> bool {
        let can_hold = self.holds_tethers.load(Ordering::Relaxed);
        if !can_hold {
            tracing::info!(
                "the running spawner is of an older version and holds no tether: until it is replaced, the death of \
                 this node is found by probes only"
            );
        }
        can_hold
    }
}

struct Socket(Channel);

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.socket().as_raw_fd()
    }
}

/// Connection task: forwards messages both ways until all handles are dropped.
async fn serve(
    settings: SpawnerOptions,
    node: (NodeId, HomeId),
    mut channel: Channel,
    mut inbox: mpsc::UnboundedReceiver<Message>,
    shared: Arc<Shared>,
) {
    loop {
        let quit = match watch_socket(Socket(channel)) {
            Ok(socket) => forward(&socket, &mut inbox, &shared).await,
            Err(error) => {
                tracing::error!(%error, "cannot poll the spawner's socket");
                false
            }
        };
        if quit || inbox.is_closed() {
            return;
        }
        channel = reconnect(&settings, node, &shared).await;
    }
}

/// Reconnects to the spawner, or starts a new one. Either reports its attempts in flight.
async fn reconnect(settings: &SpawnerOptions, (node, home): (NodeId, HomeId), shared: &Shared) -> Channel {
    loop {
        let settings = settings.clone();
        let claimed = tokio::task::spawn_blocking(move || {
            let claimed = settings.claim()?;
            if claimed.child.is_some() {
                // The previous spawner is dead. Its unsandboxed attempts may have left processes behind.
                kill_orphans(node, home);
            }
            io::Result::Ok(claimed)
        });
        match claimed.await {
            Ok(Ok(claimed)) => {
                match claimed.child.is_some() {
                    true => tracing::error!("the spawner died with all its attempts; started a new one"),
                    false => tracing::warn!("reconnected to the spawner after losing the connection"),
                }
                shared.reports_start.store(claimed.reports_start, Ordering::Relaxed);
                shared.holds_tethers.store(claimed.holds_tethers, Ordering::Relaxed);
                shared.keeps_leases.store(claimed.keeps_leases, Ordering::Relaxed);
                resolve_pending(shared, claimed.in_flight);
                *shared.protections.lock() = claimed.protections;
                reap_in_background(claimed.child);
                shared.generation.send_modify(|generation| *generation += 1);
                return claimed.channel;
            }
            Ok(Err(error)) => tracing::error!(%error, "cannot reach or start a spawner, retrying"),
            Err(error) => tracing::error!(%error, "connecting to the spawner panicked, retrying"),
        }
        tokio::time::sleep(RECONNECT_INTERVAL).await;
    }
}

/// Attempts the spawner still has stay pending or get their exit; all others are lost.
fn resolve_pending(shared: &Shared, in_flight: Vec<InFlightAttempt>) {
    let mut pending = shared.pending.lock();
    let mut remaining: BTreeMap<AttemptKey, (Option<Exit>, bool)> =
        in_flight.into_iter().map(|attempt| (attempt.key, (attempt.exit, attempt.started))).collect();
    for (key, mut attempt) in std::mem::take(&mut *pending) {
        let found = remaining.remove(&key);
        if found.as_ref().is_some_and(|(_, started)| *started) {
            attempt.note_start();
        }
        let exit = match found.map(|(exit, _)| exit) {
            Some(None) => {
                pending.insert(key, attempt);
                continue;
            }
            Some(Some(exit)) => exit,
            None => {
                let status = ExitStatus::Lost { reason: "the node's spawner died, and the attempt with it".to_owned() };
                Exit::without_usage(status, 0)
            }
        };
        let _ = attempt.exit.send(exit);
    }
}

/// Waits for the spawner process in a thread, so that it does not become a zombie.
fn reap_in_background(child: Option<std::process::Child>) {
    if let Some(mut child) = child {
        let wait = move || drop(child.wait());
        // On failure a dead spawner stays a zombie, which is harmless.
        let _ = std::thread::Builder::new().name("spawner-reaper".to_owned()).spawn(wait);
    }
}

#[expect(unsafe_code, reason = "registering a descriptor requires that it stays the same")]
fn watch_socket(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    // SAFETY: a `Socket` owns its descriptor and returns the same one for its whole life.
    unsafe { AsyncFd::register(socket) }.map_err(io::Error::from)
}

/// Forwards messages until the connection ends. Returns whether a quit command was sent.
async fn forward(socket: &AsyncFd<Socket>, inbox: &mut mpsc::UnboundedReceiver<Message>, shared: &Shared) -> bool {
    let mut quit = false;
    loop {
        tokio::select! {
            readable = socket.readable() => {
                let Ok(mut readable) = readable else { return quit };
                match receive(&socket.get_ref().0, shared) {
                    Ok(()) => readable.clear_ready(),
                    Err(_) => return quit,
                }
            }
            message = inbox.recv() => {
                let Some((command, descriptors)) = message else { return quit };
                quit |= command == Command::Quit;
                // The spawner may have been replaced since the tether was accepted.
                if command == Command::HoldTether && !shared.can_hold_tethers() {
                    continue;
                }
                if let Err(error) = send_command(socket, &command, &descriptors).await {
                    fail_start(shared, &command);
                    if is_disconnected(&error) {
                        return quit;
                    }
                    tracing::error!(%error, "cannot send a command to the spawner");
                }
            }
        }
    }
}

/// Handles all queued events. An error means that the connection is lost.
fn receive(channel: &Channel, shared: &Shared) -> io::Result<()> {
    loop {
        match channel.receive::<Event>() {
            Ok(Some((Event::Ended { key, exit }, _))) => {
                if let Some(attempt) = shared.pending.lock().remove(&key) {
                    let _ = attempt.exit.send(exit);
                }
            }
            Ok(Some((Event::Started { key }, _))) => {
                if let Some(attempt) = shared.pending.lock().get_mut(&key) {
                    attempt.note_start();
                }
            }
            Ok(Some((Event::Samples { samples }, _))) => drop(shared.samples.send_replace(samples)),
            Ok(Some((Event::Welcome { .. } | Event::InFlight { .. } | Event::Ready | Event::Mismatch { .. }, _))) => {}
            Ok(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if is_disconnected(&error) => return Err(error),
            Err(error) => tracing::error!(%error, "cannot decode an event of the spawner"),
        }
    }
}

fn is_disconnected(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected | UnexpectedEof)
}

async fn send_command(socket: &AsyncFd<Socket>, command: &Command, descriptors: &[OwnedFd]) -> io::Result<()> {
    let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    loop {
        match socket.get_ref().0.send(command, &borrowed) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.writable().await?.clear_ready(),
            done => return done,
        }
    }
}

/// Drops the exit sender of a start that could not be sent, so that its receiver fails.
fn fail_start(shared: &Shared, command: &Command) {
    if let Command::Start { key, .. } = command {
        shared.pending.lock().remove(key);
    }
}
