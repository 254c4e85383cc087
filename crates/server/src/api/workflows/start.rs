//! Starting and validating workflows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::api::{ValidView, WorkflowStart, WorkflowView};
use axum::Json as JsonBody;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{Actor, NewWorkflow};
use model::id::{ShardId, WorkflowId};
use model::json::Json;
use model::queue::QueueRef;
use model::spec::{Digest, EchoRun, JobSpec, KeyHash, Run};
use model::workflow::Workflow;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use workflow::Plan;

use super::{load, shard_of, view};
use crate::api::actor::actor;
use crate::api::parameters::Parameters;
use crate::api::problem::{ProblemKind, Refused};
use crate::api::references::{Available, References};
use crate::api::submit::idempotency_key;
use crate::api::{App, Core, body, queues};
use crate::inbox::WorkflowWatched;
use crate::plans::{Compiled, Text};
use crate::request::{StartWorkflow, StartedWorkflow};

/// Limit of the body: the largest definition and the largest inputs.
const BODY_BYTES_MAX: usize = workflow::limits::DEFINITION_BYTES_MAX + INPUTS_BYTES_MAX;
/// Limit of the inputs of a workflow, as JSON.
const INPUTS_BYTES_MAX: usize = 1024 * 1024;
const TENANT_DEFAULT: &str = "default";

/// A request to start or schedule a workflow.
pub(crate) struct StartRequest {
    pub text: Text,
    pub inputs: Option<Map<String, Value>>,
    pub queue: Option<QueueRef>,
    pub tenant: String,
    labels: BTreeMap<String, String>,
    key: Option<String>,
}

impl StartRequest {
    /// A request without labels and idempotency key.
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
                    Refused::parameter("inputs", format!("not a JSON object with the inputs: {error}"))
                })?),
                None => None,
            };
            let tenant = parameters.text("tenant").map(str::to_owned);
            let start = Self::new(Text::Yaml(bytes), inputs, parameters.queue()?, tenant);
            return Ok(Self { key: idempotency_key(headers)?, ..start });
        }
        for name in ["inputs", "queue", "tenant"] {
            if parameters.text(name).is_some() {
                return Err(Refused::parameter(name, "the parameter is for YAML bodies: set it in the JSON body"));
            }
        }
        body::expect_json(headers)?;
        let bytes = body::read(request_body, BODY_BYTES_MAX).await?;
        let body: WorkflowStart<&RawValue> = body::parse_large(&bytes)?;
        let text = text_of(&bytes, body.definition, body.yaml)?;
        let start = Self::new(text, body.inputs, body.queue, body.tenant);
        Ok(Self { labels: body.labels, key: idempotency_key(headers)?.or(body.idempotency_key), ..start })
    }

    /// Checks the request and compiles the definition.
    pub async fn compile(&self, app: &App, core: &Core) -> Result<Arc<Compiled>, Refused> {
        // Names and labels have the limits of jobs.
        JobSpec {
            tenant: self.tenant.clone(),
            labels: self.labels.clone(),
            idempotency_key: self.key.clone(),
            ..JobSpec::new(Run::Echo(EchoRun::default()))
        }
        .validate()?;
        let compiled = core.plans.compile(self.text.clone()).await?;
        let compiled = compiled.map_err(|found| Refused::diagnosed(ProblemKind::InvalidDefinition, &found))?;
        let prerequisites = compiled.prerequisites();
        if let (Some(field), false) = (&prerequisites.unsandboxed, app.allow_unsandboxed) {
            let detail = "this server runs no process without a sandbox: leave `sandbox` out, or have `allow_unsandboxed: true` set in the server's configuration";
            return Err(Refused::detailed(ProblemKind::SandboxNotAllowed, detail).at(field.clone()));
        }
        Ok(compiled)
    }

    /// The inputs with their defaults.
    pub fn bind(&self, plan: &Plan) -> Result<Json, Refused> {
        let none = Map::new();
        let bound = plan.bind(self.inputs.as_ref().unwrap_or(&none));
        let bound = bound.map_err(|found| Refused::diagnosed(ProblemKind::InvalidInputs, &found))?;
        let inputs = Json::of(&bound);
        if inputs.as_bytes().len() > INPUTS_BYTES_MAX {
            let detail = format!("the inputs take {} bytes: at most {INPUTS_BYTES_MAX}", inputs.as_bytes().len());
            return Err(Refused::detailed(ProblemKind::BodyTooLarge, format!("{detail}; pass large inputs as blobs")));
        }
        Ok(inputs)
    }

    /// Checks that the blobs of the definition exist, and protects them and those of the inputs from garbage collection
    /// until the workflow is durable.
    pub async fn protect_blobs(&self, core: &Core, compiled: &Compiled, inputs: &Json) -> Result<(), Refused> {
        let named: Vec<_> = model::blob::named_in(inputs.as_bytes()).collect();
        for some in named.chunks(blobs::limits::IDS_MAX) {
            // An input may name a blob that no task reads. A task that needs a missing blob fails by itself.
            core.blobs.missing(some).await?;
        }
        let references = References::of_blobs(compiled.prerequisites().blobs.clone());
        if !references.is_empty() {
            Available::of(&core.blobs, std::iter::once(&references)).await?.check(&references)?;
        }
        Ok(())
    }

    /// The idempotency key and the digest of the request.
    async fn keyed(&self, core: &Arc<Core>, plan: &Plan, inputs: &Json) -> Result<Option<(KeyHash, Digest)>, Refused> {
        let Some(key) = &self.key else { return Ok(None) };
        // Keys of workflows differ from keys of jobs: those have no control characters.
        let key = KeyHash::of(&self.tenant, &format!("\u{1}workflow {key}"));
        let labels = Json::of(&self.labels);
        let content = [plan.digest.0.as_slice(), inputs.as_bytes(), b"\0", labels.as_bytes()].concat();
        let digest = Digest::of(&content);
        // Id and token of a queue give the same digest.
        let digest = match self.queue {
            Some(reference) => digest.within(core.read(move |core| queues::load(core, reference)).await?.id),
            None => digest,
        };
        Ok(Some((key, digest)))
    }
}

/// The text of a definition, given as JSON or as a string of YAML.
pub(crate) fn text_of(body: &Bytes, definition: Option<&RawValue>, yaml: Option<String>) -> Result<Text, Refused> {
    match (definition, yaml) {
        (Some(definition), None) => Ok(Text::Json(body.slice_ref(definition.get().as_bytes()))),
        (None, Some(yaml)) => Ok(Text::Yaml(Bytes::from(yaml))),
        (None, None) => {
            let detail = "the definition is missing: set `definition` (JSON) or `yaml` (text)";
            Err(Refused::detailed(ProblemKind::InvalidField, detail).at("definition"))
        }
        (Some(_), Some(_)) => {
            let detail = "there are two definitions: set `definition` or `yaml`, not both";
            Err(Refused::detailed(ProblemKind::InvalidField, detail).at("yaml"))
        }
    }
}

pub(crate) async fn validate(State(app): State<Arc<App>>, request: Request) -> Result<JsonBody<ValidView>, Refused> {
    let core = app.core()?;
    let (mut head, body) = request.into_parts();
    let parameters = Parameters::from_request_parts(&mut head, &()).await?;
    let start = StartRequest::read(&parameters, &head.headers, body).await?;
    let compiled = start.compile(&app, &core).await?;
    if start.inputs.is_some() {
        start.bind(&compiled.plan)?;
    }
    let plan = &compiled.plan;
    let tasks = plan.tasks.len() as u32;
    Ok(JsonBody(ValidView { valid: true, name: plan.name.to_string(), tasks, warnings: Vec::new() }))
}

// Takes the whole request: an extractor of headers would copy them for every start.
pub(crate) async fn start(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refused> {
    let core = app.core()?;
    let (mut head, body) = request.into_parts();
    let parameters = Parameters::from_request_parts(&mut head, &()).await?;
    let by = actor(&head.headers)?;
    let wait = parameters.wait()?;
    let start = StartRequest::read(&parameters, &head.headers, body).await?;
    let compiled = start.compile(&app, &core).await?;
    let inputs = start.bind(&compiled.plan)?;
    start.protect_blobs(&core, &compiled, &inputs).await?;
    let key = start.keyed(&core, &compiled.plan, &inputs).await?;
    let shard = route(&app, &core, start.queue, key.map(|(key, _)| key));
    let new = new_workflow(start, compiled.plan.clone(), inputs.clone(), key, by);
    let request = StartWorkflow { workflow: Box::new(new) };
    let inbox = core.inbox(shard);
    let (started, ended) = match wait {
        Some(wait) => {
            let (started, ended) = inbox.request_and_watch_workflow(request).await?;
            (started, Some((wait, ended)))
        }
        None => (inbox.request(request).await?, None),
    };
    match started {
        StartedWorkflow::Started(workflow) => {
            core.plans.map_workflow(workflow.id, compiled.plan.digest);
            let workflow = match ended {
                Some((wait, ended)) if !workflow.state.is_terminal() => {
                    when_ended(&app, &core, workflow.id, ended, wait).await?
                }
                Some(_) | None => *workflow,
            };
            Ok(created(StatusCode::CREATED, &view::with_definition(&workflow, &compiled.plan, inputs)))
        }
        StartedWorkflow::Exists(id) => {
            let workflow = existing(&app, &core, id, wait).await.map_err(|refused| {
                if !refused.is(ProblemKind::UnknownWorkflow) {
                    return refused;
                }
                let detail = format!("the key started {id}, which was deleted since: use a new key");
                Refused::detailed(ProblemKind::IdempotencyGone, detail)
            })?;
            let shown = view::with_definition(&workflow, &compiled.plan, inputs);
            Ok(created(StatusCode::OK, &WorkflowView { deduplicated: true, ..shown }))
        }
    }
}

/// A workflow that was started before under the same idempotency key.
async fn existing(app: &App, core: &Arc<Core>, id: WorkflowId, wait: Option<Duration>) -> Result<Workflow, Refused> {
    let workflow = core.read(move |core| load(core, id)).await?;
    match wait {
        Some(wait) if !workflow.state.is_terminal() => {
            let ended = core.inbox(shard_of(core, id)).watch_workflow(id)?;
            when_ended(app, core, id, ended, wait).await
        }
        Some(_) | None => Ok(workflow),
    }
}

fn new_workflow(
    start: StartRequest,
    plan: Arc<Plan>,
    inputs: Json,
    key: Option<(KeyHash, Digest)>,
    submitter: Actor,
) -> NewWorkflow {
    let StartRequest { queue, tenant, labels, .. } = start;
    NewWorkflow { plan, inputs, queue, tenant, submitter, labels, key }
}

/// The shard of a workflow: that of its queue, of its idempotency key, or any.
fn route(app: &App, core: &Core, queue: Option<QueueRef>, key: Option<KeyHash>) -> ShardId {
    match (queue, key) {
        (Some(queue), _) => core.shard_of(queue.slot()),
        (None, Some(key)) => core.shard_of(key.slot()),
        (None, None) => app.any_shard(core),
    }
}

/// Waits for the end of a workflow, at most for `wait` and until the node stops, and loads the workflow.
pub(super) async fn when_ended(
    app: &App,
    core: &Arc<Core>,
    workflow: WorkflowId,
    ended: WorkflowWatched,
    wait: Duration,
) -> Result<Workflow, Refused> {
    let ended = tokio::select! {
        ended = ended => ended.ok(),
        () = tokio::time::sleep(wait) => None,
        () = app.stopping() => None,
    };
    match ended {
        Some(ended) => Ok(Arc::unwrap_or_clone(ended)),
        None => core.read(move |core| load(core, workflow)).await,
    }
}

pub(crate) fn created(status: StatusCode, shown: &WorkflowView) -> Response {
    let location = format!("/v1/workflows/{}", shown.id);
    (status, [(header::LOCATION, location)], JsonBody(shown)).into_response()
}
