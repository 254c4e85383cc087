//! What operators say about the policy, topics, pools and tenants.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use engine::{Gate, OutputRules, Pool, Setup, TenantLimits, Topic};
use kernel::FailMode;
use serde::Deserialize;

use crate::error::Error;

/// Stands for every topic or tenant that is not named itself.
pub const OTHERS: &str = "*";

/// Who is asked whether jobs may run. Neither: nobody, and all may.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyOptions {
    /// A directory with rules in Rego.
    pub rules: Option<PathBuf>,
    /// A service that is asked instead.
    pub kernel: Option<KernelOptions>,
    /// What happens to jobs while the policy cannot be asked: `closed`, they wait, or `open`, they run. The variable
    /// `OUTLAST_POLICY_FAIL_MODE` wins over the file.
    #[serde(deserialize_with = "fail_mode")]
    pub fail_mode: Option<FailMode>,
}

/// Where a policy kernel is.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KernelOptions {
    pub address: String,
    /// How long one question may take.
    pub timeout_ms: u64,
    /// Certificates, in PEM, of those who may vouch for the kernel; with it the connection is encrypted.
    pub ca: Option<PathBuf>,
    /// The name in its certificate; absent: the host of the address.
    pub domain: Option<String>,
    /// What this server shows the kernel, in PEM.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Refuses to talk without encryption.
    pub require_tls: bool,
}

impl Default for KernelOptions {
    fn default() -> Self {
        Self {
            address: String::new(),
            timeout_ms: kernel::limits::TIMEOUT_DEFAULT.as_millis() as u64,
            ca: None,
            domain: None,
            certificate: None,
            key: None,
            require_tls: false,
        }
    }
}

impl KernelOptions {
    pub(crate) fn client(&self) -> Result<kernel::Options, Error> {
        let identity = match (&self.certificate, &self.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                Some(kernel::Identity { certificate: certificate.clone(), key: key.clone() })
            }
            (Some(_), None) | (None, Some(_)) => {
                return Err(Error::Policy("`policy.kernel` needs both `certificate` and `key`, or neither".to_owned()));
            }
        };
        let tls = match &self.ca {
            Some(ca) => Some(kernel::Tls { ca: ca.clone(), domain: self.domain.clone(), identity }),
            None if identity.is_some() || self.domain.is_some() => {
                return Err(Error::Policy("`policy.kernel` needs a `ca` for an encrypted connection".to_owned()));
            }
            None => None,
        };
        let mut options = kernel::Options::new(&self.address);
        options.timeout = Duration::from_millis(self.timeout_ms);
        options.tls = tls;
        options.require_tls = self.require_tls;
        Ok(options)
    }
}

fn fail_mode<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<FailMode>, D::Error> {
    let text: Option<String> = Option::deserialize(deserializer)?;
    text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
}

/// What holds for the jobs of a topic.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TopicOptions {
    pub pools: BTreeSet<String>,
    /// How often a job that no runner there is could take is looked for one before it fails; 0: without end.
    pub dispatch_tries_max: u32,
    pub output: OutputOptions,
}

impl Default for TopicOptions {
    fn default() -> Self {
        let Topic { pools, dispatch_tries_max, .. } = Topic::default();
        Self { pools, dispatch_tries_max, output: OutputOptions::default() }
    }
}

/// What becomes of the results of a topic.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutputOptions {
    /// Looks for secrets and personal data in results, and asks the policy about them.
    pub scan: bool,
    /// Shows results only after that.
    pub hold_until_scanned: bool,
    /// What becomes of results that cannot be looked at: `open`, they are shown, or `closed`, they are quarantined.
    #[serde(deserialize_with = "fail_mode")]
    pub fail_mode: Option<FailMode>,
}

/// What holds for a pool.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PoolOptions {
    /// All its runners have these.
    pub capabilities: BTreeSet<String>,
    /// Runners with nine tenths of their slots, their processor or their graphics card in use get nothing at all;
    /// otherwise they are only the last to get something.
    pub spare_overloaded: bool,
}

/// What a tenant may have. Absent: as much as there is.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantOptions {
    /// Jobs that run at once.
    pub max_running: Option<u32>,
    /// Jobs that have not ended.
    pub max_live: Option<u32>,
    pub submits_per_second: Option<u32>,
}

/// What this node's runner is, for those who place jobs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunnerOptions {
    pub pools: BTreeSet<String>,
    pub capabilities: BTreeSet<String>,
    pub labels: BTreeMap<String, String>,
}

impl Default for RunnerOptions {
    fn default() -> Self {
        Self { pools: [engine::DEFAULT_POOL.to_owned()].into(), capabilities: BTreeSet::new(), labels: BTreeMap::new() }
    }
}

fn engine_mode(mode: FailMode) -> engine::FailMode {
    match mode {
        FailMode::Closed => engine::FailMode::Closed,
        FailMode::Open => engine::FailMode::Open,
    }
}

fn topic(options: &TopicOptions) -> Topic {
    let TopicOptions { pools, dispatch_tries_max, output } = options;
    let output = OutputRules {
        scan: output.scan || output.hold_until_scanned,
        hold_until_scanned: output.hold_until_scanned,
        fail_mode: output.fail_mode.map_or(engine::FailMode::Open, engine_mode),
    };
    Topic { pools: pools.clone(), dispatch_tries_max: *dispatch_tries_max, output }
}

fn limits(options: &TenantOptions) -> TenantLimits {
    let TenantOptions { max_running, max_live, submits_per_second } = *options;
    TenantLimits { max_running, max_live, submits_per_second }
}

impl super::Options {
    /// What the shards are told, with this gate.
    pub(crate) fn setup(&self, gate: Gate) -> Setup {
        let others = match (self.topics.get(OTHERS), self.topics.is_empty()) {
            (Some(others), _) => Some(topic(others)),
            (None, true) => Some(Topic::default()),
            // Whoever names topics wants to know of those that are not named.
            (None, false) => None,
        };
        let named = |name: &&String| name.as_str() != OTHERS;
        Setup {
            gate,
            topics: self.topics.iter().filter(|(name, _)| named(name)).map(|(n, o)| (n.clone(), topic(o))).collect(),
            other_topics: others,
            pools: self
                .pools
                .iter()
                .map(|(name, pool)| {
                    let PoolOptions { capabilities, spare_overloaded } = pool.clone();
                    (name.clone(), Pool { capabilities, spare_overloaded })
                })
                .collect(),
            tenants: self.tenants.iter().filter(|(name, _)| named(name)).map(|(n, o)| (n.clone(), limits(o))).collect(),
            other_tenants: self.tenants.get(OTHERS).map(limits).unwrap_or_default(),
        }
    }
}
