//! The simulated world and its event queue. All state changes are events; their order depends on the seed alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use engine::{Answer, Fetch, Fetched, PeerMessage, RequestId, Settings};
use model::audit::SignedCheckpoint;
use model::batch::Keyspace;
use model::id::{Epoch, Incarnation, JobId, RunnerId, ShardId};
use model::job::{End, Scan, SpilledResult};
use model::message::{AttemptRef, RunnerFrame, ToRunner};
use model::time::{Millis, Now};
use model::verdict::Decision;
use store::ModelStore;

use crate::client::{Clients, Operation};
use crate::cluster::{Cluster, ClusterEvent, Plan};
use crate::coverage::{Coverage, Fault};
use crate::crash::Crash;
use crate::failover::CommitFate;
use crate::host::{Host, LateCommit, StoreFaults};
use crate::invariants::{Checked, Violation};
use crate::ledger::Ledger;
use crate::operators::Operators;
use crate::partitions::Cuts;
use crate::plans::Plans;
use crate::policy::Policy;
use crate::readers::{Listing, Readers};
use crate::rng::{Rate, Rng, mix};
use crate::runner::Runner;
use crate::sabotage::Sabotage;
use crate::scanner::Scanner;
use crate::scenario::{DAY, LossRates, MINUTE, SECOND, Scenario, Time};
use crate::trace::Trace;
use crate::workflow_clients::WorkflowClients;

/// Time limit from the end of faults to quiescence.
const LIVENESS_MAX: Time = 4 * 60 * MINUTE;
/// The same limit for sabotaged runs, where some work never ends.
const SABOTAGED_LIVENESS_MAX: Time = 30 * MINUTE;
/// Limit on events; more indicate a livelock.
const EVENTS_MAX: u64 = 5_000_000;

/// A message to the owner of a shard.
#[derive(Debug)]
pub enum Inbound {
    Request {
        request: RequestId,
        operation: Operation,
    },
    RunnerFrame(RunnerFrame),
    /// The answer to an effect of the owner under an epoch. Another owner may receive it.
    Reply {
        epoch: Epoch,
        reply: Reply,
    },
    /// New settings, numbered in order of publication.
    Settings {
        number: usize,
        settings: Arc<Settings>,
    },
    FromShard {
        from: ShardId,
        message: PeerMessage,
    },
    RunnerLost {
        runner: RunnerId,
        incarnation: Incarnation,
    },
    RunnerDisconnected {
        runner: RunnerId,
        incarnation: Incarnation,
    },
    /// The deadline of a drained runner has passed.
    RetractAll {
        runner: RunnerId,
    },
    /// The runner is given up.
    AbandonAll {
        runner: RunnerId,
    },
}

/// The answer to an effect of a shard.
#[derive(Debug)]
pub enum Reply {
    Verdict { job: JobId, decision: Decision },
    PolicyUnavailable { job: JobId },
    Scanned { attempt_ref: AttemptRef, scan: Box<Scan> },
    ScanFailed { attempt_ref: AttemptRef },
    AuditSigned(Box<SignedCheckpoint>),
    Fetched(Fetched),
    ReadFailed,
    Spilled { attempt_ref: AttemptRef, spilled: Result<SpilledResult, String> },
}

/// A scheduled event.
#[derive(Debug)]
pub enum Event {
    Deliver {
        shard: usize,
        inbound: Inbound,
    },
    /// One round of a shard process.
    Round {
        shard: usize,
        process: u64,
    },
    StartShard {
        shard: usize,
    },
    ReadStore {
        shard: usize,
        epoch: Epoch,
        fetch: Fetch,
    },
    /// A commit that was given up reaches the store.
    CommitArrives,
    /// A client gets the answer to a read that it began after `since` commits.
    ReadEnds {
        job: JobId,
        since: u64,
    },
    /// A client gets a page of a list.
    PageEnds {
        listing: Box<Listing>,
    },
    ToRunner {
        runner: usize,
        incarnation: Incarnation,
        shard: usize,
        message: ToRunner,
    },
    AttemptStarts {
        runner: usize,
        incarnation: Incarnation,
        shard: usize,
        attempt_ref: AttemptRef,
    },
    AttemptEnds {
        runner: usize,
        incarnation: Incarnation,
        shard: usize,
        attempt_ref: AttemptRef,
        end: End,
    },
    RunnerTick {
        runner: usize,
        incarnation: Incarnation,
    },
    RunnerStarts {
        runner: usize,
    },
    /// Leases of exclusive attempts on this runner, or left to its spawner, may have run out.
    LeasesExpire {
        runner: usize,
    },
    RunnerReconnects {
        runner: usize,
    },
    /// Declares the runner lost if it is still unreachable.
    DeclareLost {
        runner: usize,
        incarnation: Incarnation,
    },
    ClientActs {
        client: usize,
    },
    RequestTimesOut {
        request: RequestId,
    },
    Reply {
        request: RequestId,
        answer: Answer,
    },
    ApproversAct,
    /// New settings reach a shard.
    DeliverSettings {
        shard: usize,
        number: usize,
    },
    NemesisActs,
    Cluster(ClusterEvent),
    CompareStore,
    StartChain,
    Sabotage,
    Heal,
    CheckQuiescence,
}

pub struct World {
    pub(crate) rng: Rng,
    pub(crate) scenario: Scenario,
    pub(crate) now: Time,
    pub(crate) store: ModelStore,
    pub(crate) store_faults: StoreFaults,
    pub(crate) hosts: Vec<Host>,
    pub(crate) runners: Vec<Runner>,
    pub(crate) clients: Clients,
    pub(crate) workflow_clients: WorkflowClients,
    pub(crate) plans: Plans,
    pub(crate) policy: Policy,
    pub(crate) operators: Operators,
    pub(crate) scanner: Scanner,
    pub(crate) readers: Readers,
    pub(crate) ledger: Ledger,
    pub(crate) coverage: Coverage,
    pub(crate) trace: Trace,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) processes: u64,
    /// Number of commits.
    pub(crate) commits: u64,
    /// Commits that were given up and are under way, oldest first.
    pub(crate) late_commits: VecDeque<LateCommit>,
    /// Number of failovers of the store.
    pub(crate) failovers: u64,
    /// Number of commits at the last one.
    pub(crate) failed_over_at: u64,
    /// Number of commits at the one before.
    pub(crate) failed_over_before: u64,
    /// Of the commit whose effects are performed.
    pub(crate) commit_fate: CommitFate,
    pub(crate) cuts: Cuts,
    pub(crate) cluster: Cluster,
    pub(crate) crash: Option<Crash>,
    /// Seed of the only workflow, in a calm run.
    chain: Option<u64>,
    /// Attempts that run on some runner or spawner.
    pub(crate) alive: BTreeSet<AttemptRef>,
    /// Attempts that have ended on a runner: they never start again.
    pub(crate) ended_before: BTreeSet<AttemptRef>,
    events: BTreeMap<(Time, u64), Event>,
    scheduled: u64,
    healed_at: Option<Time>,
    quiescent: bool,
}

macro_rules! trace {
    ($world:expr, $($what:tt)*) => {
        $world.trace.line($world.now, format_args!($($what)*))
    };
}
pub(crate) use trace;

impl World {
    pub fn new(seed: u64, print: bool, sabotage: Option<Sabotage>) -> Self {
        let mut rng = Rng::new(seed);
        let mut scenario = Scenario::draw(&mut rng);
        // The sabotages violate rules of a store that keeps everything.
        scenario.losses = LossRates::draw(seed).filter(|_| sabotage.is_none());
        Self::with(seed, rng, scenario, print, sabotage)
    }

    /// A world without faults other than at most one crash.
    pub fn calm(seed: u64, crash: Option<Crash>) -> Self {
        let mut rng = Rng::new(seed);
        let scenario = Scenario::calm(&mut rng);
        Self { crash, chain: Some(seed), ..Self::with(seed, rng, scenario, false, None) }
    }

    /// A world whose runners are nodes of a cluster.
    pub fn clustered(seed: u64, plan: Plan, print: bool, sabotage: Option<Sabotage>) -> Self {
        let mut rng = Rng::new(mix(seed.rotate_left(17)));
        let scenario = Scenario::clustered(&mut rng, &plan);
        Self { cluster: Cluster::new(plan), ..Self::with(seed, rng, scenario, print, sabotage) }
    }

    fn with(seed: u64, mut rng: Rng, scenario: Scenario, print: bool, sabotage: Option<Sabotage>) -> Self {
        let store = if scenario.losses.is_some() { ModelStore::lossy() } else { ModelStore::new() };
        let ledger = Ledger::new(scenario.nemesis.jump_clock == Rate::NEVER);
        let ledger = if scenario.losses.is_some() { ledger.of_lossy_store() } else { ledger };
        let store_faults = StoreFaults::install(&store, mix(seed));
        let mut drift = || rng.between(0, 2 * scenario.drift_ppm_max) as i64 - scenario.drift_ppm_max as i64;
        let hosts = scenario.shards.all().map(|_| Host::new(drift())).collect();
        let new_runner = |number| Runner::new(RunnerId(number as u64 + 1), drift());
        let runners = (0..scenario.runners).map(new_runner).collect();
        Self {
            policy: Policy::new(seed, scenario.verdicts),
            operators: Operators::new(&scenario, &mut rng),
            scanner: Scanner::new(seed, scenario.outputs),
            readers: Readers::new(seed, &store),
            clients: Clients::new(scenario.clients, scenario.operations),
            workflow_clients: WorkflowClients::default(),
            plans: Plans::default(),
            rng,
            now: 0,
            store,
            store_faults,
            hosts,
            runners,
            ledger,
            coverage: Coverage::default(),
            trace: Trace::new(print),
            sabotage,
            processes: 0,
            commits: 0,
            late_commits: VecDeque::new(),
            failovers: 0,
            failed_over_at: 0,
            failed_over_before: 0,
            commit_fate: CommitFate::Current,
            cuts: Cuts::default(),
            cluster: Cluster::none(),
            crash: None,
            chain: None,
            alive: BTreeSet::new(),
            ended_before: BTreeSet::new(),
            events: BTreeMap::new(),
            scheduled: 0,
            healed_at: None,
            quiescent: false,
            scenario,
        }
    }

    /// Runs for a while, and can go on.
    pub fn run_until(&mut self, end: Time) -> Checked {
        if self.scheduled == 0 {
            self.begin();
        }
        while let Some(first) = self.events.first_entry().filter(|first| first.key().0 <= end) {
            let ((at, _), event) = first.remove_entry();
            self.now = at;
            self.handle(event)?;
        }
        Ok(())
    }

    /// Runs to the end. Returns the number of events.
    pub fn run(&mut self) -> Result<u64, Violation> {
        self.begin();
        let mut handled = 0;
        while let Some(((at, _), event)) = self.events.pop_first() {
            self.now = at;
            handled += 1;
            self.handle(event)?;
            if self.quiescent {
                return Ok(handled);
            }
            if handled > EVENTS_MAX * (1 + self.runners.len() as u64 / 8) {
                let detail = format!("still not quiescent after {handled} events");
                return Err(Violation { invariant: "invariant_every_job_ends", detail });
            }
        }
        Err(Violation {
            invariant: "invariant_every_job_ends",
            detail: "the event queue is empty before the run is quiescent".to_owned(),
        })
    }

    fn begin(&mut self) {
        if (self.hosts.len(), self.runners.len()) == (16, 32) {
            self.coverage.count("runs with 16 shards and 32 runners");
        }
        for shard in 0..self.hosts.len() {
            self.at(0, Event::StartShard { shard });
        }
        if self.cluster.is_active() {
            self.begin_cluster();
        } else {
            for runner in 0..self.runners.len() {
                let delay = self.rng.below(SECOND);
                self.at(delay, Event::RunnerStarts { runner });
            }
        }
        for client in 0..self.scenario.clients {
            let delay = self.rng.below(SECOND);
            self.at(delay, Event::ClientActs { client });
        }
        if self.chain.is_some() {
            self.at(100, Event::StartChain);
        }
        self.at(self.scenario.nemesis.every, Event::NemesisActs);
        self.at(3 * SECOND, Event::CompareStore);
        self.at(5 * SECOND, Event::ApproversAct);
        self.at(self.scenario.fault_phase, Event::Heal);
        if self.sabotage.is_some() {
            self.at(self.scenario.fault_phase / 2, Event::Sabotage);
        }
    }

    pub(crate) fn at(&mut self, time: Time, event: Event) {
        self.scheduled += 1;
        self.events.insert((time.max(self.now), self.scheduled), event);
    }

    pub(crate) fn after(&mut self, delay: Time, event: Event) {
        self.at(self.now + delay, event);
    }

    fn handle(&mut self, event: Event) -> Checked {
        if let Some(until) = self.postponed_until(&event) {
            self.at(until, event);
            return Ok(());
        }
        match event {
            Event::Deliver { shard, inbound } => self.deliver(shard, inbound),
            Event::Round { shard, process } => return self.round(shard, process),
            Event::StartShard { shard } => return self.start_shard(shard),
            Event::ReadStore { shard, epoch, fetch } => return self.read_store(shard, epoch, fetch),
            Event::CommitArrives => return self.commit_arrives(),
            Event::ReadEnds { job, since } => return self.read_ends(job, since),
            Event::PageEnds { listing } => return self.page_ends(listing),
            Event::ToRunner { runner, incarnation, shard, message } => {
                return self.runner_receives(runner, incarnation, shard, message);
            }
            Event::AttemptStarts { runner, incarnation, shard, attempt_ref } => {
                return self.attempt_starts(runner, incarnation, shard, attempt_ref);
            }
            Event::AttemptEnds { runner, incarnation, shard, attempt_ref, end } => {
                self.attempt_ends(runner, incarnation, (shard, attempt_ref), end);
            }
            Event::RunnerTick { runner, incarnation } => self.runner_tick(runner, incarnation),
            Event::RunnerStarts { runner } => self.runner_starts(runner),
            Event::LeasesExpire { runner } => self.leases_expire(runner),
            Event::RunnerReconnects { runner } => self.runner_reconnects(runner),
            Event::DeclareLost { runner, incarnation } => self.declare_lost(runner, incarnation),
            Event::ClientActs { client } => self.client_acts(client),
            Event::RequestTimesOut { request } => self.request_times_out(request),
            Event::Reply { request, answer } => self.client_receives(request, answer),
            Event::ApproversAct => self.approvers_act(),
            Event::DeliverSettings { shard, number } => self.deliver_settings(shard, number),
            Event::NemesisActs => return self.nemesis_acts(),
            Event::Cluster(event) => return self.cluster_event(event),
            Event::CompareStore => return self.compare_store(),
            Event::StartChain => self.start_chain(self.chain.unwrap_or_default()),
            Event::Sabotage => return self.do_sabotage(),
            Event::Heal => self.heal(),
            Event::CheckQuiescence => return self.check_quiescence(),
        }
        Ok(())
    }

    /// Wall clock of a shard's host.
    pub(crate) fn clock(&self, shard: usize) -> Millis {
        let offset = self.hosts[shard].clock_offset;
        Millis((self.scenario.start.0 + self.now).saturating_add_signed(offset))
    }

    /// Both clocks of a shard's host.
    pub(crate) fn clocks(&self, shard: usize) -> Now {
        Now { wall: self.clock(shard), steady: self.drifted(self.hosts[shard].drift_ppm) }
    }

    /// A steady clock with that drift.
    pub(crate) fn drifted(&self, ppm: i64) -> Millis {
        // Far from zero, so that a restart finds times before its own start.
        let time = DAY + self.now;
        Millis(time.saturating_add_signed(time as i64 * ppm / 1_000_000))
    }

    pub(crate) fn shard_id(&self, shard: usize) -> ShardId {
        ShardId(shard as u16)
    }

    pub(crate) fn is_healed(&self) -> bool {
        self.healed_at.is_some()
    }

    pub(crate) fn network_delay(&mut self) -> Time {
        let network = self.scenario.network;
        if self.rng.chance(network.slow) {
            self.coverage.count_fault(Fault::MessageSlow);
            return self.rng.between(network.delay_max, network.slow_max);
        }
        self.rng.between(1, network.delay_max)
    }

    /// Delays of the copies of a message; empty if it is lost.
    pub(crate) fn message_delays(&mut self) -> Vec<Time> {
        if self.rng.chance(self.scenario.network.lose) {
            self.coverage.count_fault(Fault::MessageLost);
            return Vec::new();
        }
        let mut delays = vec![self.network_delay()];
        if self.rng.chance(self.scenario.network.duplicate) {
            self.coverage.count_fault(Fault::MessageDuplicated);
            delays.push(self.network_delay());
        }
        delays
    }

    fn compare_store(&mut self) -> Checked {
        for shard in 0..self.hosts.len() {
            let difference = self.ledger.difference(&self.store, self.shard_id(shard));
            crate::invariants::invariant_the_store_equals_the_commits(difference)?;
        }
        self.after(3 * SECOND, Event::CompareStore);
        Ok(())
    }

    /// Ends all faults and restarts everything.
    fn heal(&mut self) {
        trace!(self, "heal");
        self.healed_at = Some(self.now);
        self.scenario.heal();
        for host in &mut self.hosts {
            host.set_clock_to_furthest();
        }
        self.end_policy_outage();
        self.uncordon_all();
        self.heal_cuts();
        self.heal_cluster();
        self.heal_runners();
        self.heal_clients();
        self.after(SECOND, Event::CheckQuiescence);
    }

    /// Ends the run when all work has ended, or when the time limit is exceeded.
    fn check_quiescence(&mut self) -> Checked {
        self.finish_workflows();
        let unfinished_work = self.unfinished_work();
        let unfinished = || self.ledger.jobs.values().map(|known| &known.record).filter(|job| !job.state.is_terminal());
        let workflows = &self.ledger.workflows;
        let open = || workflows.open.iter().filter_map(|id| workflows.known.get(id));
        if unfinished().next().is_none() && open().next().is_none() && unfinished_work.is_empty() {
            trace!(self, "quiescent");
            self.quiescent = true;
            self.count_final_stats();
            return self.compare_store();
        }
        let healed_for = self.now - self.healed_at.unwrap_or(self.now);
        let most = if self.sabotage.is_some() { SABOTAGED_LIVENESS_MAX } else { LIVENESS_MAX };
        if healed_for > most {
            crate::invariants::invariant_every_job_ends(unfinished(), healed_for)?;
            crate::invariants::invariant_every_workflow_ends(open(), healed_for)?;
            return crate::invariants::invariant_nothing_is_left_over(&unfinished_work);
        }
        self.after(SECOND, Event::CheckQuiescence);
        Ok(())
    }

    /// Unfinished work other than jobs and workflows.
    fn unfinished_work(&self) -> Vec<String> {
        let mut left = self.clients.unanswered();
        for (number, host) in self.hosts.iter().enumerate() {
            left.extend(host.unfinished_work(number));
        }
        let scans = self.ledger.open_scans();
        if scans > 0 {
            left.push(format!("{scans} results wait for a scan"));
        }
        let schedules = self.ledger.workflows.schedules.values().filter(|known| !known.removed).count();
        if schedules > 0 {
            left.push(format!("{schedules} schedules are not removed"));
        }
        let late = self.ledger.count_of(Keyspace::LateUpdates);
        if late > 0 {
            left.push(format!("{late} late updates of jobs have not reached their workflows"));
        }
        let signals = self.ledger.count_of(Keyspace::Signals);
        if signals > 0 {
            left.push(format!("{signals} signals are stored without a waiting task"));
        }
        left
    }
}
