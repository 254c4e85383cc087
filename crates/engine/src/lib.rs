//! The scheduler shard as a pure state machine.
//!
//! No I/O, no clock, no randomness, no async. The shell around it repeats these steps:
//!
//! 1. [`Shard::handle`] for each waiting input: changes memory and collects effects;
//! 2. [`Shard::flush`]: encodes every changed record into the step's one batch;
//! 3. the durable commit of that batch, fenced by the shard's epoch;
//! 4. only then the step's effects: answers, messages to runners, policy checks, fetches.
//!
//! After a failed commit the shard's memory is ahead of the disk and must be discarded. A new shard is rebuilt from the
//! records ([`Shard::new`], `restore_*`, [`Shard::resume`]). Every effect can be derived from the records, so effects
//! that were lost after their commit are issued again.

mod adopt;
mod anomaly;
mod audit;
mod backlog;
mod claims;
mod config;
mod exclusive;
mod fetch;
mod flush;
mod health;
mod ids;
mod input;
mod jitter;
mod jobs;
mod keys;
pub mod leases;
mod names;
mod operations;
mod output;
mod peers;
mod placement;
mod policy;
mod queues;
mod recount;
mod rehydrate;
mod rejected;
mod retention;
mod runners;
mod settings;
mod shard;
mod stats;
mod step;
mod submit;
mod tenancy;
mod timers;
mod workflows;

pub use adopt::{abandoned_message, drained_message};
pub use anomaly::Anomaly;
pub use claims::ClaimId;
pub use config::{Config, EXCLUSIVE_LEASE_DEFAULT, EXCLUSIVE_LEASE_MIN, INPUT_BYTES_MAX, KEY_LIFETIME_MAX};
pub use fetch::{Fetch, Fetched, OldAuditEntry, StoredWorkflow};
pub use health::{FailingRule, FailingRunner, RunnerHealth, failing_runners};
pub use input::{
    Accepted, Actor, Answer, ApprovalDecision, Effect, Input, NewQueue, NewSchedule, NewWorkflow, Refusal, RequestId,
    SignRequest, Submission,
};
pub use peers::PeerMessage;
pub use placement::why::{RUNNERS_EXPLAINED_MAX, RunnerVerdict, RunnerWhy, WaitsFor, Why, WhyCounts};
pub use recount::Miscount;
pub use settings::{
    DEFAULT_POOL, DISPATCH_TRIES_DEFAULT, FailMode, OutputRules, PolicyMode, Pool, Settings, TenantLimits, Topic,
};
pub use shard::Shard;
pub use stats::{
    DURATION_BOUNDS, DurationHistogram, OTHER_TOPICS, OUTPUT_VERDICTS, Stats, TOPICS_NAMED_MAX, TopicCounts,
    TopicStats, UNPLACED_REASONS, VERDICTS,
};
pub use step::{Ended, Step};
pub use workflows::{WorkflowStats, find_unused_definitions};
