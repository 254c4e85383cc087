//! Jobs that wait for a person's word, and the word.

use hyper::Method;
use model::id::JobId;
use model::view::{ApprovalDetailView, ApprovalView, ApprovalWord, JobView, Page};

use crate::client::{Client, JSON, to_json};
use crate::error::Error;
use crate::query::Query;
use crate::transport::Ask;

/// Which of them a list shows, oldest first. Absent: all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    pub topic: Option<String>,
    pub tenant: Option<String>,
    pub limit: Option<usize>,
    pub cursor: Option<String>,
}

impl Client {
    pub async fn approvals(&self, filter: &Filter) -> Result<Page<ApprovalView>, Error> {
        let query = Query::default()
            .with("topic", filter.topic.as_deref())
            .with("tenant", filter.tenant.as_deref())
            .with("limit", filter.limit)
            .with("cursor", filter.cursor.as_deref());
        self.get(query.after("/v1/approvals")).await
    }

    /// With everything that the policy has said of the job.
    pub async fn approval(&self, id: JobId) -> Result<ApprovalDetailView, Error> {
        self.get(format!("/v1/approvals/{id}")).await
    }

    pub async fn approve(&self, id: JobId, word: &ApprovalWord) -> Result<JobView, Error> {
        self.decide(id, "approve", word).await
    }

    pub async fn reject(&self, id: JobId, word: &ApprovalWord) -> Result<JobView, Error> {
        self.decide(id, "reject", word).await
    }

    async fn decide(&self, id: JobId, verb: &str, word: &ApprovalWord) -> Result<JobView, Error> {
        let path = format!("/v1/approvals/{id}/{verb}");
        self.answer(&Ask::new(Method::POST, path).body(JSON, to_json(word)?)).await
    }
}
