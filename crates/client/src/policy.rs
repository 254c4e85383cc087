//! Policy status, policy checks and tenants.

use api::{CheckView, Page, PolicyView, TenantView};
use bytes::Bytes;

use crate::client::Client;
use crate::error::Error;
use crate::query::Query;
use crate::request::{ApiRequest, Repeat};

impl Client {
    pub async fn policy(&self) -> Result<PolicyView, Error> {
        self.get("/v1/policy".to_owned()).await
    }

    /// Evaluates the policy for a job given as JSON, without submitting it.
    pub async fn check_policy(&self, job: Bytes) -> Result<CheckView, Error> {
        self.request_json(&ApiRequest::post("/v1/policy/check", Repeat::Harmless).json(job)).await
    }

    pub async fn tenants(&self, limit: Option<usize>, cursor: Option<&str>) -> Result<Page<TenantView>, Error> {
        self.get(Query::default().with("limit", limit).with("cursor", cursor).append_to("/v1/tenants")).await
    }
}
