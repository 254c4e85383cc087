//! What operators say about topics, pools, tenants and the policy. It can be changed while the shard is at work.

use std::collections::{BTreeMap, BTreeSet};

use model::verdict::PolicyVersion;

/// How many times a job that no runner there is could take is looked for one.
pub const DISPATCH_TRIES_DEFAULT: u32 = 50;

/// The pool of jobs and runners that name none.
pub const DEFAULT_POOL: &str = "default";

/// Whether a job is started while the policy cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailMode {
    Closed,
    Open,
}

/// Who is asked before a job may be scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Nobody: every job is allowed.
    Open,
    /// The shell, by [`crate::Effect::CheckPolicy`]. What another version has decided is asked again before it is acted
    /// upon.
    Policy(PolicyVersion),
}

/// What becomes of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputRules {
    /// Results are scanned, by [`crate::Effect::ScanOutput`].
    pub scan: bool,
    /// And shown only after that.
    pub hold_until_scanned: bool,
    /// When they cannot be scanned.
    pub fail_mode: FailMode,
}

impl OutputRules {
    pub const OFF: Self = Self { scan: false, hold_until_scanned: false, fail_mode: FailMode::Open };
}

/// What holds for the jobs of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Its jobs may go to the runners of any of these.
    pub pools: BTreeSet<String>,
    /// How many times a job that nobody could take is looked for a runner; 0: without end.
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

/// What holds for a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pool {
    /// All its runners have these.
    pub capabilities: BTreeSet<String>,
    /// An overloaded runner (nine tenths of its slots, its cpu or its gpu) gets nothing, even if every other is
    /// overloaded as well. Otherwise it is only the last to get something.
    pub spare_overloaded: bool,
}

/// What a tenant may have. Absent: as much as there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantLimits {
    /// Jobs with runners at once.
    pub max_running: Option<u32>,
    /// Jobs that are not terminal.
    pub max_live: Option<u32>,
    /// Jobs submitted in a second, and at once after a quiet time.
    pub submits_per_second: Option<u32>,
}

/// Everything that operators say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    pub gate: Gate,
    pub topics: BTreeMap<String, Topic>,
    /// For topics that are not named. Absent: their jobs cannot be placed.
    pub other_topics: Option<Topic>,
    pub pools: BTreeMap<String, Pool>,
    pub tenants: BTreeMap<String, TenantLimits>,
    /// For tenants that are not named.
    pub other_tenants: TenantLimits,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            gate: Gate::Open,
            topics: BTreeMap::new(),
            other_topics: Some(Topic::default()),
            pools: BTreeMap::new(),
            tenants: BTreeMap::new(),
            other_tenants: TenantLimits::default(),
        }
    }
}

impl Setup {
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
