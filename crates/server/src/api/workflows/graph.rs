//! Definitions: as they are kept, as drawings, and the schema that editors check them with.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use model::workflow::{Place, TaskState};

use super::view::Describer;
use super::{blocking, load, load_plan, load_spec, parse_id};
use crate::api::App;
use crate::api::list::{Parameters, bad};
use crate::api::path::Path;
use crate::api::problem::Refused;

/// A drawing is only looked at: whatever is in it may load and run nothing.
const LOOK_ONLY: &str = "default-src 'none'; style-src 'unsafe-inline'";

pub(crate) async fn definition(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    _: Parameters,
) -> Result<Response, Refused> {
    let core = app.core()?;
    let id = parse_id(&id)?;
    let spec = blocking(move || load_spec(&core, id)).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], spec.definition).into_response())
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
        Some(other) => return Err(bad("format", format!("`{other}` is neither svg nor mermaid"))),
    };
    let drawn = blocking(move || {
        let workflow = load(&core, id)?;
        let describer = Describer::new(&core, &workflow, load_plan(&core, id)?);
        if !is_svg {
            return Ok(workflow::graph::mermaid(&describer.plan));
        }
        let states = states(&describer)?;
        let state = |task: u32| states.get(&task).copied().unwrap_or(TaskState::Waiting).as_str();
        Ok(workflow::graph::svg(&describer.plan, Some(&state)))
    });
    let drawn = drawn.await?;
    if is_svg {
        let headers = [(header::CONTENT_TYPE, "image/svg+xml"), (header::CONTENT_SECURITY_POLICY, LOOK_ONLY)];
        return Ok((headers, drawn).into_response());
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], drawn).into_response())
}

/// The states of the tasks that are drawn; items are not.
fn states(describer: &Describer<'_>) -> Result<HashMap<u32, TaskState>, Refused> {
    let mut states = HashMap::new();
    let mut rows = describer.rows();
    while let Some((place, record)) = rows.next()? {
        if place.task as usize >= workflow::graph::TASKS_DRAWN_MAX {
            break;
        }
        match place.item {
            None => {
                states.insert(place.task, record.state);
            }
            Some(_) => rows.skip_to(describer.workflow.id, Place::of(place.task + 1)),
        }
    }
    Ok(states)
}

pub(crate) async fn schema() -> Response {
    ([(header::CONTENT_TYPE, "application/schema+json")], workflow::SCHEMA).into_response()
}
