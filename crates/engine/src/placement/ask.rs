//! What jobs ask of a runner. Jobs that ask for the same share one ask, which lives as long as one of them does.

use std::num::NonZeroU32;
use std::sync::Arc;

use model::id::RunnerId;
use model::job::Job;
use model::spec::{Lane, Wants};

use crate::leases::Scope;
use crate::placement::fit::FitId;
use crate::placement::tenants::TenantNumber;
use crate::setup::Setup;
use crate::shard::Map;
use crate::stats::{TopicBook, TopicNumber};

/// Not zero, so that a job that has none yet needs no more memory for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AskId(NonZeroU32);

impl AskId {
    fn of(index: usize) -> Self {
        Self(NonZeroU32::MIN.saturating_add(index as u32))
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// The jobs of a tenant that one rule of the policy has allowed, and of which only so many may be with runners.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Group {
    pub tenant: TenantNumber,
    pub rule: Box<str>,
    pub limit: u32,
    pub scope: Scope,
}

/// The rule that limits how many jobs like this one may run at once, and to how many.
pub(crate) fn concurrency_rule(job: &Job) -> Option<(&str, u32)> {
    let limit = job.constraints.as_ref()?.max_concurrent?;
    Some((job.last_decision().map_or("", |decision| decision.rule.as_str()), limit))
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct AskKey {
    pub lane: Lane,
    pub topic: String,
    pub pool: Option<String>,
    pub requires: Vec<String>,
    pub labels: Vec<(String, String)>,
    /// The runner that gets it if it can.
    pub worker: Option<RunnerId>,
    pub group: Option<Group>,
}

impl AskKey {
    pub fn new(lane: Lane, wants: Wants) -> Self {
        let Wants { topic, requires, labels, pool, worker } = wants;
        // What is no id names no runner there can be.
        let worker = worker.and_then(|text| text.parse().ok());
        Self { lane, topic, pool, requires, labels, worker, group: None }
    }

    fn is_plain(&self, lane: Lane, wants: &Wants) -> bool {
        let bare = self.pool.is_none() && self.requires.is_empty() && self.labels.is_empty() && self.worker.is_none();
        let wants_bare =
            wants.pool.is_none() && wants.requires.is_empty() && wants.labels.is_empty() && wants.worker.is_none();
        bare && wants_bare && self.group.is_none() && self.lane == lane && self.topic == wants.topic
    }

    /// The pools whose runners may have it; none where its topic is not given to any.
    pub fn pools(&self, setup: &Setup) -> Vec<String> {
        let Some(topic) = setup.topic(&self.topic) else { return Vec::new() };
        match &self.pool {
            Some(pool) => topic.pools.get(pool).cloned().into_iter().collect(),
            None => topic.pools.iter().cloned().collect(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Ask {
    pub key: Arc<AskKey>,
    /// Jobs that have not ended.
    jobs: u32,
    /// Those of them that wait.
    pub waiting: u32,
    /// Where they wait. One that has not been used for long may be gone, and its number be another's.
    pub fit: Option<(FitId, u32)>,
    /// Where its jobs are counted.
    topic: TopicNumber,
}

/// All asks of jobs that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    list: Vec<Option<Ask>>,
    free: Vec<usize>,
    by_key: Map<Arc<AskKey>, AskId>,
    /// Most jobs ask for what the one before them did.
    last: Option<AskId>,
    pub topics: TopicBook,
}

impl Asks {
    pub fn get(&self, id: AskId) -> Option<&Ask> {
        self.list.get(id.index())?.as_ref()
    }

    pub fn get_mut(&mut self, id: AskId) -> Option<&mut Ask> {
        self.list.get_mut(id.index())?.as_mut()
    }

    pub fn ids(&self) -> Vec<AskId> {
        let used = self.list.iter().enumerate().filter(|(_, ask)| ask.is_some());
        used.map(|(index, _)| AskId::of(index)).collect()
    }

    /// Where a job is counted, whether or not its ask is known.
    pub fn topic_of(&mut self, ask: Option<AskId>, job: &Job) -> TopicNumber {
        match ask.and_then(|ask| self.get(ask)) {
            Some(ask) => ask.topic,
            None => self.topics.number_of(job),
        }
    }

    /// One more job asks for this.
    pub fn join(&mut self, lane: Lane, wants: Wants) -> AskId {
        if let Some(last) = self.last
            && let Some(ask) = self.get_mut(last)
            && ask.key.is_plain(lane, &wants)
        {
            ask.jobs += 1;
            return last;
        }
        self.join_key(AskKey::new(lane, wants))
    }

    pub fn join_key(&mut self, key: AskKey) -> AskId {
        let id = match self.by_key.get(&key) {
            Some(id) => *id,
            None => self.add(Arc::new(key)),
        };
        if let Some(ask) = self.get_mut(id) {
            ask.jobs += 1;
        }
        self.last = Some(id);
        id
    }

    fn add(&mut self, key: Arc<AskKey>) -> AskId {
        let index = self.free.pop().unwrap_or(self.list.len());
        if index == self.list.len() {
            self.list.push(None);
        }
        let topic = self.topics.number(&key.topic);
        self.list[index] = Some(Ask { key: key.clone(), jobs: 0, waiting: 0, fit: None, topic });
        self.by_key.insert(key, AskId::of(index));
        AskId::of(index)
    }

    /// One of its jobs has ended, or asks for something else now.
    pub fn leave(&mut self, id: AskId) {
        let Some(ask) = self.get_mut(id) else { return };
        ask.jobs -= 1;
        if ask.jobs == 0 {
            let key = ask.key.clone();
            self.by_key.remove(&key);
            self.list[id.index()] = None;
            self.free.push(id.index());
        }
    }
}
