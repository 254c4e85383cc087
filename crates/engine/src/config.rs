//! What a shard is told at its birth. Every limit has a name, a unit and a default.

use model::id::{ShardId, Shards};
use model::machine::Backoff;
use model::time::Millis;

/// A shard's settings.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    pub shard: ShardId,
    pub shards: Shards,
    /// How many jobs that are not terminal the shard holds; beyond it submits are told to come back.
    pub live_jobs_max: usize,
    /// How many queues it holds.
    pub queues_max: usize,
    /// How many workflows it holds that have not ended, with those that are part of them.
    pub workflows_max: usize,
    pub schedules_max: usize,
    /// Of slots that a schedule has missed, so many are made up for at the most.
    pub catch_up_max: usize,
    /// Between an error and the next try.
    pub retry_backoff: Backoff,
    /// Of words of runners that could not be taken so many are kept, the newest.
    pub parked_words_max: usize,
    /// How long a runner may keep a job without saying that it started it.
    pub dispatch_timeout: Millis,
    /// How long a runner may take to confirm a stop.
    pub stop_timeout: Millis,
    /// After waiting this long an interactive job counts as critical.
    pub interactive_ages_after: Millis,
    /// After waiting this long a batch job counts as critical.
    pub batch_ages_after: Millis,
    /// A queue made by hand goes away after this long without a job that is not terminal.
    pub queue_idle_expiry: Millis,
    /// How long a job waits for a person's word.
    pub approval_expiry: Millis,
    /// No attempt may run longer than this, whatever its job says.
    pub runtime_max: Option<Millis>,
    /// How long finished jobs are kept.
    pub retention: Millis,
    /// The same for those that left a dead letter, if that is longer.
    pub dead_letter_retention: Millis,
    /// Makes the spread of delays unpredictable. The shell fills it from the system's source of randomness.
    pub jitter_key: [u8; 32],
    /// How often finished jobs and old keys are looked through.
    pub sweep_interval: Millis,
    /// How many records one look takes, so that no commit gets large.
    pub sweep_chunk: usize,
    /// How many jobs of a cancelled queue are cancelled in one step.
    pub cancel_chunk: usize,
    /// How much one step writes, roughly. What does not fit goes on in the next one: no commit gets giant.
    pub step_bytes_max: usize,
    /// How many timers fire in one step.
    pub timers_per_step: usize,
    pub key_lifetime: Millis,
    pub keys_per_tenant_max: u64,
    /// What a full shard tells clients to wait.
    pub retry_after: Millis,
}

impl Config {
    pub fn new(shard: ShardId, shards: Shards) -> Self {
        Self {
            shard,
            shards,
            live_jobs_max: 2_000_000,
            queues_max: 100_000,
            workflows_max: 1_000_000,
            schedules_max: 10_000,
            catch_up_max: 1_000,
            retry_backoff: Backoff { first: Millis::from_secs(1), longest: Millis::from_secs(30) },
            parked_words_max: 1_000,
            dispatch_timeout: Millis::from_secs(60),
            stop_timeout: Millis::from_secs(60),
            interactive_ages_after: Millis::from_secs(30),
            batch_ages_after: Millis::from_secs(120),
            queue_idle_expiry: Millis::from_secs(15 * 60),
            approval_expiry: Millis::from_secs(7 * 24 * 3600),
            runtime_max: None,
            retention: Millis::from_secs(7 * 24 * 3600),
            dead_letter_retention: Millis::from_secs(30 * 24 * 3600),
            jitter_key: [0; 32],
            sweep_interval: Millis::from_secs(60),
            sweep_chunk: 200,
            cancel_chunk: 1_000,
            step_bytes_max: 4 << 20,
            timers_per_step: 10_000,
            key_lifetime: Millis::from_secs(24 * 3600),
            keys_per_tenant_max: 10_000_000,
            retry_after: Millis::from_secs(1),
        }
    }
}
