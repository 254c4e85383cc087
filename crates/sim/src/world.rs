//! The whole simulated world and its one queue of events. Nothing happens but by an event, and which is next depends
//! on the seed alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::leases::Message;
use engine::{Answer, Fetch, Fetched, Input, RequestId, Setup};
use model::batch::Keyspace;
use model::id::{Incarnation, JobId, RunnerId, ShardId};
use model::job::{End, Scan};
use model::message::{FromRunner, ShardFace, Ticket, ToRunner};
use model::time::Millis;
use model::verdict::Decision;
use store::ModelStore;

use crate::client::{Clients, Operation};
use crate::coverage::{Coverage, Fault};
use crate::crash::Crash;
use crate::flow_clients::FlowClients;
use crate::host::{Host, StoreFaults};
use crate::invariants::{Checked, Violation};
use crate::ledger::Ledger;
use crate::operators::Operators;
use crate::plan::{MINUTE, Plan, SECOND, Time};
use crate::policy::Policy;
use crate::rehydrate::Plans;
use crate::rng::Rng;
use crate::runner::Runner;
use crate::sabotage::Sabotage;
use crate::scanner::Scanner;
use crate::trace::Trace;

/// After the last fault everything must have come to rest within this time.
const LIVENESS_MAX: Time = 4 * 60 * MINUTE;
/// The same where a rule is broken on purpose, and some things never do.
const SABOTAGED_LIVENESS_MAX: Time = 30 * MINUTE;
/// More events than this mean that something goes round in circles.
const EVENTS_MAX: u64 = 5_000_000;

/// What reaches a shard.
#[derive(Debug)]
pub enum Inbound {
    Request {
        request: RequestId,
        operation: Operation,
    },
    /// What a runner sends at once arrives at once, in order.
    Words(Vec<FromRunner>),
    Verdict {
        job: JobId,
        decision: Decision,
    },
    PolicyUnavailable {
        job: JobId,
    },
    Scanned {
        ticket: Ticket,
        scan: Box<Scan>,
    },
    ScanFailed {
        ticket: Ticket,
    },
    /// What operators say; the number counts what they have said so far.
    Setup {
        number: usize,
        setup: Arc<Setup>,
    },
    FromShard {
        from: ShardId,
        message: Message,
    },
    RunnerLost {
        runner: RunnerId,
        incarnation: Incarnation,
    },
    Fetched(Fetched),
}

impl Inbound {
    pub fn inputs(self) -> Vec<Input> {
        match self {
            Self::Request { request, operation } => vec![operation.input(request)],
            Self::Words(words) => words.into_iter().map(Input::Runner).collect(),
            Self::Verdict { job, decision } => vec![Input::Verdict { job, decision }],
            Self::PolicyUnavailable { job } => vec![Input::PolicyUnavailable { job, message: "it is away".to_owned() }],
            Self::Scanned { ticket: Ticket { job, attempt }, scan } => vec![Input::Scanned { job, attempt, scan }],
            Self::ScanFailed { ticket: Ticket { job, attempt } } => {
                vec![Input::ScanFailed { job, attempt, message: "the disk is away".to_owned() }]
            }
            Self::Setup { setup, .. } => vec![Input::Setup(setup)],
            Self::FromShard { from, message } => vec![Input::FromShard { from, message }],
            Self::RunnerLost { runner, incarnation } => vec![Input::RunnerLost { runner, incarnation }],
            Self::Fetched(fetched) => vec![Input::Fetched(fetched)],
        }
    }
}

/// Something that is to happen.
#[derive(Debug)]
pub enum Event {
    Deliver {
        shard: usize,
        inbound: Inbound,
    },
    /// A shard's loop goes round once.
    Round {
        shard: usize,
        process: u64,
    },
    StartShard {
        shard: usize,
    },
    ReadStore {
        shard: usize,
        process: u64,
        fetch: Fetch,
    },
    Fetched {
        shard: usize,
        process: u64,
        fetched: Fetched,
    },
    ToRunner {
        runner: usize,
        incarnation: Incarnation,
        face: ShardFace,
        message: ToRunner,
    },
    AttemptStarts {
        runner: usize,
        incarnation: Incarnation,
        shard: usize,
        ticket: Ticket,
    },
    AttemptEnds {
        runner: usize,
        incarnation: Incarnation,
        shard: usize,
        ticket: Ticket,
        end: End,
    },
    RunnerTick {
        runner: usize,
        incarnation: Incarnation,
    },
    RunnerStarts {
        runner: usize,
    },
    RunnerReached {
        runner: usize,
    },
    /// The cluster's view: is this runner still silent?
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
    ApproversLook,
    /// What operators have said reaches a shard.
    OperatorsHeard {
        shard: usize,
        number: usize,
    },
    NemesisLooks,
    CompareStore,
    StartChain,
    Sabotage,
    Heal,
    LookForRest,
}

pub struct World {
    pub(crate) rng: Rng,
    pub(crate) plan: Plan,
    pub(crate) now: Time,
    pub(crate) store: ModelStore,
    pub(crate) store_faults: StoreFaults,
    pub(crate) hosts: Vec<Host>,
    pub(crate) runners: Vec<Runner>,
    pub(crate) clients: Clients,
    pub(crate) flow_clients: FlowClients,
    pub(crate) plans: Plans,
    pub(crate) policy: Policy,
    pub(crate) operators: Operators,
    pub(crate) scanner: Scanner,
    pub(crate) ledger: Ledger,
    pub(crate) coverage: Coverage,
    pub(crate) trace: Trace,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) processes: u64,
    /// How many commits there were.
    pub(crate) commits: u64,
    pub(crate) crash: Option<Crash>,
    /// Names the one workflow that is started, where nothing else happens.
    chain: Option<u64>,
    /// Attempts that have started somewhere and not ended, whoever knows of them.
    pub(crate) alive: BTreeSet<Ticket>,
    events: BTreeMap<(Time, u64), Event>,
    scheduled: u64,
    healed_at: Option<Time>,
    at_rest: bool,
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
        let plan = Plan::draw(&mut rng);
        Self::with(seed, rng, plan, print, sabotage)
    }

    /// A world in which nothing goes wrong but one crash, if that.
    pub fn calm(seed: u64, crash: Option<Crash>) -> Self {
        let mut rng = Rng::new(seed);
        let plan = Plan::calm(&mut rng);
        Self { crash, chain: Some(seed), ..Self::with(seed, rng, plan, false, None) }
    }

    fn with(seed: u64, mut rng: Rng, plan: Plan, print: bool, sabotage: Option<Sabotage>) -> Self {
        let store = ModelStore::new();
        let store_faults = StoreFaults::install(&store);
        let hosts = plan.shards.all().map(|_| Host::default()).collect();
        let runners = (0..plan.runners).map(|number| Runner::new(RunnerId(number as u64 + 1))).collect();
        Self {
            policy: Policy::new(seed, plan.verdicts),
            operators: Operators::new(&plan, &mut rng),
            scanner: Scanner::new(seed, plan.outputs),
            clients: Clients::new(plan.clients, plan.operations),
            flow_clients: FlowClients::default(),
            plans: Plans::default(),
            rng,
            now: 0,
            store,
            store_faults,
            hosts,
            runners,
            ledger: Ledger::default(),
            coverage: Coverage::default(),
            trace: Trace::new(print),
            sabotage,
            processes: 0,
            commits: 0,
            crash: None,
            chain: None,
            alive: BTreeSet::new(),
            events: BTreeMap::new(),
            scheduled: 0,
            healed_at: None,
            at_rest: false,
            plan,
        }
    }

    /// Runs to the end; returns how many events there were.
    pub fn run(&mut self) -> Result<u64, Violation> {
        self.begin();
        let mut handled = 0;
        while let Some(((at, _), event)) = self.events.pop_first() {
            self.now = at;
            handled += 1;
            self.handle(event)?;
            if self.at_rest {
                return Ok(handled);
            }
            if handled > EVENTS_MAX {
                let detail = format!("{handled} events and no end");
                return Err(Violation { invariant: "invariant_every_job_ends", detail });
            }
        }
        Err(Violation { invariant: "invariant_every_job_ends", detail: "the world stands still".to_owned() })
    }

    fn begin(&mut self) {
        for shard in 0..self.hosts.len() {
            self.at(0, Event::StartShard { shard });
        }
        for runner in 0..self.runners.len() {
            let delay = self.rng.below(SECOND);
            self.at(delay, Event::RunnerStarts { runner });
        }
        for client in 0..self.plan.clients {
            let delay = self.rng.below(SECOND);
            self.at(delay, Event::ClientActs { client });
        }
        if self.chain.is_some() {
            self.at(100, Event::StartChain);
        }
        self.at(self.plan.nemesis.every, Event::NemesisLooks);
        self.at(3 * SECOND, Event::CompareStore);
        self.at(5 * SECOND, Event::ApproversLook);
        self.at(self.plan.safety, Event::Heal);
        if self.sabotage.is_some() {
            self.at(self.plan.safety / 2, Event::Sabotage);
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
        match event {
            Event::Deliver { shard, inbound } => self.deliver(shard, inbound),
            Event::Round { shard, process } => return self.round(shard, process),
            Event::StartShard { shard } => return self.start_shard(shard),
            Event::ReadStore { shard, process, fetch } => self.read_store(shard, process, &fetch),
            Event::Fetched { shard, process, fetched } => self.hand_over(shard, process, Inbound::Fetched(fetched)),
            Event::ToRunner { runner, incarnation, face, message } => {
                return self.runner_hears(runner, incarnation, face, message);
            }
            Event::AttemptStarts { runner, incarnation, shard, ticket } => {
                return self.attempt_starts(runner, incarnation, shard, ticket);
            }
            Event::AttemptEnds { runner, incarnation, shard, ticket, end } => {
                self.attempt_ends(runner, incarnation, (shard, ticket), end);
            }
            Event::RunnerTick { runner, incarnation } => self.runner_tick(runner, incarnation),
            Event::RunnerStarts { runner } => self.runner_starts(runner),
            Event::RunnerReached { runner } => self.runner_reached(runner),
            Event::DeclareLost { runner, incarnation } => self.declare_lost(runner, incarnation),
            Event::ClientActs { client } => self.client_acts(client),
            Event::RequestTimesOut { request } => self.request_times_out(request),
            Event::Reply { request, answer } => self.client_hears(request, answer),
            Event::ApproversLook => self.approvers_look(),
            Event::OperatorsHeard { shard, number } => self.operators_heard(shard, number),
            Event::NemesisLooks => self.nemesis_looks(),
            Event::CompareStore => return self.compare_store(),
            Event::StartChain => self.start_chain(self.chain.unwrap_or_default()),
            Event::Sabotage => return self.do_sabotage(),
            Event::Heal => self.heal(),
            Event::LookForRest => return self.look_for_rest(),
        }
        Ok(())
    }

    /// What a shard's host takes for the time of day.
    pub(crate) fn clock(&self, shard: usize) -> Millis {
        let offset = self.hosts[shard].clock_offset;
        Millis((self.plan.start.0 + self.now).saturating_add_signed(offset))
    }

    pub(crate) fn shard_id(&self, shard: usize) -> ShardId {
        ShardId(shard as u16)
    }

    pub(crate) fn is_healed(&self) -> bool {
        self.healed_at.is_some()
    }

    pub(crate) fn network_delay(&mut self) -> Time {
        let network = self.plan.network;
        if self.rng.chance(network.slow) {
            self.coverage.fault(Fault::MessageSlow);
            return self.rng.between(network.delay_max, network.slow_max);
        }
        self.rng.between(1, network.delay_max)
    }

    /// When each copy of a message between a shard and a runner arrives; none when it is lost.
    pub(crate) fn message_delays(&mut self) -> Vec<Time> {
        if self.rng.chance(self.plan.network.lose) {
            self.coverage.fault(Fault::MessageLost);
            return Vec::new();
        }
        let mut delays = vec![self.network_delay()];
        if self.rng.chance(self.plan.network.duplicate) {
            self.coverage.fault(Fault::MessageDuplicated);
            delays.push(self.network_delay());
        }
        delays
    }

    fn compare_store(&mut self) -> Checked {
        for shard in 0..self.hosts.len() {
            let difference = self.ledger.difference(&self.store, self.shard_id(shard));
            crate::invariants::invariant_the_store_is_what_was_committed(difference)?;
        }
        self.after(3 * SECOND, Event::CompareStore);
        Ok(())
    }

    /// Faults stop, the network heals, everybody comes back.
    fn heal(&mut self) {
        trace!(self, "heal");
        self.healed_at = Some(self.now);
        self.plan.heal();
        for host in &mut self.hosts {
            host.set_clock_right();
        }
        self.policy_is_back();
        self.heal_runners();
        self.heal_clients();
        self.after(SECOND, Event::LookForRest);
    }

    /// Whether everything has ended; the end of the run, one way or the other.
    fn look_for_rest(&mut self) -> Checked {
        self.tidy_flows();
        let left_over = self.left_over();
        let unfinished = || self.ledger.jobs.values().map(|known| &known.record).filter(|job| !job.state.is_terminal());
        let flows = &self.ledger.flows;
        let open = || flows.open.iter().filter_map(|id| flows.known.get(id));
        if unfinished().next().is_none() && open().next().is_none() && left_over.is_empty() {
            trace!(self, "at rest");
            self.at_rest = true;
            self.note_final_stats();
            return self.compare_store();
        }
        let healed_for = self.now - self.healed_at.unwrap_or(self.now);
        let most = if self.sabotage.is_some() { SABOTAGED_LIVENESS_MAX } else { LIVENESS_MAX };
        if healed_for > most {
            crate::invariants::invariant_every_job_ends(unfinished(), healed_for)?;
            crate::invariants::invariant_every_workflow_ends(open(), healed_for)?;
            return crate::invariants::invariant_nothing_is_left_over(&left_over);
        }
        self.after(SECOND, Event::LookForRest);
        Ok(())
    }

    /// What keeps the world from being at rest, apart from jobs.
    fn left_over(&self) -> Vec<String> {
        let mut left = self.clients.unanswered();
        for (number, host) in self.hosts.iter().enumerate() {
            left.extend(host.left_over(number));
        }
        let scans = self.ledger.open_scans();
        if scans > 0 {
            left.push(format!("{scans} results are still to be scanned"));
        }
        let schedules = self.ledger.flows.schedules.values().filter(|known| !known.removed).count();
        if schedules > 0 {
            left.push(format!("{schedules} schedules are still there"));
        }
        let late = self.ledger.count_of(Keyspace::LateWords);
        if late > 0 {
            left.push(format!("{late} jobs have changed, and their workflows do not know of it"));
        }
        let signals = self.ledger.count_of(Keyspace::Signals);
        if signals > 0 {
            left.push(format!("{signals} signals are kept for nobody"));
        }
        left
    }
}
