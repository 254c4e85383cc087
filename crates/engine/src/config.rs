//! Static configuration of a shard.

use model::id::{ShardId, Shards};
use model::machine::Backoff;
use model::time::Millis;

/// Keys are stored by day and looked up under today and yesterday, so a key cannot count for longer than a day.
pub const KEY_LIFETIME_MAX: Millis = Millis(24 * 3_600 * 1_000);

/// Default of [`Config::exclusive_lease`].
pub const EXCLUSIVE_LEASE_DEFAULT: Millis = Millis::from_secs(15);

/// Shortest lease: several heartbeats, so that one lost message ends nothing.
pub const EXCLUSIVE_LEASE_MIN: Millis = Millis::from_secs(5);

/// Time for a runner to kill an attempt whose lease has run out.
const KILL_TIME: Millis = Millis::from_secs(5);

/// How long after the shard last heard the runner an exclusive attempt counts as ended: its lease, the time to kill it,
/// and a tenth of the lease for clocks of different speed.
pub(crate) fn exclusive_wait(lease: Millis) -> Millis {
    Millis(lease.0 + lease.0 / 10) + KILL_TIME
}

/// Upper bound of what one input writes, in bytes: the largest batch of jobs, with their indexes and events. A commit
/// exceeds the limit of its round by at most this.
pub const INPUT_BYTES_MAX: usize = 80 << 20;

/// Limits and intervals of a shard. Fixed for its lifetime, unlike [`crate::Settings`].
#[derive(Debug, Clone, Copy)]
pub struct Config {
    pub shard: ShardId,
    pub shards: Shards,
    /// Maximum number of live jobs. Beyond it submissions are refused with `retry_after`.
    pub live_jobs_max: usize,
    /// Maximum number of queues.
    pub queues_max: usize,
    /// Maximum number of live workflows, including sub-workflows.
    pub workflows_max: usize,
    pub schedules_max: usize,
    /// Maximum number of missed slots that a schedule catches up on.
    pub catch_up_max: usize,
    /// Backoff between a failed attempt and the next one.
    pub retry_backoff: Backoff,
    /// How many rejected messages are kept; the oldest are deleted first.
    pub rejected_messages_max: usize,
    /// Maximum time between dispatch and the report that the attempt was accepted or started.
    pub dispatch_timeout: Millis,
    /// Maximum time between the acceptance of an attempt and the report that its program started: inputs are fetched
    /// meanwhile.
    pub setup_timeout: Millis,
    /// Maximum time for a runner to confirm a stop.
    pub stop_timeout: Millis,
    /// After a restart of the shard, a runner that is not heard for this time is lost, with its attempts in flight.
    pub runner_grace: Millis,
    /// Lease of the attempts of exclusive jobs: their runner kills them this long after the shard last heard the runner.
    pub exclusive_lease: Millis,
    /// A runner is forgotten after this time without a message, if nothing waits for it.
    pub runner_expiry: Millis,
    /// An interactive job that waits this long is promoted to critical.
    pub interactive_ages_after: Millis,
    /// A batch job that waits this long is promoted to critical.
    pub batch_ages_after: Millis,
    /// An explicitly created queue expires after this time without live jobs.
    pub queue_idle_expiry: Millis,
    /// How long a job waits for an approval.
    pub approval_expiry: Millis,
    /// Upper bound on the runtime of every attempt, whatever its job allows.
    pub runtime_max: Option<Millis>,
    /// How long terminal jobs stay on record.
    pub retention: Millis,
    /// The same for jobs with a dead letter, if it is longer.
    pub dead_letter_retention: Millis,
    /// How long entries of the audit log stay on record. Absent: for ever.
    pub audit_retention: Option<Millis>,
    /// Key of the delay jitter. The shell fills it from the system's random source, so that delays are unpredictable.
    pub jitter_key: [u8; 32],
    /// Interval of the sweep over terminal jobs, old idempotency keys and old entries of the audit log.
    pub sweep_interval: Millis,
    /// Records per sweep chunk; bounds the size of its commit.
    pub sweep_chunk: usize,
    /// Jobs of a cancelled queue that are cancelled in one step.
    pub cancel_chunk: usize,
    /// Approximate number of bytes that one step writes. The rest continues in the next step.
    pub step_bytes_max: usize,
    /// Maximum number of timers that fire in one step.
    pub timers_per_step: usize,
    /// How long an idempotency key counts, at most [`KEY_LIFETIME_MAX`].
    pub key_lifetime: Millis,
    pub keys_per_tenant_max: u64,
    /// Delay suggested to clients when a limit is reached.
    pub retry_after: Millis,
}

impl Config {
    /// Panics on an invalid configuration.
    pub(crate) fn validate(&self) {
        assert!(
            self.key_lifetime <= KEY_LIFETIME_MAX,
            "idempotency keys are looked up under two days: a lifetime of more than a day would miss some"
        );
        let leases = EXCLUSIVE_LEASE_MIN..=model::limits::LEASE_MAX;
        assert!(
            leases.contains(&self.exclusive_lease),
            "a lease must last for several heartbeats, and an hour at most"
        );
    }

    /// How long a runner may take a dispatch. Shorter than the time after which the shard gives the attempt up, so that
    /// no attempt starts later than that, however late its dispatch arrives. The rest allows for clocks that drift.
    pub fn dispatch_valid_for(&self) -> Millis {
        Millis(self.dispatch_timeout.min(self.stop_timeout).0 / 4 * 3)
    }

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
            rejected_messages_max: 1_000,
            dispatch_timeout: Millis::from_secs(60),
            setup_timeout: Millis::from_secs(15 * 60),
            stop_timeout: Millis::from_secs(60),
            runner_grace: Millis::from_secs(120),
            exclusive_lease: EXCLUSIVE_LEASE_DEFAULT,
            runner_expiry: Millis::from_secs(24 * 3600),
            interactive_ages_after: Millis::from_secs(30),
            batch_ages_after: Millis::from_secs(120),
            queue_idle_expiry: Millis::from_secs(15 * 60),
            approval_expiry: Millis::from_secs(7 * 24 * 3600),
            runtime_max: None,
            retention: Millis::from_secs(7 * 24 * 3600),
            dead_letter_retention: Millis::from_secs(30 * 24 * 3600),
            audit_retention: Some(Millis::from_secs(400 * 24 * 3600)),
            jitter_key: [0; 32],
            sweep_interval: Millis::from_secs(60),
            sweep_chunk: 200,
            cancel_chunk: 1_000,
            step_bytes_max: 4 << 20,
            timers_per_step: 10_000,
            key_lifetime: KEY_LIFETIME_MAX,
            keys_per_tenant_max: 10_000_000,
            retry_after: Millis::from_secs(1),
        }
    }
}
