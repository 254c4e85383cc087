//! Workflows under test.

use std::sync::Arc;

use engine::{Answer, Fetch, Fetched, Input, NewWorkflow, Refusal, Shard, StoredWorkflow};
use model::batch::Keyspace;
use model::codec;
use model::id::{JobId, WorkflowId};
use model::job::{End, Outcome};
use model::json::Json;
use model::key;
use model::message::AttemptRef;
use model::spec::{Digest, EchoFailure, Run, decode_run};
use model::state::State;
use model::time::Millis;
use model::workflow::{Schedule, Signal, TaskKey, TaskRecord, TaskState, Workflow, WorkflowSpec, WorkflowState};
use serde_json::Value;
use workflow::cron::Cron;
use workflow::{Plan, Source, compile};

use super::fixture::Fixture;
use super::records::Records;

/// Waits give up after this many rounds.
const ROUNDS_MAX: usize = 100_000;

/// Compiles a definition.
#[track_caller]
pub fn plan(yaml: &str) -> Arc<Plan> {
    match compile(Source::Yaml(yaml)) {
        Ok(plan) => plan,
        Err(wrong) => panic!("{wrong}"),
    }
}

/// A start request for a workflow of this definition.
#[track_caller]
pub fn new_workflow(yaml: &str, inputs: &Value) -> Box<NewWorkflow> {
    new_run(plan(yaml), inputs)
}

#[track_caller]
pub fn new_run(plan: Arc<Plan>, inputs: &Value) -> Box<NewWorkflow> {
    let bound = plan.bind(inputs.as_object().expect("inputs are an object")).expect("inputs that fit");
    Box::new(NewWorkflow {
        plan,
        inputs: Json::of(&bound),
        queue: None,
        tenant: "default".to_owned(),
        submitter: None,
        labels: Default::default(),
        key: None,
    })
}

impl Fixture {
    /// Starts a workflow and its first tasks.
    #[track_caller]
    pub fn start_workflow(&mut self, yaml: &str) -> WorkflowId {
        self.workflow_with(yaml, &serde_json::json!({}))
    }

    #[track_caller]
    pub fn workflow_with(&mut self, yaml: &str, inputs: &Value) -> WorkflowId {
        let workflow = new_workflow(yaml, inputs);
        self.started(workflow)
    }

    #[track_caller]
    pub fn started(&mut self, workflow: Box<NewWorkflow>) -> WorkflowId {
        match self.request(|request| Input::StartWorkflow { request, workflow }) {
            Answer::Workflow(record) => record.id,
            other => panic!("the workflow was not started: {other:?}"),
        }
    }

    #[track_caller]
    pub fn workflow(&self, id: WorkflowId) -> Workflow {
        self.records.workflow(id).expect("a record of the workflow")
    }

    #[track_caller]
    pub fn workflow_state(&self, id: WorkflowId) -> WorkflowState {
        self.workflow(id).state
    }

    /// The row of a task, by its name.
    #[track_caller]
    pub fn row(&self, id: WorkflowId, task: &str) -> Option<TaskRecord> {
        let plan = self.records.plan(id);
        let task = plan.task(task).expect("a task of that name");
        self.records.row(id, TaskKey::of(task))
    }

    #[track_caller]
    pub fn task_state(&self, id: WorkflowId, task: &str) -> TaskState {
        self.row(id, task).map_or(TaskState::Waiting, |row| row.state)
    }

    #[track_caller]
    pub fn task_job(&self, id: WorkflowId, task: &str) -> JobId {
        self.row(id, task).and_then(|row| row.job).expect("the task has a job")
    }

    #[track_caller]
    pub fn result(&self, id: WorkflowId) -> Value {
        let result = self.workflow(id).result.expect("a result");
        serde_json::from_str(result.as_str()).expect("JSON")
    }

    pub fn signal(&mut self, id: WorkflowId, name: &str, payload: &Value) -> Result<(), Refusal> {
        let signal = Signal { name: name.to_owned(), payload: Json::of(payload), at: Millis(0), by: None };
        match self.request(|request| Input::SignalWorkflow { request, workflow: id, signal: Box::new(signal) }) {
            Answer::Workflow(_) => Ok(()),
            Answer::Refused(refusal) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    pub fn cancel_workflow(&mut self, id: WorkflowId, compensate: bool) -> Answer {
        self.request(|request| Input::CancelWorkflow { request, workflow: id, by: None, compensate })
    }

    pub fn rerun(&mut self, id: WorkflowId, from: Option<&str>) -> Answer {
        let from = from.map(str::to_owned);
        self.request(|request| Input::RerunWorkflow { request, workflow: id, from, by: None })
    }

    /// Advances one attempt in flight as its spec demands. Returns whether there was one.
    pub fn echo_step(&mut self) -> bool {
        let now = self.now;
        let Some((runner, attempt_ref)) =
            self.runners.iter().find_map(|(id, runner)| Some((*id, *runner.in_flight.first()?)))
        else {
            return false;
        };
        let outcome = self.outcome_of(attempt_ref);
        let message = self.messages(runner, |runner| {
            if runner.to_stop.contains(&attempt_ref) {
                runner.end(attempt_ref, End::Stopped)
            } else if runner.has_started(attempt_ref) {
                runner.end_with(attempt_ref, outcome)
            } else {
                runner.start(attempt_ref, now)
            }
        });
        self.deliver(message);
        true
    }

    fn outcome_of(&self, attempt_ref: AttemptRef) -> Outcome {
        let job = self.records.job(attempt_ref.job).expect("a record of the job");
        let (end, result) = match decode_run(&job.spec).expect("a readable spec") {
            Run::Echo(echo) => match echo.fail {
                None => (End::Succeeded, Some(echo.value)),
                Some(EchoFailure::Error) => (End::Error, None),
                Some(EchoFailure::Fatal) => (End::Fatal, None),
            },
            Run::Process(_) | Run::Wasm(_) => (End::Succeeded, None),
        };
        Outcome { result, ..Outcome::of(end) }
    }

    /// Runs everything that needs no advance of time.
    #[track_caller]
    pub fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if self.echo_step() {
                continue;
            }
            if self.next_tick() <= self.now {
                self.input(Input::Tick);
                if self.next_tick() > self.now {
                    continue;
                }
                self.now = self.now + Millis(1);
                continue;
            }
            return;
        }
        panic!("the shard does not become idle");
    }

    /// Runs everything and advances the time until the workflow has ended.
    #[track_caller]
    pub fn run_to_end(&mut self, id: WorkflowId) -> WorkflowState {
        for _ in 0..ROUNDS_MAX {
            self.settle();
            let state = self.workflow_state(id);
            if state.is_terminal() {
                return state;
            }
            self.now = self.next_tick().max(self.now + Millis(1));
            self.input(Input::Tick);
        }
        panic!("the workflow does not end: {:?}", self.workflow(id));
    }

    /// The dead letter of a task's compensation that could not be submitted.
    #[track_caller]
    pub fn compensation_letter(&self, id: WorkflowId, task: &str) -> JobId {
        let task_key = TaskKey::of(self.records.plan(id).task(task).expect("a task of this name"));
        let row = self.records.row(id, task_key).expect("the task has begun");
        row.compensation.and_then(|compensation| compensation.dead_letter).expect("a dead letter")
    }

    /// Returns the job of the compensation.
    pub fn retry_compensation(&mut self, workflow: WorkflowId, letter: JobId) -> Result<JobId, Refusal> {
        match self.request(|request| Input::RetryCompensation { request, workflow, letter, by: None }) {
            Answer::Job(job) => Ok(job.id),
            Answer::Refused(refusal) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    pub fn purge_compensation(&mut self, workflow: WorkflowId, letter: JobId) -> Result<(), Refusal> {
        match self.request(|request| Input::PurgeCompensation { request, workflow, letter, by: None }) {
            Answer::Removed => Ok(()),
            Answer::Refused(refusal) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    /// The compensation jobs in order of creation.
    pub fn compensations(&self, id: WorkflowId) -> Vec<(JobId, State, Value)> {
        let jobs = self.records.jobs(Keyspace::Live).into_iter().chain(self.records.jobs(Keyspace::Done));
        let own = jobs.filter(|job| job.origin.as_ref().is_some_and(|from| from.workflow == id && from.compensation));
        let mut own: Vec<_> = own
            .map(|job| {
                let value = match decode_run(&job.spec) {
                    Ok(Run::Echo(echo)) => serde_json::from_str(echo.value.as_str()).expect("JSON"),
                    _ => Value::Null,
                };
                (job.id, job.state, value)
            })
            .collect();
        own.sort_by_key(|(id, ..)| *id);
        own
    }
}

impl Records {
    pub fn workflow(&self, id: WorkflowId) -> Option<Workflow> {
        let live = self.get(Keyspace::Workflows, &id.key());
        let done = self.get(Keyspace::WorkflowsDone, &id.key());
        assert!(live.is_none() || done.is_none(), "{id} has a live and a finished record");
        live.or(done).map(|bytes| codec::decode(bytes).expect("workflows can be read"))
    }

    pub fn workflows(&self, keyspace: Keyspace) -> Vec<Workflow> {
        self.table(keyspace).map(|(_, value)| codec::decode(value).expect("workflows can be read")).collect()
    }

    pub fn plan(&self, id: WorkflowId) -> Arc<Plan> {
        self.stored_plan(self.workflow_spec(id).digest)
    }

    fn stored_plan(&self, digest: Digest) -> Arc<Plan> {
        let definition = self.get(Keyspace::Definitions, &digest.0).expect("the definition is stored");
        Plan::load(definition).expect("a stored definition compiles")
    }

    fn workflow_spec(&self, id: WorkflowId) -> WorkflowSpec {
        let bytes = self.get(Keyspace::WorkflowSpecs, &id.key()).expect("the workflow has a spec");
        codec::decode(bytes).expect("specs can be read")
    }

    pub fn row(&self, id: WorkflowId, task_key: TaskKey) -> Option<TaskRecord> {
        self.get(Keyspace::Tasks, &key::task(id, task_key)).map(|bytes| codec::decode(bytes).expect("rows can be read"))
    }

    pub fn rows(&self, id: WorkflowId) -> Vec<(TaskKey, TaskRecord)> {
        let own = self.table(Keyspace::Tasks).filter_map(|(key, value)| {
            let (workflow, task_key) = key::key_of_task(key).expect("a task's key");
            (workflow == id).then(|| (task_key, codec::decode(value).expect("rows can be read")))
        });
        own.collect()
    }

    fn signals(&self, id: WorkflowId) -> Vec<(u32, Signal)> {
        let own = self.table(Keyspace::Signals).filter_map(|(key, value)| {
            let (workflow, number) = key::number_of_signal(key).expect("a signal's key");
            (workflow == id).then(|| (number, codec::decode(value).expect("signals can be read")))
        });
        own.collect()
    }

    pub(super) fn restore_workflows(&self, shard: &mut Shard) {
        for record in self.workflows(Keyspace::Workflows) {
            let id = record.id;
            if self.unreadable.contains(&id) {
                shard.restore_unreadable_workflow(record);
                continue;
            }
            shard.restore_workflow(record, &self.workflow_spec(id), self.plan(id));
            for (task_key, row) in self.rows(id) {
                shard.restore_task(id, task_key, row);
            }
            for (number, signal) in self.signals(id) {
                shard.restore_signal(id, number, signal);
            }
        }
        for (_, value) in self.table(Keyspace::Schedules) {
            let schedule: Schedule = codec::decode(value).expect("schedules can be read");
            let plan = self.stored_plan(schedule.spec.digest);
            let cron = Cron::parse(&schedule.spec.cron, &schedule.spec.zone).expect("a stored cron parses");
            shard.restore_schedule(schedule, plan, Arc::new(cron));
        }
    }

    fn unused_definitions(&self, after: Option<Digest>, limit: usize) -> Fetched {
        let found = engine::find_unused_definitions(after, limit, |last| {
            let keys = self.table(Keyspace::ByDefinition).map(|(key, _)| key);
            let behind = keys.filter(|key| last.is_none_or(|last| **key > last[..]));
            Ok::<_, std::convert::Infallible>(behind.take(2).map(<[u8]>::to_vec).collect::<Vec<_>>())
        });
        match found {
            Ok(found) => found,
            Err(never) => match never {},
        }
    }

    pub(super) fn answer_workflows(&self, fetch: &Fetch) -> Fetched {
        match fetch {
            Fetch::FinishedWorkflows { after, limit } => {
                let behind = self.workflows(Keyspace::WorkflowsDone).into_iter().filter(|record| record.id > *after);
                let workflows: Vec<Workflow> = behind.take(*limit).collect();
                Fetched::FinishedWorkflows { more: workflows.len() == *limit, workflows }
            }
            Fetch::WorkflowRows { id, limit } => {
                let tasks = self
                    .rows(*id)
                    .into_iter()
                    .map(|(task_key, _)| (Keyspace::Tasks, key::task(*id, task_key).to_vec()));
                let signals = self.signals(*id).into_iter();
                let signals = signals.map(|(number, _)| (Keyspace::Signals, key::signal(*id, number).to_vec()));
                let rows: Vec<_> = tasks.chain(signals).take(*limit).collect();
                Fetched::WorkflowRows { id: *id, more: rows.len() == *limit, rows }
            }
            Fetch::UnusedDefinitions { after, limit } => self.unused_definitions(*after, *limit),
            Fetch::Workflow { id } => {
                let found = self.get(Keyspace::WorkflowsDone, &id.key()).map(|bytes| {
                    Box::new(StoredWorkflow {
                        record: codec::decode(bytes).expect("workflows can be read"),
                        spec: self.workflow_spec(*id),
                        plan: self.plan(*id),
                        tasks: self.rows(*id),
                        signals: self.signals(*id),
                    })
                });
                Fetched::Workflow { id: *id, found }
            }
            other => panic!("{other:?} is not a fetch of workflows"),
        }
    }
}
