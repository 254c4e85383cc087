//! Jobs waiting for a runner, and which of them is next.
//!
//! The order is that of [`super::wait_queue`], over all jobs of a candidate set. A queue, a tenant or a concurrency
//! group at its limit is parked until a slot is free, and delays no other jobs.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::codec::DecodeError;
use model::id::{JobId, QueueId};
use model::job::Job;
use model::spec::{ExecutorKind, Priority, Requirements, decode_requirements};
use model::state::State;
use model::time::Millis;

use super::attributes::AttributeIndex;
use super::candidate_set::{CandidateSet, CandidateSetId, Rank};
use super::requirement::{
    ConcurrencyGroup, Requirement, RequirementId, RequirementKey, RequirementTable, concurrency_rule,
};
use super::runner_class::RunnerClasses;
use super::tenants::{Scopes, StridePass, Tenants};
use super::wait_queue::{WaitQueueKey, WaitingJob, position, ready_since};
use super::{LimitKey, NextJob, Parked, Ready, TenantNumber};
use crate::anomaly::{Anomalies, Anomaly};
use crate::leases::{Leases, LimitKind, Scope};
use crate::settings::{Settings, TenantLimits};
use crate::shard::Map;
use crate::stats::TopicStats;

impl Ready {
    pub fn new(
        settings: Arc<Settings>,
        leases: Leases,
        interactive_ages_after: Millis,
        batch_ages_after: Millis,
    ) -> Self {
        Self {
            settings,
            requirements: RequirementTable::default(),
            candidate_sets: Vec::new(),
            free_set_ids: Vec::new(),
            set_by_key: Map::default(),
            sets_by_attribute: AttributeIndex::default(),
            runners_by_attribute: AttributeIndex::default(),
            runner_classes: RunnerClasses::default(),
            runners: Vec::new(),
            connected: 0,
            in_flight: [0; ExecutorKind::ALL.len()],
            tenants: Tenants::default(),
            leases,
            awaited: Map::default(),
            next_generation: 0,
            eviction_cursor: 0,
            unarmed_sets: BTreeSet::new(),
            tenant_of: Map::default(),
            groups: Map::default(),
            parked: Map::default(),
            active: BTreeSet::new(),
            waiting: [0; ExecutorKind::ALL.len()],
            ages_after: [Millis(u64::MAX), interactive_ages_after, batch_ages_after],
            anomalies: Anomalies::default(),
        }
    }

    /// Moves the anomalies found by placement to those of the shard.
    pub fn hand_over_anomalies(&mut self, to: &mut Anomalies) {
        to.absorb(&mut self.anomalies);
        to.absorb(self.tenants.anomalies());
    }

    /// Adds a queue of a tenant.
    pub fn add_queue(&mut self, queue: QueueId, tenant: &str) {
        let tenant = self.tenants.add_queue(tenant, &self.settings);
        if let Some(before) = self.tenant_of.insert(queue, tenant) {
            self.tenants.remove_queue(before);
        }
    }

    pub fn tick(&mut self, now: Millis) {
        self.leases.tick(now);
    }

    pub fn next_tick(&self) -> Option<Millis> {
        self.leases.next_tick()
    }

    pub fn connected(&self) -> u32 {
        self.connected
    }

    pub fn in_flight(&self, executor: ExecutorKind) -> u32 {
        self.in_flight[executor as usize]
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether candidate sets without an eligible runner have jobs without a retry timer.
    pub fn has_unarmed_jobs(&self) -> bool {
        !self.unarmed_sets.is_empty()
    }

    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    pub fn leases_mut(&mut self) -> &mut Leases {
        &mut self.leases
    }

    pub fn restore_grant(&mut self, key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
        self.leases.restore_ledger(key, value)
    }

    pub fn tenants(&self) -> u32 {
        self.tenants.count()
    }

    pub fn tenant_on_runner(&self, tenant: TenantNumber) -> u32 {
        self.tenants.on_runner(tenant)
    }

    /// The limits of a queue's tenant, and the leases they are counted under. `None`: jobs may enter without limits.
    pub fn entry_limits(&self, queue: QueueId) -> Option<(TenantLimits, Scopes)> {
        let tenant = self.tenant_of(queue);
        let limits = self.tenants.limits(tenant);
        if limits.max_live.is_none() && limits.submits_per_second.is_none() {
            return None;
        }
        Some((limits, self.tenants.scopes(tenant)?))
    }

    pub fn requirement(&self, id: RequirementId) -> Option<&Requirement> {
        self.requirements.get(id)
    }

    pub fn topics(&self) -> &TopicStats {
        self.requirements.topics.topics()
    }

    pub fn count_received(&mut self, requirement: RequirementId, job: &Job) {
        let topic = self.requirements.topic_of(Some(requirement), job);
        self.requirements.topics.count_received(topic);
    }

    pub fn count_dispatched(&mut self, requirement: Option<RequirementId>, job: &Job, waited: Millis) {
        let topic = self.requirements.topic_of(requirement, job);
        self.requirements.topics.count_dispatched(topic, waited);
    }

    pub fn count_end(&mut self, requirement: Option<RequirementId>, job: &Job, state: State) {
        let topic = self.requirements.topic_of(requirement, job);
        self.requirements.topics.count_end(topic, state);
    }

    /// A queue is below its `max_running` again.
    pub fn unpark_queue(&mut self, queue: QueueId) {
        self.unpark(&LimitKey::Queue(queue));
    }

    pub fn forget(&mut self, queue: QueueId) {
        if let Some(tenant) = self.tenant_of.remove(&queue) {
            self.tenants.remove_queue(tenant);
        }
    }

    pub fn tenant_of(&self, queue: QueueId) -> TenantNumber {
        self.tenant_of.get(&queue).copied().unwrap_or(TenantNumber(0))
    }

    pub fn len(&self, executor: ExecutorKind) -> usize {
        self.waiting[executor as usize]
    }

    pub fn is_empty(&self, executor: ExecutorKind) -> bool {
        self.waiting[executor as usize] == 0
    }

    /// Adds a job to its requirement, which exists until its last job has ended.
    pub fn join_requirement(&mut self, executor: ExecutorKind, requirements: Requirements) -> RequirementId {
        self.requirements.join(executor, requirements)
    }

    pub fn leave_requirement(&mut self, requirement: RequirementId) {
        if !self.requirements.leave(requirement) {
            self.anomalies.note(Anomaly::MissingRequirement(requirement.index()), "leave requirement");
        }
    }

    /// The requirement of a job, including the concurrency limit of its latest policy decision.
    pub fn requirement_of(&mut self, job: &Job, known: Option<RequirementId>) -> RequirementId {
        let rule = concurrency_rule(job);
        if let Some(id) = known
            && let Some(requirement) = self.requirements.get(id)
        {
            let same = match (&requirement.key.group, rule) {
                (None, None) => true,
                (Some(group), Some((rule, limit))) => *group.rule == *rule && group.limit == limit,
                (Some(_), None) | (None, Some(_)) => false,
            };
            if same {
                return id;
            }
            let mut key = (*requirement.key).clone();
            key.group = self.group(job, rule);
            let new = self.requirements.join_key(key);
            self.leave_requirement(id);
            return new;
        }
        // Written by this code, or validated when it was read.
        let requirements = decode_requirements(&job.spec).unwrap_or_default();
        let mut key = RequirementKey::new(job.executor, requirements);
        key.group = self.group(job, rule);
        self.requirements.join_key(key)
    }

    fn group(&self, job: &Job, rule: Option<(&str, u32)>) -> Option<ConcurrencyGroup> {
        let (rule, limit) = rule?;
        let tenant = self.tenant_of(job.queue);
        let scope = Scope::of_rule(LimitKind::Running, self.tenants.name(tenant), rule);
        Some(ConcurrencyGroup { tenant, rule: rule.into(), limit, scope })
    }

    /// Adds a job to its wait queue. `requirement` must be that of [`Ready::requirement_of`].
    pub fn insert(&mut self, job: &Job, requirement: RequirementId) {
        let Some(set_id) = self.candidate_set_of(requirement) else {
            return self.anomalies.note(Anomaly::MissingRequirement(requirement.index()), "insert");
        };
        let waiting =
            WaitingJob { tenant: self.tenant_of(job.queue), position: position(job), since: ready_since(job) };
        self.put(set_id, job.priority as usize, WaitQueueKey { requirement, queue: job.queue }, waiting);
        self.waiting[job.executor as usize] += 1;
        self.tenants.shift_waiting(waiting.tenant, true);
        if let Some(requirement) = self.requirements.get_mut(requirement) {
            requirement.waiting += 1;
        }
    }

    pub(crate) fn put(&mut self, set_id: CandidateSetId, class: usize, wait_queue: WaitQueueKey, waiting: WaitingJob) {
        let Some(candidate_set) = self.candidate_sets.get_mut(set_id.0 as usize).and_then(Option::as_mut) else {
            return self.anomalies.note(Anomaly::MissingCandidateSet(set_id.0), "put");
        };
        let ages = class != Priority::Critical as usize;
        candidate_set.classes[class].insert(wait_queue, waiting, ages, &mut self.tenants);
        candidate_set.waiting += 1;
        self.activate(set_id);
    }

    /// Removes a job from its wait queue, even if it was promoted.
    pub fn remove(&mut self, job: &Job, requirement: Option<RequirementId>) {
        let Some(requirement) = requirement else { return };
        let Some(set_id) = self.candidate_set_of(requirement) else {
            return self.anomalies.note(Anomaly::MissingRequirement(requirement.index()), "remove");
        };
        let Some(candidate_set) = self.candidate_sets.get_mut(set_id.0 as usize).and_then(Option::as_mut) else {
            return self.anomalies.note(Anomaly::MissingCandidateSet(set_id.0), "remove");
        };
        let (wait_queue, position) = (WaitQueueKey { requirement, queue: job.queue }, position(job));
        let own = candidate_set.classes[job.priority as usize].remove(wait_queue, position, &mut self.tenants);
        if own.is_none() {
            candidate_set.classes[Priority::Critical as usize].remove(wait_queue, position, &mut self.tenants);
        }
        candidate_set.waiting -= 1;
        self.count_out(requirement);
        self.leave_wait_queue(self.tenant_of(job.queue));
    }

    /// Counts a job that left its wait queue. A tenant without waiting jobs needs no slot any more.
    fn leave_wait_queue(&mut self, tenant: TenantNumber) {
        self.tenants.shift_waiting(tenant, false);
        if self.tenants.waiting(tenant) == 0 {
            self.unpark(&LimitKey::Tenant(tenant));
        }
    }

    fn count_out(&mut self, requirement: RequirementId) {
        if let Some(requirement) = self.requirements.get_mut(requirement) {
            requirement.waiting -= 1;
            self.waiting[requirement.key.executor as usize] -= 1;
        }
    }

    /// Marks a candidate set as active if it has waiting jobs and candidates.
    pub(crate) fn activate(&mut self, id: CandidateSetId) {
        let Some(candidate_set) = self.candidate_sets.get_mut(id.0 as usize).and_then(Option::as_mut) else {
            return self.anomalies.note(Anomaly::MissingCandidateSet(id.0), "activate");
        };
        if candidate_set.waiting > 0 && !candidate_set.candidates.is_empty() {
            self.rank(id, Some((0, StridePass(0))));
        }
    }

    /// Removes a candidate set from the active ones.
    pub(crate) fn deactivate(&mut self, id: CandidateSetId) {
        self.rank(id, None);
    }

    fn rank(&mut self, id: CandidateSetId, rank: Option<Rank>) {
        let Some(candidate_set) = self.candidate_sets.get_mut(id.0 as usize).and_then(Option::as_mut) else {
            return self.anomalies.note(Anomaly::MissingCandidateSet(id.0), "rank");
        };
        if candidate_set.active_rank == rank {
            return;
        }
        if let Some(old) = std::mem::replace(&mut candidate_set.active_rank, rank) {
            self.active.remove(&(old, id));
        }
        if let Some(new) = rank {
            self.active.insert((new, id));
        }
    }

    pub fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// The next job with a candidate. Wait queues at an exhausted limit are parked on the way.
    pub fn next(&mut self, now: Millis, queue_has_room: impl Fn(QueueId) -> bool) -> Option<NextJob> {
        while let Some((rank, set_id)) = self.active.first().copied() {
            let candidate_set = self.candidate_sets.get(set_id.0 as usize).and_then(Option::as_ref);
            let head = match candidate_set
                .is_some_and(|candidate_set| candidate_set.waiting > 0 && !candidate_set.candidates.is_empty())
            {
                true => self.head(set_id, now, &queue_has_room),
                false => None,
            };
            match head {
                None => self.rank(set_id, None),
                Some((true_rank, next)) if true_rank == rank => return Some(next),
                Some((true_rank, _)) => self.rank(set_id, Some(true_rank)),
            }
        }
        None
    }

    fn head(
        &mut self,
        id: CandidateSetId,
        now: Millis,
        queue_has_room: &impl Fn(QueueId) -> bool,
    ) -> Option<(Rank, NextJob)> {
        self.age(id, now);
        for class in 0..self.ages_after.len() {
            loop {
                let candidate_set = self.candidate_sets.get_mut(id.0 as usize)?.as_mut()?;
                let Some((pass, tenant, wait_queue)) = candidate_set.classes[class].first(&self.tenants) else { break };
                match self.exhausted_limit(tenant, wait_queue, queue_has_room) {
                    None => return Some(((class as u8, pass), NextJob { candidate_set: id, class, wait_queue })),
                    Some(limit_key) => self.park(limit_key, id, class, wait_queue),
                }
            }
        }
        None
    }

    /// The exhausted limit that blocks a wait queue, if any.
    pub(super) fn exhausted_limit(
        &self,
        tenant: TenantNumber,
        wait_queue: WaitQueueKey,
        queue_has_room: &impl Fn(QueueId) -> bool,
    ) -> Option<LimitKey> {
        if let Some(max) = self.tenants.max_running(tenant)
            && let Some(scopes) = self.tenants.scopes(tenant)
            && !self.leases.can_take(scopes.running, max)
        {
            return Some(LimitKey::Tenant(tenant));
        }
        if !queue_has_room(wait_queue.queue) {
            return Some(LimitKey::Queue(wait_queue.queue));
        }
        let group = self.requirements.get(wait_queue.requirement)?.key.group.as_ref()?;
        let is_exhausted = !self.leases.can_take(group.scope, group.limit);
        is_exhausted.then(|| LimitKey::ConcurrencyGroup(group.tenant, group.rule.clone()))
    }

    fn park(&mut self, limit_key: LimitKey, set_id: CandidateSetId, class: usize, wait_queue: WaitQueueKey) {
        let Some(candidate_set) = self.candidate_sets.get_mut(set_id.0 as usize).and_then(Option::as_mut) else {
            return self.anomalies.note(Anomaly::MissingCandidateSet(set_id.0), "park");
        };
        let wait_queue = match limit_key {
            LimitKey::Tenant(tenant) => {
                candidate_set.classes[class].park_tenant(tenant, &mut self.tenants);
                None
            }
            LimitKey::Queue(_) | LimitKey::ConcurrencyGroup(..) => {
                candidate_set.classes[class].park_wait_queue(wait_queue, &mut self.tenants);
                Some(wait_queue)
            }
        };
        self.await_slot(&limit_key, wait_queue);
        self.parked.entry(limit_key).or_default().insert(Parked { candidate_set: set_id, class, wait_queue });
    }

    /// Reports to the leases how many jobs wait for an exhausted limit.
    fn await_slot(&mut self, limit_key: &LimitKey, wait_queue: Option<WaitQueueKey>) {
        let (scope, limit, waiting) = match limit_key {
            LimitKey::Queue(_) => return,
            LimitKey::Tenant(tenant) => {
                let limits = self.tenants.max_running(*tenant).zip(self.tenants.scopes(*tenant));
                let Some((limit, scopes)) = limits else { return };
                (scopes.running, limit, self.tenants.waiting(*tenant))
            }
            LimitKey::ConcurrencyGroup(..) => {
                let requirement = wait_queue.and_then(|wait_queue| self.requirements.get(wait_queue.requirement));
                let Some((requirement, group)) =
                    requirement.and_then(|requirement| Some((requirement, requirement.key.group.as_ref()?)))
                else {
                    return;
                };
                (group.scope, group.limit, requirement.waiting)
            }
        };
        self.leases.set_waiting(scope, limit, waiting);
        self.awaited.insert(scope, (limit_key.clone(), limit));
    }

    /// Unparks the jobs whose slots have arrived or were freed. Returns freed scopes of other kinds.
    pub fn serve_freed(&mut self) -> Vec<Scope> {
        let mut others = Vec::new();
        for scope in self.leases.freed() {
            match self.awaited.get(&scope).map(|(limit_key, _)| limit_key.clone()) {
                Some(limit_key) => self.unpark(&limit_key),
                None => others.push(scope),
            }
        }
        others
    }

    /// Unparks all wait queues of a limit.
    pub(super) fn unpark(&mut self, limit_key: &LimitKey) {
        let Some(parked) = self.parked.remove(limit_key) else { return };
        self.stop_awaiting(limit_key);
        for Parked { candidate_set: id, class, wait_queue } in parked {
            let Some(candidate_set) = self.candidate_sets.get_mut(id.0 as usize).and_then(Option::as_mut) else {
                continue;
            };
            match (limit_key, wait_queue) {
                (LimitKey::Tenant(tenant), _) => candidate_set.classes[class].unpark_tenant(*tenant, &mut self.tenants),
                (LimitKey::Queue(_) | LimitKey::ConcurrencyGroup(..), Some(wait_queue)) => {
                    candidate_set.classes[class].unpark_wait_queue(wait_queue, &mut self.tenants)
                }
                (LimitKey::Queue(_) | LimitKey::ConcurrencyGroup(..), None) => false,
            };
            self.activate(id);
        }
    }

    fn stop_awaiting(&mut self, limit_key: &LimitKey) {
        let scope = match limit_key {
            LimitKey::Queue(_) => return,
            LimitKey::Tenant(tenant) => self.tenants.scopes(*tenant).map(|scopes| scopes.running),
            LimitKey::ConcurrencyGroup(tenant, rule) => {
                Some(Scope::of_rule(LimitKind::Running, self.tenants.name(*tenant), rule))
            }
        };
        if let Some(scope) = scope
            && let Some((_, limit)) = self.awaited.remove(&scope)
        {
            self.leases.set_waiting(scope, limit, 0);
        }
    }

    /// Updates counts and leases when a job starts or ends on a runner.
    pub fn shift_running(&mut self, job: &Job, starts: bool) {
        self.count_running(job, starts);
        let tenant = self.tenant_of(job.queue);
        if let Some((limit, scopes)) = self.tenants.max_running(tenant).zip(self.tenants.scopes(tenant)) {
            self.shift_lease(scopes.running, limit, starts);
            if !starts {
                self.unpark(&LimitKey::Tenant(tenant));
            }
        }
        if let Some((rule, limit)) = concurrency_rule(job) {
            let scope = Scope::of_rule(LimitKind::Running, self.tenants.name(tenant), rule);
            self.shift_lease(scope, limit, starts);
            if !starts {
                self.unpark(&LimitKey::ConcurrencyGroup(tenant, rule.into()));
            }
        }
    }

    /// Counts a job that starts or ends on a runner, or was restored on one.
    pub fn count_running(&mut self, job: &Job, starts: bool) {
        let tenant = self.tenant_of(job.queue);
        self.tenants.shift_running(tenant, starts);
        if let Some((rule, _)) = concurrency_rule(job) {
            let running = self.groups.entry((tenant, rule.into())).or_default();
            *running = if starts { *running + 1 } else { running.saturating_sub(1) };
            if *running == 0 {
                self.groups.remove(&(tenant, Box::from(rule)));
            }
        }
    }

    fn shift_lease(&mut self, scope: Scope, limit: u32, starts: bool) {
        if starts {
            let taken = self.leases.take(scope, limit);
            debug_assert!(taken, "a job was dispatched beyond an exhausted limit");
        } else {
            self.leases.give_back(scope);
        }
    }

    /// Restores the use of a tenant's leases from the records: after a start, and when a tenant gets its first limit.
    pub fn restore_leases(&mut self, tenant: TenantNumber, live: u32) {
        let Some(scopes) = self.tenants.scopes(tenant) else { return };
        let limits = self.tenants.limits(tenant);
        if limits.max_running.is_some() {
            self.leases.restore_use(scopes.running, self.tenants.on_runner(tenant));
        }
        if limits.max_live.is_some() {
            self.leases.restore_use(scopes.live, live);
        }
    }

    /// Slots in use of a tenant's limit of live jobs, if it has one.
    pub fn live_slots_in_use(&self, tenant: TenantNumber) -> Option<u32> {
        self.tenants.limits(tenant).max_live?;
        Some(self.leases.used(self.tenants.scopes(tenant)?.live))
    }

    /// The same for concurrency groups.
    pub fn restore_group_leases(&mut self) {
        for ((tenant, rule), running) in &self.groups {
            let scope = Scope::of_rule(LimitKind::Running, self.tenants.name(*tenant), rule);
            self.leases.restore_use(scope, *running);
        }
    }

    /// Takes the job returned by [`Ready::next`] out of its wait queue and charges its tenant.
    pub fn take(&mut self, next: NextJob) -> Option<JobId> {
        let candidate_set = self.candidate_sets.get_mut(next.candidate_set.0 as usize)?.as_mut()?;
        let tenant = candidate_set.classes[next.class].wait_queue(next.wait_queue)?.tenant;
        let id = candidate_set.classes[next.class].take(next.wait_queue, &mut self.tenants)?;
        candidate_set.waiting -= 1;
        self.tenants.charge(tenant);
        self.count_out(next.wait_queue.requirement);
        self.leave_wait_queue(tenant);
        Some(id)
    }

    /// The job that [`Ready::take`] would return.
    pub fn peek(&self, next: NextJob) -> Option<JobId> {
        let wait_queue = self.candidate_set(next.candidate_set)?.classes[next.class].wait_queue(next.wait_queue)?;
        wait_queue.entries.first_key_value().map(|(position, _)| position.1)
    }

    /// Promotes long-waiting jobs to critical; each job at most once.
    fn age(&mut self, id: CandidateSetId, now: Millis) {
        let Some(candidate_set) = self.candidate_sets.get_mut(id.0 as usize).and_then(Option::as_mut) else {
            return self.anomalies.note(Anomaly::MissingCandidateSet(id.0), "age");
        };
        let [critical, rest @ ..] = &mut candidate_set.classes;
        for (class, after) in rest.iter_mut().zip(&self.ages_after[1..]) {
            while let Some((wait_queue, waiting)) = class.pop_aged(now, *after, &mut self.tenants) {
                critical.insert(wait_queue, waiting, false, &mut self.tenants);
            }
        }
    }

    pub fn candidate_set(&self, id: CandidateSetId) -> Option<&CandidateSet> {
        self.candidate_sets.get(id.0 as usize)?.as_ref()
    }
}
