//! Requirements of jobs on runners. Equal requirements are interned and exist as long as one of their jobs.

use std::num::NonZeroU32;
use std::sync::Arc;

use model::id::RunnerId;
use model::job::Job;
use model::spec::{ExecutorKind, Requirements};

use crate::leases::Scope;
use crate::placement::candidate_set::CandidateSetId;
use crate::placement::tenants::TenantNumber;
use crate::settings::Settings;
use crate::shard::Map;
use crate::stats::{TopicCounters, TopicNumber};

/// Non-zero, so that an `Option` of it needs no extra memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RequirementId(NonZeroU32);

impl RequirementId {
    fn of(index: usize) -> Self {
        Self(NonZeroU32::MIN.saturating_add(index as u32))
    }

    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// The jobs of a tenant that one policy rule has allowed with a concurrency limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ConcurrencyGroup {
    pub tenant: TenantNumber,
    pub rule: Box<str>,
    pub limit: u32,
    pub scope: Scope,
}

/// The policy rule that limits the concurrency of such jobs, and its limit.
pub(crate) fn concurrency_rule(job: &Job) -> Option<(&str, u32)> {
    let limit = job.constraints.as_ref()?.max_concurrent?;
    Some((job.last_decision().map_or("", |decision| decision.rule.as_str()), limit))
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RequirementKey {
    pub executor: ExecutorKind,
    pub topic: String,
    pub pool: Option<String>,
    pub requires: Vec<String>,
    pub labels: Vec<(String, String)>,
    pub preferred_runner: Option<RunnerId>,
    pub group: Option<ConcurrencyGroup>,
}

impl RequirementKey {
    pub fn new(executor: ExecutorKind, requirements: Requirements) -> Self {
        let Requirements { topic, requires, labels, pool, preferred_runner } = requirements;
        // A malformed id cannot name a runner.
        let preferred_runner = preferred_runner.and_then(|text| text.parse().ok());
        Self { executor, topic, pool, requires, labels, preferred_runner, group: None }
    }

    fn is_plain(&self, executor: ExecutorKind, requirements: &Requirements) -> bool {
        let bare = self.pool.is_none()
            && self.requires.is_empty()
            && self.labels.is_empty()
            && self.preferred_runner.is_none();
        let plain_requirements = requirements.pool.is_none()
            && requirements.requires.is_empty()
            && requirements.labels.is_empty()
            && requirements.preferred_runner.is_none();
        bare && plain_requirements
            && self.group.is_none()
            && self.executor == executor
            && self.topic == requirements.topic
    }

    /// The pools whose runners are eligible; empty if the topic is not mapped to any.
    pub fn pools(&self, settings: &Settings) -> Vec<String> {
        let Some(topic) = settings.topic(&self.topic) else { return Vec::new() };
        match &self.pool {
            Some(pool) => topic.pools.get(pool).cloned().into_iter().collect(),
            None => topic.pools.iter().cloned().collect(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Requirement {
    pub key: Arc<RequirementKey>,
    /// Jobs that have not ended.
    jobs: u32,
    /// Jobs in a wait queue.
    pub waiting: u32,
    /// Their candidate set, with its generation: it may have been evicted and its id reused.
    pub candidate_set: Option<(CandidateSetId, u32)>,
    /// The counters of its topic.
    topic: TopicNumber,
}

/// The requirements of all jobs that have not ended.
#[derive(Debug, Default)]
pub(crate) struct RequirementTable {
    list: Vec<Option<Requirement>>,
    free: Vec<usize>,
    by_key: Map<Arc<RequirementKey>, RequirementId>,
    /// Most jobs have the same requirement as the one before.
    last: Option<RequirementId>,
    pub topics: TopicCounters,
}

impl RequirementTable {
    pub fn get(&self, id: RequirementId) -> Option<&Requirement> {
        self.list.get(id.index())?.as_ref()
    }

    pub fn get_mut(&mut self, id: RequirementId) -> Option<&mut Requirement> {
        self.list.get_mut(id.index())?.as_mut()
    }

    pub fn ids(&self) -> Vec<RequirementId> {
        let used = self.list.iter().enumerate().filter(|(_, requirement)| requirement.is_some());
        used.map(|(index, _)| RequirementId::of(index)).collect()
    }

    /// The topic counters of a job, with or without a known requirement.
    pub fn topic_of(&mut self, requirement: Option<RequirementId>, job: &Job) -> TopicNumber {
        match requirement.and_then(|requirement| self.get(requirement)) {
            Some(requirement) => requirement.topic,
            None => self.topics.number_of(job),
        }
    }

    /// Adds a job to its requirement.
    pub fn join(&mut self, executor: ExecutorKind, requirements: Requirements) -> RequirementId {
        if let Some(last) = self.last
            && let Some(requirement) = self.get_mut(last)
            && requirement.key.is_plain(executor, &requirements)
        {
            requirement.jobs += 1;
            return last;
        }
        self.join_key(RequirementKey::new(executor, requirements))
    }

    pub fn join_key(&mut self, key: RequirementKey) -> RequirementId {
        let id = match self.by_key.get(&key) {
            Some(id) => *id,
            None => self.add(Arc::new(key)),
        };
        if let Some(requirement) = self.get_mut(id) {
            requirement.jobs += 1;
        }
        self.last = Some(id);
        id
    }

    fn add(&mut self, key: Arc<RequirementKey>) -> RequirementId {
        let index = self.free.pop().unwrap_or(self.list.len());
        if index == self.list.len() {
            self.list.push(None);
        }
        let topic = self.topics.acquire(&key.topic);
        self.list[index] = Some(Requirement { key: key.clone(), jobs: 0, waiting: 0, candidate_set: None, topic });
        self.by_key.insert(key, RequirementId::of(index));
        RequirementId::of(index)
    }

    /// Removes a job that has ended or has another requirement now. False: there is no such requirement.
    pub fn leave(&mut self, id: RequirementId) -> bool {
        let Some(requirement) = self.get_mut(id) else { return false };
        requirement.jobs -= 1;
        if requirement.jobs == 0 {
            let (key, topic) = (requirement.key.clone(), requirement.topic);
            self.topics.release(&key.topic, topic);
            self.by_key.remove(&key);
            self.list[id.index()] = None;
            self.free.push(id.index());
        }
        true
    }
}
