//! The runner itself: takes messages, starts attempts and passes on what they say.
//!
//! It has no thread of its own. Messages are obeyed on the sender's thread, so that a job that ends
//! at once costs no hand-over to another; attempts that take their time run as tasks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::id::{Incarnation, NodeId, RunnerId, ShardId};
use model::job::{End, Outcome};
use model::message::{Capacity, FromRunner, ShardFace, Ticket, ToRunner};
use model::spec::{ProcessRun, Run, decode_run};
use model::time::Millis;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::echo::{self, Delays};
use crate::link::{Held, Link};
use crate::logs;
use crate::process::{self, Place};

/// A runner's settings.
#[derive(Debug, Clone)]
pub struct Options {
    pub id: RunnerId,
    pub incarnation: Incarnation,
    pub node: NodeId,
    /// What each shard may give it at once.
    pub capacity: Capacity,
    pub shards: Vec<ShardId>,
    /// Where the output of processes is kept.
    pub logs: PathBuf,
    /// Where processes have their working directories.
    pub scratch: PathBuf,
    /// Between asking a process to stop and making it.
    pub stop_grace: Duration,
    /// Of each stream of an attempt this much is kept.
    pub log_bytes_max: u64,
    /// The wall clock.
    pub now: fn() -> Millis,
}

/// The way from a runner to its shards. Words of one shard are delivered in their order.
pub trait Uplink: Send + Sync + 'static {
    /// Must not block, and must not call the runner.
    fn deliver(&self, shard: ShardId, words: Vec<FromRunner>);
}

/// A runner; cheap to clone.
#[derive(Clone)]
pub struct Handle(Arc<Inner>);

struct Inner {
    options: Options,
    uplink: Arc<dyn Uplink>,
    tasks: tokio::runtime::Handle,
    state: Mutex<State>,
    /// An earlier echo job may have become the next one to end.
    delays_changed: Notify,
    /// Something has ended.
    ended: Notify,
}

struct State {
    links: BTreeMap<ShardId, Link>,
    delays: Delays,
    stopping: bool,
}

/// Starts a runner on the current tokio runtime; it says hello to its shards at once.
pub fn start(options: Options, uplink: Arc<dyn Uplink>) -> Handle {
    let new_link = || Link::new(options.id, options.incarnation, options.capacity);
    let links = options.shards.iter().map(|shard| (*shard, new_link())).collect();
    let mut state = State { links, delays: Delays::default(), stopping: false };
    state.deliver(uplink.as_ref());
    let inner = Arc::new(Inner {
        options,
        uplink,
        tasks: tokio::runtime::Handle::current(),
        state: Mutex::new(state),
        delays_changed: Notify::new(),
        ended: Notify::new(),
    });
    tokio::spawn(end_delays(inner.clone()));
    Handle(inner)
}

impl Handle {
    /// Words for another incarnation are void: what they are about died with it.
    pub fn send(&self, face: ShardFace, incarnation: Incarnation, messages: Vec<ToRunner>) {
        if incarnation != self.incarnation() {
            return;
        }
        let mut state = self.0.state.lock();
        if state.links.get_mut(&face.shard).is_some_and(|link| link.accepts(face.epoch)) {
            let now = (self.0.options.now)();
            for message in messages {
                self.0.obey(&mut state, face.shard, message, now);
            }
        }
        state.deliver(self.0.uplink.as_ref());
    }

    pub fn incarnation(&self) -> Incarnation {
        self.0.options.incarnation
    }

    /// Stops every attempt and returns when all of them have ended and their shards have been told.
    pub async fn stop(&self) {
        self.0.begin_to_stop();
        loop {
            let ended = self.0.ended.notified();
            if self.0.state.lock().links.values().all(Link::is_idle) {
                return;
            }
            ended.await;
        }
    }
}

impl State {
    fn deliver(&mut self, uplink: &dyn Uplink) {
        for (shard, link) in &mut self.links {
            if !link.unsent.is_empty() {
                uplink.deliver(*shard, std::mem::take(&mut link.unsent));
            }
        }
    }
}

impl Inner {
    fn obey(self: &Arc<Self>, state: &mut State, shard: ShardId, message: ToRunner, now: Millis) {
        let Some(link) = state.links.get_mut(&shard) else { return };
        match message {
            ToRunner::Run { ticket, .. } if link.knows(ticket) => {}
            ToRunner::Run { ticket, .. } if state.stopping => {
                link.say_ended(ticket, now, Outcome::of(End::Stopped));
            }
            ToRunner::Run { ticket, spec } => match decode_run(&spec) {
                Ok(run) => self.begin(state, shard, ticket, run, spec, now),
                Err(error) => {
                    let message = Some(format!("this node cannot read the job: {error}"));
                    link.say_ended(ticket, now, Outcome { message, ..Outcome::of(End::Infrastructure) });
                }
            },
            ToRunner::Stop { ticket } => match link.take_stop(ticket) {
                Some(Held::Echo { due }) => {
                    state.delays.remove(due, shard, ticket);
                    link.say_ended(ticket, now, Outcome::of(End::Stopped));
                    self.ended.notify_waiters();
                }
                // An attempt that has just ended does not hear it; its end is on the way.
                Some(Held::Process { stop: Some(stop) }) => drop(stop.send(())),
                Some(Held::Process { stop: None }) => {}
                None if link.knows(ticket) => {}
                None => link.say_ended(ticket, now, Outcome::of(End::Stopped)),
            },
            ToRunner::Committed { sequence } => link.forget(sequence),
            ToRunner::Inventory { question } => {
                link.repeat();
                link.say_here(question);
            }
        }
    }

    fn begin(self: &Arc<Self>, state: &mut State, shard: ShardId, ticket: Ticket, run: Run, spec: Bytes, now: Millis) {
        let Some(link) = state.links.get_mut(&shard) else { return };
        if !link.has_room(run.lane()) {
            return link.say_ended(ticket, now, Outcome::of(End::Busy));
        }
        link.say_started(ticket, now);
        match run {
            Run::Echo(echo) if echo.delay_ms == 0 => link.say_ended(ticket, now, echo::outcome(echo)),
            Run::Echo(echo) => {
                let delay = Duration::from_millis(echo.delay_ms);
                let due = state.delays.insert(shard, ticket, delay, spec);
                link.hold(ticket, Held::Echo { due });
                self.delays_changed.notify_one();
            }
            Run::Process(process) => {
                let (stop, stopped) = oneshot::channel();
                link.hold(ticket, Held::Process { stop: Some(stop) });
                self.spawn(shard, ticket, process, stopped);
            }
        }
    }

    fn spawn(self: &Arc<Self>, shard: ShardId, ticket: Ticket, process: ProcessRun, stopped: oneshot::Receiver<()>) {
        let place = Place {
            ticket,
            node: self.options.node,
            log: logs::path(&self.options.logs, ticket),
            scratch: self.options.scratch.join(format!("{}.{}", ticket.job, ticket.attempt)),
            log_bytes_max: self.options.log_bytes_max,
            stop_grace: self.options.stop_grace,
            now: self.options.now,
        };
        let inner = self.clone();
        let attempt = self.tasks.spawn(process::run(process, place, stopped));
        self.tasks.spawn(async move {
            // A panic is a bug; the attempt must not stay in hand for ever because of it.
            let outcome = attempt.await.unwrap_or_else(|error| Outcome {
                message: Some(format!("the runner failed: {error}")),
                ..Outcome::of(End::Infrastructure)
            });
            inner.end(shard, vec![(ticket, outcome)]);
        });
    }

    /// Attempts that took their time have ended.
    fn end(&self, shard: ShardId, endings: Vec<(Ticket, Outcome)>) {
        let now = (self.options.now)();
        let mut state = self.state.lock();
        if let Some(link) = state.links.get_mut(&shard) {
            for (ticket, outcome) in endings {
                // One that was stopped in the meantime has been told of.
                if link.holds(ticket) {
                    link.say_ended(ticket, now, outcome);
                }
            }
        }
        state.deliver(self.uplink.as_ref());
        self.ended.notify_waiters();
    }

    fn begin_to_stop(&self) {
        let now = (self.options.now)();
        let mut state = self.state.lock();
        state.stopping = true;
        let delays = std::mem::take(&mut state.delays);
        // Without room nothing new comes in while the rest goes out.
        state.links.values_mut().for_each(Link::close);
        for (shard, ticket) in delays.tickets() {
            if let Some(link) = state.links.get_mut(&shard) {
                link.say_ended(ticket, now, Outcome::of(End::Stopped));
            }
        }
        for stop in state.links.values_mut().flat_map(Link::take_all_stops) {
            let _ = stop.send(());
        }
        state.deliver(self.uplink.as_ref());
        self.delays_changed.notify_one();
    }
}

/// Ends echo jobs when their delay is over, until the runner stops.
async fn end_delays(inner: Arc<Inner>) {
    loop {
        let changed = inner.delays_changed.notified();
        let (next, stopping) = {
            let state = inner.state.lock();
            (state.delays.next(), state.stopping)
        };
        match next {
            None if stopping => return,
            Some(due) => tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                () = changed => {}
            },
            None => changed.await,
        }
        let due = inner.state.lock().delays.take_due(tokio::time::Instant::now());
        for (shard, endings) in due {
            inner.end(shard, endings);
        }
    }
}
