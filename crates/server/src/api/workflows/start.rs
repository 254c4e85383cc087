//! Starting workflows, and asking whether they could be started.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Json as JsonBody;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{Actor, Answer, Input, NewWorkflow};
use model::id::ShardId;
use model::json::Json;
use model::queue::QueueRef;
use model::spec::{Digest, EchoRun, JobSpec, KeyHash, Run};
use model::view::{ValidView, WorkflowView};
use model::workflow::Workflow;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use workflow::Plan;

use super::{load, view};
use crate::api::actor::actor;
use crate::api::list::{Parameters, bad};
use crate::api::needs::{Needs, Stock};
use crate::api::problem::{Fault, FlowFault, Refused};
use crate::api::submit::{idempotency_key, key_slot};
use crate::api::{App, Core, body, queues};
use crate::inbox::FlowWatched;
use crate::plans::{Compiled, Text};

/// The largest body: the largest definition, and the inputs to it.
const BODY_BYTES_MAX: usize = workflow::limits::DEFINITION_BYTES_MAX + INPUTS_BYTES_MAX;
/// All inputs of one workflow together, as JSON.
const INPUTS_BYTES_MAX: usize = 1024 * 1024;
const TENANT_DEFAULT: &str = "default";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StartBody<'a> {
    #[serde(borrow, default)]
    definition: Option<&'a RawValue>,
    #[serde(default)]
    yaml: Option<String>,
    #[serde(default)]
    inputs: Option<Map<String, Value>>,
    #[serde(default)]
    queue: Option<QueueRef>,
    #[serde(default)]
    tenant: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    idempotency_key: Option<String>,
}

/// What is to be started, as it was asked for.
pub(crate) struct Ask {
    pub text: Text,
    pub inputs: Option<Map<String, Value>>,
    pub queue: Option<QueueRef>,
    pub tenant: String,
    labels: BTreeMap<String, String>,
    key: Option<String>,
}

impl Ask {
    /// One that only names a definition and its inputs.
    pub fn new(
        text: Text,
        inputs: Option<Map<String, Value>>,
        queue: Option<QueueRef>,
        tenant: Option<String>,
    ) -> Self {
        let tenant = tenant.unwrap_or_else(|| TENANT_DEFAULT.to_owned());
        Self { text, inputs, queue, tenant, labels: BTreeMap::new(), key: None }
    }

    async fn read(parameters: &Parameters, headers: &HeaderMap, request_body: Body) -> Result<Self, Refused> {
        if body::is_yaml(headers) {
            let bytes = body::read(request_body, workflow::limits::DEFINITION_BYTES_MAX).await?;
            let inputs = match parameters.text("inputs") {
                Some(text) => Some(serde_json::from_str(text).map_err(|error| {
                    bad("inputs", format!("a JSON object with a value for each input is wanted: {error}"))
                })?),
                None => None,
            };
            let tenant = parameters.text("tenant").map(str::to_owned);
            let ask = Self::new(Text::Yaml(bytes), inputs, parameters.queue()?, tenant);
            return Ok(Self { key: idempotency_key(headers)?, ..ask });
        }
        for name in ["inputs", "queue", "tenant"] {
            if parameters.text(name).is_some() {
                return Err(bad(name, "with a body of JSON it belongs into the body".to_owned()));
            }
        }
        body::expect_json(headers)?;
        let bytes = body::read(request_body, BODY_BYTES_MAX).await?;
        let body: StartBody<'_> = body::parse_large(&bytes)?;
        let text = text_of(&bytes, body.definition, body.yaml)?;
        let ask = Self::new(text, body.inputs, body.queue, body.tenant);
        Ok(Self { labels: body.labels, key: idempotency_key(headers)?.or(body.idempotency_key), ..ask })
    }

    /// The definition with everything that was asked about it found to be well.
    pub async fn compile(&self, app: &App, core: &Core) -> Result<Arc<Compiled>, Refused> {
        // Names and labels are those of jobs.
        JobSpec {
            tenant: self.tenant.clone(),
            labels: self.labels.clone(),
            idempotency_key: self.key.clone(),
            ..JobSpec::new(Run::Echo(EchoRun::default()))
        }
        .validate()?;
        let compiled = core.plans.compile(self.text.clone()).await?;
        let compiled = compiled.map_err(|found| Refused::diagnosed(FlowFault::InvalidDefinition, &found))?;
        let demands = compiled.demands();
        if let (Some(field), false) = (&demands.unsandboxed, app.allow_unsandboxed) {
            let detail = "this server runs no process without a sandbox: leave `sandbox` out, or have `allow_unsandboxed: true` set in the server's configuration";
            return Err(Refused::saying(Fault::SandboxNotAllowed, detail).at(field.clone()));
        }
        Ok(compiled)
    }

    /// The inputs with their defaults.
    pub fn bind(&self, plan: &Plan) -> Result<Json, Refused> {
        let none = Map::new();
        let bound = plan.bind(self.inputs.as_ref().unwrap_or(&none));
        let bound = bound.map_err(|found| Refused::diagnosed(FlowFault::InvalidInputs, &found))?;
        let inputs = Json::of(&bound);
        if inputs.as_bytes().len() > INPUTS_BYTES_MAX {
            let detail = format!("the inputs take {} bytes: at most {INPUTS_BYTES_MAX}", inputs.as_bytes().len());
            return Err(Refused::saying(Fault::BodyTooLarge, format!("{detail}; hand large ones in as blobs")));
        }
        Ok(inputs)
    }

    /// Sees to it that the blobs which definition and inputs name are there, and stay until they are on record.
    pub async fn look_for_blobs(&self, core: &Core, compiled: &Compiled, inputs: &Json) -> Result<(), Refused> {
        let named: Vec<_> = model::blob::named_in(inputs.as_bytes()).collect();
        for some in named.chunks(blobs::limits::IDS_MAX) {
            // An input may name what is not meant to be read: what a task needs and lacks is for the task to say.
            core.blobs.missing(some).await?;
        }
        let needs = Needs::of_blobs(compiled.demands().blobs.clone());
        if !needs.is_empty() {
            Stock::look(&core.blobs, std::iter::once(&needs)).await?.check(&needs)?;
        }
        Ok(())
    }

    /// The idempotency key, and what it stands for.
    fn keyed(&self, core: &Core, plan: &Plan, inputs: &Json) -> Result<Option<(KeyHash, Digest)>, Refused> {
        let Some(key) = &self.key else { return Ok(None) };
        // Keys of workflows and of jobs are apart: a control character is in no key of a job.
        let key = KeyHash::of(&self.tenant, &format!("\u{1}workflow {key}"));
        let labels = Json::of(&self.labels);
        let content = [plan.digest.0.as_slice(), inputs.as_bytes(), b"\0", labels.as_bytes()].concat();
        let digest = Digest::of(&content);
        // However the queue is named, it is the same.
        let digest = match self.queue {
            Some(reference) => digest.within(queues::load(core, reference)?.id),
            None => digest,
        };
        Ok(Some((key, digest)))
    }
}

/// The text of a definition, which comes either as JSON or as YAML in a string.
pub(crate) fn text_of(body: &Bytes, definition: Option<&RawValue>, yaml: Option<String>) -> Result<Text, Refused> {
    match (definition, yaml) {
        (Some(definition), None) => Ok(Text::Json(body.slice_ref(definition.get().as_bytes()))),
        (None, Some(yaml)) => Ok(Text::Yaml(Bytes::from(yaml))),
        (None, None) => {
            let detail = "there is no definition: give one as JSON in `definition`, or as text in `yaml`";
            Err(Refused::saying(Fault::InvalidField, detail).at("definition"))
        }
        (Some(_), Some(_)) => {
            let detail = "there are two definitions: give `definition` or `yaml`, not both";
            Err(Refused::saying(Fault::InvalidField, detail).at("yaml"))
        }
    }
}

pub(crate) async fn validate(State(app): State<Arc<App>>, request: Request) -> Result<JsonBody<ValidView>, Refused> {
    let core = app.core()?;
    let (mut head, body) = request.into_parts();
    let parameters = Parameters::from_request_parts(&mut head, &()).await?;
    let ask = Ask::read(&parameters, &head.headers, body).await?;
    let compiled = ask.compile(&app, &core).await?;
    if ask.inputs.is_some() {
        ask.bind(&compiled.plan)?;
    }
    let plan = &compiled.plan;
    let tasks = plan.tasks.len() as u32;
    Ok(JsonBody(ValidView { valid: true, name: plan.name.to_string(), tasks, warnings: Vec::new() }))
}

// It takes the request as it is: an extractor of headers would copy them for every start.
pub(crate) async fn start(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refused> {
    let core = app.core()?;
    let (mut head, body) = request.into_parts();
    let parameters = Parameters::from_request_parts(&mut head, &()).await?;
    let by = actor(&head.headers)?;
    let wait = parameters.wait()?;
    let ask = Ask::read(&parameters, &head.headers, body).await?;
    let compiled = ask.compile(&app, &core).await?;
    let inputs = ask.bind(&compiled.plan)?;
    ask.look_for_blobs(&core, &compiled, &inputs).await?;
    let key = ask.keyed(&core, &compiled.plan, &inputs)?;
    let shard = route(&app, &core, ask.queue, key.map(|(key, _)| key));
    let new = new_workflow(ask, compiled.plan.clone(), inputs.clone(), key, by);
    let input = |request| Input::StartWorkflow { request, workflow: Box::new(new) };
    let inbox = core.inbox(shard);
    let (answer, ended) = match wait {
        Some(_) => {
            let (answer, ended) = inbox.ask_and_watch_workflow(input).await?;
            (answer, Some(ended))
        }
        None => (inbox.ask(input).await?, None),
    };
    match answer {
        Answer::Workflow(workflow) => {
            core.plans.remember(workflow.id, compiled.plan.digest);
            let workflow = match (wait, ended) {
                (Some(wait), Some(ended)) if !workflow.state.is_terminal() => {
                    when_ended(&app, &core, &workflow, ended, wait).await?
                }
                _ => *workflow,
            };
            let shown = view::with_definition(&workflow, &compiled.plan, inputs);
            Ok(created(StatusCode::CREATED, &shown))
        }
        Answer::WorkflowExists(id) => {
            let gone = |refused: Refused| match refused.is(FlowFault::UnknownWorkflow.into()) {
                true => {
                    let detail = format!("the key has made {id}, which was removed since: use a new key");
                    Refused::saying(Fault::IdempotencyGone, detail)
                }
                false => refused,
            };
            let mut workflow = load(&core, id).map_err(gone)?;
            if let (Some(wait), false) = (wait, workflow.state.is_terminal()) {
                let ended = inbox.watch_workflow(id)?;
                workflow = when_ended(&app, &core, &workflow, ended, wait).await.map_err(gone)?;
            }
            let shown = view::with_definition(&workflow, &compiled.plan, inputs);
            Ok(created(StatusCode::OK, &WorkflowView { deduplicated: true, ..shown }))
        }
        Answer::Refused(refusal) => Err(refusal.into()),
        _ => Err(Refused::new(Fault::Internal)),
    }
}

fn new_workflow(
    ask: Ask,
    plan: Arc<Plan>,
    inputs: Json,
    key: Option<(KeyHash, Digest)>,
    submitter: Actor,
) -> NewWorkflow {
    let Ask { queue, tenant, labels, .. } = ask;
    NewWorkflow { plan, inputs, queue, tenant, submitter, labels, key }
}

/// The shard that a workflow belongs to: its queue's, its key's, or any.
fn route(app: &App, core: &Core, queue: Option<QueueRef>, key: Option<KeyHash>) -> ShardId {
    match (queue, key) {
        (Some(queue), _) => core.shard_of(queue.slot()),
        (None, Some(key)) => core.shard_of(key_slot(key)),
        (None, None) => {
            let turn = app.turn.fetch_add(1, Ordering::Relaxed) % usize::from(core.shards.count());
            ShardId(turn as u16)
        }
    }
}

/// The workflow once it has ended, or as it is when the time is up or the node stops.
pub(super) async fn when_ended(
    app: &App,
    core: &Core,
    workflow: &Workflow,
    ended: FlowWatched,
    wait: Duration,
) -> Result<Workflow, Refused> {
    let ended = tokio::select! {
        ended = ended => ended.ok(),
        () = tokio::time::sleep(wait) => None,
        () = app.stopping() => None,
    };
    match ended {
        Some(ended) => Ok(Arc::unwrap_or_clone(ended)),
        None => load(core, workflow.id),
    }
}

pub(crate) fn created(status: StatusCode, shown: &WorkflowView) -> Response {
    let location = format!("/v1/workflows/{}", shown.id);
    (status, [(header::LOCATION, location)], JsonBody(shown)).into_response()
}
