//! Clients of workflows and schedules: they start, signal, cancel, pause and rerun them, in fitting and in unfitting
//! states.

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
use model::workflow::{CatchUp, Overlap, ScheduleSpec, Signal, TaskKey, TaskState, WorkflowState};
use serde_json::{Map, json};
use workflow::cron::Cron;
use workflow::plan::TaskWork;
use workflow::{Plan, Source, compile};

use crate::client::Operation;
use crate::definitions::{SIGNALS, chain, definition};
use crate::ledger::workflows::KnownWorkflow;
use crate::rng::{Rng, mix};
use crate::scenario::{MINUTE, SECOND, Time, WorkflowRates};
use crate::world::World;

/// Tasks of the large workflow.
const LARGE_TASKS: u64 = 2_000;
/// Number of definitions that are reused.
const POOL_SIZE: usize = 12;
/// Interval of the requests that let workflows end after the last fault.
const FINISH_EVERY: Time = 5 * SECOND;

/// A request on a workflow or schedule.
#[derive(Debug, Clone)]
pub enum WorkflowOperation {
    Start { new: Box<NewWorkflow> },
    Cancel { workflow: WorkflowId, compensate: bool },
    Pause { workflow: WorkflowId },
    Resume { workflow: WorkflowId },
    Rerun { workflow: WorkflowId, from: Option<String> },
    Signal { workflow: WorkflowId, signal: Box<Signal> },
    Remove { workflow: WorkflowId },
    RetryCompensation { workflow: WorkflowId, letter: JobId },
    PurgeCompensation { workflow: WorkflowId, letter: JobId },
    Progress { job: JobId, percent: u8 },
    CreateSchedule { schedule: Box<NewSchedule> },
    PauseSchedule { schedule: ScheduleId, paused: bool },
    RemoveSchedule { schedule: ScheduleId },
    TriggerSchedule { schedule: ScheduleId },
}

impl WorkflowOperation {
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
            Self::RetryCompensation { workflow, letter } => Input::RetryCompensation { request, workflow, letter, by },
            Self::PurgeCompensation { workflow, letter } => Input::PurgeCompensation { request, workflow, letter, by },
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
            Self::Cancel { compensate: true, .. } => "cancel workflow and roll back",
            Self::Pause { .. } => "pause workflow",
            Self::Resume { .. } => "resume workflow",
            Self::Rerun { from: None, .. } => "rerun workflow",
            Self::Rerun { from: Some(_), .. } => "rerun workflow from a task",
            Self::Signal { .. } => "signal workflow",
            Self::Remove { .. } => "remove workflow",
            Self::RetryCompensation { .. } => "retry unsubmitted compensation",
            Self::PurgeCompensation { .. } => "purge unsubmitted compensation",
            Self::Progress { .. } => "report progress",
            Self::CreateSchedule { .. } => "create schedule",
            Self::PauseSchedule { paused: true, .. } => "pause schedule",
            Self::PauseSchedule { paused: false, .. } => "resume schedule",
            Self::RemoveSchedule { .. } => "remove schedule",
            Self::TriggerSchedule { .. } => "trigger schedule",
        }
    }

    /// The audit action, if the operation is audited.
    fn action(&self) -> Option<Action> {
        match self {
            Self::Start { .. } | Self::Signal { .. } | Self::Progress { .. } => None,
            Self::Cancel { .. } => Some(Action::WorkflowCancelled),
            Self::Pause { .. } => Some(Action::WorkflowPaused),
            Self::Resume { .. } => Some(Action::WorkflowResumed),
            Self::Rerun { .. } => Some(Action::WorkflowRerun),
            Self::Remove { .. } => Some(Action::WorkflowRemoved),
            Self::RetryCompensation { .. } => Some(Action::Retried),
            Self::PurgeCompensation { .. } => Some(Action::DeadLetterPurged),
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
            | Self::RetryCompensation { workflow, .. }
            | Self::PurgeCompensation { workflow, .. }
            | Self::Remove { workflow } => Some(workflow.slot()),
            Self::Progress { job, .. } => Some(job.slot()),
            Self::PauseSchedule { schedule, .. }
            | Self::RemoveSchedule { schedule }
            | Self::TriggerSchedule { schedule } => Some(schedule.slot()),
        }
    }
}

/// State of the clients of workflows.
#[derive(Debug, Default)]
pub struct WorkflowClients {
    pool: Vec<Arc<Plan>>,
    keyed: BTreeMap<u64, Arc<Plan>>,
    large_started: bool,
    schedules: u64,
    finished_at: Time,
}

fn random_plan(rng: &mut Rng, workflows: &WorkflowRates, count: u64) -> Option<Arc<Plan>> {
    let drawn = definition(rng, &workflows.shape, count, workflows.shape.depth);
    let text = serde_json::to_vec(&drawn).ok()?;
    // Every random definition compiles; a test checks it.
    compile(Source::Json(&text)).ok()
}

impl World {
    /// Draws an operation on workflows, if this seed has any. Returns whether it did.
    pub(crate) fn choose_workflow_operation(&mut self) -> bool {
        let Some(workflows) = self.scenario.workflows else { return false };
        if !self.rng.chance(workflows.share) {
            return false;
        }
        if self.rng.chance(workflows.schedules) {
            self.choose_schedule_operation(&workflows);
            return true;
        }
        match self.rng.below(100) {
            0..=34 => self.start_some_workflow(&workflows),
            35..=52 => self.signal_some_workflow(),
            53..=62 => {
                let compensate = self.rng.one_in(2);
                self.request_on_some_workflow(
                    |workflow| WorkflowOperation::Cancel { workflow, compensate },
                    |state| !state.is_terminal(),
                );
            }
            63..=68 => {
                let running = |state| state == WorkflowState::Running;
                self.request_on_some_workflow(|workflow| WorkflowOperation::Pause { workflow }, running);
            }
            69..=76 => {
                let paused = |state| state == WorkflowState::Paused;
                self.request_on_some_workflow(|workflow| WorkflowOperation::Resume { workflow }, paused);
            }
            77..=87 => self.rerun_some_workflow(),
            88..=89 => self.request_on_some_workflow(
                |workflow| WorkflowOperation::Remove { workflow },
                WorkflowState::is_terminal,
            ),
            90..=93 => self.retry_compensation(),
            94 => self.cancel_some_queue(),
            _ => self.report_some_progress(),
        }
        true
    }

    /// Sends the operation to the given shard, or to the owner of its object.
    fn request_workflow(&mut self, operation: WorkflowOperation, shard: Option<usize>, repeatable: bool) {
        let owner = |slot| usize::from(self.scenario.shards.owner(slot).0);
        let Some(shard) = shard.or_else(|| operation.slot().map(owner)) else { return };
        let named = match &operation {
            WorkflowOperation::Cancel { workflow, .. }
            | WorkflowOperation::Pause { workflow }
            | WorkflowOperation::Resume { workflow }
            | WorkflowOperation::Rerun { workflow, .. }
            | WorkflowOperation::Remove { workflow } => Some(workflow.to_string()),
            WorkflowOperation::RetryCompensation { workflow, letter }
            | WorkflowOperation::PurgeCompensation { workflow, letter } => {
                Some(format!("compensation {letter} of {workflow}"))
            }
            WorkflowOperation::CreateSchedule { schedule } => Some(schedule.name.clone()),
            WorkflowOperation::PauseSchedule { schedule, .. }
            | WorkflowOperation::RemoveSchedule { schedule }
            | WorkflowOperation::TriggerSchedule { schedule } => {
                self.ledger.workflows.schedules.get(schedule).map(|known| known.record.name.clone())
            }
            WorkflowOperation::Start { .. } | WorkflowOperation::Signal { .. } | WorkflowOperation::Progress { .. } => {
                None
            }
        };
        if let WorkflowOperation::Remove { workflow } = operation {
            self.ledger.workflows.removal_requested.insert(workflow);
        }
        if let Some((name, action)) = named.zip(operation.action()) {
            self.ledger.audit.record_named_request(name, action);
        }
        self.send(shard, Operation::Workflow(Box::new(operation)), repeatable, 0);
    }

    fn some_workflow(&mut self, fits: impl Fn(&KnownWorkflow) -> bool) -> Option<WorkflowId> {
        let anything = self.rng.one_in(6);
        let known = self.ledger.workflows.known.iter();
        let ids: Vec<WorkflowId> =
            known.filter(|(_, workflow)| anything || fits(workflow)).map(|(id, _)| *id).collect();
        self.rng.pick(&ids).copied()
    }

    fn request_on_some_workflow(
        &mut self,
        operation: impl Fn(WorkflowId) -> WorkflowOperation,
        fits: impl Fn(WorkflowState) -> bool,
    ) {
        if let Some(id) = self.some_workflow(|workflow| fits(workflow.record.state)) {
            self.request_workflow(operation(id), None, false);
            if self.rng.one_in(8) {
                self.request_workflow(operation(id), None, false);
            }
        }
    }

    fn start_some_workflow(&mut self, workflows: &WorkflowRates) {
        if self.rng.chance(workflows.keyed) {
            return self.start_keyed(workflows);
        }
        let large = workflows.large && !std::mem::replace(&mut self.workflow_clients.large_started, true);
        let plan = if large {
            random_plan(&mut self.rng, workflows, LARGE_TASKS)
        } else if self.workflow_clients.pool.len() < POOL_SIZE {
            let count = self.rng.between(1, workflows.shape.tasks_max);
            let plan = random_plan(&mut self.rng, workflows, count);
            self.workflow_clients.pool.extend(plan.clone());
            plan
        } else {
            self.rng.pick(&self.workflow_clients.pool).cloned()
        };
        let Some(plan) = plan else { return };
        let queue = if self.rng.one_in(4) { self.rng.pick(&self.clients.queues).cloned() } else { None };
        let (mut new, shard) = match queue {
            Some((queue, tenant)) => {
                let shard = usize::from(self.scenario.shards.owner(queue.slot()).0);
                let mut new = self.new_workflow(plan, &tenant);
                new.queue = Some(queue);
                (new, shard)
            }
            None => {
                let tenant = if self.rng.one_in(4) { "north" } else { "default" };
                (self.new_workflow(plan, tenant), self.rng.index(self.hosts.len()))
            }
        };
        new.submitter = self.rng.one_in(2).then(|| "a client".into());
        self.request_workflow(WorkflowOperation::Start { new }, Some(shard), false);
    }

    pub(crate) fn new_workflow(&mut self, plan: Arc<Plan>, tenant: &str) -> Box<NewWorkflow> {
        let mut given = Map::new();
        if self.rng.one_in(2) {
            given.insert("n".to_owned(), json!(self.rng.below(10)));
        }
        // Every random definition accepts `n`.
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

    /// Starts a workflow with a key that other clients may use at the same time, usually with the same body.
    fn start_keyed(&mut self, workflows: &WorkflowRates) {
        let number = self.rng.below(20);
        let mut content = Rng::new(mix(number));
        let plan = match self.workflow_clients.keyed.get(&number) {
            Some(plan) => plan.clone(),
            None => {
                let count = content.between(1, workflows.shape.tasks_max.min(8));
                let Some(plan) = random_plan(&mut content, workflows, count) else { return };
                self.workflow_clients.keyed.insert(number, plan.clone());
                plan
            }
        };
        let hash = KeyHash::of("default", &format!("workflow {number}"));
        let digest = if self.rng.one_in(12) { Digest([9; 16]) } else { plan.digest };
        let inputs = Json::of(&plan.bind(&Map::new()).unwrap_or_else(|_| json!({})));
        let mut new = self.new_workflow(plan, "default");
        (new.inputs, new.key) = (inputs, Some((hash, digest)));
        let shard = usize::from(self.scenario.shards.owner(hash.slot()).0);
        self.request_workflow(WorkflowOperation::Start { new: new.clone() }, Some(shard), true);
        if self.rng.one_in(4) {
            self.request_workflow(WorkflowOperation::Start { new }, Some(shard), true);
        }
    }

    /// Starts the chain with an idempotency key, so that resends start it once.
    pub(crate) fn start_chain(&mut self, seed: u64) {
        let drawn = chain(&mut Rng::new(mix(seed)), 2);
        let Ok(text) = serde_json::to_vec(&drawn) else { return };
        let Ok(plan) = compile(Source::Json(&text)) else { return };
        let hash = KeyHash::of("default", "chain");
        let digest = plan.digest;
        let mut new = self.new_workflow(plan, "default");
        (new.inputs, new.key) = (Json::of(&json!({})), Some((hash, digest)));
        self.request_workflow(WorkflowOperation::Start { new }, Some(0), true);
    }

    fn signal_some_workflow(&mut self) {
        let waits = |workflow: &KnownWorkflow| workflow.tasks.of(TaskState::Listening) > 0;
        let any_live = self.rng.one_in(3);
        let fits =
            |workflow: &KnownWorkflow| if any_live { !workflow.record.state.is_terminal() } else { waits(workflow) };
        let Some(workflow) = self.some_workflow(fits) else { return };
        let name = self.rng.pick(&SIGNALS).map_or("go", |name| name);
        self.signal(workflow, name);
        if self.rng.one_in(6) {
            self.signal(workflow, name);
        }
    }

    fn signal(&mut self, workflow: WorkflowId, name: &str) {
        let payload = Json::of(&if self.scenario.is_calm { 1 } else { self.rng.below(100) });
        let signal = Signal { name: name.to_owned(), payload, at: Millis(0), by: Some("someone".into()) };
        self.request_workflow(WorkflowOperation::Signal { workflow, signal: Box::new(signal) }, None, false);
    }

    fn rerun_some_workflow(&mut self) {
        let Some(workflow) = self.some_workflow(|workflow| workflow.archived && workflow.record.parent.is_none())
        else {
            return;
        };
        let tasks = self.ledger.workflows.known.get(&workflow).map_or(0, |workflow| workflow.plan.tasks.len());
        let from = self.rng.one_in(2).then(|| format!("t{}", self.rng.index(tasks + 1)));
        // Sometimes two requests at once.
        for _ in 0..=u8::from(self.rng.one_in(4)) {
            self.request_workflow(WorkflowOperation::Rerun { workflow, from: from.clone() }, None, false);
        }
    }

    fn retry_compensation(&mut self) {
        let letters: Vec<_> = self.ledger.compensation_letters.iter().map(|(id, workflow)| (*id, *workflow)).collect();
        if self.rng.one_in(2)
            && let Some((letter, workflow)) = self.rng.pick(&letters).copied()
        {
            let operation = if self.rng.one_in(4) {
                WorkflowOperation::PurgeCompensation { workflow, letter }
            } else {
                WorkflowOperation::RetryCompensation { workflow, letter }
            };
            return self.request_workflow(operation, None, false);
        }
        let failed = |state| matches!(state, State::Failed | State::TimedOut | State::Quarantined);
        let jobs = self.ledger.jobs.values().filter(|known| !known.removed).map(|known| &known.record);
        let compensating = jobs.filter(|job| job.origin.as_ref().is_some_and(|origin| origin.compensation));
        let ids: Vec<JobId> = compensating.filter(|job| failed(job.state)).map(|job| job.id).collect();
        if let Some(job) = self.rng.pick(&ids).copied() {
            self.coverage.count("compensations retried");
            self.send_job_operation(Operation::Retry { job });
        }
    }

    /// Cancels the queue of a live workflow, and with it the workflow.
    fn cancel_some_queue(&mut self) {
        let fits = |workflow: &KnownWorkflow| !workflow.record.state.is_terminal();
        let Some(workflow) = self.some_workflow(fits) else { return };
        let queue = self.ledger.workflows.known.get(&workflow).map(|workflow| workflow.record.queue);
        if let Some(queue) = queue {
            let shard = usize::from(self.scenario.shards.owner(queue.slot()).0);
            self.send(shard, Operation::CancelQueue { queue: QueueRef::Id(queue) }, true, 0);
        }
    }

    fn report_some_progress(&mut self) {
        let jobs = self.ledger.jobs.values().map(|known| &known.record);
        let running = jobs.filter(|job| job.state == State::Running && job.origin.is_some());
        let ids: Vec<JobId> = running.map(|job| job.id).collect();
        if let Some(job) = self.rng.pick(&ids).copied() {
            let percent = self.rng.below(120) as u8;
            self.request_workflow(WorkflowOperation::Progress { job, percent }, None, false);
        }
    }

    fn choose_schedule_operation(&mut self, workflows: &WorkflowRates) {
        let known = self.ledger.workflows.schedules.iter().filter(|(_, known)| !known.removed);
        let ids: Vec<ScheduleId> = known.map(|(id, _)| *id).collect();
        let Some(schedule) = self.rng.pick(&ids).copied().filter(|_| !self.rng.one_in(5)) else {
            return self.create_schedule(workflows);
        };
        let operation = match self.rng.below(10) {
            0..=2 => WorkflowOperation::PauseSchedule { schedule, paused: true },
            3..=6 => WorkflowOperation::PauseSchedule { schedule, paused: false },
            7 | 8 => WorkflowOperation::TriggerSchedule { schedule },
            _ => WorkflowOperation::RemoveSchedule { schedule },
        };
        self.request_workflow(operation, None, false);
    }

    fn create_schedule(&mut self, workflows: &WorkflowRates) {
        let count = self.rng.between(1, 3);
        let Some(plan) = random_plan(&mut self.rng, workflows, count) else { return };
        let (expression, zone) = ("* * * * *", "UTC");
        let Ok(cron) = Cron::parse(expression, zone) else { return };
        self.workflow_clients.schedules += 1;
        // Some use a name that is taken.
        let name = format!("schedule {}", self.workflow_clients.schedules - u64::from(self.rng.one_in(10)));
        let jitter = if self.rng.one_in(2) { 0 } else { self.rng.below(2 * MINUTE) };
        let spec = ScheduleSpec {
            cron: expression.to_owned(),
            zone: zone.to_owned(),
            catch_up: [CatchUp::Skip, CatchUp::Once, CatchUp::All][self.rng.index(3)],
            overlap: [Overlap::Allow, Overlap::Forbid, Overlap::Replace][self.rng.index(3)],
            jitter: Millis(jitter),
            digest: plan.digest,
            definition: Vec::new(),
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
        self.request_workflow(WorkflowOperation::CreateSchedule { schedule: Box::new(schedule) }, Some(shard), false);
    }

    /// After the last fault: removes schedules, resumes paused workflows and sends the awaited signals.
    pub(crate) fn finish_workflows(&mut self) {
        if self.now < self.workflow_clients.finished_at + FINISH_EVERY || self.signals_disabled() {
            return;
        }
        self.workflow_clients.finished_at = self.now;
        let schedules = self.ledger.workflows.schedules.iter().filter(|(_, known)| !known.removed);
        for schedule in schedules.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.request_workflow(WorkflowOperation::RemoveSchedule { schedule }, None, false);
        }
        let open: Vec<WorkflowId> = self.ledger.workflows.open.iter().copied().collect();
        for workflow in open {
            let Some(known) = self.ledger.workflows.known.get(&workflow) else { continue };
            let paused = known.record.state == WorkflowState::Paused;
            let mut signals = Vec::new();
            for (TaskKey { task, .. }, row) in &known.rows {
                if let (TaskState::Listening, TaskWork::WaitFor { signal }) =
                    (row.state, &known.plan.tasks[*task as usize].work)
                {
                    signals.push(signal.to_string());
                }
            }
            if paused {
                self.request_workflow(WorkflowOperation::Resume { workflow }, None, false);
            }
            for name in signals {
                self.signal(workflow, &name);
            }
        }
    }
}
