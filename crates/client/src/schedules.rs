//! Schedules of workflows.

use api::{Page, ScheduleStart, ScheduleView, WorkflowView};
use hyper::Method;
use model::id::ScheduleId;

use crate::client::{Client, to_json};
use crate::error::Error;
use crate::query::{Query, segment};
use crate::request::{ApiRequest, Repeat};

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
        let check = ScheduleRef { name: &schedule.name, tenant: schedule.tenant.as_deref() }.path("");
        let request = ApiRequest::post("/v1/schedules", Repeat::once(check)).json(to_json(schedule)?);
        self.request_json(&request).await
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
        self.act(schedule.into().path("/pause"), Repeat::Idempotent).await
    }

    pub async fn resume_schedule<'a>(&self, schedule: impl Into<ScheduleRef<'a>>) -> Result<ScheduleView, Error> {
        self.act(schedule.into().path("/resume"), Repeat::Idempotent).await
    }

    /// Triggers the schedule immediately.
    pub async fn trigger_schedule<'a>(&self, schedule: impl Into<ScheduleRef<'a>>) -> Result<WorkflowView, Error> {
        let schedule = schedule.into();
        self.act(schedule.path("/trigger"), Repeat::once(schedule.path(""))).await
    }

    pub async fn remove_schedule<'a>(&self, schedule: impl Into<ScheduleRef<'a>>) -> Result<(), Error> {
        let schedule = schedule.into();
        // A name may belong to a new schedule when the request is repeated.
        let repeat = match schedule.name.starts_with(ScheduleId::PREFIX) {
            true => Repeat::Deletion,
            false => Repeat::once(schedule.path("")),
        };
        self.transport.send(&ApiRequest::new(Method::DELETE, schedule.path(""), repeat)).await.map(drop)
    }
}
