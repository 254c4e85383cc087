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
mod backlog;
mod config;
mod dispatch;
mod fetch;
mod flush;
mod input;
mod keys;
mod operate;
mod policy;
mod queues;
mod ready;
mod recount;
mod rehydrate;
mod remove;
mod retention;
mod runners;
mod shard;
mod spread;
mod step;
mod submit;
mod timers;
mod transition;

pub use config::{Config, PolicyMode};
pub use fetch::{Fetch, Fetched};
pub use input::{Accepted, Answer, Effect, Input, NewQueue, Refusal, RequestId, Submission};
pub use recount::Miscount;
pub use shard::{Shard, Stats};
pub use step::{Ended, Step};
