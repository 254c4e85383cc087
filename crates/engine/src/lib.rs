//! The scheduler shard as a pure state machine.
//!
//! No I/O, no clock, no randomness, no async. The shell around it does, over and over:
//!
//! 1. [`Shard::handle`] for each waiting input: decides, changes memory, collects effects;
//! 2. [`Shard::flush`]: encodes every changed record into the step's one batch;
//! 3. commit of that batch, durably and fenced by the shard's epoch;
//! 4. only then the step's effects: answers, words to runners, questions to the policy, fetches.
//!
//! When the commit fails, this shard's memory is ahead of the disk and must be thrown away: a new
//! one is made from the records ([`Shard::new`], `restore_*`, [`Shard::resume`]). Every effect can
//! be derived from the records again, so one that was lost between commit and doing is made up for.

mod adopt;
mod audit;
mod backlog;
mod config;
mod dispatch;
mod fetch;
mod flows;
mod flush;
mod input;
mod jitter;
mod keys;
pub mod leases;
mod operate;
mod output;
mod parked;
mod placement;
mod policy;
mod queues;
mod ready;
mod recount;
mod rehydrate;
mod remove;
mod retention;
mod runners;
mod setup;
mod shard;
mod spread;
mod stats;
mod step;
mod submit;
mod tenancy;
mod timers;
mod transition;

pub use config::Config;
pub use fetch::{Fetch, Fetched, StoredWorkflow};
pub use flows::FlowStats;
pub use input::{
    Accepted, Actor, Answer, Effect, Input, NewQueue, NewSchedule, NewWorkflow, Refusal, RequestId, Submission, Word,
};
pub use placement::why::{RUNNERS_EXPLAINED_MAX, RunnerVerdict, RunnerWhy, WaitsFor, Why, WhyCounts};
pub use recount::Miscount;
pub use setup::{DEFAULT_POOL, DISPATCH_TRIES_DEFAULT, FailMode, Gate, OutputRules, Pool, Setup, TenantLimits, Topic};
pub use shard::Shard;
pub use stats::{
    OTHER_TOPICS, OUTPUT_VERDICTS, SPAN_BOUNDS, Spans, Stats, TOPICS_NAMED_MAX, TopicCounts, Topics, UNPLACED_REASONS,
    VERDICTS,
};
pub use step::{Ended, Step};
