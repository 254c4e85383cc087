//! What beginning a task comes to: a pure function of the workflow and the time.

use std::sync::Arc;

use model::json::Json;
use model::reason::{Reason, ReasonCode, cut};
use model::spec::{Digest, EchoRun, JobSpec, Run};
use model::state::State;
use model::time::{Millis, Timestamp};
use model::workflow::{Place, TaskState};
use serde_json::{Value, json};
use workflow::Plan;
use workflow::plan::{Act, JobTemplate};
use workflow::scope::{JobFacts, RenderError, Scope};

use super::flow::Flow;
use super::scope::Seen;

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Deed {
    Skip,
    Fail(Reason),
    /// Each of these is an item.
    Each(Vec<Value>),
    Job {
        spec: Box<JobSpec>,
        /// Names what it does, for those that would do the very same.
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
    /// The case that holds; one more than the last: none.
    Choose(u32),
}

fn template_error(error: &RenderError) -> Reason {
    Reason::with(ReasonCode::TemplateError, error.to_string())
}

impl Flow {
    /// What beginning the task, or the item, at `place` comes to.
    pub fn decide(&self, place: Place, now: Millis) -> Deed {
        self.try_decide(place, now).unwrap_or_else(|error| Deed::Fail(template_error(&error)))
    }

    fn try_decide(&self, place: Place, now: Millis) -> Result<Deed, RenderError> {
        let seen = Seen(self);
        let scope = self.scope(&seen, place);
        let task = self.task(place);
        if place.item.is_none() {
            if let Some(when) = &task.when
                && !when.truth(&scope)?
            {
                return Ok(Deed::Skip);
            }
            if let Some(for_each) = &task.for_each {
                return Ok(Deed::Each(for_each.items(&scope)?));
            }
        }
        let deadline = task.timeout.map(|timeout| now + timeout);
        Ok(match &task.act {
            Act::Job(template) => {
                let mut spec = self.render_job(template, &scope, place, false)?;
                spec.deadline = deadline.map(Timestamp);
                let merge = match &task.merge {
                    Some(key) => {
                        // What is undone differently is not the very same.
                        let group = task.compensation.as_ref().map(|_| place.task);
                        Some(merge_key(&key.text(&scope)?, group, &spec))
                    }
                    None => None,
                };
                Deed::Job { spec: Box::new(spec), merge }
            }
            Act::Approval { message } => {
                let message = cut(message.text(&scope)?);
                let spec = JobSpec { deadline: deadline.map(Timestamp), ..self.approval_job(place, &message) };
                Deed::Approval { spec: Box::new(spec), message }
            }
            Act::Workflow { child, with } => {
                let plan = self.plan.children[*child as usize].clone();
                match with.render(&scope)? {
                    Value::Object(given) => match plan.bind(&given) {
                        Ok(inputs) => Deed::Child { plan, inputs },
                        Err(wrong) => Deed::Fail(Reason::with(ReasonCode::TemplateError, wrong.to_string())),
                    },
                    other => {
                        let message = format!("with: inputs are an object, not {other}");
                        Deed::Fail(Reason::with(ReasonCode::TemplateError, message))
                    }
                }
            }
            Act::Delay(delay) => Deed::Sleep { due: delay.due(&scope, now)? },
            Act::WaitFor { signal } => Deed::Listen { signal: signal.clone(), due: deadline },
            Act::Switch(cases) => {
                for (index, case) in cases.iter().enumerate() {
                    if case.when.as_ref().map_or(Ok(true), |when| when.truth(&scope))? {
                        return Ok(Deed::Choose(index as u32));
                    }
                }
                Deed::Choose(cases.len() as u32)
            }
        })
    }

    fn render_job(
        &self,
        template: &JobTemplate,
        scope: &Scope<'_>,
        place: Place,
        compensation: bool,
    ) -> Result<JobSpec, RenderError> {
        let facts = JobFacts {
            workflow: self.record.id,
            task: &self.task(place).name,
            item: place.item,
            run: self.record.run,
            tenant: &self.record.tenant,
            compensation,
        };
        template.render(scope, &facts)
    }

    /// A job that does nothing but wait for a person's word: it says who gave it.
    fn approval_job(&self, place: Place, message: &str) -> JobSpec {
        let (workflow, task) = (self.record.id.to_string(), &self.task(place).name);
        let value = Json::of(&json!({ "message": message, "workflow": workflow, "task": task, "item": place.item }));
        let run = Run::Echo(EchoRun { value, ..EchoRun::default() });
        JobSpec { tenant: self.record.tenant.clone(), ..JobSpec::new(run) }
    }

    /// The job that undoes what was done at `place`; absent where nothing says how.
    pub fn decide_compensation(&self, place: Place) -> Option<Result<JobSpec, Reason>> {
        let template = self.task(place).compensation.as_ref()?;
        let quarantined = self.slots.iter().any(|slot| slot.state == TaskState::Quarantined)
            || self.state(place) == TaskState::Quarantined
            || self.row(place).is_some_and(|row| row.job_state == Some(State::Quarantined));
        let unknown = !matches!(self.state(place), TaskState::Succeeded | TaskState::Quarantined) && !quarantined;
        if unknown && !template.is_constant() {
            let message = "it was stopped, and nobody knows how far it came: look, and undo it by hand if need be";
            return Some(Err(Reason::with(ReasonCode::CompensationUnreadable, message)));
        }
        if quarantined && !template.is_constant() {
            // What would be made without it might undo something else.
            let message = "a result that it may need was quarantined: release it, or undo this by hand";
            return Some(Err(Reason::with(ReasonCode::CompensationUnreadable, message)));
        }
        let seen = Seen(self);
        let result = self.row(place).and_then(|row| row.result.as_ref()).map(super::scope::value_of);
        let scope = Scope { result: Some(result.as_ref().unwrap_or(&Value::Null)), ..self.scope(&seen, place) };
        let rendered = self.render_job(template, &scope, place, true);
        Some(rendered.map_err(|error| Reason::with(ReasonCode::CompensationUnreadable, error.to_string())))
    }

    /// What the workflow as a whole comes to.
    pub fn decide_result(&self) -> Result<Option<Json>, Reason> {
        let Some(outputs) = &self.plan.outputs else { return Ok(None) };
        let seen = Seen(self);
        match outputs.render(&self.outer_scope(&seen)) {
            Ok(value) => Ok(Some(Json::of(&value))),
            Err(error) => Err(template_error(&error)),
        }
    }

    /// The items of a task that runs for each of a list, again.
    pub fn decide_items(&self, task: u32) -> Result<Vec<Value>, Reason> {
        let place = Place::of(task);
        let Some(for_each) = &self.task(place).for_each else { return Ok(Vec::new()) };
        let seen = Seen(self);
        for_each.items(&self.scope(&seen, place)).map_err(|error| template_error(&error))
    }
}

/// Names a job by what it does and by the key that says whether that may be shared.
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

/// What a job does, without what only says whose it is: the variables that name its task and its deadline.
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
