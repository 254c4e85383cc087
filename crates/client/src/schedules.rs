//! Schedules of workflows.

use api::{Page, ScheduleStart, ScheduleView, WorkflowView};
use hyper::Method;

use crate::client::{Client, JSON, to_json};
use crate::error::Error;
use crate::query::{Query, segment};
use crate::transport::ApiRequest;

/// Reference to a schedule by id or name. Names are unique within a tenant only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduleRef<'a> {
    pub name: &'a str,
    pub tenant: Option<&'a str>,
}

impl<'a> From<&'a str> for ScheduleRef<'a> {
    fn from(name: &'a str) -> Self {
        Self { name, tenant: None }
    }
}

impl ScheduleRef<'_> {
    fn path(self, action: &str) -> String {
        let path = format!("/v1/schedules/{}{action}", segment(self.name));
        Query::default().with("tenant", self.tenant).append_to(&path)
    }
}

impl Client {
    pub async fn create_schedule(&self, schedule: &ScheduleStart) -> Result<ScheduleView, Error> {
        self.request_json(&ApiRequest::new(Method::POST, "/v1/schedules").body(JSON, to_json(schedule)?)).await
    }

    /// Lists schedules, oldest first.
    pub async fn schedules(
        &self,
        tenant: Option<&str>,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<Page<ScheduleView>, Error> {
        let query = Query::default().with("tenant", tenant).with("limit", limit).with("cursor", cursor);
        self.get(query.append_to("/v1/schedules")).await
    }

    pub async fn schedule<'a>(&self, schedule: impl Into<ScheduleRef<'a>>) -> Result<ScheduleView, Error> {
        self.get(schedule.into().path("")).await
    }

    /// Pauses a schedule. Slots due while it is paused are skipped.
    pub async fn pause_schedule<'a>(&self, schedule: impl Into<ScheduleRef<'a>>) -> Result<ScheduleView, Error> {
        self.post(schedule.into().path("/pause")).await
    }

    pub async fn resume_schedule<'a>(&self, schedule: impl Into<ScheduleRef<'a>>) -> Result<ScheduleView, Error> {
        self.post(schedule.into().path("/resume")).await
    }

    /// Triggers the schedule immediately.
    pub async fn trigger_schedule<'a>(&self, schedule: impl Into<ScheduleRef<'a>>) -> Result<WorkflowView, Error> {
        self.post(schedule.into().path("/trigger")).await
    }

    pub async fn remove_schedule<'a>(&self, schedule: impl Into<ScheduleRef<'a>>) -> Result<(), Error> {
        self.delete(schedule.into().path("")).await
    }
}
