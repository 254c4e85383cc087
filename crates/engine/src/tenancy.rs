//! Tenant limits on submissions: live jobs, and submissions per second.
//!
//! The limits hold over all shards ([`crate::leases`]). A shard that is not the tenant's home may have to request slots
//! first. Until then the submission is parked: neither answered nor accepted.

use std::collections::VecDeque;

use model::batch::Keyspace;
use model::id::QueueId;
use model::time::Millis;

use crate::input::{Effect, Refusal, RequestId, Submission};
use crate::keys::KeyWaiter;
use crate::leases::{Outbox, Scope};
use crate::peers::PeerMessage;
use crate::placement::TenantNumber;
use crate::shard::{Map, Shard};
use crate::step::Step;

/// How long a submission waits for the tenant's home shard. Slightly longer than the lifetime of a token.
const PARKED_TIMEOUT: Millis = Millis(1_500);

/// Maximum number of parked submissions. Further ones are refused at once.
const PARKED_MAX: usize = 10_000;

/// A submitted job that waits for a slot or a token.
#[derive(Debug)]
struct ParkedSubmit {
    until: Millis,
    request: RequestId,
    index: usize,
    submission: Submission,
    /// The limit it waits for, and its value.
    scope: Scope,
    limit: u32,
    refusal: Refusal,
}

/// Submissions and tasks that wait for a tenant limit.
#[derive(Debug, Default)]
pub(crate) struct Tenancy {
    /// Oldest first.
    parked: VecDeque<ParkedSubmit>,
    /// Number of parked submissions by limit.
    waiting: Map<Scope, u32>,
    /// Limits that tasks of workflows wait for, with their values.
    workflow_waits: Map<Scope, u32>,
    /// Deadline of each submission since it was first parked.
    deadlines: Map<(RequestId, usize), Millis>,
    outbox: Outbox,
}

impl Tenancy {
    pub fn next(&self) -> Option<Millis> {
        self.parked.front().map(|parked| parked.until)
    }

    /// Removes the deadline of an answered submission.
    pub fn forget_deadline(&mut self, request: RequestId, index: usize) {
        if !self.deadlines.is_empty() {
            self.deadlines.remove(&(request, index));
        }
    }

    fn waiting(&self, scope: Scope) -> u32 {
        self.waiting.get(&scope).copied().unwrap_or(0)
    }

    /// Subtracts submissions that no longer wait for a limit.
    fn leave(&mut self, scope: Scope, count: u32) {
        match self.waiting(scope).saturating_sub(count) {
            0 => drop(self.waiting.remove(&scope)),
            left => drop(self.waiting.insert(scope, left)),
        }
    }
}

/// A job cannot be accepted now because of a tenant limit.
#[derive(Debug)]
pub(crate) struct LimitReached {
    /// The limit to wait for. Absent: waiting is pointless.
    scope: Option<Scope>,
    limit: u32,
    pub refusal: Refusal,
}

impl Shard {
    /// Takes the slot and the token that one more job of a queue's tenant needs.
    pub(crate) fn admit(&mut self, queue: QueueId) -> Result<(), LimitReached> {
        let Some((limits, scopes)) = self.ready.entry_limits(queue) else { return Ok(()) };
        let retry_after = self.config.retry_after;
        if let Some(max) = limits.max_live
            && !self.ready.leases_mut().take(scopes.live, max)
        {
            return Err(self.limit_reached(scopes.live, max, Refusal::TenantFull { max, retry_after }));
        }
        // A token cannot be given back, so it comes last.
        if let Some(max) = limits.submits_per_second
            && !self.ready.leases_mut().take(scopes.submits, max)
        {
            self.release_tenant_slot(queue);
            return Err(self.limit_reached(scopes.submits, max, Refusal::TenantTooFast { max, retry_after }));
        }
        Ok(())
    }

    fn limit_reached(&self, scope: Scope, limit: u32, refusal: Refusal) -> LimitReached {
        let leases = self.ready.leases();
        // The home's own answer is final, except in its first second, when it has no tokens yet.
        let may_come = !leases.is_home(scope) || (scope.kind().is_token() && leases.is_warming_up());
        LimitReached { scope: may_come.then_some(scope), limit, refusal }
    }

    /// Takes a slot for a job that is reopened. Never parked.
    pub(crate) fn admit_again(&mut self, queue: QueueId) -> Result<(), Refusal> {
        if let Some((limits, scopes)) = self.ready.entry_limits(queue)
            && let Some(max) = limits.max_live
            && !self.ready.leases_mut().take(scopes.live, max)
        {
            return Err(Refusal::TenantFull { max, retry_after: self.config.retry_after });
        }
        Ok(())
    }

    /// Takes a slot for a task of a workflow. Without one the task waits indefinitely, and a slot is requested from the
    /// tenant's home.
    pub(crate) fn admit_task(&mut self, queue: QueueId) -> bool {
        if self.admit_again(queue).is_ok() {
            return true;
        }
        if let Some((limits, scopes)) = self.ready.entry_limits(queue)
            && let Some(limit) = limits.max_live
        {
            self.tenancy.workflow_waits.insert(scopes.live, limit);
            self.await_scope(scopes.live, limit);
        }
        false
    }

    /// Gives back the slot of a job that has ended or was not accepted after all.
    pub(crate) fn release_tenant_slot(&mut self, queue: QueueId) {
        if let Some((limits, scopes)) = self.ready.entry_limits(queue)
            && limits.max_live.is_some()
        {
            self.ready.leases_mut().give_back(scopes.live);
        }
    }

    /// Parks a submission until the tenant's home answers; an error if waiting is pointless.
    pub(crate) fn park(
        &mut self,
        request: RequestId,
        index: usize,
        submission: Submission,
        limit_reached: LimitReached,
    ) -> Result<(), Refusal> {
        let LimitReached { scope, limit, refusal } = limit_reached;
        let Some(scope) = scope else { return Err(refusal) };
        // Trying again does not extend the deadline.
        let until = *self.tenancy.deadlines.entry((request, index)).or_insert(self.steady + PARKED_TIMEOUT);
        if until <= self.steady || self.tenancy.parked.len() >= PARKED_MAX {
            return Err(refusal);
        }
        *self.tenancy.waiting.entry(scope).or_default() += 1;
        self.tenancy.parked.push_back(ParkedSubmit { until, request, index, submission, scope, limit, refusal });
        self.await_scope(scope, limit);
        Ok(())
    }

    /// Reports to the leases how many submissions and tasks wait for a limit.
    fn await_scope(&mut self, scope: Scope, limit: u32) {
        let tasks = u32::from(self.tenancy.workflow_waits.contains_key(&scope));
        let waiting = self.tenancy.waiting(scope) + tasks;
        self.ready.leases_mut().set_waiting(scope, limit, waiting);
    }

    /// Retries submissions and tasks whose slots or tokens have arrived, and refuses submissions past their deadline.
    pub(crate) fn serve_freed(&mut self, step: &mut Step) {
        for scope in self.ready.serve_freed() {
            let (ready, waiting): (VecDeque<ParkedSubmit>, VecDeque<ParkedSubmit>) =
                std::mem::take(&mut self.tenancy.parked).into_iter().partition(|parked| parked.scope == scope);
            self.tenancy.parked = waiting;
            let tasks = self.tenancy.workflow_waits.remove(&scope);
            if tasks.is_some() {
                self.wake_waiting_for_room();
            }
            let Some(limit) = ready.front().map(|parked| parked.limit).or(tasks) else { continue };
            self.tenancy.leave(scope, ready.len() as u32);
            for ParkedSubmit { request, index, submission, .. } in ready {
                self.unpark_submit(request, index, submission, step);
            }
            self.await_scope(scope, limit);
        }
        while let Some(first) = self.tenancy.parked.front()
            && first.until <= self.steady
        {
            let Some(parked) = self.tenancy.parked.pop_front() else { break };
            let ParkedSubmit { request, index, scope, limit, refusal, .. } = parked;
            self.tenancy.leave(scope, 1);
            self.stats.refused += 1;
            self.complete_submission(request, index, Err(refusal), step);
            self.await_scope(scope, limit);
        }
    }

    /// Starts over with the key lookup: another request may have used the key meanwhile.
    fn unpark_submit(&mut self, request: RequestId, index: usize, submission: Submission, step: &mut Step) {
        match submission.spec.key {
            Some(key) => {
                let submission = Box::new(submission);
                self.wait_for_key(key, KeyWaiter::Job { request, index, submission });
            }
            None => self.accept_or_park(request, index, submission, step),
        }
    }

    /// Derives the use of all leases from the records.
    pub(crate) fn resume_leases(&mut self) {
        let mut live: Vec<u32> = vec![0; self.ready.tenants() as usize];
        for (queue, entry) in self.queues.iter() {
            let number = self.ready.tenant_of(queue);
            if let Some(count) = live.get_mut(number.0 as usize) {
                *count += entry.active_jobs() as u32;
            }
        }
        for (number, live) in (0..).map(TenantNumber).zip(live) {
            self.ready.restore_leases(number, live);
        }
        self.ready.restore_group_leases();
    }

    pub(crate) fn flush_leases(&mut self, step: &mut Step) {
        let mut outbox = std::mem::take(&mut self.tenancy.outbox);
        self.ready.leases_mut().flush(&mut outbox);
        for (key, value) in outbox.writes.drain(..) {
            match value {
                Some(value) => step.batch.put(Keyspace::Grants, &key, &value),
                None => step.batch.delete(Keyspace::Grants, &key),
            }
        }
        let messages = outbox.messages.drain(..);
        let effect = |(shard, message)| Effect::ToShard { shard, message: PeerMessage::Lease(message) };
        step.effects.extend(messages.map(effect));
        self.tenancy.outbox = outbox;
    }
}
