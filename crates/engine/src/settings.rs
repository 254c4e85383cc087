//! Operator settings for topics, pools, tenants and the policy. They can change at run time.

use std::collections::{BTreeMap, BTreeSet};

use model::id::RunnerId;
use model::time::Millis;
use model::verdict::PolicyVersion;

/// Default number of dispatch tries of a job without an eligible runner.
pub const DISPATCH_TRIES_DEFAULT: u32 = 50;

/// The pool of topics and runners that name none.
pub const DEFAULT_POOL: &str = "default";

/// Whether a policy that cannot be reached blocks or allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailMode {
    Closed,
    Open,
}

/// Whether jobs need a policy decision before they are scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyMode {
    /// Every job is allowed.
    Disabled,
    /// The shell decides, by [`crate::Effect::CheckPolicy`]. Decisions of another version are checked again before use.
    Enforced(PolicyVersion),
}

/// Output policy of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputRules {
    /// Results are scanned, by [`crate::Effect::ScanOutput`].
    pub scan: bool,
    /// Results are withheld until the scan is done.
    pub hold_until_scanned: bool,
    /// Applies when a scan fails.
    pub fail_mode: FailMode,
}

impl OutputRules {
    pub const OFF: Self = Self { scan: false, hold_until_scanned: false, fail_mode: FailMode::Open };
}

/// Settings of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Pools whose runners may run its jobs.
    pub pools: BTreeSet<String>,
    /// Dispatch tries of a job without an eligible runner before it fails; 0: unlimited.
    pub dispatch_tries_max: u32,
    pub output: OutputRules,
}

impl Default for Topic {
    fn default() -> Self {
        Self {
            pools: [DEFAULT_POOL.to_owned()].into(),
            dispatch_tries_max: DISPATCH_TRIES_DEFAULT,
            output: OutputRules::OFF,
        }
    }
}

/// Settings of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pool {
    /// Capabilities of all its runners, in addition to their own.
    pub capabilities: BTreeSet<String>,
    /// Overloaded runners (90 % of slots, CPU or GPU in use) get no jobs, even if all runners are overloaded. If unset,
    /// they are chosen last.
    pub spare_overloaded: bool,
}

/// Limits of a tenant. Absent: unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantLimits {
    /// Jobs on runners at the same time.
    pub max_running: Option<u32>,
    /// Jobs that are not terminal.
    pub max_live: Option<u32>,
    /// Jobs submitted per second; also the burst after a quiet second.
    pub submits_per_second: Option<u32>,
}

/// All operator settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub policy: PolicyMode,
    pub topics: BTreeMap<String, Topic>,
    /// For topics not in `topics`. Absent: their jobs cannot be placed.
    pub other_topics: Option<Topic>,
    pub pools: BTreeMap<String, Pool>,
    pub tenants: BTreeMap<String, TenantLimits>,
    /// For tenants not in `tenants`.
    pub other_tenants: TenantLimits,
    /// Runners that get no new attempts.
    pub cordoned: BTreeSet<RunnerId>,
    /// Cordoned runners that failed distinct jobs, with the time of the first of these failures: jobs are not charged for
    /// their failures since then.
    pub failing: BTreeMap<RunnerId, Millis>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: PolicyMode::Disabled,
            topics: BTreeMap::new(),
            other_topics: Some(Topic::default()),
            pools: BTreeMap::new(),
            tenants: BTreeMap::new(),
            other_tenants: TenantLimits::default(),
            cordoned: BTreeSet::new(),
            failing: BTreeMap::new(),
        }
    }
}

impl Settings {
    pub fn topic(&self, name: &str) -> Option<&Topic> {
        self.topics.get(name).or(self.other_topics.as_ref())
    }

    /// Whether any tenant has a limit.
    pub fn limits_tenants(&self) -> bool {
        self.other_tenants != TenantLimits::default() || !self.tenants.is_empty()
    }

    /// Whether the results of any topic are scanned.
    pub fn scans_outputs(&self) -> bool {
        self.topics.values().chain(&self.other_topics).any(|topic| topic.output.scan)
    }

    pub fn tenant(&self, name: &str) -> TenantLimits {
        self.tenants.get(name).copied().unwrap_or(self.other_tenants)
    }
}
