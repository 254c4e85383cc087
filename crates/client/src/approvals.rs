//! Approvals: pending jobs and the decisions of people.

use api::{ApprovalDetailView, ApprovalRequest, ApprovalView, JobView, Page};
use hyper::Method;
use model::id::JobId;

use crate::client::{Client, JSON, to_json};
use crate::error::Error;
use crate::query::Query;
use crate::transport::ApiRequest;

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
        let path = format!("/v1/approvals/{id}/{verb}");
        self.request_json(&ApiRequest::new(Method::POST, path).body(JSON, to_json(request)?)).await
    }
}
