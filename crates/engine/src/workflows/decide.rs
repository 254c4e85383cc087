//! Decides what beginning a task does: a pure function of the workflow and the time.

use std::sync::Arc;

use model::json::Json;
use model::reason::{Reason, ReasonCode, cut};
use model::spec::{Digest, EchoRun, JobSpec, Run};
use model::state::State;
use model::time::{Millis, Timestamp};
use model::workflow::{TaskKey, TaskState};
use serde_json::{Value, json};
use workflow::Plan;
use workflow::plan::{JobTemplate, TaskWork};
use workflow::scope::{JobContext, RenderError, Scope};

use super::live::LiveWorkflow;
use super::scope::TaskView;

/// What beginning a task or item does.
#[derive(Debug)]
pub(crate) enum TaskAction {
    Skip,
    Fail(Reason),
    /// Run one item for each value.
    ForEach(Vec<Value>),
    Job {
        spec: Box<JobSpec>,
        /// Merge key: tasks with the same key share one job.
        merge: Option<Digest>,
    },
    Approval {
        spec: Box<JobSpec>,
        message: String,
    },
    Child {
        plan: Arc<Plan>,
        inputs: Value,
    },
    Sleep {
        due: Millis,
    },
    Listen {
        signal: Box<str>,
        due: Option<Millis>,
    },
    /// Index of the chosen case; the number of cases if none holds.
    Choose(u32),
}

/// The reason of a task whose template cannot be rendered.
fn template_error(error: &RenderError) -> Reason {
    Reason::with(ReasonCode::TemplateError, error.to_string())
}

impl LiveWorkflow {
    /// Decides what beginning the task or item does.
    pub fn decide(&self, task_key: TaskKey, now: Millis) -> TaskAction {
        self.try_decide(task_key, now).unwrap_or_else(|error| TaskAction::Fail(template_error(&error)))
    }

    fn try_decide(&self, task_key: TaskKey, now: Millis) -> Result<TaskAction, RenderError> {
        let view = TaskView(self);
        let scope = self.scope(&view, task_key);
        let task = self.task(task_key);
        if task_key.item.is_none() {
            if let Some(when) = &task.when
                && !when.boolean(&scope)?
            {
                return Ok(TaskAction::Skip);
            }
            if let Some(for_each) = &task.for_each {
                return Ok(TaskAction::ForEach(for_each.items(&scope)?));
            }
        }
        let deadline = task.timeout.map(|timeout| now + timeout);
        Ok(match &task.work {
            TaskWork::Job(template) => {
                let mut spec = self.render_job(template, &scope, task_key, false)?;
                spec.deadline = deadline.map(Timestamp);
                let merge = match &task.merge {
                    Some(key) => {
                        // Jobs with different compensations must not be merged.
                        let group = task.compensation.as_ref().map(|_| task_key.task);
                        Some(merge_key(&key.text(&scope)?, group, &spec))
                    }
                    None => None,
                };
                TaskAction::Job { spec: Box::new(spec), merge }
            }
            TaskWork::Approval { message } => {
                let message = cut(message.text(&scope)?);
                let spec = JobSpec { deadline: deadline.map(Timestamp), ..self.approval_job(task_key, &message) };
                TaskAction::Approval { spec: Box::new(spec), message }
            }
            TaskWork::Workflow { child, with } => {
                let plan = self.plan.children[*child as usize].clone();
                match with.render(&scope)? {
                    Value::Object(given) => match plan.bind(&given) {
                        Ok(inputs) => TaskAction::Child { plan, inputs },
                        Err(wrong) => TaskAction::Fail(Reason::with(ReasonCode::TemplateError, wrong.to_string())),
                    },
                    other => {
                        let message = format!("with: inputs must be an object, not {other}");
                        TaskAction::Fail(Reason::with(ReasonCode::TemplateError, message))
                    }
                }
            }
            TaskWork::Delay(delay) => TaskAction::Sleep { due: delay.due(&scope, now)? },
            TaskWork::WaitFor { signal } => TaskAction::Listen { signal: signal.clone(), due: deadline },
            TaskWork::Switch(cases) => {
                for (index, case) in cases.iter().enumerate() {
                    if case.when.as_ref().map_or(Ok(true), |when| when.boolean(&scope))? {
                        return Ok(TaskAction::Choose(index as u32));
                    }
                }
                TaskAction::Choose(cases.len() as u32)
            }
        })
    }

    /// Renders the job of a task, an item or a compensation.
    fn render_job(
        &self,
        template: &JobTemplate,
        scope: &Scope<'_>,
        task_key: TaskKey,
        compensation: bool,
    ) -> Result<JobSpec, RenderError> {
        let facts = JobContext {
            workflow: self.record.id,
            task: &self.task(task_key).name,
            item: task_key.item,
            run: self.record.run,
            tenant: &self.record.tenant,
            compensation,
        };
        template.render(scope, &facts)
    }

    /// The job of an approval task: an echo that waits for an approval.
    fn approval_job(&self, task_key: TaskKey, message: &str) -> JobSpec {
        let (workflow, task) = (self.record.id.to_string(), &self.task(task_key).name);
        let value = Json::of(&json!({ "message": message, "workflow": workflow, "task": task, "item": task_key.item }));
        let run = Run::Echo(EchoRun { value, ..EchoRun::default() });
        JobSpec { tenant: self.record.tenant.clone(), ..JobSpec::new(run) }
    }

    /// The compensation job of a task or item. Absent: it has no compensation.
    pub fn decide_compensation(&self, task_key: TaskKey) -> Option<Result<JobSpec, Reason>> {
        let template = self.task(task_key).compensation.as_ref()?;
        let quarantined = self.tasks.iter().any(|live_task| live_task.state == TaskState::Quarantined)
            || self.state(task_key) == TaskState::Quarantined
            || self.row(task_key).is_some_and(|row| row.job_state == Some(State::Quarantined));
        let unknown = !matches!(self.state(task_key), TaskState::Succeeded | TaskState::Quarantined) && !quarantined;
        if unknown && !template.is_constant() {
            let message =
                "the task was stopped and its progress is unknown; check its effects and compensate by hand if needed";
            return Some(Err(Reason::with(ReasonCode::CompensationUnreadable, message)));
        }
        if quarantined && !template.is_constant() {
            // Rendered without the result, the job might compensate the wrong thing.
            let message = "a result that the compensation may need is quarantined; release it, or compensate by hand";
            return Some(Err(Reason::with(ReasonCode::CompensationUnreadable, message)));
        }
        let view = TaskView(self);
        let result = self.row(task_key).and_then(|row| row.result.as_ref()).map(super::scope::value_of);
        let scope = Scope { result: Some(result.as_ref().unwrap_or(&Value::Null)), ..self.scope(&view, task_key) };
        let rendered = self.render_job(template, &scope, task_key, true);
        Some(rendered.map_err(|error| Reason::with(ReasonCode::CompensationUnreadable, error.to_string())))
    }

    /// Renders the workflow's result.
    pub fn decide_result(&self) -> Result<Option<Json>, Reason> {
        let Some(outputs) = &self.plan.outputs else { return Ok(None) };
        let view = TaskView(self);
        match outputs.render(&self.workflow_scope(&view)) {
            Ok(value) => Ok(Some(Json::of(&value))),
            Err(error) => Err(template_error(&error)),
        }
    }

    /// Renders the items of a `for_each` task.
    pub fn decide_items(&self, task: u32) -> Result<Vec<Value>, Reason> {
        let task_key = TaskKey::of(task);
        let Some(for_each) = &self.task(task_key).for_each else { return Ok(Vec::new()) };
        let view = TaskView(self);
        for_each.items(&self.scope(&view, task_key)).map_err(|error| template_error(&error))
    }
}

/// Digest of the user's merge key, the compensation group and the job's spec.
fn merge_key(key: &str, group: Option<u32>, spec: &JobSpec) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&group.map_or(0, |task| u64::from(task) + 1).to_be_bytes());
    hasher.update(&(key.len() as u64).to_be_bytes());
    hasher.update(key.as_bytes());
    hasher.update(&spec_identity(spec));
    let mut half = [0; 16];
    half.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    Digest(half)
}

/// The encoded spec without its deadline and the `OUTLAST_` variables, which name the task.
fn spec_identity(spec: &JobSpec) -> Vec<u8> {
    let mut run = spec.run.clone();
    let own = |name: &String, _: &mut String| !name.starts_with("OUTLAST_");
    match &mut run {
        Run::Process(process) => process.env.retain(own),
        Run::Wasm(wasm) => wasm.env.retain(own),
        Run::Echo(_) => {}
    }
    let bare = JobSpec { run, deadline: None, ..spec.clone() };
    model::codec::encode(&bare)
}
