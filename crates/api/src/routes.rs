//! All operations of the API. The OpenAPI document, the documentation page and the server's check of query parameters
//! are made from this list; tests compare it with the router.

mod content;
mod governance;
mod jobs;
mod system;
mod workflows;

use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::openapi::{Components, Method};

/// Media types.
pub const JSON: &str = "application/json";
pub const NDJSON: &str = "application/x-ndjson";
pub const YAML: &str = "application/yaml";
pub const OCTETS: &str = "application/octet-stream";
pub const EVENTS: &str = "text/event-stream";
pub const TEXT: &str = "text/plain";

/// The longest wait that a request may ask for.
pub const WAIT_MS_MAX: u64 = 300_000;
/// Size of a page by default, and at most.
pub const PAGE_DEFAULT: u64 = 100;
pub const PAGE_MAX: u64 = 1_000;
/// How many dead letters one request purges at most.
pub const PURGED_MAX: u64 = 1_000;

/// A query, path or header parameter.
#[derive(Debug, Clone)]
pub(crate) struct Parameter {
    pub name: &'static str,
    pub place: &'static str,
    pub description: String,
    pub schema: Value,
}

/// A documented response. Content is pairs of media type and schema.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub status: u16,
    pub description: &'static str,
    pub content: Vec<(&'static str, Value)>,
}

/// An operation: a method on a path.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub method: Method,
    pub path: &'static str,
    pub id: &'static str,
    pub tag: &'static str,
    pub summary: &'static str,
    pub description: Option<&'static str>,
    pub parameters: Vec<Parameter>,
    pub body: Vec<(&'static str, Value)>,
    pub body_required: bool,
    pub responses: Vec<Response>,
    /// Whether it may answer with a problem document.
    pub has_problems: bool,
}

/// Collects the operations and the schemas that they refer to.
pub(crate) struct Routes {
    pub operations: Vec<Operation>,
    pub components: Components,
    tag: &'static str,
}

/// All operations with the schemas that they refer to.
pub(crate) fn all() -> Routes {
    let mut routes = Routes { operations: Vec::new(), components: Components::default(), tag: "" };
    jobs::add(&mut routes);
    workflows::add(&mut routes);
    governance::add(&mut routes);
    content::add(&mut routes);
    system::add(&mut routes);
    routes
}

impl Routes {
    /// Operations from here on are of this group.
    fn tag(&mut self, tag: &'static str) {
        self.tag = tag;
    }

    fn get(&mut self, path: &'static str, id: &'static str, summary: &'static str) -> Builder<'_> {
        self.add(Method::Get, path, id, summary)
    }

    fn post(&mut self, path: &'static str, id: &'static str, summary: &'static str) -> Builder<'_> {
        self.add(Method::Post, path, id, summary)
    }

    fn delete(&mut self, path: &'static str, id: &'static str, summary: &'static str) -> Builder<'_> {
        self.add(Method::Delete, path, id, summary)
    }

    /// Adds an operation. Path parameters get their description from their name and the start of the path.
    fn add(&mut self, method: Method, path: &'static str, id: &'static str, summary: &'static str) -> Builder<'_> {
        let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let parameters = names.map(|name| Parameter {
            name,
            place: "path",
            description: path_parameter(path, name).to_owned(),
            schema: json!({"type": "string"}),
        });
        let parameters = parameters.chain(request_id(method));
        self.operations.push(Operation {
            method,
            path,
            id,
            tag: self.tag,
            summary,
            description: None,
            parameters: parameters.collect(),
            body: Vec::new(),
            body_required: false,
            responses: Vec::new(),
            has_problems: true,
        });
        let at = self.operations.len() - 1;
        Builder { routes: self, at }
    }
}

/// The header that names a request which changes something.
fn request_id(method: Method) -> Option<Parameter> {
    let description =
        "Name of the request, 32 hexadecimal digits. Sent again under the same name, it gets the first answer.";
    match method {
        Method::Post | Method::Delete => Some(Parameter {
            name: "Outlast-Request-Id",
            place: "header",
            description: description.to_owned(),
            schema: json!({"type": "string", "pattern": "^[0-9a-f]{32}$"}),
        }),
        // Uploads have an offset of their own, and reads change nothing.
        Method::Put | Method::Get | Method::Head => None,
    }
}

fn path_parameter(path: &str, name: &str) -> &'static str {
    match name {
        "queue" => "Id (`q_…`) or token (`qt_…`) of the queue.",
        "schedule" => "Id (`sch_…`) or name of the schedule.",
        "name" if path.contains("/signals/") => "Name of the signal.",
        "name" => "Name of the task.",
        _ if path.starts_with("/v1/workflows") => "Workflow id, `wf_…`.",
        _ if path.starts_with("/v1/blobs") => "Blob id: `blob:` and the BLAKE3 hash of the content.",
        _ if path.starts_with("/v1/workers") => "Worker id, `w_…`.",
        "move" => "What to do with the session.",
        _ if path.starts_with("/v1/nodes") => "Node id, `node_…`.",
        _ => "Job id, `job_…`.",
    }
}

/// Adds details to an operation.
pub(crate) struct Builder<'a> {
    routes: &'a mut Routes,
    at: usize,
}

impl Builder<'_> {
    fn operation(&mut self) -> &mut Operation {
        &mut self.routes.operations[self.at]
    }

    fn description(mut self, description: &'static str) -> Self {
        self.operation().description = Some(description);
        self
    }

    fn parameter(mut self, place: &'static str, name: &'static str, schema: Value, description: &str) -> Self {
        let description = description.to_owned();
        self.operation().parameters.push(Parameter { name, place, description, schema });
        self
    }

    fn query(self, name: &'static str, description: &str) -> Self {
        self.parameter("query", name, json!({"type": "string"}), description)
    }

    fn flag(self, name: &'static str, default: bool, description: &str) -> Self {
        self.parameter("query", name, json!({"type": "boolean", "default": default}), description)
    }

    fn number(self, name: &'static str, description: &str) -> Self {
        self.parameter("query", name, json!({"type": "integer", "format": "int64", "minimum": 0}), description)
    }

    fn header(self, name: &'static str, description: &str) -> Self {
        self.parameter("header", name, json!({"type": "string"}), description)
    }

    /// `limit` and `cursor` of lists.
    fn paged(self) -> Self {
        self.limit(PAGE_DEFAULT).query("cursor", "`next_cursor` of the previous page.")
    }

    fn limit(self, default: u64) -> Self {
        let schema =
            json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": PAGE_MAX, "default": default});
        self.parameter("query", "limit", schema, "Maximum number of items.")
    }

    fn wait(self, until: &str) -> Self {
        let schema = json!({"type": "integer", "format": "int32", "minimum": 0, "maximum": WAIT_MS_MAX});
        self.parameter("query", "wait_ms", schema, &format!("Delays the response until {until}, at most this long."))
    }

    /// The header that names the caller.
    fn acted(self) -> Self {
        let schema = json!({"type": "string", "maxLength": model::limits::NAME_BYTES_MAX});
        let description = "Name of the caller, stored with the change and in the audit log.";
        self.parameter("header", "Outlast-Actor", schema, description)
    }

    fn idempotent(self) -> Self {
        let schema = json!({"type": "string", "maxLength": model::limits::IDEMPOTENCY_KEY_BYTES_MAX});
        let description = "A repeated request with the same key and body gets the first response again, for 24 h.";
        self.parameter("header", "Idempotency-Key", schema, description)
    }

    /// A required JSON body.
    fn body<T: ToSchema>(mut self) -> Self {
        let schema = self.routes.components.reference::<T>();
        let operation = self.operation();
        operation.body.push((JSON, schema));
        operation.body_required = true;
        self
    }

    /// A JSON body that may be left out.
    fn optional_body<T: ToSchema>(mut self) -> Self {
        self = self.body::<T>();
        self.operation().body_required = false;
        self
    }

    /// An action without content: an empty JSON object, or no body at all.
    fn empty_body(mut self) -> Self {
        let schema = self.routes.components.add(
            "EmptyBody",
            || json!({"type": "object", "description": "No content. The body is optional.", "properties": {}}),
        );
        self.operation().body.push((JSON, schema));
        self
    }

    /// Another media type that the body may have.
    fn body_as(mut self, media: &'static str, schema: Value) -> Self {
        let operation = self.operation();
        operation.body.push((media, schema));
        operation.body_required = true;
        self
    }

    fn responds<T: ToSchema>(self, status: u16, description: &'static str) -> Self {
        let schema = self.routes.components.reference::<T>();
        self.responds_as(status, description, vec![(JSON, schema)])
    }

    /// A page of `T`.
    fn responds_page<T: ToSchema>(self, description: &'static str) -> Self {
        let schema = self.routes.components.page::<T>();
        self.responds_as(200, description, vec![(JSON, schema)])
    }

    fn responds_as(mut self, status: u16, description: &'static str, content: Vec<(&'static str, Value)>) -> Self {
        self.operation().responses.push(Response { status, description, content });
        self
    }

    fn responds_empty(self, status: u16, description: &'static str) -> Self {
        self.responds_as(status, description, Vec::new())
    }

    fn without_problems(mut self) -> Self {
        self.operation().has_problems = false;
        self
    }
}

/// Content without a JSON schema.
fn bytes() -> Value {
    json!({"type": "string", "format": "binary"})
}

fn text() -> Value {
    json!({"type": "string"})
}
