//! Dead letters and rejected runner messages.

use std::time::Duration;

use api::{DeadLetterDetailView, DeadLetterView, JobView, Page, PurgedView, RejectedMessageView};
use hyper::Method;
use model::id::JobId;

use crate::client::Client;
use crate::error::Error;
use crate::query::Query;
use crate::request::{ApiRequest, Repeat};

/// Selects dead letters. `None` fields match all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    pub topic: Option<String>,
    pub tenant: Option<String>,
    /// Reason code.
    pub reason: Option<String>,
    /// Minimum age since the job failed.
    pub older_than: Option<Duration>,
}

impl Filter {
    fn query(&self) -> Query {
        Query::default()
            .with("topic", self.topic.as_deref())
            .with("tenant", self.tenant.as_deref())
            .with("reason", self.reason.as_deref())
            .with("older_than_ms", self.older_than.map(|age| age.as_millis()))
    }
}

impl Client {
    /// Lists dead letters, oldest job first.
    pub async fn dead_letters(
        &self,
        filter: &Filter,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<Page<DeadLetterView>, Error> {
        self.get(filter.query().with("limit", limit).with("cursor", cursor).append_to("/v1/dlq")).await
    }

    pub async fn dead_letter(&self, id: JobId) -> Result<DeadLetterDetailView, Error> {
        self.get(format!("/v1/dlq/{id}")).await
    }

    /// Lists rejected runner messages.
    pub async fn rejected_messages(&self) -> Result<Page<RejectedMessageView>, Error> {
        self.get("/v1/dlq/rejected".to_owned()).await
    }

    pub async fn retry_dead_letter(&self, id: JobId) -> Result<JobView, Error> {
        self.act(format!("/v1/dlq/{id}/retry"), Repeat::once(format!("/v1/jobs/{id}"))).await
    }

    /// Deletes a dead letter together with its job.
    pub async fn purge_dead_letter(&self, id: JobId) -> Result<(), Error> {
        self.delete(format!("/v1/dlq/{id}")).await
    }

    /// Deletes the matching dead letters, oldest first, up to the server's limit per request. An empty filter requires
    /// `all`.
    pub async fn purge_dead_letters(&self, filter: &Filter, all: bool) -> Result<PurgedView, Error> {
        let path = filter.query().with("all", all.then_some(true)).append_to("/v1/dlq");
        // A repetition would also delete the ones that came in between.
        self.request_json(&ApiRequest::new(Method::DELETE, path, Repeat::once("/v1/dlq"))).await
    }
}
