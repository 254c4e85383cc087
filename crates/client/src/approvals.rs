//! Approvals: pending jobs and the decisions of people.

use api::{ApprovalDetailView, ApprovalRequest, ApprovalView, JobView, Page};
use model::id::JobId;

use crate::client::{Client, to_json};
use crate::error::Error;
use crate::query::Query;
use crate::request::{ApiRequest, Repeat};

/// Filter of the approval list, oldest first. `None` fields match all.
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
        self.get(query.append_to("/v1/approvals")).await
    }

    /// A pending job with the policy's decisions about it.
    pub async fn approval(&self, id: JobId) -> Result<ApprovalDetailView, Error> {
        self.get(format!("/v1/approvals/{id}")).await
    }

    pub async fn approve(&self, id: JobId, request: &ApprovalRequest) -> Result<JobView, Error> {
        self.decide(id, "approve", request).await
    }

    pub async fn reject(&self, id: JobId, request: &ApprovalRequest) -> Result<JobView, Error> {
        self.decide(id, "reject", request).await
    }

    async fn decide(&self, id: JobId, verb: &str, request: &ApprovalRequest) -> Result<JobView, Error> {
        // Not idempotent: another rule may ask after the approval, and a repetition would answer it.
        let repeat = Repeat::once(format!("/v1/approvals/{id}"));
        let request = ApiRequest::post(format!("/v1/approvals/{id}/{verb}"), repeat).json(to_json(request)?);
        self.request_json(&request).await
    }
}
