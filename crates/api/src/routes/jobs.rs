//! Jobs and queues.

use model::json::Json;
use model::spec::JobSpec;
use serde_json::json;

use super::{Builder, EVENTS, NDJSON, Routes, TEXT, bytes, text};
use crate::{
    BatchOrSubmitView, HistoryView, JobView, LogPieceView, OriginalView, ProgressReport, QueueSpec, QueueView,
    SubmitBody, SubmitView, WhyView, WorkerView,
};

impl Builder<'_> {
    fn filtered_by_queue(self) -> Self {
        self.query("queue", "Only jobs of this queue: its id or token.").filtered()
    }

    /// Filters that jobs, approvals and dead letters share.
    pub(super) fn filtered(self) -> Self {
        self.query("topic", "Only jobs of this topic.").query("tenant", "Only jobs of this tenant.")
    }

    fn by_state(self) -> Self {
        self.query("state", "Only jobs in this state, or in one of several, separated by commas.")
    }

    fn submits(self) -> Self {
        self.wait("the job ends")
            .idempotent()
            .acted()
            .body::<SubmitBody>()
            .body_as(NDJSON, json!({"type": "string", "description": "One job per line."}))
            .responds::<SubmitView>(201, "The job is accepted and durable. With `wait_ms`, the whole job.")
            .responds::<BatchOrSubmitView>(
                200,
                "A batch, in the order of the request; or a job that was accepted before under the same key.",
            )
    }

    /// An action on a job without a body.
    pub(super) fn job_action(self) -> Self {
        self.acted().empty_body().responds::<JobView>(200, "The job.")
    }
}

pub(super) fn add(routes: &mut Routes) {
    routes.tag("jobs");
    routes.post("/v1/jobs", "submit_jobs", "Submit a job, a batch, or lines of NDJSON.").submits();
    let list = routes.get("/v1/jobs", "list_jobs", "List jobs, newest first.");
    list.by_state().filtered_by_queue().paged().responds_page::<JobView>("A page.");
    let list = routes.get("/v1/jobs/running", "list_running_jobs", "List jobs with an attempt in flight.");
    list.filtered_by_queue().paged().responds_page::<JobView>("A page.");
    let list = routes.get("/v1/jobs/completed", "list_completed_jobs", "List jobs that have ended.");
    list.filtered_by_queue().paged().responds_page::<JobView>("A page.");
    let list =
        routes.get("/v1/jobs/history", "list_job_history", "List jobs with the times of their states, newest first.");
    list.by_state().filtered_by_queue().paged().responds_page::<JobView>("A page.");
    one(routes);
    actions(routes);
    queues(routes);
}

fn one(routes: &mut Routes) {
    let show = routes.get("/v1/jobs/{id}", "get_job", "Get a job, or wait for its end.");
    show.wait("the job ends").responds::<JobView>(200, "The job.");
    let remove = routes.delete("/v1/jobs/{id}", "delete_job", "Delete a job that has ended.");
    remove.acted().responds_empty(204, "Deleted.");
    routes.components.reference::<OriginalView>();
    routes
        .get("/v1/jobs/{id}/result", "get_job_result", "Get the result of a job that has ended.")
        .flag("original", false, "Returns the original of a redacted result (`Original`), if the server's configuration allows it. The access is recorded in the audit log.")
        .acted()
        .responds::<Json>(200, "The result; with `original`, an `Original`.");
    let history = routes.get(
        "/v1/jobs/{id}/history",
        "get_job_history",
        "Get the states, attempts and policy decisions of a job.",
    );
    history.responds::<HistoryView>(200, "The history.");
    routes.components.reference::<LogPieceView<'static>>();
    routes
        .get("/v1/jobs/{id}/logs", "get_job_logs", "Get the output of a job as text or as resumable events.")
        .description("Returns the newest attempt. With `follow` and without `tail`, all attempts.")
        .query("stream", "`stdout` or `stderr`. Defaults to stdout for text and to both for events.")
        .flag("follow", false, "Continues until the job ends.")
        .number("tail", "Only this many last lines.")
        .number("attempt", "Number of the attempt. Defaults to the newest.")
        .header("Accept", "`text/event-stream` for events.")
        .header("Last-Event-ID", "Id of the last received event: continues after it.")
        .responds_as(
            200,
            "The bytes of a stream. With `Accept: text/event-stream`, events `stdout` and `stderr`, each a `LogPiece` with an id to resume from, and a last event `end`.",
            vec![(TEXT, bytes()), (EVENTS, text())],
        );
    let why = routes.get("/v1/jobs/{id}/why", "explain_job", "Explain the state and placement of a job.");
    why.responds::<WhyView>(200, "The explanation.");
}

fn actions(routes: &mut Routes) {
    routes.post("/v1/jobs/{id}/cancel", "cancel_job", "Cancel a job. Idempotent.").job_action();
    let summary = "Retry a failed, timed-out, abandoned or quarantined job, within its retry limit.";
    routes.post("/v1/jobs/{id}/retry", "retry_job", summary).job_action();
    let summary = "Retract a job from its runner and schedule it again. Uses no retry.";
    routes.post("/v1/jobs/{id}/retract", "retract_job", summary).job_action();
    routes.post("/v1/jobs/{id}/release", "release_job", "Release the result of a quarantined job.").job_action();
    let report = routes.post(
        "/v1/jobs/{id}/progress",
        "report_job_progress",
        "Report the progress of a running task of a workflow.",
    );
    report.body::<ProgressReport>().responds_empty(204, "Recorded.");
}

fn queues(routes: &mut Routes) {
    routes.tag("queues");
    routes
        .post("/v1/queues", "create_queue", "Create a queue.")
        .idempotent()
        .body::<QueueSpec>()
        .responds::<QueueView>(201, "The queue with its token.")
        .responds::<QueueView>(200, "The queue was created before, under the same key.");
    routes.get("/v1/queues", "list_queues", "List queues, oldest first.").paged().responds_page::<QueueView>("A page.");
    routes.get("/v1/queues/{queue}", "get_queue", "Get a queue.").responds::<QueueView>(200, "The queue.");
    let remove = routes.delete("/v1/queues/{queue}", "delete_queue", "Delete a queue without live jobs and workflows.");
    remove.acted().responds_empty(204, "Deleted.");
    let drain = routes.post("/v1/queues/{queue}/drain", "drain_queue", "Close a queue and finish its jobs.");
    drain.acted().empty_body().responds::<QueueView>(200, "The queue.");
    let cancel = routes.post("/v1/queues/{queue}/cancel", "cancel_queue", "Close a queue and cancel its jobs.");
    cancel.acted().empty_body().responds::<QueueView>(200, "The queue.");
    routes.post("/v1/queues/{queue}/jobs", "submit_jobs_to_queue", "Submit to a queue.").submits();
    let list = routes.get("/v1/queues/{queue}/jobs", "list_queue_jobs", "List the jobs of a queue.");
    list.by_state().filtered().paged().responds_page::<JobView>("A page.");
    let list = routes.get(
        "/v1/queues/{queue}/completed",
        "list_completed_queue_jobs",
        "List the jobs of a queue that have ended.",
    );
    list.paged().responds_page::<JobView>("A page.");
    let list = routes.get(
        "/v1/queues/{queue}/running",
        "list_running_queue_jobs",
        "List the jobs of a queue with an attempt in flight.",
    );
    list.paged().responds_page::<JobView>("A page.");
    let list = routes.get(
        "/v1/queues/{queue}/history",
        "list_queue_job_history",
        "List the jobs of a queue with the times of their states.",
    );
    list.paged().responds_page::<JobView>("A page.");
    let list = routes.get(
        "/v1/queues/{queue}/workers",
        "list_queue_workers",
        "List the workers that jobs of a queue can use: all of them.",
    );
    list.paged().responds_page::<WorkerView>("A page.");
    // A check of the policy takes a job as well.
    routes.components.reference::<JobSpec>();
}
