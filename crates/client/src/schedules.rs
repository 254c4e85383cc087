//! Schedules: what starts workflows by the clock.

use hyper::Method;
use model::view::{Page, ScheduleStart, ScheduleView, WorkflowView};

use crate::client::{Client, JSON, to_json};
use crate::error::Error;
use crate::query::{Query, segment};
use crate::transport::Ask;

/// A schedule, by its id or its name. Names are unique within a tenant only.
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
        Query::default().with("tenant", self.tenant).after(&path)
    }
}

impl Client {
    pub async fn create_schedule(&self, schedule: &ScheduleStart) -> Result<ScheduleView, Error> {
        self.answer(&Ask::new(Method::POST, "/v1/schedules").body(JSON, to_json(schedule)?)).await
    }

    /// The oldest first.
    pub async fn schedules(
        &self,
        tenant: Option<&str>,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<Page<ScheduleView>, Error> {
        let query = Query::default().with("tenant", tenant).with("limit", limit).with("cursor", cursor);
        self.get(query.after("/v1/schedules")).await
    }

    pub async fn schedule<'a>(&self, schedule: impl Into<ScheduleRef<'a>>) -> Result<ScheduleView, Error> {
        self.get(schedule.into().path("")).await
    }

    /// Slots that come due while it is paused are left out.
    pub async fn pause_schedule<'a>(&self, schedule: impl Into<ScheduleRef<'a>>) -> Result<ScheduleView, Error> {
        self.post(schedule.into().path("/pause")).await
    }

    pub async fn resume_schedule<'a>(&self, schedule: impl Into<ScheduleRef<'a>>) -> Result<ScheduleView, Error> {
        self.post(schedule.into().path("/resume")).await
    }

    /// Starts what it starts, now.
    pub async fn trigger_schedule<'a>(&self, schedule: impl Into<ScheduleRef<'a>>) -> Result<WorkflowView, Error> {
        self.post(schedule.into().path("/trigger")).await
    }

    pub async fn remove_schedule<'a>(&self, schedule: impl Into<ScheduleRef<'a>>) -> Result<(), Error> {
        self.delete(schedule.into().path("")).await
    }
}
