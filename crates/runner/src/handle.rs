//! The runner itself: takes messages, starts attempts and passes on what they say.
//!
//! It has no thread of its own. Messages are obeyed on the sender's thread, so that a job that ends
//! at once costs no hand-over to another; attempts that take their time run as tasks, under the spawner, or on the
//! threads of the WebAssembly executor.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use blobs::Blobs;
use hashbrown::HashSet;
use model::id::{Incarnation, NodeId, RunnerId, ShardId, Shards};
use model::job::{End, Outcome};
use model::message::{Capacity, FromRunner, Load, Profile, ShardFace, Ticket, ToRunner};
use model::spec::{Lane, Run, decode_run};
use model::time::Millis;
use parking_lot::Mutex;
use spawner::protocol::{Order, Protections};
use tokio::sync::{Notify, oneshot};

use crate::asked::Asked;
use crate::component::Prepared;
use crate::echo::{self, Delays};
use crate::link::{Held, Link};
use crate::load::LoadMeter;
use crate::place::failure;
use crate::pressure::{self, Pressure};
use crate::process::{Env, Note};
use crate::progress::Said;
use crate::sampling::Sampling;
use crate::spawning::{Inherited, SpawnerOptions, Spawning, key_of};
use crate::{component, end_leftovers, logs, place, process};

/// How often the machine's memory is looked at.
const PRESSURE_INTERVAL: Duration = Duration::from_secs(1);
/// How often its load is.
const LOAD_INTERVAL: Duration = Duration::from_secs(1);

/// A runner's settings.
#[derive(Debug, Clone)]
pub struct Options {
    pub id: RunnerId,
    pub incarnation: Incarnation,
    pub node: NodeId,
    /// What each shard may give it at once.
    pub capacity: Capacity,
    /// What it is, for those who place jobs.
    pub profile: Arc<Profile>,
    pub shards: Shards,
    /// Where the output of attempts is kept while they run.
    pub logs: PathBuf,
    /// Where attempts have their directories.
    pub scratch: PathBuf,
    /// Between asking a process to stop and making it.
    pub stop_grace: Duration,
    pub defaults: Defaults,
    /// With less memory than this left on the machine nothing new is started.
    pub memory_reserve_bytes: u64,
    pub blobs: Blobs,
    pub spawner: SpawnerOptions,
    pub wasm: wasm::Options,
    /// The wall clock.
    pub now: fn() -> Millis,
}

/// What attempts get that do not ask for less.
#[derive(Debug, Clone)]
pub struct Defaults {
    pub processes: u64,
    /// In the directory of outputs.
    pub output_bytes: u64,
    /// Of output streams together: half for the beginning, half for the end.
    pub log_bytes: u64,
    /// The size of a private /tmp.
    pub tmp_bytes: u64,
    /// Topics whose jobs may reach the network.
    pub network_topics: Vec<String>,
    /// Whether anything may run without a sandbox. What asks for it is refused before it comes here, as far as that is
    /// known then: a workflow may say so only when it comes to it.
    pub allow_unsandboxed: bool,
}

/// The way from a runner to its shards. Words of one shard are delivered in their order.
pub trait Uplink: Send + Sync + 'static {
    /// Must not block, and must not call the runner.
    fn deliver(&self, shard: ShardId, words: Vec<FromRunner>);

    /// How busy the machine is, about every second. Must not block either.
    fn load(&self, incarnation: Incarnation, load: Load);

    /// How far a running attempt says it is. It may be lost, and nobody has to listen.
    fn progress(&self, ticket: Ticket, said: Said) {
        let _ = (ticket, said);
    }
}

/// A runner; cheap to clone.
#[derive(Clone)]
pub struct Handle(Arc<Inner>);

struct Inner {
    options: Options,
    env: Arc<Env>,
    wasm: wasm::Executor,
    sampling: Sampling,
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
    /// Attempts with files that go away once their end is safe.
    residue: HashSet<Ticket, foldhash::fast::FixedState>,
    stopping: bool,
    /// WebAssembly to be started at the end of this round.
    guests: Vec<(ShardId, Ticket, Prepared, wasm::Stop, Note)>,
    /// Attempts whose end has become safe in this round.
    safe: Vec<Ticket>,
}

/// What happens to processes when a server stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// They are ended; their jobs begin again with the next start.
    EndProcesses,
    /// They go on, and the next server takes them over.
    LeaveProcesses,
}

/// Starts a runner on the current tokio runtime; it says hello to its shards at once.
pub async fn start(options: Options, uplink: Arc<dyn Uplink>) -> io::Result<Handle> {
    let settings = options.spawner.clone();
    let claimed = tokio::task::spawn_blocking(move || settings.claim()).await.map_err(io::Error::other)??;
    if claimed.child.is_some() {
        // The earlier spawner is dead. Whatever it had without a sandbox may have left something behind.
        let node = options.node;
        let ended = tokio::task::spawn_blocking(move || end_leftovers(node)).await.unwrap_or(0);
        if ended > 0 {
            tracing::warn!(ended, "processes of an earlier start were ended");
        }
    }
    let (spawning, inherited) = Spawning::new(options.spawner.clone(), options.node, claimed);
    let env = Arc::new(Env {
        node: options.node,
        logs: options.logs.clone(),
        scratch: options.scratch.clone(),
        stop_grace: options.stop_grace,
        defaults: options.defaults.clone(),
        blobs: options.blobs.clone(),
        spawning,
        uplink: uplink.clone(),
    });
    let executor = wasm::Executor::new(options.wasm.clone()).map_err(io::Error::other)?;
    let mut adopted: BTreeMap<ShardId, Vec<(Ticket, oneshot::Sender<()>)>> = BTreeMap::new();
    let mut attending = Vec::new();
    for one in inherited {
        let shard = options.shards.owner(one.ticket.job.slot());
        let (stop, stopped) = oneshot::channel();
        adopted.entry(shard).or_default().push((one.ticket, stop));
        attending.push((shard, one, stopped));
    }
    let kept: Vec<String> = attending.iter().map(|(_, one, _)| place::name(one.ticket)).collect();
    // Found before the first new attempt makes its own, removed when there is time.
    let left = place::all_but(&options.scratch, &kept);
    tokio::task::spawn_blocking(move || place::remove_all(&left));
    let new_link = |shard: ShardId| {
        let adopted = adopted.remove(&shard).unwrap_or_default();
        (shard, Link::new(options.id, options.incarnation, options.capacity, options.profile.clone(), adopted))
    };
    let links = (0..options.shards.count()).map(ShardId).map(new_link).collect();
    let state = State {
        links,
        delays: Delays::default(),
        residue: HashSet::default(),
        stopping: false,
        guests: Vec::new(),
        safe: Vec::new(),
    };
    let inner = Arc::new(Inner {
        sampling: Sampling::new(&env),
        options,
        env,
        wasm: executor,
        uplink,
        tasks: tokio::runtime::Handle::current(),
        state: Mutex::new(state),
        delays_changed: Notify::new(),
        ended: Notify::new(),
    });
    inner.state.lock().deliver(inner.uplink.as_ref());
    for (shard, one, stopped) in attending {
        inner.adopt(shard, one, stopped);
    }
    tokio::spawn(end_delays(inner.clone()));
    tokio::spawn(watch_memory(Arc::downgrade(&inner)));
    tokio::spawn(watch_load(Arc::downgrade(&inner)));
    Ok(Handle(inner))
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
        let guests = std::mem::take(&mut state.guests);
        let safe = std::mem::take(&mut state.safe);
        state.deliver(self.0.uplink.as_ref());
        drop(state);
        self.0.run_guests(guests);
        self.0.clean_up(safe);
    }

    pub fn incarnation(&self) -> Incarnation {
        self.0.options.incarnation
    }

    /// What this node's attempts are protected by.
    pub fn protections(&self) -> Protections {
        self.0.env.spawning.protections()
    }

    /// What running processes use right now.
    pub fn sampling(&self) -> &Sampling {
        &self.0.sampling
    }

    /// What each shard may give it at once.
    pub fn capacity(&self) -> Capacity {
        self.0.options.capacity
    }

    /// Stops what cannot go on, or everything, and returns when that has ended and the shards have been told.
    pub async fn stop(&self, departure: Departure) {
        let ends = move |lane: Lane| lane != Lane::Process || departure == Departure::EndProcesses;
        self.0.begin_to_stop(ends);
        loop {
            let ended = self.0.ended.notified();
            if self.0.state.lock().links.values().all(|link| link.holding(ends).is_empty()) {
                break;
            }
            ended.await;
        }
        if departure == Departure::EndProcesses {
            self.end_spawner();
        }
    }

    /// Ends the spawner, and whatever it still runs.
    pub fn end_spawner(&self) {
        self.0.env.spawning.order(Order::Quit, Vec::new());
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
            ToRunner::Run { ticket, spec, constraints } => match decode_run(&spec) {
                Ok(run) => self.begin(state, shard, ticket, run, Asked { spec, constraints }, now),
                Err(error) => {
                    link.say_ended(ticket, now, unreadable(&error));
                }
            },
            ToRunner::Stop { ticket } => self.stop(state, shard, ticket, now),
            ToRunner::Committed { sequence } => {
                let safe = link.forget(sequence);
                for ticket in safe {
                    if state.residue.remove(&ticket) {
                        state.safe.push(ticket);
                    }
                }
            }
            ToRunner::Inventory { question } => {
                link.repeat();
                link.say_here(question);
            }
        }
    }

    fn stop(&self, state: &mut State, shard: ShardId, ticket: Ticket, now: Millis) {
        let Some(link) = state.links.get_mut(&shard) else { return };
        match link.take_stop(ticket) {
            Some(Held::Echo { due }) => {
                state.delays.remove(due, shard, ticket);
                link.say_ended(ticket, now, Outcome::of(End::Stopped));
                self.ended.notify_waiters();
            }
            // An attempt that has just ended does not hear it; its end is on the way.
            Some(Held::Process { stop: Some(stop) }) => drop(stop.send(())),
            Some(Held::Process { stop: None }) => {}
            Some(Held::Wasm { stop }) => stop.stop(),
            None if link.knows(ticket) => {}
            None => link.say_ended(ticket, now, Outcome::of(End::Stopped)),
        }
    }

    fn begin(self: &Arc<Self>, state: &mut State, shard: ShardId, ticket: Ticket, run: Run, asked: Asked, now: Millis) {
        let Some(link) = state.links.get_mut(&shard) else { return };
        let at_once = matches!(&run, Run::Echo(echo) if echo.delay_ms == 0);
        if !at_once && !link.has_room(run.lane()) {
            return link.say_ended(ticket, now, Outcome::of(End::Busy));
        }
        link.say_started(ticket, now);
        match run {
            Run::Echo(echo) if at_once => link.say_ended(ticket, now, echo::outcome(echo)),
            Run::Echo(echo) => {
                let delay = Duration::from_millis(echo.delay_ms);
                let due = state.delays.insert(shard, ticket, delay, asked.spec);
                link.hold(ticket, Held::Echo { due });
                self.delays_changed.notify_one();
            }
            Run::Process(process) => {
                let task = match asked.task() {
                    Ok(task) => task,
                    Err(error) => return link.say_ended(ticket, now, unreadable(&error)),
                };
                let (stop, stopped) = oneshot::channel();
                link.hold(ticket, Held::Process { stop: Some(stop) });
                state.residue.insert(ticket);
                let env = self.env.clone();
                self.attend(shard, ticket, async move { process::run(env, ticket, task, process, stopped).await });
            }
            Run::Wasm(run) => {
                let task = match asked.task() {
                    Ok(task) => task,
                    Err(error) => return link.say_ended(ticket, now, unreadable(&error)),
                };
                let stop = wasm::Stop::new();
                link.hold(ticket, Held::Wasm { stop: stop.clone() });
                self.begin_guest(state, shard, ticket, task, run, stop);
            }
        }
    }

    /// A component that is ready and needs no files is started with its batch; any other as soon as it can be.
    fn begin_guest(
        self: &Arc<Self>,
        state: &mut State,
        shard: ShardId,
        ticket: Ticket,
        task: model::spec::Task,
        run: model::spec::WasmRun,
        stop: wasm::Stop,
    ) {
        let note = Note::of(&task);
        let metering = component::metering(&task);
        let needs_files = !task.inputs.is_empty() || !task.outputs.is_empty();
        if !needs_files && let Some(Ok(program)) = self.wasm.prepared(run.component, metering) {
            let nowhere = place::Place::default();
            let prepared = component::prepare(&self.env, ticket, &task, &run, program, &nowhere, self.options.now);
            return state.guests.push((shard, ticket, prepared, stop, note));
        }
        state.residue.insert(ticket);
        let inner = self.clone();
        self.tasks.spawn(async move {
            let env = &inner.env;
            let program = match component::load(&inner.wasm, env, &run, metering).await {
                Ok(program) => program,
                Err(outcome) => return inner.end(shard, vec![(ticket, outcome)]),
            };
            let place = match place::make(&env.blobs, &env.scratch, ticket, &task).await {
                Ok(place) => place,
                Err(outcome) => return inner.end(shard, vec![(ticket, outcome)]),
            };
            let prepared = component::prepare(env, ticket, &task, &run, program, &place, inner.options.now);
            inner.run_guests(vec![(shard, ticket, prepared, stop, note)]);
        });
    }

    fn run_guests(self: &Arc<Self>, guests: Vec<(ShardId, Ticket, Prepared, wasm::Stop, Note)>) {
        if guests.is_empty() {
            return;
        }
        let tickets: Vec<(ShardId, Ticket)> = guests.iter().map(|(shard, ticket, ..)| (*shard, *ticket)).collect();
        let runs = guests.into_iter().map(|(shard, ticket, prepared, stop, note)| {
            let Prepared { program, task, output } = prepared;
            let inner = self.clone();
            let done = move |ended: wasm::Ended| match component::quick_outcome(&ended, &note, &output) {
                Some(outcome) => inner.end(shard, vec![(ticket, outcome)]),
                None => {
                    inner.state.lock().residue.insert(ticket);
                    let tasks = inner.tasks.clone();
                    tasks.spawn(async move {
                        let outcome = component::finish(&inner.env, ticket, &note, &ended, &output).await;
                        inner.end(shard, vec![(ticket, outcome)]);
                    });
                }
            };
            wasm::Run::new(program, task, stop, done)
        });
        if self.wasm.run_all(runs.collect()).is_err() {
            for (shard, ticket) in tickets {
                self.end(shard, vec![(ticket, Outcome::of(End::Busy))]);
            }
        }
    }

    /// An attempt that an earlier server started.
    fn adopt(self: &Arc<Self>, shard: ShardId, inherited: Inherited, stopped: oneshot::Receiver<()>) {
        let Inherited { ticket, note, ended } = inherited;
        let now = (self.options.now)();
        {
            let mut state = self.state.lock();
            state.residue.insert(ticket);
            // The word that it started may never have arrived.
            if let Some(link) = state.links.get_mut(&shard) {
                link.say_started(ticket, now);
            }
            state.deliver(self.uplink.as_ref());
        }
        let env = self.env.clone();
        self.attend(
            shard,
            ticket,
            async move { process::attend(&env, ticket, &Note::decode(&note), ended, stopped).await },
        );
    }

    fn attend(
        self: &Arc<Self>,
        shard: ShardId,
        ticket: Ticket,
        attempt: impl Future<Output = Outcome> + Send + 'static,
    ) {
        let inner = self.clone();
        let attempt = self.tasks.spawn(attempt);
        self.tasks.spawn(async move {
            // A panic is a bug; the attempt must not stay in hand for ever because of it.
            let outcome = attempt
                .await
                .unwrap_or_else(|error| failure(End::Infrastructure, format!("the runner failed: {error}")));
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

    /// Their ends are safe: nothing of these attempts is needed here any more.
    fn clean_up(&self, safe: Vec<Ticket>) {
        if safe.is_empty() {
            return;
        }
        for ticket in &safe {
            self.env.spawning.order(Order::Forget { key: key_of(*ticket) }, Vec::new());
        }
        let (logs, scratch) = (self.options.logs.clone(), self.options.scratch.clone());
        // Not on the caller's thread: directories may be large.
        self.tasks.spawn_blocking(move || {
            for ticket in safe {
                let log = logs::path(&logs, ticket);
                if let Err(error) = std::fs::remove_file(&log)
                    && error.kind() != io::ErrorKind::NotFound
                {
                    tracing::warn!(file = %log.display(), %error, "an attempt's output file cannot be removed");
                }
                place::remove(&scratch, ticket);
            }
        });
    }

    fn begin_to_stop(&self, ends: impl Fn(Lane) -> bool + Copy) {
        let now = (self.options.now)();
        let mut state = self.state.lock();
        state.stopping = true;
        // Without room nothing new comes in while the rest goes out.
        state.links.values_mut().for_each(Link::close);
        let held: Vec<(ShardId, Ticket)> = state
            .links
            .iter()
            .flat_map(|(shard, link)| link.holding(ends).into_iter().map(|ticket| (*shard, ticket)))
            .collect();
        for (shard, ticket) in held {
            self.stop(&mut state, shard, ticket, now);
        }
        state.deliver(self.uplink.as_ref());
        self.delays_changed.notify_one();
    }
}

fn unreadable(error: &model::codec::DecodeError) -> Outcome {
    failure(End::Infrastructure, format!("this node cannot read the job: {error}"))
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

/// Offers no room for processes and components while the machine is short of memory.
async fn watch_memory(inner: std::sync::Weak<Inner>) {
    let Some(mut pressure) = inner.upgrade().map(|inner| Pressure::new(inner.options.memory_reserve_bytes)) else {
        return;
    };
    let mut was_high = false;
    loop {
        tokio::time::sleep(PRESSURE_INTERVAL).await;
        let Some(inner) = inner.upgrade() else { return };
        let high = pressure.is_high(pressure::available_memory());
        if high == was_high {
            continue;
        }
        was_high = high;
        let full = inner.options.capacity;
        let capacity = if high { Capacity { process: 0, wasm: 0, ..full } } else { full };
        if high {
            tracing::warn!("the machine is short of memory: nothing new is started until there is more");
        }
        let mut state = inner.state.lock();
        if !state.stopping {
            state.links.values_mut().for_each(|link| link.set_capacity(capacity));
            state.deliver(inner.uplink.as_ref());
        }
    }
}

/// Tells the shards how busy the machine is, whenever that has changed.
async fn watch_load(inner: std::sync::Weak<Inner>) {
    let mut meter = LoadMeter::default();
    let mut told = Load::default();
    loop {
        tokio::time::sleep(LOAD_INTERVAL).await;
        let Some(inner) = inner.upgrade() else { return };
        let load = meter.look();
        if load != told {
            told = load;
            inner.uplink.load(inner.options.incarnation, load);
        }
    }
}
