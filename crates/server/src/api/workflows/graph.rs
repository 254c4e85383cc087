//! Definitions: text, drawings, and their JSON Schema.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use model::workflow::{TaskKey, TaskState};

use super::view::Describer;
use super::{load, load_definition, load_plan, parse_id};
use crate::api::App;
use crate::api::parameters::Parameters;
use crate::api::path::Path;
use crate::api::problem::Refused;

/// A drawing must not load or run anything.
const STATIC_CONTENT: &str = "default-src 'none'; style-src 'unsafe-inline'";

pub(crate) async fn definition(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    _: Parameters,
) -> Result<Response, Refused> {
    let core = app.core()?;
    let id = parse_id(&id)?;
    let definition = core.read(move |core| load_definition(core, id)).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], definition).into_response())
}

pub(crate) async fn graph(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    parameters: Parameters,
) -> Result<Response, Refused> {
    let core = app.core()?;
    let id = parse_id(&id)?;
    let is_svg = match parameters.text("format") {
        None | Some("svg") => true,
        Some("mermaid") => false,
        Some(other) => return Err(Refused::parameter("format", format!("`{other}` is neither svg nor mermaid"))),
    };
    let drawn = core.read(move |core| {
        let workflow = load(core, id)?;
        let describer = Describer::new(core, &workflow, load_plan(core, id)?);
        if !is_svg {
            return Ok(workflow::graph::mermaid(&describer.plan));
        }
        let states = states(&describer)?;
        let state = |task: u32| states.get(&task).copied().unwrap_or(TaskState::Waiting).as_str();
        Ok(workflow::graph::svg(&describer.plan, Some(&state)))
    });
    let drawn = drawn.await?;
    if is_svg {
        let headers = [(header::CONTENT_TYPE, "image/svg+xml"), (header::CONTENT_SECURITY_POLICY, STATIC_CONTENT)];
        return Ok((headers, drawn).into_response());
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], drawn).into_response())
}

/// States of the drawn tasks. Items are not drawn.
fn states(describer: &Describer<'_>) -> Result<HashMap<u32, TaskState>, Refused> {
    let mut states = HashMap::new();
    let mut rows = describer.rows();
    while let Some((task_key, record)) = rows.next_row()? {
        if task_key.task as usize >= workflow::graph::TASKS_DRAWN_MAX {
            break;
        }
        match task_key.item {
            None => {
                states.insert(task_key.task, record.state);
            }
            Some(_) => rows.skip_to(describer.workflow.id, TaskKey::of(task_key.task + 1)),
        }
    }
    Ok(states)
}

pub(crate) async fn schema() -> Response {
    ([(header::CONTENT_TYPE, "application/schema+json")], workflow::SCHEMA).into_response()
}
