//! Clients of workflows and schedules: they start them, signal, cancel, pause and run them again, at the right time and
//! at the wrong one.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{Actor, Input, NewSchedule, NewWorkflow, RequestId};
use model::audit::Action;
use model::id::{JobId, ScheduleId, Slot, WorkflowId};
use model::json::Json;
use model::queue::QueueRef;
use model::spec::{Digest, KeyHash};
use model::state::State;
use model::time::Millis;
use model::workflow::{CatchUp, Overlap, Place, ScheduleSpec, Signal, TaskState, WorkflowState};
use serde_json::{Map, json};
use workflow::cron::Cron;
use workflow::plan::Act;
use workflow::{Plan, Source, compile};

use crate::client::Operation;
use crate::definitions::{SIGNALS, chain, definition};
use crate::ledger::flows::KnownFlow;
use crate::plan::{Flows, MINUTE, SECOND, Time};
use crate::rng::{Rng, mix};
use crate::world::World;

/// How many tasks a very large workflow has.
const LARGE: u64 = 2_000;
/// Definitions that are used again and again.
const POOL: usize = 12;
/// How often those who are waited for at the end have another look.
const TIDY_EVERY: Time = 5 * SECOND;

/// What is asked for.
#[derive(Debug, Clone)]
pub enum FlowOperation {
    Start { new: Box<NewWorkflow> },
    Cancel { workflow: WorkflowId, compensate: bool },
    Pause { workflow: WorkflowId },
    Resume { workflow: WorkflowId },
    Rerun { workflow: WorkflowId, from: Option<String> },
    Signal { workflow: WorkflowId, signal: Box<Signal> },
    Remove { workflow: WorkflowId },
    Progress { job: JobId, percent: u8 },
    CreateSchedule { schedule: Box<NewSchedule> },
    PauseSchedule { schedule: ScheduleId, paused: bool },
    RemoveSchedule { schedule: ScheduleId },
    TriggerSchedule { schedule: ScheduleId },
}

impl FlowOperation {
    pub fn input(self, request: RequestId) -> Input {
        let by: Actor = Some("a client".into());
        match self {
            Self::Start { new } => Input::StartWorkflow { request, workflow: new },
            Self::Cancel { workflow, compensate } => Input::CancelWorkflow { request, workflow, by, compensate },
            Self::Pause { workflow } => Input::PauseWorkflow { request, workflow, by },
            Self::Resume { workflow } => Input::ResumeWorkflow { request, workflow, by },
            Self::Rerun { workflow, from } => Input::RerunWorkflow { request, workflow, from, by },
            Self::Signal { workflow, signal } => Input::SignalWorkflow { request, workflow, signal },
            Self::Remove { workflow } => Input::RemoveWorkflow { request, workflow, by },
            Self::Progress { job, percent } => Input::Progress { request, job, percent, message: None },
            Self::CreateSchedule { schedule } => Input::CreateSchedule { request, schedule },
            Self::PauseSchedule { schedule, paused } => Input::PauseSchedule { request, schedule, paused, by },
            Self::RemoveSchedule { schedule } => Input::RemoveSchedule { request, schedule, by },
            Self::TriggerSchedule { schedule } => Input::TriggerSchedule { request, schedule, by },
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Start { .. } => "start workflow",
            Self::Cancel { compensate: false, .. } => "cancel workflow",
            Self::Cancel { compensate: true, .. } => "cancel workflow and undo it",
            Self::Pause { .. } => "pause workflow",
            Self::Resume { .. } => "resume workflow",
            Self::Rerun { from: None, .. } => "run workflow again",
            Self::Rerun { from: Some(_), .. } => "run workflow again from a task",
            Self::Signal { .. } => "signal workflow",
            Self::Remove { .. } => "remove workflow",
            Self::Progress { .. } => "say how far a task is",
            Self::CreateSchedule { .. } => "create schedule",
            Self::PauseSchedule { paused: true, .. } => "pause schedule",
            Self::PauseSchedule { paused: false, .. } => "resume schedule",
            Self::RemoveSchedule { .. } => "remove schedule",
            Self::TriggerSchedule { .. } => "trigger schedule",
        }
    }

    /// What the audit log calls it.
    fn action(&self) -> Option<Action> {
        match self {
            Self::Start { .. } | Self::Signal { .. } | Self::Progress { .. } => None,
            Self::Cancel { .. } => Some(Action::WorkflowCancelled),
            Self::Pause { .. } => Some(Action::WorkflowPaused),
            Self::Resume { .. } => Some(Action::WorkflowResumed),
            Self::Rerun { .. } => Some(Action::WorkflowRerun),
            Self::Remove { .. } => Some(Action::WorkflowRemoved),
            Self::CreateSchedule { .. } => Some(Action::ScheduleCreated),
            Self::PauseSchedule { paused: true, .. } => Some(Action::SchedulePaused),
            Self::PauseSchedule { paused: false, .. } => Some(Action::ScheduleResumed),
            Self::RemoveSchedule { .. } => Some(Action::ScheduleRemoved),
            Self::TriggerSchedule { .. } => Some(Action::ScheduleTriggered),
        }
    }

    fn slot(&self) -> Option<Slot> {
        match self {
            Self::Start { .. } | Self::CreateSchedule { .. } => None,
            Self::Cancel { workflow, .. }
            | Self::Pause { workflow }
            | Self::Resume { workflow }
            | Self::Rerun { workflow, .. }
            | Self::Signal { workflow, .. }
            | Self::Remove { workflow } => Some(workflow.slot()),
            Self::Progress { job, .. } => Some(job.slot()),
            Self::PauseSchedule { schedule, .. }
            | Self::RemoveSchedule { schedule }
            | Self::TriggerSchedule { schedule } => Some(schedule.slot()),
        }
    }
}

/// What clients of workflows remember.
#[derive(Debug, Default)]
pub struct FlowClients {
    pool: Vec<Arc<Plan>>,
    keyed: BTreeMap<u64, Arc<Plan>>,
    large_started: bool,
    schedules: u64,
    tidied_at: Time,
}

fn compiled(rng: &mut Rng, flows: &Flows, count: u64) -> Option<Arc<Plan>> {
    let drawn = definition(rng, &flows.shape, count, flows.shape.depth);
    let text = serde_json::to_vec(&drawn).ok()?;
    // Whatever is drawn compiles: a test says so.
    compile(Source::Json(&text)).ok()
}

impl World {
    /// Something about workflows, if this seed has any. Whether there was.
    pub(crate) fn choose_flow_operation(&mut self) -> bool {
        let Some(flows) = self.plan.flows else { return false };
        if !self.rng.chance(flows.share) {
            return false;
        }
        if self.rng.chance(flows.schedules) {
            self.choose_schedule_operation(&flows);
            return true;
        }
        match self.rng.below(100) {
            0..=34 => self.start_some(&flows),
            35..=52 => self.signal_some(),
            53..=62 => {
                let compensate = self.rng.one_in(2);
                self.ask_of_flow(
                    |workflow| FlowOperation::Cancel { workflow, compensate },
                    |state| !state.is_terminal(),
                );
            }
            63..=68 => {
                let running = |state| state == WorkflowState::Running;
                self.ask_of_flow(|workflow| FlowOperation::Pause { workflow }, running);
            }
            69..=76 => {
                let paused = |state| state == WorkflowState::Paused;
                self.ask_of_flow(|workflow| FlowOperation::Resume { workflow }, paused);
            }
            77..=87 => self.rerun_some(),
            88..=89 => self.ask_of_flow(|workflow| FlowOperation::Remove { workflow }, WorkflowState::is_terminal),
            90..=93 => self.retry_compensation(),
            94 => self.cancel_queue_of_some(),
            _ => self.progress_of_some(),
        }
        true
    }

    /// Sends it to the shard that owns what it is about, or to a given one.
    fn ask_flow(&mut self, operation: FlowOperation, shard: Option<usize>, repeatable: bool) {
        let owner = |slot| usize::from(self.plan.shards.owner(slot).0);
        let Some(shard) = shard.or_else(|| operation.slot().map(owner)) else { return };
        let named = match &operation {
            FlowOperation::Cancel { workflow, .. }
            | FlowOperation::Pause { workflow }
            | FlowOperation::Resume { workflow }
            | FlowOperation::Rerun { workflow, .. }
            | FlowOperation::Remove { workflow } => Some(workflow.to_string()),
            FlowOperation::CreateSchedule { schedule } => Some(schedule.name.clone()),
            FlowOperation::PauseSchedule { schedule, .. }
            | FlowOperation::RemoveSchedule { schedule }
            | FlowOperation::TriggerSchedule { schedule } => {
                self.ledger.flows.schedules.get(schedule).map(|known| known.record.name.clone())
            }
            FlowOperation::Start { .. } | FlowOperation::Signal { .. } | FlowOperation::Progress { .. } => None,
        };
        if let FlowOperation::Remove { workflow } = operation {
            self.ledger.flows.removal_asked.insert(workflow);
        }
        if let Some((name, action)) = named.zip(operation.action()) {
            self.ledger.trail.note_asked_of(name, action);
        }
        self.send(shard, Operation::Flow(Box::new(operation)), repeatable, 0);
    }

    fn some_flow(&mut self, fits: impl Fn(&KnownFlow) -> bool) -> Option<WorkflowId> {
        let anything = self.rng.one_in(6);
        let known = self.ledger.flows.known.iter();
        let ids: Vec<WorkflowId> = known.filter(|(_, flow)| anything || fits(flow)).map(|(id, _)| *id).collect();
        self.rng.pick(&ids).copied()
    }

    fn ask_of_flow(&mut self, operation: impl Fn(WorkflowId) -> FlowOperation, fits: impl Fn(WorkflowState) -> bool) {
        if let Some(id) = self.some_flow(|flow| fits(flow.record.state)) {
            self.ask_flow(operation(id), None, false);
            if self.rng.one_in(8) {
                self.ask_flow(operation(id), None, false);
            }
        }
    }

    fn start_some(&mut self, flows: &Flows) {
        if self.rng.chance(flows.keyed) {
            return self.start_keyed(flows);
        }
        let large = flows.large && !std::mem::replace(&mut self.flow_clients.large_started, true);
        let plan = if large {
            compiled(&mut self.rng, flows, LARGE)
        } else if self.flow_clients.pool.len() < POOL {
            let count = self.rng.between(1, flows.shape.tasks_max);
            let plan = compiled(&mut self.rng, flows, count);
            self.flow_clients.pool.extend(plan.clone());
            plan
        } else {
            self.rng.pick(&self.flow_clients.pool).cloned()
        };
        let Some(plan) = plan else { return };
        let queue = if self.rng.one_in(4) { self.rng.pick(&self.clients.queues).cloned() } else { None };
        let (mut new, shard) = match queue {
            Some((queue, tenant)) => {
                let shard = usize::from(self.plan.shards.owner(queue.slot()).0);
                let mut new = self.new_run(plan, &tenant);
                new.queue = Some(queue);
                (new, shard)
            }
            None => {
                let tenant = if self.rng.one_in(4) { "north" } else { "default" };
                (self.new_run(plan, tenant), self.rng.index(self.hosts.len()))
            }
        };
        new.submitter = self.rng.one_in(2).then(|| "a client".into());
        self.ask_flow(FlowOperation::Start { new }, Some(shard), false);
    }

    pub(crate) fn new_run(&mut self, plan: Arc<Plan>, tenant: &str) -> Box<NewWorkflow> {
        let mut given = Map::new();
        if self.rng.one_in(2) {
            given.insert("n".to_owned(), json!(self.rng.below(10)));
        }
        // What is drawn takes a number.
        let inputs = plan.bind(&given).unwrap_or_else(|_| json!({}));
        Box::new(NewWorkflow {
            plan,
            inputs: Json::of(&inputs),
            queue: None,
            tenant: tenant.to_owned(),
            submitter: None,
            labels: BTreeMap::new(),
            key: None,
        })
    }

    /// Under a key that others may be using at the same time, nearly always for the same body.
    fn start_keyed(&mut self, flows: &Flows) {
        let number = self.rng.below(20);
        let mut content = Rng::new(mix(number));
        let plan = match self.flow_clients.keyed.get(&number) {
            Some(plan) => plan.clone(),
            None => {
                let count = content.between(1, flows.shape.tasks_max.min(8));
                let Some(plan) = compiled(&mut content, flows, count) else { return };
                self.flow_clients.keyed.insert(number, plan.clone());
                plan
            }
        };
        let hash = KeyHash::of("default", &format!("workflow {number}"));
        let digest = if self.rng.one_in(12) { Digest([9; 16]) } else { plan.digest };
        let inputs = Json::of(&plan.bind(&Map::new()).unwrap_or_else(|_| json!({})));
        let mut new = self.new_run(plan, "default");
        (new.inputs, new.key) = (inputs, Some((hash, digest)));
        let shard = usize::from(self.plan.shards.owner(Slot::of(hash.number())).0);
        self.ask_flow(FlowOperation::Start { new: new.clone() }, Some(shard), true);
        if self.rng.one_in(4) {
            self.ask_flow(FlowOperation::Start { new }, Some(shard), true);
        }
    }

    /// A chain of tasks, under a key: however often it is asked for, it is started once.
    pub(crate) fn start_chain(&mut self, seed: u64) {
        let drawn = chain(&mut Rng::new(mix(seed)), 2);
        let Ok(text) = serde_json::to_vec(&drawn) else { return };
        let Ok(plan) = compile(Source::Json(&text)) else { return };
        let hash = KeyHash::of("default", "chain");
        let digest = plan.digest;
        let mut new = self.new_run(plan, "default");
        (new.inputs, new.key) = (Json::of(&json!({})), Some((hash, digest)));
        self.ask_flow(FlowOperation::Start { new }, Some(0), true);
    }

    fn signal_some(&mut self) {
        let waits = |flow: &KnownFlow| flow.tasks.of(TaskState::Listening) > 0;
        let hopeful = self.rng.one_in(3);
        let fits = |flow: &KnownFlow| if hopeful { !flow.record.state.is_terminal() } else { waits(flow) };
        let Some(workflow) = self.some_flow(fits) else { return };
        let name = self.rng.pick(&SIGNALS).map_or("go", |name| name);
        self.signal(workflow, name);
        if self.rng.one_in(6) {
            self.signal(workflow, name);
        }
    }

    fn signal(&mut self, workflow: WorkflowId, name: &str) {
        let payload = Json::of(&if self.plan.is_calm { 1 } else { self.rng.below(100) });
        let signal = Signal { name: name.to_owned(), payload, at: Millis(0), by: Some("someone".into()) };
        self.ask_flow(FlowOperation::Signal { workflow, signal: Box::new(signal) }, None, false);
    }

    fn rerun_some(&mut self) {
        let Some(workflow) = self.some_flow(|flow| flow.filed && flow.record.parent.is_none()) else { return };
        let tasks = self.ledger.flows.known.get(&workflow).map_or(0, |flow| flow.plan.tasks.len());
        let from = self.rng.one_in(2).then(|| format!("t{}", self.rng.index(tasks + 1)));
        // Now and then two want that at once.
        for _ in 0..=u8::from(self.rng.one_in(4)) {
            self.ask_flow(FlowOperation::Rerun { workflow, from: from.clone() }, None, false);
        }
    }

    fn retry_compensation(&mut self) {
        let failed = |state| matches!(state, State::Failed | State::TimedOut | State::Quarantined);
        let jobs = self.ledger.jobs.values().filter(|known| !known.removed).map(|known| &known.record);
        let undoing = jobs.filter(|job| job.origin.as_ref().is_some_and(|origin| origin.compensation));
        let ids: Vec<JobId> = undoing.filter(|job| failed(job.state)).map(|job| job.id).collect();
        if let Some(job) = self.rng.pick(&ids).copied() {
            self.coverage.note("compensations tried again");
            self.operate_once(Operation::Retry { job });
        }
    }

    /// All that is in the queue of a workflow is cancelled, and the workflow with it, whatever it is doing.
    fn cancel_queue_of_some(&mut self) {
        let fits = |flow: &KnownFlow| !flow.record.state.is_terminal();
        let Some(workflow) = self.some_flow(fits) else { return };
        let queue = self.ledger.flows.known.get(&workflow).map(|flow| flow.record.queue);
        if let Some(queue) = queue {
            let shard = usize::from(self.plan.shards.owner(queue.slot()).0);
            self.send(shard, Operation::CancelQueue { queue: QueueRef::Id(queue) }, true, 0);
        }
    }

    fn progress_of_some(&mut self) {
        let jobs = self.ledger.jobs.values().map(|known| &known.record);
        let running = jobs.filter(|job| job.state == State::Running && job.origin.is_some());
        let ids: Vec<JobId> = running.map(|job| job.id).collect();
        if let Some(job) = self.rng.pick(&ids).copied() {
            let percent = self.rng.below(120) as u8;
            self.ask_flow(FlowOperation::Progress { job, percent }, None, false);
        }
    }

    fn choose_schedule_operation(&mut self, flows: &Flows) {
        let known = self.ledger.flows.schedules.iter().filter(|(_, known)| !known.removed);
        let ids: Vec<ScheduleId> = known.map(|(id, _)| *id).collect();
        let Some(schedule) = self.rng.pick(&ids).copied().filter(|_| !self.rng.one_in(5)) else {
            return self.create_schedule(flows);
        };
        let operation = match self.rng.below(10) {
            0..=2 => FlowOperation::PauseSchedule { schedule, paused: true },
            3..=6 => FlowOperation::PauseSchedule { schedule, paused: false },
            7 | 8 => FlowOperation::TriggerSchedule { schedule },
            _ => FlowOperation::RemoveSchedule { schedule },
        };
        self.ask_flow(operation, None, false);
    }

    fn create_schedule(&mut self, flows: &Flows) {
        let count = self.rng.between(1, 3);
        let Some(plan) = compiled(&mut self.rng, flows, count) else { return };
        let (expression, zone) = ("* * * * *", "UTC");
        let Ok(cron) = Cron::parse(expression, zone) else { return };
        self.flow_clients.schedules += 1;
        // Some want a name that another has.
        let name = format!("schedule {}", self.flow_clients.schedules - u64::from(self.rng.one_in(10)));
        let jitter = if self.rng.one_in(2) { 0 } else { self.rng.below(2 * MINUTE) };
        let spec = ScheduleSpec {
            cron: expression.to_owned(),
            zone: zone.to_owned(),
            catch_up: [CatchUp::Skip, CatchUp::Once, CatchUp::All][self.rng.index(3)],
            overlap: [Overlap::Allow, Overlap::Forbid, Overlap::Replace][self.rng.index(3)],
            jitter: Millis(jitter),
            digest: plan.digest,
            definition: plan.source.to_vec(),
            inputs: Json::of(&plan.bind(&Map::new()).unwrap_or_else(|_| json!({}))),
        };
        let schedule = NewSchedule {
            name,
            tenant: "default".to_owned(),
            queue: None,
            spec,
            plan,
            cron: Arc::new(cron),
            submitter: None,
            paused: self.rng.one_in(8),
        };
        let shard = self.rng.index(self.hosts.len());
        self.ask_flow(FlowOperation::CreateSchedule { schedule: Box::new(schedule) }, Some(shard), false);
    }

    /// After the last fault: schedules go, whoever is paused goes on, and what is waited for comes.
    pub(crate) fn tidy_flows(&mut self) {
        if self.now < self.flow_clients.tidied_at + TIDY_EVERY || self.is_deaf_to_signals() {
            return;
        }
        self.flow_clients.tidied_at = self.now;
        let schedules = self.ledger.flows.schedules.iter().filter(|(_, known)| !known.removed);
        for schedule in schedules.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.ask_flow(FlowOperation::RemoveSchedule { schedule }, None, false);
        }
        let open: Vec<WorkflowId> = self.ledger.flows.open.iter().copied().collect();
        for workflow in open {
            let Some(flow) = self.ledger.flows.known.get(&workflow) else { continue };
            let paused = flow.record.state == WorkflowState::Paused;
            let mut signals = Vec::new();
            for (Place { task, .. }, row) in &flow.rows {
                if let (TaskState::Listening, Act::WaitFor { signal }) =
                    (row.state, &flow.plan.tasks[*task as usize].act)
                {
                    signals.push(signal.to_string());
                }
            }
            if paused {
                self.ask_flow(FlowOperation::Resume { workflow }, None, false);
            }
            for name in signals {
                self.signal(workflow, &name);
            }
        }
    }
}
