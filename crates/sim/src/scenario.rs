//! The scenario of a seed: topology, workload and fault rates. Many rates are zero in many seeds, so that each fault
//! also occurs without the others.

use std::collections::BTreeMap;

use engine::{Config, TenantLimits};
use model::id::{ShardId, Shards};
use model::limits::TASK_RESULT_BYTES_MAX;
use model::machine::Backoff;
use model::time::Millis;

use crate::cluster::Plan;
use crate::definitions::{self, Shape};
use crate::rng::{Rate, Rng, mix};

/// Virtual milliseconds since the start.
pub type Time = u64;

pub const SECOND: Time = 1_000;
pub const MINUTE: Time = 60 * SECOND;
const HOUR: Time = 60 * MINUTE;
pub const DAY: Time = 24 * HOUR;

/// Network between shards, runners and the policy.
#[derive(Debug, Clone, Copy)]
pub struct Network {
    pub lose: Rate,
    pub duplicate: Rate,
    /// Delayed so long that later messages overtake it.
    pub slow: Rate,
    /// The messages of a frame are delivered one by one.
    pub split: Rate,
    pub delay_max: Time,
    pub slow_max: Time,
}

/// Rates of commit faults.
#[derive(Debug, Clone, Copy)]
pub struct CommitRates {
    pub refuse: Rate,
    pub lands_but_errors: Rate,
    pub late: Rate,
    pub torn: Rate,
    pub crash_before: Rate,
    pub crash_after: Rate,
    pub crash_during_effects: Rate,
}

/// Rates of other faults of the store.
#[derive(Debug, Clone, Copy)]
pub struct StoreRates {
    pub fail_read: Rate,
    /// A large result cannot be stored.
    pub fail_spill: Rate,
}

/// Rates of failovers of a store that may lose acknowledged commits.
#[derive(Debug, Clone, Copy)]
pub struct LossRates {
    /// Per activation of the nemesis.
    pub at_any_time: Rate,
    /// Per commit, before its effects.
    pub before_effects: Rate,
    /// Share of failovers together with a crash.
    pub with_crash: Rate,
    /// Most writes that a failover loses.
    pub writes_max: u64,
}

impl LossRates {
    /// One of twelve seeds has a store that may lose commits. Drawn from a sequence of their own, so that all other
    /// seeds are as without them.
    pub fn draw(seed: u64) -> Option<Self> {
        let mut rng = Rng::new(mix(seed.rotate_left(29)));
        rng.one_in(12).then(|| Self {
            at_any_time: Rate(rng.between(50, 1_000) as u32),
            before_effects: Rate(rng.between(1, 20) as u32),
            with_crash: Rate(rng.between(1_000, 6_000) as u32),
            writes_max: if rng.one_in(3) { 3 } else { rng.between(5, 80) },
        })
    }
}

/// Rates of faults per activation of the nemesis.
#[derive(Debug, Clone, Copy)]
pub struct NemesisRates {
    pub every: Time,
    pub take_over: Rate,
    pub crash_runner: Rate,
    /// Share of runner crashes that kill the spawner and its processes too.
    pub spawner_dies: Rate,
    pub partition_runner: Rate,
    /// Messages between a runner and shards are lost in one direction.
    pub cut_runner: Rate,
    /// Messages between a shard and others are lost.
    pub cut_shard: Rate,
    pub jump_clock: Rate,
    pub jump_max: Time,
    /// Operators change the policy version.
    pub change_policy: Rate,
    /// Operators change the output rules.
    pub change_outputs: Rate,
    /// Operators cordon, drain or uncordon a runner.
    pub cordon: Rate,
    /// The policy is unavailable for a while.
    pub policy_outage: Rate,
}

/// Rates of the ends of attempts.
#[derive(Debug, Clone, Copy)]
pub struct AttemptRates {
    pub error: Rate,
    pub fatal: Rate,
    pub infrastructure: Rate,
    pub busy: Rate,
    /// Stopped without a request: the node drains.
    pub drained: Rate,
    /// Never ends on its own.
    pub hang: Rate,
    /// Ends while the runner is down.
    pub end_unattended: Rate,
    /// Reports its start late.
    pub slow_start: Rate,
    pub duration_max: Time,
}

/// Whether a policy is in force during the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyUse {
    Disabled,
    Enforced,
    /// Disabled at times.
    Intermittent,
}

/// Rates of policy verdicts.
#[derive(Debug, Clone, Copy)]
pub struct VerdictRates {
    pub deny: Rate,
    pub approval: Rate,
    pub throttle: Rate,
    pub constrain: Rate,
    /// A policy version decides differently from the others.
    pub differ: Rate,
    /// An approval is required by a different rule.
    pub other_rule: Rate,
    /// The answer comes from another policy version than the shard has in force.
    pub wrong_version: Rate,
    /// One policy check fails.
    pub unavailable: Rate,
    /// Jobs are allowed while the policy is unavailable.
    pub fail_open: bool,
    /// A submit includes a policy decision.
    pub attached: Rate,
    /// Share of those with a decision of an old policy version.
    pub attached_old: Rate,
}

/// Rates of the faults of approvers.
#[derive(Debug, Clone, Copy)]
pub struct ApproverRates {
    pub other_content: Rate,
    pub other_rule: Rate,
    pub twice: Rate,
    /// Answers after the approval expired.
    pub too_late: Rate,
    /// Answers without naming content or rule.
    pub unspecific: Rate,
}

/// Rates of the output policy.
#[derive(Debug, Clone, Copy)]
pub struct OutputRates {
    /// Share of topics with a content scan.
    pub scan: Rate,
    /// Share of topics that withhold results until the scan.
    pub hold: Rate,
    /// Share of topics that fail closed.
    pub closed: Rate,
    /// Share of results with a metadata decision.
    pub metadata: Rate,
    pub quarantine: Rate,
    pub deny: Rate,
    pub redact: Rate,
    pub keep_original: Rate,
    /// Share of redactions without a redacted copy.
    pub without_copy: Rate,
    /// Scans that fail.
    pub fail: Rate,
    pub unanswered: Rate,
    pub slow: Rate,
    /// A scan without a request.
    pub unrequested: Rate,
}

/// Rates of the workflows of a seed.
#[derive(Debug, Clone, Copy)]
pub struct WorkflowRates {
    pub shape: Shape,
    /// Share of client operations.
    pub share: Rate,
    /// One workflow is very large.
    pub large: bool,
    pub schedules: Rate,
    pub keyed: Rate,
}

/// All parameters of a seed.
#[derive(Debug, Clone)]
pub struct Scenario {
    pub start: Millis,
    pub shards: Shards,
    pub runners: usize,
    pub clients: usize,
    /// Largest drift of a steady clock, in parts per million.
    pub drift_ppm_max: u64,
    pub operations: u64,
    pub fault_phase: Time,
    pub policy_use: PolicyUse,
    /// Limit on the delay of new settings to a shard.
    pub settings_delay_max: Time,
    /// Limit on dispatch tries of a job without a runner; 0: no limit.
    pub dispatch_tries_max: u32,
    /// Tenant limits over all shards.
    pub tenants: BTreeMap<String, TenantLimits>,
    pub inputs_per_round_max: u64,
    pub restart_max: Time,
    pub slots_max: u64,
    /// Interval at which a runner's capacity may change.
    pub capacity_interval: Time,
    /// Capacity changes per registration of a runner.
    pub capacity_changes: Rate,
    pub lost_after: Time,
    pub lose_request: Rate,
    pub keyed: Rate,
    pub network: Network,
    pub commits: CommitRates,
    pub store: StoreRates,
    /// Present if the store may lose commits.
    pub losses: Option<LossRates>,
    /// Limit of the results of tasks; larger ones are stored apart.
    pub result_bytes_max: usize,
    pub nemesis: NemesisRates,
    pub attempts: AttemptRates,
    pub verdicts: VerdictRates,
    pub approvers: ApproverRates,
    pub outputs: OutputRates,
    /// `None` in half of the seeds.
    pub workflows: Option<WorkflowRates>,
    /// No randomness that affects results.
    pub is_calm: bool,
    config: Config,
}

/// No limits in half of the seeds.
fn tenants(rng: &mut Rng) -> BTreeMap<String, TenantLimits> {
    if rng.one_in(2) {
        return BTreeMap::new();
    }
    let few = TenantLimits { max_running: Some(rng.between(1, 4) as u32), ..TenantLimits::default() };
    let small = TenantLimits { max_live: Some(rng.between(5, 60) as u32), ..TenantLimits::default() };
    [("north".to_owned(), few), ("south".to_owned(), small)].into()
}

/// Zero in four of ten seeds, otherwise up to `most`.
fn rate(rng: &mut Rng, most: u32) -> Rate {
    if rng.below(10) < 4 { Rate::NEVER } else { Rate(rng.between(1, u64::from(most)) as u32) }
}

impl Scenario {
    pub fn draw(rng: &mut Rng) -> Self {
        let is_large = rng.one_in(50);
        let shards = match (is_large, rng.below(4)) {
            (true, _) => 16,
            (false, 0) => 1,
            (false, _) => rng.between(2, 4) as u16,
        };
        // One shard is always valid.
        let shards = Shards::new(shards).or(Shards::new(1)).expect("one shard is valid");
        // Some seeds start shortly before midnight: idempotency keys are stored by day.
        let midnight = 1_767_225_600_000 + DAY;
        let start = if rng.one_in(3) { midnight - rng.between(1, 3) * MINUTE } else { midnight + rng.below(DAY) };
        Self {
            start: Millis(start),
            shards,
            runners: if is_large { 32 } else { rng.between(1, 4) as usize },
            clients: rng.between(1, 6) as usize,
            drift_ppm_max: if rng.one_in(2) { 0 } else { rng.between(1, 20_000) },
            operations: rng.between(150, 1_200),
            // Heartbeats of all runners to all shards take most of a large run.
            fault_phase: if is_large { MINUTE } else { rng.between(MINUTE, 4 * MINUTE) },
            policy_use: match rng.below(10) {
                0..3 => PolicyUse::Disabled,
                3..8 => PolicyUse::Enforced,
                _ => PolicyUse::Intermittent,
            },
            settings_delay_max: rng.between(1, 20 * SECOND),
            dispatch_tries_max: if rng.one_in(2) { 0 } else { rng.between(2, 50) as u32 },
            tenants: tenants(rng),
            inputs_per_round_max: if rng.one_in(3) { 1 } else { rng.between(2, 40) },
            restart_max: rng.between(10, 5 * SECOND),
            slots_max: rng.between(1, 12),
            capacity_interval: rng.between(2 * SECOND, 8 * SECOND),
            capacity_changes: rate(rng, 3_000),
            lost_after: rng.between(2 * SECOND, 20 * SECOND),
            lose_request: rate(rng, 1_500),
            keyed: Rate(rng.between(1_000, 8_000) as u32),
            network: Network {
                lose: rate(rng, 1_500),
                duplicate: rate(rng, 1_500),
                slow: rate(rng, 1_000),
                split: rate(rng, 5_000),
                delay_max: rng.between(1, 50),
                slow_max: rng.between(SECOND, 15 * SECOND),
            },
            commits: commits(rng),
            store: StoreRates { fail_read: rate(rng, 20), fail_spill: rate(rng, 5_000) },
            losses: None,
            result_bytes_max: if rng.one_in(4) { rng.between(10, 60) as usize } else { TASK_RESULT_BYTES_MAX },
            nemesis: nemesis(rng),
            attempts: attempts(rng),
            verdicts: verdicts(rng),
            approvers: approvers(rng),
            outputs: outputs(rng),
            workflows: rng.one_in(2).then(|| workflows(rng)),
            is_calm: false,
            config: config(rng, shards),
        }
        .limit_jumps()
    }

    /// A year of missed slots is a lot of work for a schedule that catches up on all of them.
    fn limit_jumps(mut self) -> Self {
        if self.workflows.is_some() {
            self.nemesis.jump_max = self.nemesis.jump_max.min(2 * HOUR);
        }
        self
    }

    /// The shards of one control node, whose runners are nodes of a cluster: their faults are those of the plan.
    pub fn clustered(rng: &mut Rng, plan: &Plan) -> Self {
        const SHARDS_MAX: u16 = 4;
        let mut scenario = Self::draw(rng);
        while scenario.shards.count() > SHARDS_MAX {
            scenario = Self::draw(rng);
        }
        if plan.is_calm {
            scenario.heal();
            scenario.policy_use = PolicyUse::Disabled;
            scenario.nemesis = NemesisRates::none();
            (scenario.attempts.error, scenario.attempts.fatal) = (Rate::NEVER, Rate::NEVER);
            scenario.attempts.infrastructure = Rate::NEVER;
            scenario.workflows = None;
        }
        let never = Rate::NEVER;
        (scenario.nemesis.crash_runner, scenario.nemesis.partition_runner) = (never, never);
        scenario.nemesis.cut_runner = never;
        scenario.runners = plan.runners;
        scenario.operations = rng.between(100, 400);
        scenario.fault_phase = plan.fault_phase;
        scenario
    }

    /// Configuration of one shard.
    pub fn config(&self, shard: ShardId) -> Config {
        Config { shard, ..self.config }
    }

    /// One shard, one runner and no faults, so that the outcome is always the same.
    pub fn calm(rng: &mut Rng) -> Self {
        let shards = Shards::new(1).expect("one shard is valid");
        let mut scenario = Self::draw(rng);
        scenario.heal();
        let never = Rate::NEVER;
        (scenario.shards, scenario.runners, scenario.clients, scenario.operations) = (shards, 1, 1, 0);
        scenario.drift_ppm_max = 0;
        scenario.result_bytes_max = TASK_RESULT_BYTES_MAX;
        (scenario.policy_use, scenario.workflows, scenario.fault_phase) = (PolicyUse::Disabled, None, SECOND);
        scenario.tenants.clear();
        (scenario.dispatch_tries_max, scenario.lose_request) = (0, never);
        (scenario.attempts.error, scenario.attempts.fatal, scenario.attempts.infrastructure) = (never, never, never);
        scenario.attempts.duration_max = 200;
        (scenario.outputs.scan, scenario.outputs.metadata, scenario.outputs.unrequested) = (never, never, never);
        scenario.config = Config::new(ShardId(0), shards);
        scenario.config.retry_backoff = Backoff { first: Millis(50), longest: Millis(200) };
        // Small, so that fan-outs take several steps.
        scenario.config.step_bytes_max = 1_000;
        scenario.is_calm = true;
        scenario
    }

    /// Ends all faults. Rates that decide about jobs stay.
    pub fn heal(&mut self) {
        self.lose_request = Rate::NEVER;
        self.network.lose = Rate::NEVER;
        self.network.duplicate = Rate::NEVER;
        self.network.slow = Rate::NEVER;
        self.network.split = Rate::NEVER;
        let never = Rate::NEVER;
        self.commits = CommitRates {
            refuse: never,
            lands_but_errors: never,
            late: never,
            torn: never,
            crash_before: never,
            crash_after: never,
            crash_during_effects: never,
        };
        self.store = StoreRates { fail_read: never, fail_spill: never };
        self.losses = None;
        self.attempts.hang = never;
        self.capacity_changes = never;
        self.attempts.slow_start = never;
        self.attempts.busy = never;
        self.attempts.drained = never;
        self.verdicts.wrong_version = never;
        self.verdicts.unavailable = never;
        self.outputs.fail = never;
        self.outputs.unanswered = never;
        self.outputs.slow = never;
    }
}

fn commits(rng: &mut Rng) -> CommitRates {
    CommitRates {
        refuse: rate(rng, 60),
        lands_but_errors: rate(rng, 60),
        late: rate(rng, 60),
        torn: rate(rng, 60),
        crash_before: rate(rng, 100),
        crash_after: rate(rng, 100),
        crash_during_effects: rate(rng, 100),
    }
}

impl NemesisRates {
    fn none() -> Self {
        let never = Rate::NEVER;
        Self {
            every: MINUTE,
            take_over: never,
            crash_runner: never,
            spawner_dies: never,
            partition_runner: never,
            cut_runner: never,
            cut_shard: never,
            jump_clock: never,
            jump_max: 0,
            change_policy: never,
            change_outputs: never,
            cordon: never,
            policy_outage: never,
        }
    }
}

fn nemesis(rng: &mut Rng) -> NemesisRates {
    NemesisRates {
        every: rng.between(SECOND, 5 * SECOND),
        take_over: rate(rng, 1_000),
        crash_runner: rate(rng, 1_000),
        spawner_dies: rate(rng, 6_000),
        partition_runner: rate(rng, 1_000),
        cut_runner: rate(rng, 600),
        cut_shard: rate(rng, 600),
        jump_clock: rate(rng, 1_500),
        jump_max: match rng.below(8) {
            0 => 365 * DAY,
            1 | 2 => 2 * HOUR,
            _ => MINUTE,
        },
        change_policy: rate(rng, 4_000),
        change_outputs: rate(rng, 1_500),
        cordon: rate(rng, 1_500),
        policy_outage: rate(rng, 1_000),
    }
}

fn verdicts(rng: &mut Rng) -> VerdictRates {
    VerdictRates {
        deny: rate(rng, 3_000),
        approval: rate(rng, 4_000),
        throttle: rate(rng, 3_000),
        constrain: rate(rng, 3_000),
        differ: rate(rng, 8_000),
        other_rule: rate(rng, 5_000),
        wrong_version: rate(rng, 2_000),
        unavailable: rate(rng, 1_500),
        fail_open: rng.one_in(4),
        attached: rate(rng, 6_000),
        attached_old: rate(rng, 5_000),
    }
}

fn approvers(rng: &mut Rng) -> ApproverRates {
    ApproverRates {
        other_content: rate(rng, 2_000),
        other_rule: rate(rng, 2_000),
        twice: rate(rng, 3_000),
        too_late: rate(rng, 3_000),
        unspecific: rate(rng, 5_000),
    }
}

fn outputs(rng: &mut Rng) -> OutputRates {
    OutputRates {
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
        unrequested: rate(rng, 3_000),
    }
}

fn workflows(rng: &mut Rng) -> WorkflowRates {
    WorkflowRates {
        shape: definitions::shape(rng),
        share: Rate(rng.between(500, 4_000) as u32),
        large: rng.one_in(12),
        schedules: rate(rng, 1_500),
        keyed: rate(rng, 6_000),
    }
}

fn attempts(rng: &mut Rng) -> AttemptRates {
    AttemptRates {
        error: rate(rng, 3_000),
        fatal: rate(rng, 800),
        infrastructure: rate(rng, 1_500),
        busy: rate(rng, 1_000),
        drained: rate(rng, 500),
        hang: rate(rng, 500),
        end_unattended: rate(rng, 5_000),
        slow_start: rate(rng, 500),
        duration_max: rng.between(10, 20 * SECOND),
    }
}

/// Small limits and short times, so that a few minutes reach all of them.
fn config(rng: &mut Rng, shards: Shards) -> Config {
    let mut config = Config::new(ShardId(0), shards);
    config.live_jobs_max = if rng.one_in(4) { rng.between(20, 60) as usize } else { 100_000 };
    config.queues_max = if rng.one_in(4) { rng.between(4, 10) as usize } else { 1_000 };
    config.workflows_max = if rng.one_in(5) { rng.between(40, 80) as usize } else { 100_000 };
    config.schedules_max = if rng.one_in(5) { 2 } else { 100 };
    config.catch_up_max = if rng.one_in(2) { rng.between(1, 20) as usize } else { 1_000 };
    config.runner_expiry = Millis(if rng.one_in(2) { rng.between(SECOND, 90 * SECOND) } else { DAY });
    config.retry_backoff = Backoff { first: Millis(rng.between(50, SECOND)), longest: Millis(5 * SECOND) };
    config.dispatch_timeout = Millis(rng.between(5 * SECOND, 20 * SECOND));
    config.stop_timeout = Millis(rng.between(5 * SECOND, 20 * SECOND));
    config.exclusive_lease = Millis(rng.between(5 * SECOND, 15 * SECOND));
    config.interactive_ages_after = Millis(rng.between(SECOND, 30 * SECOND));
    config.batch_ages_after = Millis(rng.between(SECOND, 60 * SECOND));
    config.queue_idle_expiry = Millis(rng.between(10 * SECOND, 2 * MINUTE));
    // In half of the seeds small enough that a lost runner or a batch of keys takes many steps.
    config.step_bytes_max = if rng.one_in(2) { rng.between(300, 6_000) as usize } else { 4 << 20 };
    config.approval_expiry = Millis(if rng.one_in(3) { rng.between(5 * SECOND, MINUTE) } else { 7 * DAY });
    config.dead_letter_retention = Millis(if rng.one_in(2) { rng.between(30 * SECOND, 4 * MINUTE) } else { 30 * DAY });
    config.retention = Millis(if rng.one_in(2) { rng.between(30 * SECOND, 2 * MINUTE) } else { 7 * DAY });
    config.audit_retention = match rng.below(4) {
        0 => None,
        1 => Some(Millis(400 * DAY)),
        _ => Some(Millis(rng.between(5 * SECOND, 90 * SECOND))),
    };
    config.sweep_interval = Millis(rng.between(SECOND, 20 * SECOND));
    config.sweep_chunk = rng.between(2, 50) as usize;
    config.cancel_chunk = rng.between(1, 20) as usize;
    config.timers_per_step = rng.between(1, 50) as usize;
    config.key_lifetime = Millis(if rng.one_in(3) { 2 * MINUTE } else { DAY });
    config.keys_per_tenant_max = if rng.one_in(5) { rng.between(5, 30) } else { 1_000_000 };
    config
}
