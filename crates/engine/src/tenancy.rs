//! What a tenant may have: how many jobs that have not ended, and how many submits in a second.
//!
//! The limits hold over all shards ([`crate::leases`]). A shard that is not the tenant's home may have to ask it first:
//! so long the submit waits, unanswered and not accepted.

use std::collections::VecDeque;

use model::batch::Keyspace;
use model::id::{QueueId, ShardId};
use model::key;
use model::time::Millis;

use crate::input::{Effect, Refusal, RequestId, Submission};
use crate::keys::KeyWaiter;
use crate::leases::{Message, Outbox, Scope};
use crate::ready::TenantNumber;
use crate::shard::{Map, Shard};
use crate::step::Step;

/// A submit waits this long for a word of the tenant's home: a little longer than a token is good for.
const PATIENCE: Millis = Millis(1_500);

/// Beyond so many that wait, others are refused at once.
const PARKED_MAX: usize = 10_000;

/// A submit that waits for a slot or a token.
#[derive(Debug)]
struct Parked {
    until: Millis,
    request: RequestId,
    index: usize,
    submission: Submission,
    /// What it waits for, and how much of that there is in all.
    scope: Scope,
    limit: u32,
    refusal: Refusal,
}

/// Submits that wait, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Tenancy {
    parked: VecDeque<Parked>,
    /// How many of them wait for each.
    waiting: Map<Scope, u32>,
    /// What tasks of workflows wait for, and how much of it there is in all.
    flow_waits: Map<Scope, u32>,
    /// How long each may wait, from the first time it had to.
    deadlines: Map<(RequestId, usize), Millis>,
    outbox: Outbox,
}

impl Tenancy {
    pub fn next(&self) -> Option<Millis> {
        self.parked.front().map(|parked| parked.until)
    }

    /// A submit has its answer.
    pub fn settle(&mut self, request: RequestId, index: usize) {
        if !self.deadlines.is_empty() {
            self.deadlines.remove(&(request, index));
        }
    }

    fn waiting(&self, scope: Scope) -> u32 {
        self.waiting.get(&scope).copied().unwrap_or(0)
    }

    /// So many wait for it no more.
    fn leave(&mut self, scope: Scope, count: u32) {
        match self.waiting(scope).saturating_sub(count) {
            0 => drop(self.waiting.remove(&scope)),
            left => drop(self.waiting.insert(scope, left)),
        }
    }
}

/// Why a job of a tenant cannot be accepted now.
#[derive(Debug)]
pub(crate) struct Shut {
    /// Absent: nothing will come of waiting.
    scope: Option<Scope>,
    limit: u32,
    pub refusal: Refusal,
}

impl Shard {
    pub(crate) fn tenant_number(&self, queue: QueueId) -> TenantNumber {
        self.ready.tenant_of(queue)
    }

    /// Takes what one more job of a queue's tenant needs.
    pub(crate) fn admit(&mut self, queue: QueueId) -> Result<(), Shut> {
        let tenant = self.tenant_number(queue);
        let limits = self.ready.tenants.limits(tenant);
        let Some(scopes) = self.ready.tenants.scopes(tenant) else { return Ok(()) };
        let retry_after = self.config.retry_after;
        if let Some(max) = limits.max_live
            && !self.ready.leases.take(scopes.live, max)
        {
            return Err(self.shut(scopes.live, max, Refusal::TenantFull { max, retry_after }));
        }
        // A token cannot be given back, so it is taken last.
        if let Some(max) = limits.submits_per_second
            && !self.ready.leases.take(scopes.submits, max)
        {
            self.dismiss(queue);
            return Err(self.shut(scopes.submits, max, Refusal::TenantTooFast { max, retry_after }));
        }
        Ok(())
    }

    fn shut(&self, scope: Scope, limit: u32, refusal: Refusal) -> Shut {
        let leases = &self.ready.leases;
        // The home knows by itself that there is nothing left, except that it has no tokens in its first second.
        let may_come = !leases.is_home(scope) || (scope.kind().is_used_up() && leases.is_opening());
        Shut { scope: may_come.then_some(scope), limit, refusal }
    }

    /// A job that had ended is to live again: it needs a slot, and there is nobody to wait for one.
    pub(crate) fn admit_again(&mut self, queue: QueueId) -> Result<(), Refusal> {
        let tenant = self.tenant_number(queue);
        let limits = self.ready.tenants.limits(tenant);
        if let Some((max, scopes)) = limits.max_live.zip(self.ready.tenants.scopes(tenant))
            && !self.ready.leases.take(scopes.live, max)
        {
            return Err(Refusal::TenantFull { max, retry_after: self.config.retry_after });
        }
        Ok(())
    }

    /// Takes a slot for a task of a workflow. One that gets none waits for as long as it takes, and its tenant's home is
    /// told so.
    pub(crate) fn admit_task(&mut self, queue: QueueId) -> bool {
        if self.admit_again(queue).is_ok() {
            return true;
        }
        let tenant = self.tenant_number(queue);
        let max = self.ready.tenants.limits(tenant).max_live;
        if let Some((limit, scopes)) = max.zip(self.ready.tenants.scopes(tenant)) {
            self.tenancy.flow_waits.insert(scopes.live, limit);
            self.await_scope(scopes.live, limit);
        }
        false
    }

    /// A job has ended, or was not accepted after all.
    pub(crate) fn dismiss(&mut self, queue: QueueId) {
        let tenant = self.tenant_number(queue);
        if self.ready.tenants.limits(tenant).max_live.is_some()
            && let Some(scopes) = self.ready.tenants.scopes(tenant)
        {
            self.ready.leases.give_back(scopes.live);
        }
    }

    /// Lets a submit wait for the tenant's home; an error if nothing would come of that.
    pub(crate) fn park(
        &mut self,
        request: RequestId,
        index: usize,
        submission: Submission,
        shut: Shut,
    ) -> Result<(), Refusal> {
        let Shut { scope, limit, refusal } = shut;
        let Some(scope) = scope else { return Err(refusal) };
        // One that has tried before does not get more time by that.
        let until = *self.tenancy.deadlines.entry((request, index)).or_insert(self.now + PATIENCE);
        if until <= self.now || self.tenancy.parked.len() >= PARKED_MAX {
            return Err(refusal);
        }
        *self.tenancy.waiting.entry(scope).or_default() += 1;
        self.tenancy.parked.push_back(Parked { until, request, index, submission, scope, limit, refusal });
        self.await_scope(scope, limit);
        Ok(())
    }

    /// Says how many submits wait for something of a tenant's.
    fn await_scope(&mut self, scope: Scope, limit: u32) {
        let tasks = u32::from(self.tenancy.flow_waits.contains_key(&scope));
        let waiting = self.tenancy.waiting(scope) + tasks;
        self.ready.leases.set_waiting(scope, limit, waiting);
    }

    /// Slots or tokens have come for those who wait.
    pub(crate) fn serve_freed(&mut self, step: &mut Step) {
        for scope in self.ready.serve_freed() {
            let (ready, waiting): (VecDeque<Parked>, VecDeque<Parked>) =
                std::mem::take(&mut self.tenancy.parked).into_iter().partition(|parked| parked.scope == scope);
            self.tenancy.parked = waiting;
            let tasks = self.tenancy.flow_waits.remove(&scope);
            if tasks.is_some() {
                self.wake_starved();
            }
            let Some(limit) = ready.front().map(|parked| parked.limit).or(tasks) else { continue };
            self.tenancy.leave(scope, ready.len() as u32);
            for Parked { request, index, submission, .. } in ready {
                self.unpark_submit(request, index, submission, step);
            }
            self.await_scope(scope, limit);
        }
        while let Some(first) = self.tenancy.parked.front()
            && first.until <= self.now
        {
            let Some(parked) = self.tenancy.parked.pop_front() else { break };
            let Parked { request, index, scope, limit, refusal, .. } = parked;
            self.tenancy.leave(scope, 1);
            self.stats.refused += 1;
            self.settle_submit(request, index, Err(refusal), step);
            self.await_scope(scope, limit);
        }
    }

    /// It tries again from the beginning: somebody else may have used its key meanwhile.
    fn unpark_submit(&mut self, request: RequestId, index: usize, submission: Submission, step: &mut Step) {
        match submission.spec.key {
            Some(key) => {
                let submission = Box::new(submission);
                self.ask_key(key, KeyWaiter::Job { request, index, submission });
            }
            None => self.accept_or_park(request, index, submission, step),
        }
    }

    /// A word of another shard about what tenants may have.
    pub(crate) fn hear_shard(&mut self, from: ShardId, message: &Message) {
        self.ready.leases.handle(from, message);
    }

    /// What the records say is in use: all that a start has found.
    pub(crate) fn resume_leases(&mut self) {
        let mut live: Vec<u32> = vec![0; self.ready.tenants.count() as usize];
        for (queue, entry) in &self.queues {
            let number = self.ready.tenant_of(*queue);
            if let Some(count) = live.get_mut(number.0 as usize) {
                *count += entry.active.len() as u32;
            }
        }
        for (number, live) in (0..).map(TenantNumber).zip(live) {
            self.ready.restore_leases(number, live);
        }
        self.ready.restore_group_leases();
    }

    pub(crate) fn flush_leases(&mut self, step: &mut Step) {
        let mut outbox = std::mem::take(&mut self.tenancy.outbox);
        self.ready.leases.flush(&mut outbox);
        for (key, value) in outbox.writes.drain(..) {
            match value {
                Some(value) => step.batch.put(Keyspace::Grants, &key, &value),
                None => step.batch.delete(Keyspace::Grants, &key),
            }
        }
        if !outbox.messages.is_empty() && step.batch.is_empty() {
            // Whoever is no longer the owner must not speak either: only a commit tells.
            step.batch.put(Keyspace::Meta, key::META_LAST_ID, &self.last_id.to_be_bytes());
        }
        let messages = outbox.messages.drain(..);
        step.effects.extend(messages.map(|(shard, message)| Effect::ToShard { shard, message }));
        self.tenancy.outbox = outbox;
    }
}
