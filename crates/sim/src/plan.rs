//! What a seed draws before it begins: topology, workload and fault rates. Many rates are zero in many seeds, so
//! that each fault is also seen without the noise of the others.

use std::collections::BTreeMap;

use engine::{Config, TenantLimits};
use model::id::{ShardId, Shards};
use model::machine::Backoff;
use model::time::Millis;

use crate::definitions::{self, Shape};
use crate::rng::{Rate, Rng};

/// Virtual milliseconds since the beginning.
pub type Time = u64;

pub const SECOND: Time = 1_000;
pub const MINUTE: Time = 60 * SECOND;
const HOUR: Time = 60 * MINUTE;
const DAY: Time = 24 * HOUR;

/// The network between shards, runners and the policy.
#[derive(Debug, Clone, Copy)]
pub struct Network {
    pub lose: Rate,
    pub duplicate: Rate,
    /// Takes so long that others overtake it.
    pub slow: Rate,
    pub delay_max: Time,
    pub slow_max: Time,
}

/// What goes wrong around a commit.
#[derive(Debug, Clone, Copy)]
pub struct Commits {
    pub refuse: Rate,
    pub lands_but_errors: Rate,
    pub torn: Rate,
    pub crash_before: Rate,
    pub crash_after: Rate,
    pub crash_during_effects: Rate,
}

/// What the nemesis does each time it looks.
#[derive(Debug, Clone, Copy)]
pub struct Nemesis {
    pub every: Time,
    pub take_over: Rate,
    pub crash_runner: Rate,
    /// When a runner crashes: that its processes die as well.
    pub spawner_dies: Rate,
    pub cut_off_runner: Rate,
    pub jump_clock: Rate,
    pub jump_max: Time,
    /// Operators put other rules in force, or those of before.
    pub change_policy: Rate,
    /// Operators say something else about the results of topics.
    pub change_outputs: Rate,
    /// The policy cannot be asked for a while.
    pub policy_away: Rate,
}

/// How attempts end.
#[derive(Debug, Clone, Copy)]
pub struct Attempts {
    pub error: Rate,
    pub fatal: Rate,
    pub infrastructure: Rate,
    pub busy: Rate,
    /// Stopped although nobody asked: the node drains.
    pub drained: Rate,
    /// Never ends by itself.
    pub hang: Rate,
    /// Ends while its runner is down.
    pub end_unattended: Rate,
    /// Takes long to say that it has started.
    pub slow_start: Rate,
    pub takes_max: Time,
}

/// Who is asked before a job may start, over the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gates {
    Open,
    Policy,
    /// At times the policy is switched off.
    Changing,
}

/// What the policy says, and how.
#[derive(Debug, Clone, Copy)]
pub struct Verdicts {
    pub deny: Rate,
    pub approval: Rate,
    pub throttle: Rate,
    pub constrain: Rate,
    /// That a version thinks otherwise of a job than others do.
    pub differ: Rate,
    /// That an approval is asked for by another rule than usual.
    pub other_rule: Rate,
    /// An answer comes from other rules than those that its shard has in force.
    pub of_other_rules: Rate,
    /// One question fails.
    pub unavailable: Rate,
    /// What is done while it cannot be asked: every job is let through.
    pub fail_open: bool,
    /// A submit brings along what the policy says.
    pub attached: Rate,
    /// When it does: that these are the words of other rules.
    pub attached_old: Rate,
}

/// The people whom the policy asks.
#[derive(Debug, Clone, Copy)]
pub struct Approvers {
    pub other_content: Rate,
    pub other_rule: Rate,
    pub twice: Rate,
    /// Of those who did not say a word in time, that they do so later.
    pub too_late: Rate,
    /// A word about the job as it is, whatever that may be when it arrives.
    pub unspecific: Rate,
}

/// What becomes of results.
#[derive(Debug, Clone, Copy)]
pub struct Outputs {
    /// Of topics: that their results are scanned.
    pub scan: Rate,
    /// Of those: that they are held until then.
    pub hold: Rate,
    /// Of those: that nothing passes that could not be looked at.
    pub closed: Rate,
    /// Of results: that something is said of them at once.
    pub metadata: Rate,
    pub quarantine: Rate,
    pub deny: Rate,
    pub redact: Rate,
    pub keep_original: Rate,
    /// Of redactions: that no copy could be made.
    pub without_copy: Rate,
    /// Of scans.
    pub fail: Rate,
    pub unanswered: Rate,
    pub slow: Rate,
    /// Somebody has a result scanned that nobody asked about.
    pub unasked: Rate,
}

/// The workflows of a seed.
#[derive(Debug, Clone, Copy)]
pub struct Flows {
    pub shape: Shape,
    /// Of what clients do.
    pub share: Rate,
    /// One of them has very many tasks.
    pub large: bool,
    pub schedules: Rate,
    pub keyed: Rate,
}

/// Everything a seed has decided.
#[derive(Debug, Clone)]
pub struct Plan {
    pub start: Millis,
    pub shards: Shards,
    pub runners: usize,
    pub clients: usize,
    pub operations: u64,
    pub safety: Time,
    pub gates: Gates,
    /// How long a change of what operators say takes to each shard.
    pub setup_delay_max: Time,
    /// How often a job is looked for a runner while there is none; 0: without end.
    pub dispatch_tries_max: u32,
    /// What some tenants may have, over all shards.
    pub tenants: BTreeMap<String, TenantLimits>,
    pub inputs_per_round_max: u64,
    pub restart_max: Time,
    pub room_max: u64,
    pub here_every: Time,
    /// Each time a runner says that it is here: that it has another room than before.
    pub room_changes: Rate,
    pub lost_after: Time,
    pub lose_request: Rate,
    pub keyed: Rate,
    pub network: Network,
    pub commits: Commits,
    pub nemesis: Nemesis,
    pub attempts: Attempts,
    pub verdicts: Verdicts,
    pub approvers: Approvers,
    pub outputs: Outputs,
    /// In half of the seeds there are none.
    pub flows: Option<Flows>,
    /// Nothing is left to chance that a result could depend on.
    pub is_calm: bool,
    config: Config,
}

/// In half of the seeds nobody is limited.
fn tenants(rng: &mut Rng) -> BTreeMap<String, TenantLimits> {
    if rng.one_in(2) {
        return BTreeMap::new();
    }
    let few = TenantLimits { max_running: Some(rng.between(1, 4) as u32), ..TenantLimits::default() };
    let small = TenantLimits { max_live: Some(rng.between(5, 60) as u32), ..TenantLimits::default() };
    [("north".to_owned(), few), ("south".to_owned(), small)].into()
}

/// Zero in four of ten seeds, else anything up to `most`.
fn rate(rng: &mut Rng, most: u32) -> Rate {
    if rng.below(10) < 4 { Rate::NEVER } else { Rate(rng.between(1, u64::from(most)) as u32) }
}

impl Plan {
    pub fn draw(rng: &mut Rng) -> Self {
        let shards = if rng.one_in(4) { 1 } else { rng.between(2, 4) as u16 };
        // One shard is always possible.
        let shards = Shards::new(shards).or(Shards::new(1)).expect("one shard is a number of shards");
        // Some seeds begin a minute before midnight: idempotency keys are filed by day.
        let midnight = 1_767_225_600_000 + DAY;
        let start = if rng.one_in(3) { midnight - rng.between(1, 3) * MINUTE } else { midnight + rng.below(DAY) };
        Self {
            start: Millis(start),
            shards,
            runners: rng.between(1, 4) as usize,
            clients: rng.between(1, 6) as usize,
            operations: rng.between(150, 1_200),
            safety: rng.between(MINUTE, 4 * MINUTE),
            gates: match rng.below(10) {
                0..3 => Gates::Open,
                3..8 => Gates::Policy,
                _ => Gates::Changing,
            },
            setup_delay_max: rng.between(1, 20 * SECOND),
            dispatch_tries_max: if rng.one_in(2) { 0 } else { rng.between(2, 50) as u32 },
            tenants: tenants(rng),
            inputs_per_round_max: if rng.one_in(3) { 1 } else { rng.between(2, 40) },
            restart_max: rng.between(10, 5 * SECOND),
            room_max: rng.between(1, 12),
            here_every: rng.between(2 * SECOND, 8 * SECOND),
            room_changes: rate(rng, 3_000),
            lost_after: rng.between(2 * SECOND, 20 * SECOND),
            lose_request: rate(rng, 1_500),
            keyed: Rate(rng.between(1_000, 8_000) as u32),
            network: Network {
                lose: rate(rng, 1_500),
                duplicate: rate(rng, 1_500),
                slow: rate(rng, 1_000),
                delay_max: rng.between(1, 50),
                slow_max: rng.between(SECOND, 15 * SECOND),
            },
            commits: commits(rng),
            nemesis: nemesis(rng),
            attempts: attempts(rng),
            verdicts: verdicts(rng),
            approvers: approvers(rng),
            outputs: outputs(rng),
            flows: rng.one_in(2).then(|| flows(rng)),
            is_calm: false,
            config: config(rng, shards),
        }
    }

    /// The settings of one shard.
    pub fn config(&self, shard: ShardId) -> Config {
        Config { shard, ..self.config }
    }

    /// One shard, one runner, and nothing goes wrong, so that a run always comes to the same.
    pub fn calm(rng: &mut Rng) -> Self {
        let shards = Shards::new(1).expect("one shard is a number of shards");
        let mut plan = Self::draw(rng);
        plan.heal();
        let never = Rate::NEVER;
        (plan.shards, plan.runners, plan.clients, plan.operations) = (shards, 1, 1, 0);
        (plan.gates, plan.flows, plan.safety) = (Gates::Open, None, SECOND);
        plan.tenants.clear();
        (plan.dispatch_tries_max, plan.lose_request) = (0, never);
        (plan.attempts.error, plan.attempts.fatal, plan.attempts.infrastructure) = (never, never, never);
        plan.attempts.takes_max = 200;
        (plan.outputs.scan, plan.outputs.metadata, plan.outputs.unasked) = (never, never, never);
        plan.config = Config::new(ShardId(0), shards);
        plan.config.retry_backoff = Backoff { first: Millis(50), longest: Millis(200) };
        // Fan-outs take several steps.
        plan.config.step_bytes_max = 1_000;
        plan.is_calm = true;
        plan
    }

    /// Nothing goes wrong any more; what was decided about jobs stays decided.
    pub fn heal(&mut self) {
        self.lose_request = Rate::NEVER;
        self.network.lose = Rate::NEVER;
        self.network.duplicate = Rate::NEVER;
        self.network.slow = Rate::NEVER;
        let never = Rate::NEVER;
        self.commits = Commits {
            refuse: never,
            lands_but_errors: never,
            torn: never,
            crash_before: never,
            crash_after: never,
            crash_during_effects: never,
        };
        self.attempts.hang = never;
        self.room_changes = never;
        self.attempts.slow_start = never;
        self.attempts.busy = never;
        self.attempts.drained = never;
        self.verdicts.of_other_rules = never;
        self.verdicts.unavailable = never;
        self.outputs.fail = never;
        self.outputs.unanswered = never;
        self.outputs.slow = never;
    }
}

fn commits(rng: &mut Rng) -> Commits {
    Commits {
        refuse: rate(rng, 60),
        lands_but_errors: rate(rng, 60),
        torn: rate(rng, 60),
        crash_before: rate(rng, 100),
        crash_after: rate(rng, 100),
        crash_during_effects: rate(rng, 100),
    }
}

fn nemesis(rng: &mut Rng) -> Nemesis {
    Nemesis {
        every: rng.between(SECOND, 5 * SECOND),
        take_over: rate(rng, 1_000),
        crash_runner: rate(rng, 1_000),
        spawner_dies: rate(rng, 6_000),
        cut_off_runner: rate(rng, 1_000),
        jump_clock: rate(rng, 1_500),
        jump_max: if rng.one_in(4) { 2 * HOUR } else { MINUTE },
        change_policy: rate(rng, 4_000),
        change_outputs: rate(rng, 1_500),
        policy_away: rate(rng, 1_000),
    }
}

fn verdicts(rng: &mut Rng) -> Verdicts {
    Verdicts {
        deny: rate(rng, 3_000),
        approval: rate(rng, 4_000),
        throttle: rate(rng, 3_000),
        constrain: rate(rng, 3_000),
        differ: rate(rng, 8_000),
        other_rule: rate(rng, 5_000),
        of_other_rules: rate(rng, 2_000),
        unavailable: rate(rng, 1_500),
        fail_open: rng.one_in(4),
        attached: rate(rng, 6_000),
        attached_old: rate(rng, 5_000),
    }
}

fn approvers(rng: &mut Rng) -> Approvers {
    Approvers {
        other_content: rate(rng, 2_000),
        other_rule: rate(rng, 2_000),
        twice: rate(rng, 3_000),
        too_late: rate(rng, 3_000),
        unspecific: rate(rng, 5_000),
    }
}

fn outputs(rng: &mut Rng) -> Outputs {
    Outputs {
        scan: rate(rng, 9_000),
        hold: rate(rng, 9_000),
        closed: rate(rng, 9_000),
        metadata: rate(rng, 4_000),
        quarantine: rate(rng, 2_000),
        deny: rate(rng, 2_000),
        redact: rate(rng, 4_000),
        keep_original: rate(rng, 8_000),
        without_copy: rate(rng, 2_000),
        fail: rate(rng, 2_500),
        unanswered: rate(rng, 1_500),
        slow: rate(rng, 3_000),
        unasked: rate(rng, 3_000),
    }
}

fn flows(rng: &mut Rng) -> Flows {
    Flows {
        shape: definitions::shape(rng),
        share: Rate(rng.between(500, 4_000) as u32),
        large: rng.one_in(12),
        schedules: rate(rng, 1_500),
        keyed: rate(rng, 6_000),
    }
}

fn attempts(rng: &mut Rng) -> Attempts {
    Attempts {
        error: rate(rng, 3_000),
        fatal: rate(rng, 800),
        infrastructure: rate(rng, 1_500),
        busy: rate(rng, 1_000),
        drained: rate(rng, 500),
        hang: rate(rng, 500),
        end_unattended: rate(rng, 5_000),
        slow_start: rate(rng, 500),
        takes_max: rng.between(10, 20 * SECOND),
    }
}

/// Small limits and short times, so that a few minutes see all of them.
fn config(rng: &mut Rng, shards: Shards) -> Config {
    let mut config = Config::new(ShardId(0), shards);
    config.live_jobs_max = if rng.one_in(4) { rng.between(20, 60) as usize } else { 100_000 };
    config.queues_max = if rng.one_in(4) { rng.between(4, 10) as usize } else { 1_000 };
    config.workflows_max = if rng.one_in(5) { rng.between(40, 80) as usize } else { 100_000 };
    config.schedules_max = if rng.one_in(5) { 2 } else { 100 };
    config.catch_up_max = if rng.one_in(2) { rng.between(1, 20) as usize } else { 1_000 };
    config.retry_backoff = Backoff { first: Millis(rng.between(50, SECOND)), longest: Millis(5 * SECOND) };
    config.dispatch_timeout = Millis(rng.between(5 * SECOND, 20 * SECOND));
    config.stop_timeout = Millis(rng.between(5 * SECOND, 20 * SECOND));
    config.interactive_ages_after = Millis(rng.between(SECOND, 30 * SECOND));
    config.batch_ages_after = Millis(rng.between(SECOND, 60 * SECOND));
    config.queue_idle_expiry = Millis(rng.between(10 * SECOND, 2 * MINUTE));
    // Small enough that what follows from a lost runner, or a batch of keys, takes many steps.
    config.step_bytes_max = if rng.one_in(2) { rng.between(300, 6_000) as usize } else { 4 << 20 };
    config.approval_expiry = Millis(if rng.one_in(3) { rng.between(5 * SECOND, MINUTE) } else { 7 * DAY });
    config.dead_letter_retention = Millis(if rng.one_in(2) { rng.between(30 * SECOND, 4 * MINUTE) } else { 30 * DAY });
    config.retention = Millis(if rng.one_in(2) { rng.between(30 * SECOND, 2 * MINUTE) } else { 7 * DAY });
    config.sweep_interval = Millis(rng.between(SECOND, 20 * SECOND));
    config.sweep_chunk = rng.between(2, 50) as usize;
    config.cancel_chunk = rng.between(1, 20) as usize;
    config.timers_per_step = rng.between(1, 50) as usize;
    config.key_lifetime = Millis(if rng.one_in(3) { 2 * MINUTE } else { DAY });
    config.keys_per_tenant_max = if rng.one_in(5) { rng.between(5, 30) } else { 1_000_000 };
    config
}
