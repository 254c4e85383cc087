//! The OpenAPI document, built from the operations ([`crate::routes`]) and the schemas of the types.

mod components;
mod limits;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::problem::{Problem, ProblemKind};
use crate::routes::{self, Operation, Parameter};
pub(crate) use components::Components;

/// The document as it is checked in, for client generators and reviews. A test compares it with [`document`].
pub const CHECKED_IN: &str = include_str!("../openapi.json");

const DESCRIPTION: &str = "Outlast runs jobs and workflows durably. Requests and responses are JSON. Times are RFC 3339 \
    in UTC, durations are integers in milliseconds, ids are opaque strings. A change is durable before it is \
    acknowledged. Errors are problem documents (RFC 9457) with a stable `code`.\n\nAfter a broken connection a client does \
    not know whether its request was executed. A request with `Idempotency-Key` or `Outlast-Request-Id` can be sent \
    again. The server keeps the answer to a request with an id in memory for 5 minutes, up to 64 KiB: a resent request \
    gets it again, with `Outlast-Replayed: true`, and waits for it if the first one is in progress. The same id with \
    another method, path or body is refused with `request_id_conflict`. Bodies that are not JSON or larger than 1 MiB \
    are not covered: the header is ignored, so give every job of such a batch an `idempotency_key`. A restart of the \
    server forgets the answers. Every response names the generation of the server in `Outlast-Generation`, which \
    changes with a restart; a request with `Outlast-If-Generation` is refused with `other_generation`, unexecuted, \
    by a server of another generation.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "get",
            Self::Head => "head",
            Self::Post => "post",
            Self::Put => "put",
            Self::Delete => "delete",
        })
    }
}

/// The OpenAPI document of the API.
pub fn document() -> Value {
    let mut routes = routes::all();
    let problem = routes.components.reference::<Problem>();
    routes.components.finish(&mut routes.operations);
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for operation in &routes.operations {
        let described = describe(operation, &problem);
        paths.entry(operation.path).or_default().insert(operation.method.to_string(), described);
    }
    let codes: BTreeMap<&str, &str> = ProblemKind::ALL.iter().map(|kind| (kind.code(), kind.meaning())).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Outlast",
            "version": env!("CARGO_PKG_VERSION"),
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": routes.components.into_schemas()},
        "x-error-codes": codes,
    })
}

fn describe(operation: &Operation, problem: &Value) -> Value {
    let mut responses = Map::new();
    for response in &operation.responses {
        let mut described = json!({"description": response.description});
        if !response.content.is_empty() {
            described["content"] = content(&response.content);
        }
        responses.insert(response.status.to_string(), described);
    }
    if operation.has_problems {
        let content = json!({"application/problem+json": {"schema": problem}});
        responses.insert("default".to_owned(), json!({"description": "Problem document.", "content": content}));
    }
    let mut described = json!({
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "responses": responses,
    });
    if let Some(description) = operation.description {
        described["description"] = json!(description);
    }
    if !operation.parameters.is_empty() {
        described["parameters"] = operation.parameters.iter().map(parameter).collect();
    }
    if !operation.body.is_empty() {
        described["requestBody"] = json!({"required": operation.body_required, "content": content(&operation.body)});
    }
    described
}

fn content(content: &[(&str, Value)]) -> Value {
    let by_media = content.iter().map(|(media, schema)| ((*media).to_owned(), json!({"schema": schema})));
    Value::Object(by_media.collect())
}

fn parameter(parameter: &Parameter) -> Value {
    json!({
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.place == "path",
        "description": parameter.description,
        "schema": parameter.schema,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// With this variable set, the test writes the document instead of comparing it: `cargo xtask openapi`.
    const UPDATE: &str = "UPDATE_OPENAPI";

    #[test]
    fn the_checked_in_document_is_current() {
        let generated = format!("{}\n", serde_json::to_string_pretty(&document()).unwrap());
        if std::env::var_os(UPDATE).is_some() {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
            std::fs::write(path, &generated).unwrap();
            return;
        }
        assert!(generated == CHECKED_IN, "openapi.json is out of date: run `cargo xtask openapi`");
    }

    fn operations(document: &Value) -> Vec<(String, Value)> {
        let mut operations = Vec::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                operations.push((format!("{method} {path}"), operation.clone()));
            }
        }
        operations
    }

    #[test]
    fn every_operation_has_a_unique_id_a_summary_and_responses() {
        let mut ids = BTreeSet::new();
        for (name, operation) in operations(&document()) {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            assert!(id.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{id}");
            assert!(ids.insert(id), "{name}");
            assert!(operation["summary"].as_str().is_some_and(|summary| summary.ends_with('.')), "{name}");
            assert!(operation["responses"].as_object().is_some_and(|responses| !responses.is_empty()), "{name}");
        }
    }

    #[test]
    fn every_post_describes_its_body() {
        for (name, operation) in operations(&document()) {
            if name.starts_with("post ") {
                assert!(operation["requestBody"]["content"].is_object(), "{name}");
            }
        }
    }

    /// Calls `check` with every object in the document and its path.
    fn walk(value: &Value, path: &str, check: &mut impl FnMut(&str, &Map<String, Value>)) {
        match value {
            Value::Object(fields) => {
                check(path, fields);
                for (name, field) in fields {
                    walk(field, &format!("{path}/{name}"), check);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    walk(item, &format!("{path}/{index}"), check);
                }
            }
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_to_a_component() {
        let document = document();
        let mut used = BTreeSet::new();
        walk(&document, "", &mut |path, fields| {
            if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
                assert!(document.pointer(&reference[1..]).is_some(), "{path}: {reference}");
                used.insert(reference.rsplit('/').next().unwrap().to_owned());
            }
        });
        let components: BTreeSet<String> =
            document["components"]["schemas"].as_object().unwrap().keys().cloned().collect();
        let mentioned = ["ChangeKind", "LogPiece", "Change", "Original", "ExportedLine"].map(str::to_owned);
        assert_eq!(components.difference(&used).filter(|name| !mentioned.contains(name)).count(), 0);
    }

    /// Client generators name the classes of inline unions by their position, or fail.
    #[test]
    fn unions_are_named_components_of_named_components() {
        walk(&document(), "", &mut |path, fields| {
            for key in ["oneOf", "anyOf"] {
                let Some(members) = fields.get(key).and_then(Value::as_array) else { continue };
                let is_null = |member: &Value| member["type"] == "null";
                let is_named = path.matches('/').count() == 3 && path.starts_with("/components/schemas/");
                let is_nullable = members.len() == 2 && members.iter().any(is_null);
                assert!(is_named || is_nullable, "{path}");
                let referring = members.iter().filter(|member| member["$ref"].is_string()).count();
                assert_eq!(referring, members.iter().filter(|member| !is_null(member)).count(), "{path}");
            }
        });
    }
}
