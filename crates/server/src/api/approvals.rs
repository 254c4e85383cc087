//! Jobs that wait for a person's word, and the word.

use std::sync::Arc;

use axum::Json as JsonBody;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, header};
use engine::{Answer, Input, Word};
use model::batch::Keyspace;
use model::limits;
use model::state::State;
use model::view::{
    ApprovalDetailView, ApprovalView, ApprovalWord, DecisionView, JobView, Page, digest_as_text, digest_of_text,
};

use super::across::{self, Found};
use super::actor::actor;
use super::list::Parameters;
use super::path::Path;
use super::problem::{Fault, Refused};
use super::workflows::view::complete_origin;
use super::{App, Core, body, jobs};
use crate::error::Error;
use crate::reads;

/// The largest body of an approval or a rejection.
const WORD_BYTES_MAX: usize = 16 * 1024;

pub(crate) async fn list(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<ApprovalView>>, Refused> {
    let read = move || {
        let core = app.core()?;
        let (topic, tenant) = (parameters.text("topic"), parameters.text("tenant"));
        across::page(&core, Keyspace::Live, &parameters, |found| {
            let Some(waiting) = waiting(&app, &core, &found)? else { return Ok(None) };
            let wanted = topic.is_none_or(|topic| topic == waiting.topic)
                && tenant.is_none_or(|tenant| tenant == waiting.tenant);
            Ok(wanted.then_some(waiting))
        })
    };
    let page = tokio::task::spawn_blocking(read).await.map_err(|error| Error::Panicked(error.to_string()))?;
    page.map(JsonBody)
}

/// The record, if it is one of a job that waits for somebody's word.
fn waiting(app: &App, core: &Core, found: &Found) -> Result<Option<ApprovalView>, Refused> {
    let job = reads::decode(found.shard, &found.value)?;
    if job.state != State::ApprovalRequired {
        return Ok(None);
    }
    let job = reads::complete(core.store.as_ref(), found.shard, job)?;
    let spec = job.decode_spec().map_err(|source| Error::Record { shard: found.shard.0, source })?;
    let mut shown = ApprovalView::new(&job, &spec, app.approval_expiry);
    let origin = shown.as_mut().and_then(|shown| shown.origin.as_mut());
    complete_origin(core, job.origin.as_deref(), origin)?;
    Ok(shown)
}

pub(crate) async fn show(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    _: Parameters,
) -> Result<JsonBody<ApprovalDetailView>, Refused> {
    let core = app.core()?;
    let job = jobs::load(&core, jobs::parse_id(&id)?)?;
    let shard = core.shard_of(job.id.slot());
    let spec = job.decode_spec().map_err(|source| Error::Record { shard: shard.0, source })?;
    let Some(mut approval) = ApprovalView::new(&job, &spec, app.approval_expiry) else {
        let detail = format!("the job is {}, and nobody was asked to approve it", job.state);
        return Err(Refused::saying(Fault::WrongState, detail));
    };
    complete_origin(&core, job.origin.as_deref(), approval.origin.as_mut())?;
    let decisions = job.decisions.iter().map(DecisionView::from).collect();
    Ok(JsonBody(ApprovalDetailView { approval, job: jobs::view(&core, &job)?, decisions }))
}

pub(crate) async fn approve(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
    request_body: Body,
) -> Result<JsonBody<JobView>, Refused> {
    decide(&app, &id, true, &headers, request_body).await
}

pub(crate) async fn reject(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
    request_body: Body,
) -> Result<JsonBody<JobView>, Refused> {
    decide(&app, &id, false, &headers, request_body).await
}

async fn decide(
    app: &App,
    id: &str,
    approved: bool,
    headers: &HeaderMap,
    request_body: Body,
) -> Result<JsonBody<JobView>, Refused> {
    let core = app.core()?;
    let job = jobs::parse_id(id)?;
    let ApprovalWord { comment, hash, rule } = read_word(headers, request_body).await?;
    for (field, text) in [("comment", &comment), ("rule", &rule)] {
        if let Some(bytes) = text.as_ref().map(String::len).filter(|bytes| *bytes > limits::MESSAGE_BYTES_MAX) {
            let detail = format!("it has {bytes} bytes: at most {}", limits::MESSAGE_BYTES_MAX);
            return Err(Refused::saying(Fault::InvalidField, detail).at(field));
        }
    }
    let digest = match hash {
        Some(hash) => Some(digest_of_text(&hash).ok_or_else(|| {
            let example = digest_as_text(model::spec::Digest([0; 16]));
            let detail = format!("a hash has {} hexadecimal digits: give the one that is shown", example.len());
            Refused::saying(Fault::InvalidField, detail).at("hash")
        })?),
        None => None,
    };
    let word = Box::new(Word { by: actor(headers)?, approved, comment, digest, rule });
    match core.inbox_of(job).ask(|request| Input::Approve { request, job, word }).await? {
        Answer::Job(job) => Ok(JsonBody(jobs::view(&core, &job)?)),
        Answer::Refused(refusal) => Err(refusal.into()),
        _ => Err(Refused::new(Fault::Internal)),
    }
}

/// A body may be left out; one that is there is JSON and says so.
async fn read_word(headers: &HeaderMap, request_body: Body) -> Result<ApprovalWord, Refused> {
    let bytes = body::read(request_body, WORD_BYTES_MAX).await?;
    if headers.contains_key(header::CONTENT_TYPE) || !bytes.is_empty() {
        body::expect_json(headers)?;
    }
    if bytes.is_empty() { Ok(ApprovalWord::default()) } else { body::parse(&bytes) }
}
