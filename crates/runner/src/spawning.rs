//! The runner's line to its node's spawner: orders go out, ends come back, and when the spawner dies another is started.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use model::id::{Attempt, JobId, NodeId};
use model::message::Ticket;
use parking_lot::Mutex;
use spawner::protocol::{Exit, Key, Launch, Order, Protections, Sample, Verdict, Word};
use spawner::{Channel, Claimed, Holding};
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot, watch};

use crate::end_leftovers;

/// Between two tries to start a spawner.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// How a node's spawner is found and started.
#[derive(Debug, Clone)]
pub struct SpawnerOptions {
    pub options: spawner::Options,
    /// What is executed as a spawner.
    pub program: PathBuf,
    pub socket: PathBuf,
    /// Where a spawner writes what it has to say about itself.
    pub log: PathBuf,
}

impl SpawnerOptions {
    /// Blocks for a moment.
    pub fn claim(&self) -> io::Result<Claimed> {
        spawner::claim(&self.options, &self.program, &self.socket, &self.log)
    }
}

pub(crate) fn key_of(ticket: Ticket) -> Key {
    Key { job: ticket.job.0, attempt: ticket.attempt.0 }
}

pub(crate) fn ticket_of(key: Key) -> Ticket {
    Ticket { job: JobId(key.job), attempt: Attempt(key.attempt) }
}

/// An order and the descriptors that go with it.
type Message = (Order, Vec<OwnedFd>);

/// What everybody who speaks to the spawner shares.
#[derive(Debug)]
struct Shared {
    waiting: Mutex<BTreeMap<Key, oneshot::Sender<Exit>>>,
    protections: Mutex<Protections>,
    samples: watch::Sender<Vec<Sample>>,
}

/// An attempt of an earlier server, and its end when it comes.
#[derive(Debug)]
pub(crate) struct Inherited {
    pub ticket: Ticket,
    pub note: Vec<u8>,
    pub ended: oneshot::Receiver<Exit>,
}

/// The line; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Spawning {
    orders: mpsc::UnboundedSender<Message>,
    shared: Arc<Shared>,
}

impl Spawning {
    /// Takes up the line to a spawner that was just claimed.
    pub fn new(settings: SpawnerOptions, node: NodeId, claimed: Claimed) -> (Self, Vec<Inherited>) {
        let (orders, inbox) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            waiting: Mutex::default(),
            protections: Mutex::new(claimed.protections.clone()),
            samples: watch::Sender::new(Vec::new()),
        });
        let Claimed { channel, child, holding, .. } = claimed;
        let this = Self { orders, shared: shared.clone() };
        // Before the line is taken up: an end must find somebody who waits for it.
        let inherited = holding.into_iter().map(|Holding { key, exit, note }| {
            let ended = match exit {
                Some(exit) => {
                    let (tell, ended) = oneshot::channel();
                    let _ = tell.send(exit);
                    ended
                }
                None => this.await_end(key),
            };
            Inherited { ticket: ticket_of(key), note, ended }
        });
        let inherited = inherited.collect();
        reap_in_time(child);
        tokio::spawn(serve(settings, node, channel, inbox, shared));
        (this, inherited)
    }

    /// Starts an attempt; its end comes over the receiver.
    pub fn start(&self, key: Key, launch: Launch, log: File, input: OwnedFd) -> oneshot::Receiver<Exit> {
        let ended = self.await_end(key);
        self.order(Order::Start { key, launch: Box::new(launch) }, vec![log.into(), input]);
        ended
    }

    fn await_end(&self, key: Key) -> oneshot::Receiver<Exit> {
        let (tell, ended) = oneshot::channel();
        self.shared.waiting.lock().insert(key, tell);
        ended
    }

    pub fn order(&self, order: Order, descriptors: Vec<OwnedFd>) {
        // Without a line this node is ending.
        let _ = self.orders.send((order, descriptors));
    }

    /// Whether an attempt is waited for.
    pub fn is_busy(&self) -> bool {
        !self.shared.waiting.lock().is_empty()
    }

    pub fn protections(&self) -> Protections {
        self.shared.protections.lock().clone()
    }

    pub fn samples(&self) -> watch::Receiver<Vec<Sample>> {
        self.shared.samples.subscribe()
    }
}

struct Socket(Channel);

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.socket().as_raw_fd()
    }
}

/// Carries words both ways for as long as anybody may have an order.
async fn serve(
    settings: SpawnerOptions,
    node: NodeId,
    mut channel: Channel,
    mut inbox: mpsc::UnboundedReceiver<Message>,
    shared: Arc<Shared>,
) {
    loop {
        let quit = match watch_socket(Socket(channel)) {
            Ok(socket) => carry(&socket, &mut inbox, &shared).await,
            Err(error) => {
                tracing::error!(%error, "the line to the spawner cannot be watched");
                false
            }
        };
        if quit || inbox.is_closed() {
            return;
        }
        channel = reconnect(&settings, node, &shared).await;
    }
}

/// A lost line need not mean a dead spawner: whichever answers says what it still has.
async fn reconnect(settings: &SpawnerOptions, node: NodeId, shared: &Shared) -> Channel {
    loop {
        let wanted = settings.clone();
        let claimed = tokio::task::spawn_blocking(move || {
            let claimed = wanted.claim()?;
            if claimed.child.is_some() {
                // The earlier one is dead; what it ran without a sandbox may have left something behind.
                end_leftovers(node);
            }
            io::Result::Ok(claimed)
        });
        match claimed.await {
            Ok(Ok(claimed)) => {
                match claimed.child.is_some() {
                    true => tracing::error!("the spawner has died, and its attempts with it; there is a new one"),
                    false => tracing::warn!("the line to the spawner was lost and is there again"),
                }
                settle(shared, claimed.holding);
                *shared.protections.lock() = claimed.protections;
                reap_in_time(claimed.child);
                return claimed.channel;
            }
            Ok(Err(error)) => tracing::error!(%error, "no spawner can be reached or started"),
            Err(error) => tracing::error!(%error, "reaching the spawner panicked"),
        }
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}

/// What the spawner still has goes on; of the rest nobody will ever hear.
fn settle(shared: &Shared, holding: Vec<Holding>) {
    let mut waiting = shared.waiting.lock();
    let mut still: BTreeMap<Key, Option<Exit>> = holding.into_iter().map(|held| (held.key, held.exit)).collect();
    for (key, tell) in std::mem::take(&mut *waiting) {
        let exit = match still.remove(&key) {
            Some(None) => {
                waiting.insert(key, tell);
                continue;
            }
            Some(Some(exit)) => exit,
            None => {
                let verdict = Verdict::Lost { why: "the node's spawner died, and the attempt with it".to_owned() };
                let ended_at = 0;
                Exit { verdict, stopped: false, cpu_us: 0, memory_peak_bytes: 0, ended_at, log_errno: None }
            }
        };
        let _ = tell.send(exit);
    }
}

/// A child must be waited for, whenever it ends.
fn reap_in_time(child: Option<std::process::Child>) {
    if let Some(mut child) = child {
        let wait = move || drop(child.wait());
        // Without it a dead spawner stays in the list of processes, which harms nobody.
        let _ = std::thread::Builder::new().name("spawner-reaper".to_owned()).spawn(wait);
    }
}

#[expect(unsafe_code, reason = "whoever registers a descriptor promises that it stays the same")]
fn watch_socket(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    // SAFETY: a `Socket` owns its descriptor and gives out the same one as long as it lives.
    unsafe { AsyncFd::register(socket) }.map_err(io::Error::from)
}

/// Returns whether the spawner was told to quit; else it has gone by itself.
async fn carry(socket: &AsyncFd<Socket>, inbox: &mut mpsc::UnboundedReceiver<Message>, shared: &Shared) -> bool {
    let mut quit = false;
    loop {
        tokio::select! {
            readable = socket.readable() => {
                let Ok(mut readable) = readable else { return quit };
                match hear(&socket.get_ref().0, shared) {
                    Ok(()) => readable.clear_ready(),
                    Err(_) => return quit,
                }
            }
            message = inbox.recv() => {
                let Some((order, descriptors)) = message else { return quit };
                quit |= order == Order::Quit;
                if let Err(error) = send(socket, &order, &descriptors).await {
                    fail_start(shared, &order);
                    if is_gone(&error) {
                        return quit;
                    }
                    tracing::error!(%error, "an order could not be sent to the spawner");
                }
            }
        }
    }
}

/// Passes on everything that waits. An error when the other side has gone.
fn hear(channel: &Channel, shared: &Shared) -> io::Result<()> {
    loop {
        match channel.receive::<Word>() {
            Ok(Some((Word::Ended { key, exit }, _))) => {
                if let Some(tell) = shared.waiting.lock().remove(&key) {
                    let _ = tell.send(exit);
                }
            }
            Ok(Some((Word::Samples { samples }, _))) => drop(shared.samples.send_replace(samples)),
            Ok(Some((Word::Welcome { .. } | Word::Holding { .. } | Word::Ready | Word::Mismatch { .. }, _))) => {}
            Ok(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if is_gone(&error) => return Err(error),
            Err(error) => tracing::error!(%error, "a word of the spawner cannot be read"),
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected | UnexpectedEof)
}

async fn send(socket: &AsyncFd<Socket>, order: &Order, descriptors: &[OwnedFd]) -> io::Result<()> {
    let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    loop {
        match socket.get_ref().0.send(order, &borrowed) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.writable().await?.clear_ready(),
            done => return done,
        }
    }
}

/// An order that could not be sent has no effect; whoever waits for it must hear so.
fn fail_start(shared: &Shared, order: &Order) {
    if let Order::Start { key, .. } = order {
        shared.waiting.lock().remove(key);
    }
}
