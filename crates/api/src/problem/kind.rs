//! All kinds of problems, with status, code and texts. Codes never change.

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $status:literal $code:literal, $title:literal, $meaning:literal;)*) => {
        /// Kind of a problem.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ProblemKind {
            $($(#[$doc])* $name,)*
        }

        impl ProblemKind {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// HTTP status.
            pub fn status(self) -> u16 {
                match self {
                    $(Self::$name => $status,)*
                }
            }

            /// Stable code. Two kinds share one where the same problem has two statuses.
            pub fn code(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)*
                }
            }

            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)*
                }
            }

            /// Description of the code in the documentation.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning,)*
                }
            }
        }
    };
}

kinds! {
    // Requests.
    InvalidJson = 400 "invalid_json", "The body is not the JSON that this route expects",
        "The body is not the JSON that the route expects.";
    UnknownField = 400 "unknown_field", "The body has an unknown field",
        "The body has an unknown field or variant. The detail suggests a known one.";
    InvalidField = 400 "invalid_field", "A field has an invalid value",
        "A value is malformed or outside its limits. The detail says why.";
    UnsupportedField = 400 "unsupported_field", "This version does not support the field",
        "The field is part of the API, but this version does not support it.";
    InvalidId = 400 "invalid_id", "The id is malformed or of another kind",
        "The id is malformed or of another kind.";
    InvalidParameter = 400 "invalid_parameter", "A query parameter is unknown or invalid",
        "A query parameter is unknown or has an invalid value.";
    InvalidCursor = 400 "invalid_cursor", "The cursor was not issued by this server",
        "The cursor was not issued by this server.";
    BodyTooLarge = 413 "body_too_large", "The body is too large",
        "The limit is 8 MiB for a job, 64 MiB for a batch, 4 MiB for a definition, 1 MiB for the inputs of a workflow, 64 KiB for a signal and 32 MiB for the manifest of a worker. Blobs have their own limit.";
    TooManyJobs = 413 "too_many_jobs_in_batch", "The batch has too many jobs",
        "A batch has at most 10,000 jobs.";
    UnsupportedMediaType = 415 "unsupported_media_type", "This route does not accept the content type",
        "Send application/json, or application/x-ndjson to submit, application/yaml for definitions, application/octet-stream for blobs.";
    ForeignOrigin = 403 "foreign_origin", "The request comes from a web page of another origin",
        "Requests from web pages of other origins are refused.";
    ForeignHost = 403 "foreign_host", "The request names another host",
        "The Host header names another server.";
    SandboxNotAllowed = 403 "sandbox_not_allowed", "The server requires a sandbox",
        "This server does not run processes without a sandbox: leave `sandbox` out.";
    UnknownRoute = 404 "unknown_route", "There is no such route",
        "There is no such route.";
    MethodNotAllowed = 405 "method_not_allowed", "The route does not support this method",
        "The route does not support this method.";
    UpgradeRequired = 426 "upgrade_required", "This route requires WebSocket",
        "The route requires WebSocket. /v1/events offers the same over plain HTTP.";

    // Jobs and queues.
    UnknownJob = 404 "unknown_job", "There is no such job",
        "There is no such job, or it was deleted.";
    UnknownNode = 404 "unknown_node", "There is no such node",
        "There is no such node.";
    UnknownToken = 404 "unknown_token", "There is no such join token",
        "There is no such join token.";
    NodeNotRemovable = 409 "node_not_removable", "The node cannot be removed",
        "A control node cannot be removed.";
    SessionState = 409 "session_state", "The state of the node's session does not allow this",
        "Sessions of nodes only move forward. The detail names the state; uncordoning the node begins a new session.";
    NodeGivenUp = 503 "node_given_up", "The node is given up",
        "The session of this node is abandoned or sunset: uncordoning the node begins a new one.";
    TooManyTokens = 409 "too_many_tokens", "There are too many join tokens",
        "There are too many join tokens: revoke some.";
    ClusterUnavailable = 503 "cluster_unavailable", "The server cannot take other nodes at present",
        "The server cannot listen for other nodes. The detail names the reason.";
    UnknownQueue = 404 "unknown_queue", "There is no such queue",
        "There is no such queue, or it has expired.";
    NoLogs = 404 "no_logs", "There is no such attempt",
        "The job has no such attempt.";
    NotTerminal = 409 "not_terminal", "The job has not ended yet",
        "The job has not ended yet: wait for it.";
    WrongState = 409 "wrong_state", "The job's state does not allow this",
        "The job's state does not allow this. The detail names the state.";
    RetriesUsedUp = 409 "retries_used_up", "The job has no retries left",
        "The job has no retries left.";
    QueueClosed = 409 "queue_closed", "The queue accepts no new jobs",
        "The queue is draining or cancelled.";
    QueueNotEmpty = 409 "queue_not_empty", "The queue has live jobs or workflows",
        "Cancel or drain the queue first.";
    QueueImplicit = 409 "queue_implicit", "The implicit queue of a tenant cannot be changed or deleted",
        "The implicit queue of a tenant cannot be changed or deleted.";
    IdempotencyConflict = 409 "idempotency_conflict", "The idempotency key was used with another body",
        "The idempotency key was used with another body.";
    IdempotencyGone = 409 "idempotency_gone", "The resource of the idempotency key was deleted",
        "The job, queue or workflow that the key created was deleted: use a new key.";
    RequestIdConflict = 409 "request_id_conflict", "The request id was used with another request",
        "The request id was used with another method, path or body: use a new id for every request.";
    TooManyKeys = 429 "too_many_keys", "The tenant has used too many idempotency keys",
        "The tenant has used too many idempotency keys within a day.";
    Full = 429 "too_many_jobs", "There are too many live jobs",
        "There are too many live jobs: retry after the time in Retry-After.";
    TooManyQueues = 429 "too_many_queues", "There are too many queues",
        "Delete some queues first.";
    TooManySubscribers = 429 "too_many_subscribers", "There are too many subscribers",
        "Too many connections wait for changes or read logs.";
    TenantFull = 429 "tenant_full", "The tenant has too many live jobs",
        "The tenant is at its limit of live jobs: retry later.";
    TenantTooFast = 429 "tenant_too_fast", "The tenant submits too many jobs per second",
        "The tenant is at its limit of submissions per second: retry later.";

    // Policy.
    OtherContent = 409 "other_content", "The job has changed since it was reviewed",
        "The approval names the hash of other content: review the job again.";
    OtherRule = 409 "other_rule", "Another rule requires approval now",
        "A different rule from the one in the request requires approval now: review the job again.";
    AlreadyDecided = 409 "already_decided", "The job was already approved or rejected",
        "The job was already approved or rejected.";
    ApprovalExpired = 409 "approval_expired", "The time for the approval has expired",
        "The job was not approved or rejected in time: submit it again.";
    OtherTenant = 409 "other_tenant", "The queue belongs to another tenant",
        "The queue belongs to another tenant: name that tenant in the job.";
    NoDeadLetter = 404 "no_dead_letter", "The job has no dead letter",
        "The job did not fail for good, so it has no dead letter.";
    UnknownDeadLetter = 404 "unknown_dead_letter", "There is no such dead letter",
        "The dead letter was retried or purged, or its workflow was run again.";
    CompensationUnreadable = 409 "compensation_unreadable", "The compensation cannot be submitted",
        "The job of the compensation cannot be rendered: release the results it needs, or compensate by hand and purge the dead letter.";
    NoOriginal = 404 "no_original", "The job has no original result",
        "Nothing was redacted from the result, or the original was not kept.";
    Quarantined = 409 "quarantined", "The policy withholds the job's result and output",
        "The policy withholds the job's result and output until they are scanned or an operator releases them.";
    OriginalsNotShown = 403 "originals_not_shown", "This server does not show original results",
        "The server's configuration does not allow reading originals of redacted results.";
    PolicyUnavailable = 503 "policy_unavailable", "The policy service is unavailable",
        "The policy service is unavailable: retry.";

    // Workflows and schedules.
    InvalidDefinition = 400 "invalid_definition", "The definition has problems",
        "The definition has problems. `diagnostics` lists all of them.";
    InvalidInputs = 400 "invalid_inputs", "The inputs do not match the definition",
        "The inputs do not match the definition. `diagnostics` lists the problems.";
    InvalidSchedule = 400 "invalid_schedule", "The schedule is invalid",
        "The cron expression or the time zone is invalid. `field` says which.";
    UnknownWorkflow = 404 "unknown_workflow", "There is no such workflow",
        "There is no such workflow, or it was deleted.";
    UnknownTask = 404 "unknown_task", "The workflow has no such task",
        "The workflow has no such task, or the task has no such item.";
    UnknownSchedule = 404 "unknown_schedule", "There is no such schedule",
        "There is no such schedule, or it was deleted.";
    WorkflowState = 409 "workflow_state", "The workflow's state does not allow this",
        "The workflow's state does not allow this. The detail names the state.";
    NothingToRerun = 409 "nothing_to_rerun", "All tasks have succeeded",
        "All tasks have succeeded: name the task to rerun from.";
    WorkflowSuspended = 409 "workflow_suspended", "The workflow is suspended",
        "This version of the server cannot read the workflow. Start the version that wrote it, or a newer one.";
    PartOfWorkflow = 409 "part_of_workflow", "The workflow is a sub-workflow",
        "The workflow is a sub-workflow: use its parent.";
    JobOfWorkflow = 409 "job_of_workflow", "The job belongs to a workflow",
        "The job belongs to a workflow: rerun the workflow from the job's task.";
    TooManySignals = 429 "too_many_signals", "Too many signals are pending",
        "At most 1,000 signals are pending in a workflow. Tasks must receive some first.";
    ScheduleNameTaken = 409 "schedule_name_taken", "The schedule's name is taken",
        "The tenant has a schedule of this name: delete it, or choose another name.";
    TooManySchedules = 429 "too_many_schedules", "There are too many schedules",
        "Delete some schedules first.";
    NoProgress = 409 "no_progress", "The job is not a running task of a workflow",
        "The job is not a running task of a workflow.";

    // Blobs and workers. The codes are those of the crate `blobs`.
    UnknownBlob = 404 "blob_not_found", "There is no such blob",
        "There is no such blob: upload it.";
    UnknownWorker = 404 "worker_not_found", "There is no such worker",
        "There is no such worker: register it.";
    UnknownUpload = 404 "upload_not_found", "There is no such upload",
        "The blob is not being uploaded: start the upload.";
    /// A job refers to a missing blob.
    BlobMissing = 409 "blob_missing", "The job refers to missing blobs",
        "The job refers to missing blobs, listed in `blobs`: upload them and submit again.";
    /// A worker refers to a missing blob.
    BlobsMissing = 409 "blobs_missing", "The worker refers to missing blobs",
        "The worker refers to missing blobs, listed in `blobs`: upload them and register again.";
    /// A job refers to a missing worker.
    WorkerMissing = 409 "worker_not_found", "The job refers to a worker that is not registered",
        "There is no such worker: register it.";
    BlobDamaged = 500 "damaged", "The stored content is damaged",
        "The stored content is damaged: upload it again, or restore it from a backup.";
    BlobMismatch = 422 "blob_mismatch", "The content does not match the id",
        "The hash of the content is not the one in the id. Nothing was stored.";
    WrongOffset = 409 "wrong_offset", "The upload continues at another offset",
        "The upload continues at `offset`.";
    BadRange = 416 "bad_range", "The range is invalid",
        "The header Range or Content-Range is malformed or does not fit the content.";
    LengthRequired = 411 "length_required", "The length of the content is required",
        "Send the size of the blob in Content-Length.";
    DiskFull = 507 "disk_full", "The server's disk is full",
        "The server's disk is full. Nothing was stored.";
    CacheFull = 503 "cache_full", "Running jobs need all of the server's cache",
        "Running jobs need all of the server's cache: retry when some have ended.";
    TooLarge = 413 "too_large", "The content is too large",
        "The content is larger than the server's limit. The detail names the limit.";
    TooMany = 413 "too_many", "There are too many entries",
        "There are more entries than the server's limit. The detail names the limit.";
    BadPath = 400 "bad_path", "A path is invalid",
        "A path is absolute, leaves its directory or has an invalid name.";
    BadGlob = 400 "bad_glob", "A glob is invalid",
        "A glob is invalid.";
    BadManifest = 400 "bad_manifest", "The manifest is invalid",
        "The manifest is inconsistent. The detail says where.";
    /// A request or job uses the same blob or worker.
    ContentBusy = 409 "busy", "The blob or worker is in use",
        "The server has too many requests in flight, or the blob or worker is in use: retry.";
    InUse = 500 "in_use", "Another process uses the server's directory",
        "Another process uses the server's directory.";
    Interrupted = 400 "interrupted", "The content ended early",
        "The content ended early. The received part of a piecewise upload is kept.";
    Io = 500 "io", "The server's disk failed",
        "The server's disk failed. The detail says how.";
    Storage = 503 "storage", "The blob store failed",
        "The blob store is unreachable or refuses requests. The detail says how.";

    // The server.
    CursorExpired = 410 "cursor_expired", "The changes after this cursor are no longer kept",
        "The changes after this cursor are no longer kept: read the lists again, then continue from `now`.";
    NotReady = 503 "not_ready", "The server is not ready yet",
        "The server is still starting.";
    KeyUnavailable = 503 "key_unavailable", "The idempotency key cannot be checked now",
        "The shard that keeps the idempotency key does not answer. Nothing was created; repeat the request with the same key.";
    Busy = 503 "busy", "The server has too many requests in flight",
        "The server has too many requests in flight, or the blob or worker is in use: retry.";
    AnswerLost = 503 "answer_lost", "The answer to the request was lost",
        "A part of the server restarted before it answered, or the answer was too large to be kept for a resent request. The request may have been executed: repeat it with its idempotency key, or read the state.";
    OtherGeneration = 412 "other_generation", "The server has another generation",
        "The server has restarted, or is another one than the header Outlast-If-Generation names. Nothing was executed.";
    Stopping = 503 "stopping", "The server is stopping",
        "The server is stopping: repeat the request with the same idempotency key.";
    Internal = 500 "internal", "Internal error",
        "Internal error. The server's log has more.";
}

impl ProblemKind {
    /// Value of the header `Retry-After`.
    pub fn retry_after_secs(self) -> Option<u64> {
        matches!(
            self,
            Self::Full
                | Self::TenantFull
                | Self::TenantTooFast
                | Self::Busy
                | Self::KeyUnavailable
                | Self::NotReady
                | Self::AnswerLost
                | Self::Stopping
                | Self::TooManySubscribers
                | Self::PolicyUnavailable
                | Self::TooManySignals
                | Self::CacheFull
                | Self::Storage
                | Self::ContentBusy
        )
        .then_some(1)
    }

    /// Whether the request had no effect and may be repeated as it is. Its answer is then not kept for a resent request.
    pub fn is_retryable(self) -> bool {
        let may_have_been_executed = matches!(self, Self::AnswerLost | Self::Stopping);
        self.retry_after_secs().is_some() && !may_have_been_executed
    }

    /// A problem document of this kind.
    pub fn problem(self, detail: Option<String>) -> super::Problem {
        super::Problem {
            kind: format!("/docs#{}", self.code()),
            title: self.title().to_owned(),
            status: self.status(),
            detail: detail.unwrap_or_else(|| format!("{}.", self.title())),
            code: self.code().to_owned(),
            field: None,
            blobs: Vec::new(),
            offset: None,
            diagnostics: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn kinds_with_the_same_code_have_the_same_meaning_and_another_status() {
        let mut seen: BTreeMap<&str, ProblemKind> = BTreeMap::new();
        for kind in ProblemKind::ALL {
            if let Some(other) = seen.insert(kind.code(), *kind) {
                assert_eq!(kind.meaning(), other.meaning(), "{kind:?}");
                assert_ne!(kind.status(), other.status(), "{kind:?}");
            }
        }
    }
}
