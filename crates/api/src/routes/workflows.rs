//! Workflows and schedules.

use model::json::Json;
use serde_json::json;

use super::{Builder, Routes, TEXT, YAML, text};
use crate::{
    CancelWorkflow, RerunWorkflow, ScheduleStart, ScheduleView, SignalledView, TaskView, ValidView,
    WorkflowHistoryView, WorkflowStart, WorkflowView,
};

impl Builder<'_> {
    /// A definition as JSON or YAML.
    fn takes_definition(self) -> Self {
        self.query("inputs", "With a YAML body: JSON object with the inputs.")
            .query("queue", "With a YAML body: queue of the jobs.")
            .query("tenant", "With a YAML body: the tenant.")
            .body::<WorkflowStart>()
            .body_as(YAML, json!({"type": "string", "description": "The definition."}))
    }

    /// Schedules may be named, and names are unique within a tenant only.
    fn of_tenant(self) -> Self {
        self.query("tenant", "Tenant of a schedule given by its name, if several have one of this name.")
    }
}

pub(super) fn add(routes: &mut Routes) {
    routes.tag("workflows");
    routes
        .post("/v1/workflows", "start_workflow", "Start a workflow.")
        .wait("the workflow ends")
        .takes_definition()
        .idempotent()
        .acted()
        .responds::<WorkflowView>(201, "The workflow is started and durable. Without its tasks.")
        .responds::<WorkflowView>(200, "The workflow was started before, under the same key.");
    routes
        .get("/v1/workflows", "list_workflows", "List workflows, newest first.")
        .query("state", "Only workflows in this state, or in one of several, separated by commas.")
        .query("name", "Only workflows of this name.")
        .query("tenant", "Only workflows of this tenant.")
        .query("queue", "Only workflows of this queue: its id or token.")
        .query("schedule", "Only workflows started by this schedule: its id.")
        .flag("children", false, "Includes sub-workflows.")
        .paged()
        .responds_page::<WorkflowView>("A page, without inputs and tasks.");
    let validate =
        routes.post("/v1/workflows/validate", "validate_workflow", "Validate a definition and, if given, its inputs.");
    validate.takes_definition().responds::<ValidView>(200, "The definition is valid.");
    one(routes);
    actions(routes);
    schedules(routes);
}

fn one(routes: &mut Routes) {
    routes
        .get("/v1/workflows/{id}", "get_workflow", "Get a workflow with its first tasks, or wait for its end.")
        .flag("tasks", true, "`false` leaves the tasks out.")
        .wait("the workflow ends")
        .responds::<WorkflowView>(200, "The workflow.");
    let remove = routes.delete("/v1/workflows/{id}", "delete_workflow", "Delete a workflow that has ended.");
    remove.acted().responds_empty(204, "Deleted.");
    routes
        .get(
            "/v1/workflows/{id}/tasks",
            "list_workflow_tasks",
            "List tasks in the order of the definition, each followed by its started items.",
        )
        .query("state", "Only tasks in this state, or in one of several, separated by commas.")
        .paged()
        .responds_page::<TaskView>("A page.");
    let task = routes.get(
        "/v1/workflows/{id}/tasks/{name}",
        "get_workflow_task",
        "Get a task, or one of its items, with its result.",
    );
    task.number("item", "Index of the item in the list of `for_each`, from 0.").responds::<TaskView>(200, "The task.");
    let history =
        routes.get("/v1/workflows/{id}/history", "get_workflow_history", "Get the events of a workflow, oldest first.");
    history.paged().responds::<WorkflowHistoryView>(200, "A page.");
    let definition =
        routes.get("/v1/workflows/{id}/definition", "get_workflow_definition", "Get the definition of a workflow.");
    definition.responds_as(200, "The definition.", vec![(super::JSON, json!({"type": "object"}))]);
    routes
        .get("/v1/workflows/{id}/graph", "get_workflow_graph", "Get a drawing of the tasks; as SVG with their states.")
        .parameter(
            "query",
            "format",
            json!({"type": "string", "enum": ["svg", "mermaid"], "default": "svg"}),
            "`svg` or `mermaid`.",
        )
        .responds_as(200, "The drawing.", vec![("image/svg+xml", text()), (TEXT, text())]);
}

fn actions(routes: &mut Routes) {
    let cancel = routes.post("/v1/workflows/{id}/cancel", "cancel_workflow", "Cancel a workflow. Idempotent.");
    cancel.acted().optional_body::<CancelWorkflow>().responds::<WorkflowView>(200, "The workflow.");
    let pause = routes.post(
        "/v1/workflows/{id}/pause",
        "pause_workflow",
        "Pause a workflow: started tasks continue, no others start.",
    );
    pause.acted().empty_body().responds::<WorkflowView>(200, "The workflow.");
    let resume = routes.post("/v1/workflows/{id}/resume", "resume_workflow", "Resume a paused workflow.");
    resume.acted().empty_body().responds::<WorkflowView>(200, "The workflow.");
    let rerun = routes.post("/v1/workflows/{id}/rerun", "rerun_workflow", "Rerun a workflow that has ended.");
    rerun.acted().optional_body::<RerunWorkflow>().responds::<WorkflowView>(200, "The workflow.");
    routes
        .post(
            "/v1/workflows/{id}/signals/{name}",
            "signal_workflow",
            "Send a signal. It is pending until a task receives it.",
        )
        .description("The payload is any JSON of at most 64 KiB. Without a body it is null.")
        .acted()
        .optional_body::<Json>()
        .responds::<SignalledView>(200, "The signal is durable.");
    let schema =
        routes.get("/v1/schemas/workflow", "get_workflow_schema", "Get the JSON Schema of definitions, for editors.");
    schema.responds_as(200, "The schema.", vec![("application/schema+json", json!({"type": "object"}))]);
}

fn schedules(routes: &mut Routes) {
    routes.tag("schedules");
    let create = routes.post("/v1/schedules", "create_schedule", "Create a schedule.");
    create.acted().body::<ScheduleStart>().responds::<ScheduleView>(201, "The schedule.");
    let list = routes.get("/v1/schedules", "list_schedules", "List schedules, oldest first.");
    list.query("tenant", "Only schedules of this tenant.").paged().responds_page::<ScheduleView>("A page.");
    let show = routes.get("/v1/schedules/{schedule}", "get_schedule", "Get a schedule.");
    show.of_tenant().responds::<ScheduleView>(200, "The schedule.");
    let remove = routes.delete("/v1/schedules/{schedule}", "delete_schedule", "Delete a schedule. Its workflows stay.");
    remove.of_tenant().acted().responds_empty(204, "Deleted.");
    let pause =
        routes.post("/v1/schedules/{schedule}/pause", "pause_schedule", "Pause a schedule: its slots are skipped.");
    pause.of_tenant().acted().empty_body().responds::<ScheduleView>(200, "The schedule.");
    let resume = routes.post("/v1/schedules/{schedule}/resume", "resume_schedule", "Resume a paused schedule.");
    resume.of_tenant().acted().empty_body().responds::<ScheduleView>(200, "The schedule.");
    let trigger =
        routes.post("/v1/schedules/{schedule}/trigger", "trigger_schedule", "Trigger a schedule immediately.");
    trigger.of_tenant().acted().empty_body().responds::<WorkflowView>(201, "The started workflow.");
}
