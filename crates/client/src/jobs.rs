//! Jobs: submit, inspect, cancel, retry, release.

use std::time::Duration;

use api::{AcceptedView, BatchView, HistoryView, JobView, OriginalView, Page, WhyView};
use bytes::Bytes;
use model::id::JobId;
use model::queue::QueueRef;
use model::spec::JobSpec;
use model::state::State;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::client::{Client, to_json};
use crate::error::Error;
use crate::query::Query;
use crate::random;
use crate::request::{ApiRequest, NDJSON, Repeat};

/// Filter of a job list. `None` fields match all jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    pub state: Option<State>,
    pub queue: Option<QueueRef>,
    pub topic: Option<String>,
    pub tenant: Option<String>,
    pub limit: Option<usize>,
    pub cursor: Option<String>,
}

/// The job lists of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobList {
    All,
    Running,
    Completed,
    History,
}

impl JobList {
    fn segment(self) -> &'static str {
        match self {
            Self::All => "",
            Self::Running => "/running",
            Self::Completed => "/completed",
            Self::History => "/history",
        }
    }
}

/// Options of a submission.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubmitOptions {
    /// Makes a repeated request create no second job. For single jobs only. If neither this nor the job has one, the
    /// client generates it.
    pub idempotency_key: Option<String>,
    /// Queue of the jobs that name none themselves.
    pub queue: Option<QueueRef>,
}

impl Client {
    pub async fn submit(&self, job: &JobSpec) -> Result<AcceptedView, Error> {
        self.submit_raw(to_json(job)?, &SubmitOptions::default()).await
    }

    /// Submits one job given as JSON.
    pub async fn submit_raw(&self, job: Bytes, options: &SubmitOptions) -> Result<AcceptedView, Error> {
        let (request, is_keyed) = one(job, options, None)?;
        let accepted: AcceptedView = self.request_json(&request).await?;
        // A generated key is new: only this call can have used it before.
        Ok(AcceptedView { deduplicated: accepted.deduplicated && is_keyed, ..accepted })
    }

    /// Submits one job and waits until it is terminal or `wait` has passed.
    pub async fn submit_and_wait(&self, job: Bytes, options: &SubmitOptions, wait: Duration) -> Result<JobView, Error> {
        self.request_json(&one(job, options, Some(wait))?.0).await
    }

    /// Submits several jobs. Each is accepted or refused individually; results are in the order of the jobs. A batch
    /// whose jobs all have an idempotency key survives the restart of a server.
    pub async fn submit_batch(&self, jobs: &[JobSpec]) -> Result<BatchView, Error> {
        #[derive(Serialize)]
        struct Batch<'a> {
            jobs: &'a [JobSpec],
        }
        let is_keyed = jobs.iter().all(|job| job.idempotency_key.is_some());
        let path = submit_path(&SubmitOptions::default(), None);
        self.request_json(&ApiRequest::post(path, batch(is_keyed)).json(to_json(&Batch { jobs })?)).await
    }

    /// Submits several jobs, one per line. See [`Client::submit_batch`].
    pub async fn submit_ndjson(&self, lines: Bytes, options: &SubmitOptions) -> Result<BatchView, Error> {
        let request = ApiRequest::post(submit_path(options, None), batch(all_keyed(&lines))).body(NDJSON, lines);
        self.request_json(&request).await
    }

    pub async fn job(&self, id: JobId) -> Result<JobView, Error> {
        self.get(format!("/v1/jobs/{id}")).await
    }

    /// Returns the job once it is terminal, or its current state after `wait`.
    pub async fn wait(&self, id: JobId, wait: Duration) -> Result<JobView, Error> {
        let path = Query::default().with("wait_ms", Some(wait.as_millis())).append_to(&format!("/v1/jobs/{id}"));
        self.request_json(&ApiRequest { extra_timeout: wait, ..ApiRequest::get(path) }).await
    }

    /// The result as JSON. Fails while the job is not terminal.
    pub async fn result(&self, id: JobId) -> Result<Bytes, Error> {
        let request = ApiRequest::get(format!("/v1/jobs/{id}/result"));
        self.transport.send(&request).await.map(|response| response.body)
    }

    /// The result before redaction, if the server stores and shows it.
    pub async fn original(&self, id: JobId) -> Result<OriginalView, Error> {
        self.get(format!("/v1/jobs/{id}/result?original=true")).await
    }

    pub async fn history(&self, id: JobId) -> Result<HistoryView, Error> {
        self.get(format!("/v1/jobs/{id}/history")).await
    }

    /// Explains the job's current state.
    pub async fn why(&self, id: JobId) -> Result<WhyView, Error> {
        self.get(format!("/v1/jobs/{id}/why")).await
    }

    pub async fn jobs(&self, list: JobList, filter: &Filter) -> Result<Page<JobView>, Error> {
        let query = filter.query().with("queue", filter.queue);
        self.get(query.append_to(&format!("/v1/jobs{}", list.segment()))).await
    }

    pub async fn cancel(&self, id: JobId) -> Result<JobView, Error> {
        self.act(format!("/v1/jobs/{id}/cancel"), Repeat::Idempotent).await
    }

    pub async fn retry(&self, id: JobId) -> Result<JobView, Error> {
        // Not idempotent: the job may fail again in between, and a repetition would use another retry.
        self.act(format!("/v1/jobs/{id}/retry"), Repeat::once(format!("/v1/jobs/{id}"))).await
    }

    pub async fn retract(&self, id: JobId) -> Result<JobView, Error> {
        self.act(format!("/v1/jobs/{id}/retract"), Repeat::Idempotent).await
    }

    /// Releases the result of a quarantined job.
    pub async fn release(&self, id: JobId) -> Result<JobView, Error> {
        // Not idempotent: a repetition could release another result.
        self.act(format!("/v1/jobs/{id}/release"), Repeat::once(format!("/v1/jobs/{id}"))).await
    }

    /// Deletes a terminal job before its retention ends.
    pub async fn remove_job(&self, id: JobId) -> Result<(), Error> {
        self.delete(format!("/v1/jobs/{id}")).await
    }

    /// Jobs of one queue. `filter.queue` is ignored.
    pub async fn queue_jobs(&self, queue: QueueRef, list: JobList, filter: &Filter) -> Result<Page<JobView>, Error> {
        let segment = match list {
            JobList::All => "/jobs",
            JobList::Running | JobList::Completed | JobList::History => list.segment(),
        };
        self.get(filter.query().append_to(&format!("/v1/queues/{queue}{segment}"))).await
    }
}

impl Filter {
    fn query(&self) -> Query {
        Query::default()
            .with("state", self.state)
            .with("topic", self.topic.as_deref())
            .with("tenant", self.tenant.as_deref())
            .with("limit", self.limit)
            .with("cursor", self.cursor.as_deref())
    }
}

fn submit_path(options: &SubmitOptions, wait: Option<Duration>) -> String {
    let path = match options.queue {
        Some(queue) => format!("/v1/queues/{queue}/jobs"),
        None => "/v1/jobs".to_owned(),
    };
    Query::default().with("wait_ms", wait.map(|wait| wait.as_millis())).append_to(&path)
}

/// The submit of one job, and whether its idempotency key is the caller's.
fn one(job: Bytes, options: &SubmitOptions, wait: Option<Duration>) -> Result<(ApiRequest, bool), Error> {
    let is_keyed = options.idempotency_key.is_some() || has_key(&job);
    let idempotency_key = match is_keyed {
        true => options.idempotency_key.clone(),
        false => Some(random::idempotency_key()?),
    };
    let request = ApiRequest::post(submit_path(options, wait), Repeat::Harmless).json(job);
    Ok((ApiRequest { idempotency_key, extra_timeout: wait.unwrap_or_default(), ..request }, is_keyed))
}

fn batch(is_keyed: bool) -> Repeat {
    let check = "GET /v1/jobs (a batch whose jobs all have an `idempotency_key` is sent again)";
    if is_keyed { Repeat::Harmless } else { Repeat::Once { check: check.to_owned() } }
}

/// Whether the JSON of a job has an idempotency key.
fn has_key(job: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Keyed {
        idempotency_key: Option<IgnoredAny>,
    }
    serde_json::from_slice::<Keyed>(job).is_ok_and(|job| job.idempotency_key.is_some())
}

/// Whether all jobs of NDJSON have an idempotency key. Usually all have one or none, so that one line is read.
fn all_keyed(lines: &[u8]) -> bool {
    lines.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).all(has_key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_job_without_a_key_gets_one() {
        let keyed = |job: &'static str, key: Option<&str>| {
            let options = SubmitOptions { idempotency_key: key.map(str::to_owned), queue: None };
            let (request, is_keyed) = one(Bytes::from_static(job.as_bytes()), &options, None).unwrap();
            (request.idempotency_key, is_keyed)
        };
        assert_eq!(keyed(r#"{"run":1}"#, Some("k")), (Some("k".to_owned()), true));
        assert_eq!(keyed(r#"{"run":1,"idempotency_key":"k"}"#, None), (None, true));
        for unkeyed in [r#"{"run":1}"#, r#"{"run":1,"idempotency_key":null}"#, "nonsense"] {
            let (generated, is_keyed) = keyed(unkeyed, None);
            assert!(!is_keyed && random::is_generated_key(&generated.unwrap()), "{unkeyed}");
        }
    }

    #[test]
    fn a_batch_is_repeatable_if_all_its_jobs_have_a_key() {
        assert!(all_keyed(b"{\"idempotency_key\":\"a\"}\n\n {\"run\":{},\"idempotency_key\":\"b\"}\r\n"));
        assert!(!all_keyed(b"{\"idempotency_key\":\"a\"}\n{}\n"));
        assert!(!all_keyed(b"{\"run\":{\"idempotency_key\":\"a\"}}"));
    }
}
