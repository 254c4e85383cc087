//! Workflows: start, inspect, control.

use std::time::Duration;

use api::{
    CancelWorkflow, Page, ProgressReport, RerunWorkflow, SignalledView, TaskView, ValidView, WorkflowHistoryView,
    WorkflowStart, WorkflowView,
};
use bytes::Bytes;
use model::id::{JobId, ScheduleId, WorkflowId};
use model::queue::QueueRef;
use model::workflow::{TaskState, WorkflowState};
use serde_json::Value;

use crate::client::{Client, to_json};
use crate::error::Error;
use crate::query::{Query, segment};
use crate::random;
use crate::request::{ApiRequest, Repeat};

/// Filter of the workflow list, newest first. `None` and empty fields match all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    pub states: Vec<WorkflowState>,
    pub name: Option<String>,
    pub tenant: Option<String>,
    pub queue: Option<QueueRef>,
    pub schedule: Option<ScheduleId>,
    /// Includes sub-workflows.
    pub children: bool,
    pub limit: Option<usize>,
    pub cursor: Option<String>,
}

/// Filter of a task list. `None` and empty fields match all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskFilter {
    pub states: Vec<TaskState>,
    pub limit: Option<usize>,
    pub cursor: Option<String>,
}

/// Format of a workflow graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphFormat {
    Svg,
    Mermaid,
}

impl GraphFormat {
    fn as_str(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Mermaid => "mermaid",
        }
    }
}

impl Client {
    pub async fn start_workflow(&self, start: &WorkflowStart) -> Result<WorkflowView, Error> {
        self.start("/v1/workflows".to_owned(), start, Duration::ZERO).await
    }

    /// Starts a workflow and waits until it has ended or `wait` has passed.
    pub async fn start_workflow_and_wait(&self, start: &WorkflowStart, wait: Duration) -> Result<WorkflowView, Error> {
        let path = Query::default().with("wait_ms", Some(wait.as_millis())).append_to("/v1/workflows");
        self.start(path, start, wait).await
    }

    async fn start(&self, path: String, start: &WorkflowStart, wait: Duration) -> Result<WorkflowView, Error> {
        let is_keyed = start.idempotency_key.is_some();
        let request = ApiRequest {
            idempotency_key: if is_keyed { None } else { Some(random::idempotency_key()?) },
            extra_timeout: wait,
            ..ApiRequest::post(path, Repeat::Harmless).json(to_json(start)?)
        };
        let started: WorkflowView = self.request_json(&request).await?;
        // A generated key is new: only this call can have used it before.
        Ok(WorkflowView { deduplicated: started.deduplicated && is_keyed, ..started })
    }

    /// Validates a definition and, if given, its inputs.
    pub async fn validate_workflow(&self, start: &WorkflowStart) -> Result<ValidView, Error> {
        let request = ApiRequest::post("/v1/workflows/validate", Repeat::Harmless).json(to_json(start)?);
        self.request_json(&request).await
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
        self.get(query.append_to("/v1/workflows")).await
    }

    /// The workflow with the first page of its tasks.
    pub async fn workflow(&self, id: WorkflowId) -> Result<WorkflowView, Error> {
        self.get(format!("/v1/workflows/{id}")).await
    }

    pub async fn workflow_without_tasks(&self, id: WorkflowId) -> Result<WorkflowView, Error> {
        self.get(format!("/v1/workflows/{id}?tasks=false")).await
    }

    /// Returns the workflow with its tasks once it has ended, or its current state after `wait`.
    pub async fn wait_for_workflow(&self, id: WorkflowId, wait: Duration) -> Result<WorkflowView, Error> {
        let path = Query::default().with("wait_ms", Some(wait.as_millis())).append_to(&format!("/v1/workflows/{id}"));
        self.request_json(&ApiRequest { extra_timeout: wait, ..ApiRequest::get(path) }).await
    }

    /// Tasks in definition order, each before its items.
    pub async fn workflow_tasks(&self, id: WorkflowId, filter: &TaskFilter) -> Result<Page<TaskView>, Error> {
        let query = Query::default()
            .with("state", joined(&filter.states, TaskState::as_str))
            .with("limit", filter.limit)
            .with("cursor", filter.cursor.as_deref());
        self.get(query.append_to(&format!("/v1/workflows/{id}/tasks"))).await
    }

    /// One task or item with its result.
    pub async fn workflow_task(&self, id: WorkflowId, name: &str, item: Option<u32>) -> Result<TaskView, Error> {
        let path = format!("/v1/workflows/{id}/tasks/{}", segment(name));
        self.get(Query::default().with("item", item).append_to(&path)).await
    }

    /// Events of a workflow, oldest first.
    pub async fn workflow_history(
        &self,
        id: WorkflowId,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<WorkflowHistoryView, Error> {
        let query = Query::default().with("limit", limit).with("cursor", cursor);
        self.get(query.append_to(&format!("/v1/workflows/{id}/history"))).await
    }

    /// The definition the workflow was started with, as JSON.
    pub async fn workflow_definition(&self, id: WorkflowId) -> Result<Bytes, Error> {
        let request = ApiRequest::get(format!("/v1/workflows/{id}/definition"));
        self.transport.send(&request).await.map(|response| response.body)
    }

    /// The task graph. SVG shows task states.
    pub async fn workflow_graph(&self, id: WorkflowId, format: GraphFormat) -> Result<String, Error> {
        let request = ApiRequest::get(format!("/v1/workflows/{id}/graph?format={}", format.as_str()));
        let body = self.transport.send(&request).await?.body;
        String::from_utf8(body.into()).map_err(|_| Error::Protocol("the graph is not UTF-8".to_owned()))
    }

    pub async fn cancel_workflow(&self, id: WorkflowId, compensate: bool) -> Result<WorkflowView, Error> {
        let body = to_json(&CancelWorkflow { compensate })?;
        let request = ApiRequest::post(format!("/v1/workflows/{id}/cancel"), Repeat::Idempotent).json(body);
        self.request_json(&request).await
    }

    /// Pauses a workflow: running tasks continue, no new ones start.
    pub async fn pause_workflow(&self, id: WorkflowId) -> Result<WorkflowView, Error> {
        self.act(format!("/v1/workflows/{id}/pause"), Repeat::Idempotent).await
    }

    pub async fn resume_workflow(&self, id: WorkflowId) -> Result<WorkflowView, Error> {
        self.act(format!("/v1/workflows/{id}/resume"), Repeat::Idempotent).await
    }

    /// Reruns an ended workflow from the task `from`, or from the tasks that did not succeed.
    pub async fn rerun_workflow(&self, id: WorkflowId, from: Option<&str>) -> Result<WorkflowView, Error> {
        let body = to_json(&RerunWorkflow { from: from.map(str::to_owned) })?;
        let repeat = Repeat::once(format!("/v1/workflows/{id}/history"));
        self.request_json(&ApiRequest::post(format!("/v1/workflows/{id}/rerun"), repeat).json(body)).await
    }

    pub async fn signal_workflow(&self, id: WorkflowId, name: &str, payload: &Value) -> Result<SignalledView, Error> {
        let path = format!("/v1/workflows/{id}/signals/{}", segment(name));
        let repeat = Repeat::once(format!("/v1/workflows/{id}/history"));
        self.request_json(&ApiRequest::post(path, repeat).json(to_json(payload)?)).await
    }

    /// Deletes an ended workflow.
    pub async fn remove_workflow(&self, id: WorkflowId) -> Result<(), Error> {
        self.delete(format!("/v1/workflows/{id}")).await
    }

    /// Reports the progress of the workflow task a job runs.
    pub async fn report_progress(&self, job: JobId, report: &ProgressReport) -> Result<(), Error> {
        let request = ApiRequest::post(format!("/v1/jobs/{job}/progress"), Repeat::Idempotent).json(to_json(report)?);
        self.transport.send(&request).await.map(drop)
    }

    /// JSON Schema of definitions, for editors.
    pub async fn workflow_schema(&self) -> Result<Bytes, Error> {
        let request = ApiRequest::get("/v1/schemas/workflow");
        self.transport.send(&request).await.map(|response| response.body)
    }
}

/// Comma-separated state names; `None` for an empty list.
fn joined<T: Copy>(states: &[T], name: impl Fn(T) -> &'static str) -> Option<String> {
    let names: Vec<&str> = states.iter().map(|state| name(*state)).collect();
    (!names.is_empty()).then(|| names.join(","))
}
