//! Approvals, dead letters, the policy, the audit log, tenants.

use model::spec::JobSpec;

use super::{Builder, NDJSON, PURGED_MAX, Routes};
use crate::{
    ApprovalDetailView, ApprovalRequest, ApprovalView, AuditEntryView, AuditReportView, CheckView,
    DeadLetterDetailView, DeadLetterView, ExportedLine, JobView, PolicyView, PurgedView, RejectedMessageView,
    TenantView,
};

impl Builder<'_> {
    fn filtered_dead_letters(self) -> Self {
        self.filtered()
            .query("reason", "Only dead letters with this reason code.")
            .number("older_than_ms", "Only jobs that ended at least this long ago.")
    }
}

pub(super) fn add(routes: &mut Routes) {
    routes.tag("approvals");
    let list = routes.get("/v1/approvals", "list_approvals", "List jobs that wait for an approval, oldest first.");
    list.filtered().paged().responds_page::<ApprovalView>("A page.");
    let show = routes.get(
        "/v1/approvals/{id}",
        "get_approval",
        "Get the required approval of a job, with all policy decisions.",
    );
    show.responds::<ApprovalDetailView>(200, "The approval.");
    let approve = routes.post("/v1/approvals/{id}/approve", "approve_job", "Approve a job.");
    approve.acted().optional_body::<ApprovalRequest>().responds::<JobView>(200, "The job.");
    let reject = routes.post("/v1/approvals/{id}/reject", "reject_job", "Reject a job: it is denied.");
    reject.acted().optional_body::<ApprovalRequest>().responds::<JobView>(200, "The job.");
    dead_letters(routes);
    policy(routes);
    audit(routes);
    routes.tag("tenants");
    let list = routes.get("/v1/tenants", "list_tenants", "List tenants with jobs or limits, by name.");
    list.paged().responds_page::<TenantView>("A page.");
}

fn dead_letters(routes: &mut Routes) {
    routes.tag("dead letters");
    let list = routes.get("/v1/dlq", "list_dead_letters", "List dead letters, oldest job first.");
    list.filtered_dead_letters().paged().responds_page::<DeadLetterView>("A page.");
    routes
        .delete(
            "/v1/dlq",
            "purge_dead_letters",
            "Purge dead letters with their jobs, oldest first, at most a bounded number.",
        )
        .filtered_dead_letters()
        .flag("all", false, "Required without any other filter: purges all dead letters.")
        .limit(PURGED_MAX)
        .acted()
        .responds::<PurgedView>(200, "The number of purged dead letters.");
    let list = routes.get(
        "/v1/dlq/rejected",
        "list_rejected_messages",
        "List rejected messages of runners, newest of each shard first.",
    );
    list.responds_page::<RejectedMessageView>("All rejected messages.");
    let show = routes.get("/v1/dlq/{id}", "get_dead_letter", "Get a dead letter with its job.");
    show.responds::<DeadLetterDetailView>(200, "The dead letter.");
    let purge = routes.delete("/v1/dlq/{id}", "purge_dead_letter", "Purge a dead letter with its job.");
    purge.acted().responds_empty(204, "Purged.");
    routes.post("/v1/dlq/{id}/retry", "retry_dead_letter", "Retry a failed job, within its retry limit.").job_action();
}

fn policy(routes: &mut Routes) {
    routes.tag("policy");
    let show = routes.get("/v1/policy", "get_policy", "Get the policy backend and its state.");
    show.responds::<PolicyView>(200, "The policy.");
    let check =
        routes.post("/v1/policy/check", "check_policy", "Check a job against the policy without submitting it.");
    check.acted().body::<JobSpec>().responds::<CheckView>(200, "The decision with the verdicts of all rules.");
}

fn audit(routes: &mut Routes) {
    routes.tag("audit");
    routes
        .get("/v1/audit", "list_audit_entries", "List the audit log by time.")
        .query("job", "Only entries about this job.")
        .query("action", "Only entries of this action.")
        .flag("newest_first", false, "Newest entry first.")
        .number("shard", "Only the chain of this shard.")
        .number("after", "With `shard`: only entries after this number, or before it with `newest_first`.")
        .paged()
        .responds_page::<AuditEntryView>("A page.");
    let line = routes.components.reference::<ExportedLine>();
    routes
        .get("/v1/audit/export", "export_audit_log", "Export the audit log with the bytes that its links cover, shard by shard.")
        .responds_as(
            200,
            "Lines of JSON: the entries of a shard (`ExportedEntry`), then its end (`ExportedHead`). The link of an entry is BLAKE3 over the 32 bytes of the previous link (zeros before the first) and the bytes in `encoded`. If the oldest entries were removed, a checkpoint (`ExportedCheckpoint`) comes first: its link is the previous one of the first entry, and its Ed25519 signature covers the bytes in its `encoded`.",
            vec![(NDJSON, line)],
        );
    let verify = routes.get(
        "/v1/audit/verify",
        "verify_audit_log",
        "Verify that nothing in the audit log was changed or removed, except by its retention.",
    );
    verify.responds::<AuditReportView>(200, "The result for each shard.");
}
