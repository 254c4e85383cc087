//! Jobs: submit, inspect, cancel, retry, release.

use std::time::Duration;

use api::{AcceptedView, BatchView, HistoryView, JobView, OriginalView, Page, WhyView};
use bytes::Bytes;
use hyper::Method;
use model::id::JobId;
use model::queue::QueueRef;
use model::spec::JobSpec;
use model::state::State;
use serde::Serialize;

use crate::client::{Client, JSON, NDJSON, to_json};
use crate::error::Error;
use crate::query::Query;
use crate::transport::ApiRequest;

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
    /// Makes a repeated request create no second job. For single jobs only.
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
        self.request_json(&submission(job, JSON, options, None)).await
    }

    /// Submits one job and waits until it is terminal or `wait` has passed.
    pub async fn submit_and_wait(&self, job: Bytes, options: &SubmitOptions, wait: Duration) -> Result<JobView, Error> {
        self.request_json(&submission(job, JSON, options, Some(wait))).await
    }

    /// Submits several jobs. Each is accepted or refused individually; results are in the order of the jobs.
    pub async fn submit_batch(&self, jobs: &[JobSpec]) -> Result<BatchView, Error> {
        #[derive(Serialize)]
        struct Batch<'a> {
            jobs: &'a [JobSpec],
        }
        self.request_json(&submission(to_json(&Batch { jobs })?, JSON, &SubmitOptions::default(), None)).await
    }

    /// Submits several jobs, one per line.
    pub async fn submit_ndjson(&self, lines: Bytes, options: &SubmitOptions) -> Result<BatchView, Error> {
        self.request_json(&submission(lines, NDJSON, options, None)).await
    }

    pub async fn job(&self, id: JobId) -> Result<JobView, Error> {
        self.get(format!("/v1/jobs/{id}")).await
    }

    /// Returns the job once it is terminal, or its current state after `wait`.
    pub async fn wait(&self, id: JobId, wait: Duration) -> Result<JobView, Error> {
        let path = Query::default().with("wait_ms", Some(wait.as_millis())).append_to(&format!("/v1/jobs/{id}"));
        self.request_json(&ApiRequest { extra_timeout: wait, ..ApiRequest::new(Method::GET, path) }).await
    }

    /// The result as JSON. Fails while the job is not terminal.
    pub async fn result(&self, id: JobId) -> Result<Bytes, Error> {
        let request = ApiRequest::new(Method::GET, format!("/v1/jobs/{id}/result"));
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
        self.post(format!("/v1/jobs/{id}/cancel")).await
    }

    pub async fn retry(&self, id: JobId) -> Result<JobView, Error> {
        self.post(format!("/v1/jobs/{id}/retry")).await
    }

    pub async fn retract(&self, id: JobId) -> Result<JobView, Error> {
        self.post(format!("/v1/jobs/{id}/retract")).await
    }

    /// Releases the result of a quarantined job.
    pub async fn release(&self, id: JobId) -> Result<JobView, Error> {
        self.post(format!("/v1/jobs/{id}/release")).await
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

fn submission(body: Bytes, content_type: &'static str, options: &SubmitOptions, wait: Option<Duration>) -> ApiRequest {
    let path = match options.queue {
        Some(queue) => format!("/v1/queues/{queue}/jobs"),
        None => "/v1/jobs".to_owned(),
    };
    let path = Query::default().with("wait_ms", wait.map(|wait| wait.as_millis())).append_to(&path);
    let request = ApiRequest::new(Method::POST, path).body(content_type, body);
    ApiRequest { idempotency_key: options.idempotency_key.clone(), extra_timeout: wait.unwrap_or_default(), ..request }
}
