//! The policy: who decides, what it would say, and whose limits there are.

use bytes::Bytes;
use hyper::Method;
use model::view::{CheckView, Page, PolicyView, TenantView};

use crate::client::{Client, JSON};
use crate::error::Error;
use crate::query::Query;
use crate::transport::Ask;

impl Client {
    pub async fn policy(&self) -> Result<PolicyView, Error> {
        self.get("/v1/policy".to_owned()).await
    }

    /// What the policy would say of a job, which is JSON already. Nothing is submitted.
    pub async fn check_policy(&self, job: Bytes) -> Result<CheckView, Error> {
        self.answer(&Ask::new(Method::POST, "/v1/policy/check").body(JSON, job)).await
    }

    pub async fn tenants(&self, limit: Option<usize>, cursor: Option<&str>) -> Result<Page<TenantView>, Error> {
        self.get(Query::default().with("limit", limit).with("cursor", cursor).after("/v1/tenants")).await
    }
}
