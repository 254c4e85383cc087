//! The runner: carries out what the shards' messages ask for, starts attempts and reports their ends.
//!
//! It has no thread of its own. Messages are handled on the sender's thread, so that a job that ends immediately costs
//! no thread switch. Longer attempts run as tasks, under the spawner, or on the threads of the WebAssembly executor.

mod leases;
mod results;
mod start;
mod watch;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashSet;
use link::{Action, RunnerEnd};
use model::id::{Incarnation, ShardId};
use model::job::{End, Outcome};
use model::message::{AttemptRef, Capacity, ToRunner};
use model::spec::{ExecutorKind, Run, decode_run};
use model::time::Millis;
use parking_lot::Mutex;
use spawner::protocol::{Command, Protections};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::admission::Admission;
use crate::component::PreparedRun;
use crate::echo::{self, Delays};
use crate::in_flight::{InFlight, SharedLease};
use crate::options::{Options, Uplink};
use crate::outbox::OutboxUsage;
use crate::process::{Env, Note};
use crate::run_request::RunRequest;
use crate::sampling::Sampling;
use crate::spawner_client::{InheritedAttempt, key_of};
use crate::workspace::failure;
use crate::{component, logs, process, steady_clock, workspace};

pub use start::start;

/// A runner's end of the conversation with one shard.
type Link = RunnerEnd<InFlight>;

/// Handle of a runner; cheap to clone.
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
    /// The earliest end of a delayed echo job may have changed.
    delays_changed: Notify,
    /// An attempt has ended.
    ended: Notify,
    /// Requests to the durable outbox, if there is one.
    flushes: Option<mpsc::UnboundedSender<results::Flush>>,
}

struct State {
    links: BTreeMap<ShardId, Link>,
    delays: Delays,
    /// Attempts whose files are removed once their end is committed.
    with_files: HashSet<AttemptRef, foldhash::fast::FixedState>,
    admission: Admission,
    /// Attempts in this process that are being stopped because their lease ran out.
    expired: HashSet<AttemptRef, foldhash::fast::FixedState>,
    /// Of the durable outbox, if there is one.
    outbox_usage: Option<OutboxUsage>,
    /// WebAssembly runs to start at the end of this round.
    wasm_runs: Vec<(ShardId, AttemptRef, PreparedRun, wasm::Stop, Note)>,
    /// Attempts whose end was committed in this round.
    committed: Vec<AttemptRef>,
}

/// Treatment of running processes when a server stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Processes are stopped; their jobs run again after the next start.
    StopProcesses,
    /// Processes continue, and the next server adopts them.
    LeaveProcesses,
}

impl Handle {
    /// Handles messages of a shard. Messages for another incarnation are ignored: their attempts ended with it.
    pub fn send(&self, shard: ShardId, incarnation: Incarnation, messages: Vec<ToRunner>) {
        if incarnation != self.incarnation() {
            return;
        }
        let mut state = self.0.state.lock();
        let (now, steady) = ((self.0.options.now)(), steady_clock::now());
        for message in messages {
            let Some(link) = state.links.get_mut(&shard) else { break };
            link.receive(steady, message);
            while let Some(action) = state.links.get_mut(&shard).and_then(|link| link.next_action(steady)) {
                self.0.carry_out(&mut state, shard, action, now);
            }
        }
        let wasm_runs = std::mem::take(&mut state.wasm_runs);
        let committed = std::mem::take(&mut state.committed);
        state.deliver(self.0.uplink.as_ref());
        drop(state);
        self.0.run_wasm(wasm_runs);
        self.0.remove_files(committed);
    }

    pub fn incarnation(&self) -> Incarnation {
        self.0.options.incarnation
    }

    /// Protections of this node's attempts.
    pub fn protections(&self) -> Protections {
        self.0.env.spawner.protections()
    }

    /// Lets the spawner hold a tether, a connection that shows by its existence that this node's host and spawner live.
    /// `false`: the running spawner is too old to hold it. It ends with the spawner; see [`Handle::spawner_generation`].
    pub fn hold_tether(&self, connection: OwnedFd) -> bool {
        self.0.env.spawner.hold_tether(connection)
    }

    /// Counts the connections to spawners, from 1. After a change the spawner may be a new one, without tethers.
    pub fn spawner_generation(&self) -> tokio::sync::watch::Receiver<u64> {
        self.0.env.spawner.generation()
    }

    /// Current resource usage of running processes.
    pub fn sampling(&self) -> &Sampling {
        &self.0.sampling
    }

    /// Why the runner takes no new work, or none of some executors.
    pub fn refuses_work(&self) -> Option<String> {
        self.0.state.lock().admission.reason()
    }

    /// Slots per shard.
    pub fn capacity(&self) -> Capacity {
        self.0.options.capacity
    }

    /// Stops all attempts, or all but processes, and returns when they have ended and their ends are sent and stored.
    pub async fn stop(&self, mode: StopMode) {
        let stops = move |executor: ExecutorKind| executor != ExecutorKind::Process || mode == StopMode::StopProcesses;
        self.0.start_stopping(stops);
        loop {
            let ended = self.0.ended.notified();
            if self.0.state.lock().in_flight_of(stops).is_empty() {
                break;
            }
            ended.await;
        }
        self.flush_outbox().await;
        if mode == StopMode::StopProcesses {
            self.stop_spawner();
        }
    }

    /// Stops the spawner and all attempts it still runs.
    pub fn stop_spawner(&self) {
        self.0.env.spawner.send(Command::Quit, Vec::new());
    }
}

impl State {
    /// Sends what is due on all links.
    fn deliver(&mut self, uplink: &dyn Uplink) {
        let now = steady_clock::now();
        for (shard, link) in &mut self.links {
            while let Some(frame) = link.poll(now) {
                uplink.deliver(*shard, frame);
            }
        }
    }

    fn set_capacity(&mut self, capacity: Capacity) {
        let now = steady_clock::now();
        self.links.values_mut().for_each(|link| link.set_capacity(now, capacity));
    }

    fn end(&mut self, shard: ShardId, attempt_ref: AttemptRef, outcome: Outcome) {
        if let Some(link) = self.links.get_mut(&shard) {
            link.send_ended(steady_clock::now(), attempt_ref, outcome);
        }
    }

    /// Attempts in flight of the wanted executors.
    fn in_flight_of(&self, wanted: impl Fn(ExecutorKind) -> bool) -> Vec<(ShardId, AttemptRef)> {
        let links = self.links.iter();
        let all = links.flat_map(|(shard, link)| link.in_flight().map(|(attempt_ref, it)| (*shard, attempt_ref, it)));
        all.filter(|(_, _, it)| wanted(it.executor())).map(|(shard, attempt_ref, _)| (shard, attempt_ref)).collect()
    }
}

impl Inner {
    fn carry_out(self: &Arc<Self>, state: &mut State, shard: ShardId, action: Action, now: Millis) {
        match action {
            Action::Run { attempt_ref, .. } if state.admission.refuses_all() => {
                let end = if state.admission.is_stopping() { End::Stopped } else { End::Busy };
                state.end(shard, attempt_ref, Outcome::of(end));
            }
            Action::Run { attempt_ref, spec, constraints, lease } => match decode_run(&spec) {
                Ok(run) => {
                    let request = RunRequest { spec, constraints, lease };
                    self.start_attempt(state, shard, attempt_ref, run, request, now);
                    state.hold_lease(shard, attempt_ref, lease);
                }
                Err(error) => state.end(shard, attempt_ref, unreadable(&error)),
            },
            Action::Renewed { leases } => self.renew(state, shard, &leases),
            Action::Stop { attempt_ref } => self.stop(state, shard, attempt_ref),
            Action::Committed { attempts } => {
                for attempt_ref in attempts {
                    if state.with_files.remove(&attempt_ref) {
                        state.committed.push(attempt_ref);
                    }
                }
            }
        }
    }

    /// Stops an attempt in flight. It stays so until its end is sent.
    fn stop(&self, state: &mut State, shard: ShardId, attempt_ref: AttemptRef) {
        let Some(link) = state.links.get_mut(&shard) else { return };
        match link.get_mut(attempt_ref) {
            Some(InFlight::Echo { due }) => {
                let due = *due;
                state.delays.remove(due, shard, attempt_ref);
                state.end(shard, attempt_ref, Outcome::of(End::Stopped));
                self.ended.notify_waiters();
            }
            Some(InFlight::Process { stop, .. }) => {
                // Without effect if the attempt has just ended; its end is on the way.
                if let Some(stop) = stop.take() {
                    let _ = stop.send(());
                }
            }
            Some(InFlight::Wasm { stop }) => stop.stop(),
            Some(InFlight::Ended) | None => {}
        }
    }

    fn start_attempt(
        self: &Arc<Self>,
        state: &mut State,
        shard: ShardId,
        attempt_ref: AttemptRef,
        run: Run,
        request: RunRequest,
        now: Millis,
    ) {
        let Some(link) = state.links.get_mut(&shard) else { return };
        let steady = steady_clock::now();
        let immediate = matches!(&run, Run::Echo(echo) if echo.delay_ms == 0);
        if !immediate && !link.has_free_slot(run.executor()) {
            return link.send_ended(steady, attempt_ref, Outcome::of(End::Busy));
        }
        match run {
            Run::Echo(echo) if immediate => {
                link.send_started(steady, attempt_ref, now);
                link.send_ended(steady, attempt_ref, echo::outcome(echo));
            }
            Run::Echo(echo) => {
                let delay = Duration::from_millis(echo.delay_ms);
                let due = state.delays.insert(shard, attempt_ref, delay, request.spec);
                link.add(attempt_ref, link::InFlight::new(ExecutorKind::Echo, InFlight::Echo { due }));
                link.send_started(steady, attempt_ref, now);
                self.delays_changed.notify_one();
            }
            Run::Process(process) => {
                let task = match request.task() {
                    Ok(task) => task,
                    Err(error) => return link.send_ended(steady, attempt_ref, unreadable(&error)),
                };
                let (stop, stopped) = oneshot::channel();
                let lease = request.lease.map(SharedLease::new);
                let in_flight = InFlight::Process { stop: Some(stop), lease: lease.clone() };
                link.add(attempt_ref, link::InFlight::new(ExecutorKind::Process, in_flight));
                link.send_accepted(steady, attempt_ref);
                state.with_files.insert(attempt_ref);
                let (env, on_start) = (self.env.clone(), self.on_start(shard, attempt_ref));
                self.supervise(shard, attempt_ref, async move {
                    process::run(env, attempt_ref, task, process, lease, on_start, stopped).await
                });
            }
            Run::Wasm(run) => {
                let task = match request.task() {
                    Ok(task) => task,
                    Err(error) => return link.send_ended(steady, attempt_ref, unreadable(&error)),
                };
                let stop = wasm::Stop::new();
                let in_flight = InFlight::Wasm { stop: stop.clone() };
                link.add(attempt_ref, link::InFlight::new(ExecutorKind::Wasm, in_flight));
                self.start_wasm(state, shard, attempt_ref, task, run, stop);
            }
        }
    }

    /// Starts a compiled component without files with its batch; any other as soon as it is prepared.
    fn start_wasm(
        self: &Arc<Self>,
        state: &mut State,
        shard: ShardId,
        attempt_ref: AttemptRef,
        task: model::spec::Task,
        run: model::spec::WasmRun,
        stop: wasm::Stop,
    ) {
        let now = (self.options.now)();
        let note = Note::of(&task);
        let metering = component::metering(&task);
        let needs_files = !task.inputs.is_empty() || !task.outputs.is_empty();
        if !needs_files && let Some(Ok(program)) = self.wasm.prepared(run.component, metering) {
            let empty = workspace::Workspace::default();
            let prepared = component::prepare(&self.env, attempt_ref, &task, &run, program, &empty, self.options.now);
            if let Some(link) = state.links.get_mut(&shard) {
                link.send_started(steady_clock::now(), attempt_ref, now);
            }
            return state.wasm_runs.push((shard, attempt_ref, prepared, stop, note));
        }
        if let Some(link) = state.links.get_mut(&shard) {
            link.send_accepted(steady_clock::now(), attempt_ref);
        }
        state.with_files.insert(attempt_ref);
        let (inner, on_start) = (self.clone(), self.on_start(shard, attempt_ref));
        self.tasks.spawn(async move {
            let env = &inner.env;
            let program = match component::load(&inner.wasm, env, &run, metering).await {
                Ok(program) => program,
                Err(outcome) => return inner.end(shard, vec![(attempt_ref, outcome)]),
            };
            let workspace = match workspace::create(&env.blobs, &env.scratch, attempt_ref, &task).await {
                Ok(workspace) => workspace,
                Err(outcome) => return inner.end(shard, vec![(attempt_ref, outcome)]),
            };
            let prepared = component::prepare(env, attempt_ref, &task, &run, program, &workspace, inner.options.now);
            on_start();
            inner.run_wasm(vec![(shard, attempt_ref, prepared, stop, note)]);
        });
    }

    fn run_wasm(self: &Arc<Self>, wasm_runs: Vec<(ShardId, AttemptRef, PreparedRun, wasm::Stop, Note)>) {
        if wasm_runs.is_empty() {
            return;
        }
        let attempts: Vec<(ShardId, AttemptRef)> =
            wasm_runs.iter().map(|(shard, attempt_ref, ..)| (*shard, *attempt_ref)).collect();
        let runs = wasm_runs.into_iter().map(|(shard, attempt_ref, prepared, stop, note)| {
            let PreparedRun { program, task, output } = prepared;
            let inner = self.clone();
            let on_end = move |ended: wasm::RunOutcome| match component::immediate_outcome(&ended, &note, &output) {
                Some(outcome) => inner.end(shard, vec![(attempt_ref, outcome)]),
                None => {
                    inner.state.lock().with_files.insert(attempt_ref);
                    let tasks = inner.tasks.clone();
                    tasks.spawn(async move {
                        let outcome = component::finish(&inner.env, attempt_ref, &note, &ended, &output).await;
                        inner.end(shard, vec![(attempt_ref, outcome)]);
                    });
                }
            };
            wasm::Run::new(program, task, stop, on_end)
        });
        if self.wasm.run_all(runs.collect()).is_err() {
            for (shard, attempt_ref) in attempts {
                self.end(shard, vec![(attempt_ref, Outcome::of(End::Busy))]);
            }
        }
    }

    /// Continues an attempt that an earlier server started.
    fn adopt(self: &Arc<Self>, shard: ShardId, inherited: InheritedAttempt, stopped: oneshot::Receiver<()>) {
        let InheritedAttempt { attempt_ref, note, progress, .. } = inherited;
        self.state.lock().with_files.insert(attempt_ref);
        // The earlier server may not have delivered its `Started`.
        let (env, on_start) = (self.env.clone(), self.on_start(shard, attempt_ref));
        self.supervise(shard, attempt_ref, async move {
            process::supervise(&env, attempt_ref, &Note::decode(&note), progress, on_start, stopped).await
        });
    }

    /// Reports that an attempt's program was started.
    fn on_start(self: &Arc<Self>, shard: ShardId, attempt_ref: AttemptRef) -> impl FnOnce() + Send + use<> {
        let inner = self.clone();
        move || {
            let now = (inner.options.now)();
            let mut state = inner.state.lock();
            if let Some(link) = state.links.get_mut(&shard)
                && link.is_in_flight(attempt_ref)
            {
                link.send_started(steady_clock::now(), attempt_ref, now);
            }
            state.deliver(inner.uplink.as_ref());
        }
    }

    fn supervise(
        self: &Arc<Self>,
        shard: ShardId,
        attempt_ref: AttemptRef,
        attempt: impl Future<Output = Outcome> + Send + 'static,
    ) {
        let inner = self.clone();
        let attempt = self.tasks.spawn(attempt);
        self.tasks.spawn(async move {
            // A panic is a bug, but must not leave the attempt in flight for ever.
            let outcome = attempt
                .await
                .unwrap_or_else(|error| failure(End::Infrastructure, format!("the runner failed: {error}")));
            inner.end(shard, vec![(attempt_ref, outcome)]);
        });
    }

    /// Sends the ends of attempts that ran in the background.
    fn end(&self, shard: ShardId, outcomes: Vec<(AttemptRef, Outcome)>) {
        let mut state = self.state.lock();
        for (attempt_ref, outcome) in outcomes {
            let outcome = state.note_expired(attempt_ref, outcome);
            // The end of a stopped echo job has already been sent.
            if state.links.get(&shard).is_some_and(|link| link.is_in_flight(attempt_ref)) {
                state.end(shard, attempt_ref, outcome);
            }
        }
        state.deliver(self.uplink.as_ref());
        self.ended.notify_waiters();
    }

    /// Removes log and workspace of attempts whose end is committed.
    fn remove_files(&self, committed: Vec<AttemptRef>) {
        if committed.is_empty() {
            return;
        }
        for attempt_ref in &committed {
            self.env.spawner.send(Command::Forget { key: key_of(*attempt_ref) }, Vec::new());
        }
        let (logs, scratch) = (self.options.logs.clone(), self.options.scratch.clone());
        // Not on the caller's thread: directories may be large.
        self.tasks.spawn_blocking(move || {
            for attempt_ref in committed {
                let log = logs::path(&logs, attempt_ref);
                if let Err(error) = std::fs::remove_file(&log)
                    && error.kind() != io::ErrorKind::NotFound
                {
                    tracing::warn!(file = %log.display(), %error, "cannot remove the log file of an attempt");
                }
                workspace::remove(&scratch, attempt_ref);
            }
        });
    }

    /// Changes the reasons to take no new work, and registers again if that changes the capacity.
    fn change_admission(&self, change: impl FnOnce(&mut Admission)) {
        let mut state = self.state.lock();
        change(&mut state.admission);
        let capacity = state.admission.capacity(self.options.capacity);
        state.set_capacity(capacity);
        state.deliver(self.uplink.as_ref());
    }

    fn start_stopping(&self, stops: impl Fn(ExecutorKind) -> bool + Copy) {
        // Without free slots, no new attempts arrive while the others stop.
        self.change_admission(Admission::set_stopping);
        let mut state = self.state.lock();
        for (shard, attempt_ref) in state.in_flight_of(stops) {
            self.stop(&mut state, shard, attempt_ref);
        }
        state.deliver(self.uplink.as_ref());
        self.delays_changed.notify_one();
    }
}

fn unreadable(error: &model::codec::DecodeError) -> Outcome {
    Outcome::of_node_failure(format!("this node cannot read the job: {error}"))
}
