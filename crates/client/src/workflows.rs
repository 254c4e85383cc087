//! Workflows: starting them, looking at them, steering them.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use model::id::{JobId, ScheduleId, WorkflowId};
use model::queue::QueueRef;
use model::view::{
    CancelWorkflow, Page, ProgressReport, RerunWorkflow, SignalledView, TaskView, ValidView, WorkflowHistoryView,
    WorkflowStart, WorkflowView,
};
use model::workflow::{TaskState, WorkflowState};
use serde_json::Value;

use crate::client::{Client, JSON, to_json};
use crate::error::Error;
use crate::query::{Query, segment};
use crate::transport::Ask;

/// Which workflows a list shows, newest first. Absent: all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    pub states: Vec<WorkflowState>,
    pub name: Option<String>,
    pub tenant: Option<String>,
    pub queue: Option<QueueRef>,
    pub schedule: Option<ScheduleId>,
    /// Also those that are parts of others.
    pub children: bool,
    pub limit: Option<usize>,
    pub cursor: Option<String>,
}

/// Which tasks of a workflow a list shows. Absent: all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskFilter {
    pub states: Vec<TaskState>,
    pub limit: Option<usize>,
    pub cursor: Option<String>,
}

/// How a drawing of a definition is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drawing {
    Svg,
    Mermaid,
}

impl Drawing {
    fn as_str(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Mermaid => "mermaid",
        }
    }
}

impl Client {
    pub async fn start_workflow(&self, start: &WorkflowStart) -> Result<WorkflowView, Error> {
        self.answer(&Ask::new(Method::POST, "/v1/workflows").body(JSON, to_json(start)?)).await
    }

    /// Starts one and waits until it has ended or the time is up, whichever is first.
    pub async fn start_workflow_and_wait(&self, start: &WorkflowStart, wait: Duration) -> Result<WorkflowView, Error> {
        let path = Query::default().with("wait_ms", Some(wait.as_millis())).after("/v1/workflows");
        let ask = Ask::new(Method::POST, path).body(JSON, to_json(start)?);
        self.answer(&Ask { patience: wait, ..ask }).await
    }

    /// Whether a definition, and the inputs to it if there are any, would be accepted.
    pub async fn validate_workflow(&self, start: &WorkflowStart) -> Result<ValidView, Error> {
        self.answer(&Ask::new(Method::POST, "/v1/workflows/validate").body(JSON, to_json(start)?)).await
    }

    pub async fn workflows(&self, filter: &Filter) -> Result<Page<WorkflowView>, Error> {
        let query = Query::default()
            .with("state", joined(&filter.states, WorkflowState::as_str))
            .with("name", filter.name.as_deref())
            .with("tenant", filter.tenant.as_deref())
            .with("queue", filter.queue)
            .with("schedule", filter.schedule)
            .with("children", filter.children.then_some(true))
            .with("limit", filter.limit)
            .with("cursor", filter.cursor.as_deref());
        self.get(query.after("/v1/workflows")).await
    }

    /// With the first of its tasks.
    pub async fn workflow(&self, id: WorkflowId) -> Result<WorkflowView, Error> {
        self.get(format!("/v1/workflows/{id}")).await
    }

    pub async fn workflow_without_tasks(&self, id: WorkflowId) -> Result<WorkflowView, Error> {
        self.get(format!("/v1/workflows/{id}?tasks=false")).await
    }

    /// The workflow with its tasks once it has ended, or as it is when the time is up.
    pub async fn wait_for_workflow(&self, id: WorkflowId, wait: Duration) -> Result<WorkflowView, Error> {
        let path = Query::default().with("wait_ms", Some(wait.as_millis())).after(&format!("/v1/workflows/{id}"));
        self.answer(&Ask { patience: wait, ..Ask::new(Method::GET, path) }).await
    }

    /// Tasks in the order of the definition, each before its items.
    pub async fn workflow_tasks(&self, id: WorkflowId, filter: &TaskFilter) -> Result<Page<TaskView>, Error> {
        let query = Query::default()
            .with("state", joined(&filter.states, TaskState::as_str))
            .with("limit", filter.limit)
            .with("cursor", filter.cursor.as_deref());
        self.get(query.after(&format!("/v1/workflows/{id}/tasks"))).await
    }

    /// One task, or one item of it, with its result.
    pub async fn workflow_task(&self, id: WorkflowId, name: &str, item: Option<u32>) -> Result<TaskView, Error> {
        let path = format!("/v1/workflows/{id}/tasks/{}", segment(name));
        self.get(Query::default().with("item", item).after(&path)).await
    }

    /// What has happened in it, oldest first.
    pub async fn workflow_history(
        &self,
        id: WorkflowId,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<WorkflowHistoryView, Error> {
        let query = Query::default().with("limit", limit).with("cursor", cursor);
        self.get(query.after(&format!("/v1/workflows/{id}/history"))).await
    }

    /// The definition that it was started with, as JSON.
    pub async fn workflow_definition(&self, id: WorkflowId) -> Result<Bytes, Error> {
        let ask = Ask::new(Method::GET, format!("/v1/workflows/{id}/definition"));
        self.transport.ask(&ask).await.map(|answer| answer.body)
    }

    /// Its tasks as a drawing; an SVG shows their states.
    pub async fn workflow_graph(&self, id: WorkflowId, drawing: Drawing) -> Result<String, Error> {
        let ask = Ask::new(Method::GET, format!("/v1/workflows/{id}/graph?format={}", drawing.as_str()));
        let body = self.transport.ask(&ask).await?.body;
        String::from_utf8(body.into()).map_err(|_| Error::Protocol("the drawing is no text".to_owned()))
    }

    pub async fn cancel_workflow(&self, id: WorkflowId, compensate: bool) -> Result<WorkflowView, Error> {
        let body = to_json(&CancelWorkflow { compensate })?;
        self.answer(&Ask::new(Method::POST, format!("/v1/workflows/{id}/cancel")).body(JSON, body)).await
    }

    /// What has begun goes on; nothing else begins.
    pub async fn pause_workflow(&self, id: WorkflowId) -> Result<WorkflowView, Error> {
        self.post(format!("/v1/workflows/{id}/pause")).await
    }

    pub async fn resume_workflow(&self, id: WorkflowId) -> Result<WorkflowView, Error> {
        self.post(format!("/v1/workflows/{id}/resume")).await
    }

    /// Runs one that has ended again: from a task, or from whatever has not succeeded.
    pub async fn rerun_workflow(&self, id: WorkflowId, from: Option<&str>) -> Result<WorkflowView, Error> {
        let body = to_json(&RerunWorkflow { from: from.map(str::to_owned) })?;
        self.answer(&Ask::new(Method::POST, format!("/v1/workflows/{id}/rerun")).body(JSON, body)).await
    }

    pub async fn signal_workflow(&self, id: WorkflowId, name: &str, payload: &Value) -> Result<SignalledView, Error> {
        let path = format!("/v1/workflows/{id}/signals/{}", segment(name));
        self.answer(&Ask::new(Method::POST, path).body(JSON, to_json(payload)?)).await
    }

    /// Takes one that has ended off the records.
    pub async fn remove_workflow(&self, id: WorkflowId) -> Result<(), Error> {
        self.delete(format!("/v1/workflows/{id}")).await
    }

    /// Says how far the running task of a workflow is that a job does.
    pub async fn report_progress(&self, job: JobId, report: &ProgressReport) -> Result<(), Error> {
        let ask = Ask::new(Method::POST, format!("/v1/jobs/{job}/progress")).body(JSON, to_json(report)?);
        self.transport.ask(&ask).await.map(drop)
    }

    /// The JSON Schema of definitions, for editors.
    pub async fn workflow_schema(&self) -> Result<Bytes, Error> {
        let ask = Ask::new(Method::GET, "/v1/schemas/workflow");
        self.transport.ask(&ask).await.map(|answer| answer.body)
    }
}

/// The names of states with commas between them; nothing where there are none.
fn joined<T: Copy>(states: &[T], name: impl Fn(T) -> &'static str) -> Option<String> {
    let names: Vec<&str> = states.iter().map(|state| name(*state)).collect();
    (!names.is_empty()).then(|| names.join(","))
}
