//! Submitting jobs, looking at them, and deciding about them.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use model::id::JobId;
use model::queue::QueueRef;
use model::spec::JobSpec;
use model::state::State;
use model::view::{AcceptedView, BatchView, HistoryView, JobView, OriginalView, Page, WhyView};
use serde::Serialize;

use crate::client::{Client, JSON, NDJSON, to_json};
use crate::error::Error;
use crate::query::Query;
use crate::transport::Ask;

/// Which jobs a list shows. Absent: all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    pub state: Option<State>,
    pub queue: Option<QueueRef>,
    pub topic: Option<String>,
    pub tenant: Option<String>,
    pub limit: Option<usize>,
    pub cursor: Option<String>,
}

/// The lists of jobs that the API keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    All,
    Running,
    Completed,
    History,
}

impl List {
    fn segment(self) -> &'static str {
        match self {
            Self::All => "",
            Self::Running => "/running",
            Self::Completed => "/completed",
            Self::History => "/history",
        }
    }
}

/// How jobs are handed in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Submit {
    /// Names the request, so that it can be repeated without being carried out twice. For single jobs.
    pub idempotency_key: Option<String>,
    /// The queue they go to, if they name none themselves.
    pub queue: Option<QueueRef>,
}

impl Client {
    pub async fn submit(&self, job: &JobSpec) -> Result<AcceptedView, Error> {
        self.submit_raw(to_json(job)?, &Submit::default()).await
    }

    /// Submits one job that is JSON already.
    pub async fn submit_raw(&self, job: Bytes, submit: &Submit) -> Result<AcceptedView, Error> {
        self.answer(&submission(job, JSON, submit, None)).await
    }

    /// Submits one job and waits until it is terminal or the time is up, whichever is first.
    pub async fn submit_and_wait(&self, job: Bytes, submit: &Submit, wait: Duration) -> Result<JobView, Error> {
        self.answer(&submission(job, JSON, submit, Some(wait))).await
    }

    /// Submits many jobs, each on its own merits; the answers are in their order.
    pub async fn submit_batch(&self, jobs: &[JobSpec]) -> Result<BatchView, Error> {
        #[derive(Serialize)]
        struct Batch<'a> {
            jobs: &'a [JobSpec],
        }
        self.answer(&submission(to_json(&Batch { jobs })?, JSON, &Submit::default(), None)).await
    }

    /// Submits many jobs, one per line.
    pub async fn submit_ndjson(&self, lines: Bytes, submit: &Submit) -> Result<BatchView, Error> {
        self.answer(&submission(lines, NDJSON, submit, None)).await
    }

    pub async fn job(&self, id: JobId) -> Result<JobView, Error> {
        self.get(format!("/v1/jobs/{id}")).await
    }

    /// The job once it is terminal, or as it is when the time is up.
    pub async fn wait(&self, id: JobId, wait: Duration) -> Result<JobView, Error> {
        let path = Query::default().with("wait_ms", Some(wait.as_millis())).after(&format!("/v1/jobs/{id}"));
        self.answer(&Ask { patience: wait, ..Ask::new(Method::GET, path) }).await
    }

    /// The bytes of the result, which are JSON. Refused while the job is not terminal.
    pub async fn result(&self, id: JobId) -> Result<Bytes, Error> {
        let ask = Ask::new(Method::GET, format!("/v1/jobs/{id}/result"));
        self.transport.ask(&ask).await.map(|answer| answer.body)
    }

    /// What the policy had removed from the result and kept, where the server shows that.
    pub async fn original(&self, id: JobId) -> Result<OriginalView, Error> {
        self.get(format!("/v1/jobs/{id}/result?original=true")).await
    }

    pub async fn history(&self, id: JobId) -> Result<HistoryView, Error> {
        self.get(format!("/v1/jobs/{id}/history")).await
    }

    /// Why it is where it is.
    pub async fn why(&self, id: JobId) -> Result<WhyView, Error> {
        self.get(format!("/v1/jobs/{id}/why")).await
    }

    pub async fn jobs(&self, list: List, filter: &Filter) -> Result<Page<JobView>, Error> {
        let query = filter.query().with("queue", filter.queue);
        self.get(query.after(&format!("/v1/jobs{}", list.segment()))).await
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

    /// Lets out the result of a quarantined job.
    pub async fn release(&self, id: JobId) -> Result<JobView, Error> {
        self.post(format!("/v1/jobs/{id}/release")).await
    }

    /// Retires a terminal job now.
    pub async fn remove_job(&self, id: JobId) -> Result<(), Error> {
        self.delete(format!("/v1/jobs/{id}")).await
    }

    /// The jobs of one queue. The filter's own queue is not looked at.
    pub async fn queue_jobs(&self, queue: QueueRef, list: List, filter: &Filter) -> Result<Page<JobView>, Error> {
        let segment = match list {
            List::All => "/jobs",
            List::Running | List::Completed | List::History => list.segment(),
        };
        self.get(filter.query().after(&format!("/v1/queues/{queue}{segment}"))).await
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

fn submission(body: Bytes, content_type: &'static str, submit: &Submit, wait: Option<Duration>) -> Ask {
    let path = match submit.queue {
        Some(queue) => format!("/v1/queues/{queue}/jobs"),
        None => "/v1/jobs".to_owned(),
    };
    let path = Query::default().with("wait_ms", wait.map(|wait| wait.as_millis())).after(&path);
    let ask = Ask::new(Method::POST, path).body(content_type, body);
    Ask { idempotency_key: submit.idempotency_key.clone(), patience: wait.unwrap_or_default(), ..ask }
}
