//! The audit log of a shard: written with the commit that it is about, or not at all.

use model::audit::{Action, Entry, Head};
use model::batch::Keyspace;
use model::codec;
use model::id::{JobId, QueueId, WorkflowId};
use model::key;
use model::machine::FAIL_OPEN_RULE;
use model::verdict::{Decision, OutputDecision, OutputVerdict, Verdict};

use crate::input::Actor;
use crate::shard::Shard;
use crate::step::Step;

/// The end of the chain.
#[derive(Debug)]
pub(crate) struct Chain {
    head: Head,
    /// Longer than its head on disk.
    dirty: bool,
}

impl Default for Chain {
    fn default() -> Self {
        Self { head: Head::START, dirty: false }
    }
}

impl Shard {
    /// Puts back the end of the chain. Before the shard is resumed.
    pub fn restore_audit(&mut self, head: Head) {
        self.chain.head = head;
    }

    fn note(&mut self, entry: Entry, step: &mut Step) {
        let mut entry = Entry { at: self.now, ..entry };
        let head = &mut self.chain.head;
        let key = key::audit(head.number + 1);
        step.batch.put_with(Keyspace::Audit, &key, |buffer| head.append(&mut entry, buffer));
        self.chain.dirty = true;
    }

    /// The policy has decided about a job. What nobody was asked about is nobody's decision.
    pub(crate) fn note_decision(&mut self, job: JobId, decision: &Decision, step: &mut Step) {
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
        let entry = Entry {
            job: Some(job),
            rule: Some(decision.rule.clone()),
            policy: decision.policy,
            message: decision.message.clone(),
            ..Entry::of(action)
        };
        self.note(entry, step);
    }

    /// The policy has decided about a result.
    pub(crate) fn note_output(&mut self, job: JobId, decision: &OutputDecision, checked: bool, step: &mut Step) {
        self.stats.count_output(decision, checked);
        let action = match decision.verdict {
            OutputVerdict::Allow if !checked => Action::OutputUnchecked,
            OutputVerdict::Allow => Action::OutputAllowed,
            OutputVerdict::Quarantine => Action::OutputQuarantined,
            OutputVerdict::Deny => Action::OutputDenied,
            OutputVerdict::Redact => Action::OutputRedacted,
        };
        let entry = Entry {
            job: Some(job),
            rule: Some(decision.rule.clone()),
            policy: decision.policy,
            message: decision.message.clone(),
            ..Entry::of(action)
        };
        self.note(entry, step);
    }

    /// Somebody has done something to a job.
    pub(crate) fn note_act(
        &mut self,
        action: Action,
        job: JobId,
        by: &Actor,
        comment: Option<String>,
        step: &mut Step,
    ) {
        let entry = Entry { job: Some(job), by: name(by), message: comment, ..Entry::of(action) };
        self.note(entry, step);
    }

    pub(crate) fn note_queue_act(&mut self, action: Action, queue: QueueId, by: &Actor, step: &mut Step) {
        self.note(Entry { queue: Some(queue), by: name(by), ..Entry::of(action) }, step);
    }

    pub(crate) fn note_workflow_act(&mut self, action: Action, workflow: WorkflowId, by: &Actor, step: &mut Step) {
        self.note(Entry { message: Some(workflow.to_string()), by: name(by), ..Entry::of(action) }, step);
    }

    pub(crate) fn note_schedule_act(&mut self, action: Action, schedule: &str, by: &Actor, step: &mut Step) {
        self.note(Entry { message: Some(schedule.to_owned()), by: name(by), ..Entry::of(action) }, step);
    }

    /// Something that nobody in particular has done.
    pub(crate) fn note_event(&mut self, entry: Entry, step: &mut Step) {
        self.note(entry, step);
    }

    pub(crate) fn flush_audit(&mut self, step: &mut Step) {
        if std::mem::take(&mut self.chain.dirty) {
            let head = self.chain.head;
            step.batch.put_with(Keyspace::Meta, key::META_AUDIT, |buffer| codec::encode_into(&head, buffer));
        }
    }
}

fn name(by: &Actor) -> Option<String> {
    by.as_deref().map(str::to_owned)
}
