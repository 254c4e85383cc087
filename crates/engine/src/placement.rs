//! Placement: chooses a runner for each job.
//!
//! A job's demands on a runner are a [`requirement`]; equal requirements are interned. Requirements that the same
//! runners satisfy share a [`candidate_set`]: those runners ordered by load, and the jobs waiting for one of them in
//! [`wait_queue`]s. Everything is updated incrementally, so that neither a job nor a runner is compared with all of the
//! others. All of it is derived from records and runner messages, and can be rebuilt.

pub(crate) mod attributes;
pub(crate) mod candidate_set;
mod dispatch;
pub(crate) mod matching;
mod ready;
mod recount;
pub(crate) mod requirement;
pub(crate) mod runner_class;
pub(crate) mod runner_list;
pub(crate) mod settings;
mod spread;
pub(crate) mod tenants;
pub(crate) mod unplaced;
pub(crate) mod wait_queue;
pub(crate) mod why;

use std::collections::BTreeSet;
use std::sync::Arc;

use model::id::QueueId;
use model::spec::ExecutorKind;
use model::time::Millis;

use crate::leases::{Leases, Scope};
use crate::settings::Settings;
use crate::shard::Map;
use attributes::{AttributeIndex, RunnerIndex};
use candidate_set::{CandidateSet, CandidateSetId, CandidateSetKey, Rank};
use matching::PlacementRunner;
use requirement::RequirementTable;
use runner_class::RunnerClasses;
pub(crate) use tenants::TenantNumber;
use tenants::Tenants;
use wait_queue::WaitQueueKey;

/// A limit that can be exhausted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum LimitKey {
    Queue(QueueId),
    Tenant(TenantNumber),
    /// The jobs of a tenant that one rule of the policy limits.
    ConcurrencyGroup(TenantNumber, Box<str>),
}

/// Jobs parked at an exhausted limit: one wait queue, or all wait queues of the tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Parked {
    candidate_set: CandidateSetId,
    class: usize,
    wait_queue: Option<WaitQueueKey>,
}

/// The next job to dispatch: the first of this wait queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextJob {
    pub candidate_set: CandidateSetId,
    pub class: usize,
    pub wait_queue: WaitQueueKey,
}

/// The ready queue: all jobs waiting for a runner, and all runners as far as placement is concerned.
#[derive(Debug)]
pub(crate) struct Ready {
    settings: Arc<Settings>,
    requirements: RequirementTable,
    candidate_sets: Vec<Option<CandidateSet>>,
    free_set_ids: Vec<u32>,
    set_by_key: Map<Arc<CandidateSetKey>, CandidateSetId>,
    sets_by_attribute: AttributeIndex<CandidateSetId>,
    runners_by_attribute: AttributeIndex<RunnerIndex>,
    runner_classes: RunnerClasses,
    runners: Vec<PlacementRunner>,
    /// Number of connected runners.
    connected: u32,
    /// Attempts in flight on all runners.
    in_flight: [u32; ExecutorKind::ALL.len()],
    tenants: Tenants,
    /// Limits of tenants and rules, over all shards.
    leases: Leases,
    /// Leases that parked jobs wait for, and the limit of each.
    awaited: Map<Scope, (LimitKey, u32)>,
    next_generation: u32,
    /// The candidate set checked next for eviction.
    eviction_cursor: usize,
    /// Candidate sets without an eligible runner, some of whose jobs have no retry timer yet.
    unarmed_sets: BTreeSet<CandidateSetId>,
    tenant_of: Map<QueueId, TenantNumber>,
    /// Running jobs of each concurrency group.
    groups: Map<(TenantNumber, Box<str>), u32>,
    parked: Map<LimitKey, BTreeSet<Parked>>,
    /// Candidate sets with waiting jobs and free slots, the most urgent first. A stale rank is too urgent and corrected
    /// when it comes up.
    active: BTreeSet<(Rank, CandidateSetId)>,
    waiting: [usize; ExecutorKind::ALL.len()],
    ages_after: [Millis; 3],
    anomalies: crate::anomaly::Anomalies,
}
