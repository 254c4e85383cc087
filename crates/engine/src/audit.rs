//! The audit log of a shard. An entry is part of the commit it describes.

mod retention;

use model::audit::{Action, AuditEntry, Head, SignedCheckpoint};
use model::batch::Keyspace;
use model::codec;
use model::id::{JobId, QueueId, WorkflowId};
use model::key;
use model::machine::FAIL_OPEN_RULE;
use model::verdict::{Decision, OutputDecision, OutputVerdict, Verdict};

use crate::input::Actor;
use crate::shard::Shard;
use crate::step::Step;
use retention::Removal;

/// Both ends of the hash chain.
#[derive(Debug)]
pub(crate) struct AuditChain {
    head: Head,
    /// Entries were appended since the head was last written.
    dirty: bool,
    /// The checkpoint on record. Absent: no entry was removed.
    start: Option<SignedCheckpoint>,
    removal: Removal,
}

impl Default for AuditChain {
    fn default() -> Self {
        Self { head: Head::START, dirty: false, start: None, removal: Removal::None }
    }
}

impl Shard {
    /// Restores the end of the chain. Call it before [`Shard::resume`].
    pub fn restore_audit(&mut self, head: Head) {
        self.audit.head = head;
    }

    fn append_audit(&mut self, entry: AuditEntry, step: &mut Step) {
        let mut entry = AuditEntry { at: self.now, ..entry };
        let head = &mut self.audit.head;
        let key = key::audit(head.number + 1);
        step.batch.put_with(Keyspace::Audit, &key, |buffer| head.append(&mut entry, buffer));
        self.audit.dirty = true;
    }

    /// Logs a policy decision about a job. Decisions without a rule (no policy in force) are not logged.
    pub(crate) fn audit_decision(&mut self, job: JobId, decision: &Decision, step: &mut Step) {
        if decision.rule.is_empty() {
            return;
        }
        let action = match &decision.verdict {
            Verdict::Allow | Verdict::AllowWith(_) if decision.rule == FAIL_OPEN_RULE => Action::FailedOpen,
            Verdict::Allow => Action::Allowed,
            Verdict::AllowWith(_) => Action::Constrained,
            Verdict::RequireApproval => Action::ApprovalAsked,
            Verdict::Deny => Action::Denied,
            Verdict::Throttle(_) => Action::Throttled,
        };
        let entry = AuditEntry {
            job: Some(job),
            rule: Some(decision.rule.clone()),
            policy: decision.policy,
            message: decision.message.clone(),
            ..AuditEntry::of(action)
        };
        self.append_audit(entry, step);
    }

    /// Logs a policy decision about a result.
    pub(crate) fn audit_output(&mut self, job: JobId, decision: &OutputDecision, checked: bool, step: &mut Step) {
        self.stats.count_output(decision, checked);
        let action = match decision.verdict {
            OutputVerdict::Allow if !checked => Action::OutputUnchecked,
            OutputVerdict::Allow => Action::OutputAllowed,
            OutputVerdict::Quarantine => Action::OutputQuarantined,
            OutputVerdict::Deny => Action::OutputDenied,
            OutputVerdict::Redact => Action::OutputRedacted,
        };
        let entry = AuditEntry {
            job: Some(job),
            rule: Some(decision.rule.clone()),
            policy: decision.policy,
            message: decision.message.clone(),
            ..AuditEntry::of(action)
        };
        self.append_audit(entry, step);
    }

    /// Logs an operation on a job.
    pub(crate) fn audit_job(
        &mut self,
        action: Action,
        job: JobId,
        by: &Actor,
        comment: Option<String>,
        step: &mut Step,
    ) {
        let entry = AuditEntry { job: Some(job), by: name(by), message: comment, ..AuditEntry::of(action) };
        self.append_audit(entry, step);
    }

    pub(crate) fn audit_queue(&mut self, action: Action, queue: QueueId, by: &Actor, step: &mut Step) {
        self.append_audit(AuditEntry { queue: Some(queue), by: name(by), ..AuditEntry::of(action) }, step);
    }

    pub(crate) fn audit_workflow(&mut self, action: Action, workflow: WorkflowId, by: &Actor, step: &mut Step) {
        self.append_audit(
            AuditEntry { message: Some(workflow.to_string()), by: name(by), ..AuditEntry::of(action) },
            step,
        );
    }

    pub(crate) fn audit_schedule(&mut self, action: Action, schedule: &str, by: &Actor, step: &mut Step) {
        self.append_audit(
            AuditEntry { message: Some(schedule.to_owned()), by: name(by), ..AuditEntry::of(action) },
            step,
        );
    }

    /// Logs an event without an actor.
    pub(crate) fn audit_event(&mut self, entry: AuditEntry, step: &mut Step) {
        self.append_audit(entry, step);
    }

    pub(crate) fn flush_audit(&mut self, step: &mut Step) {
        if std::mem::take(&mut self.audit.dirty) {
            let head = self.audit.head;
            step.batch.put_with(Keyspace::Meta, key::META_AUDIT, |buffer| codec::encode_into(&head, buffer));
        }
    }
}

fn name(by: &Actor) -> Option<String> {
    by.as_deref().map(str::to_owned)
}
