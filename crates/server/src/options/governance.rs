//! Configuration of policy, topics, pools, tenants and the runner.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use engine::{OutputRules, PolicyMode, Pool, Settings, TenantLimits, Topic};
use policy_service::FailMode;
use serde::Deserialize;

use crate::error::Error;

/// Key of the settings for all topics or tenants not listed.
pub const WILDCARD: &str = "*";

/// Policy backend: rules or a service. Neither: every job may run.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyOptions {
    /// Directory with rules in Rego.
    pub rules: Option<PathBuf>,
    /// A policy service, instead of rules.
    pub service: Option<PolicyServiceOptions>,
    /// While the policy is unavailable: `closed`, jobs wait, or `open`, jobs run. The environment variable
    /// `OUTLAST_POLICY_FAIL_MODE` takes precedence over the file.
    #[serde(deserialize_with = "fail_mode")]
    pub fail_mode: Option<FailMode>,
}

/// Connection to the policy service.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyServiceOptions {
    pub address: String,
    /// Time limit of one call.
    pub timeout_ms: u64,
    /// PEM file with the CAs that may sign the certificate of the policy service. Enables TLS.
    pub ca: Option<PathBuf>,
    /// Host name in its certificate. Default: the host of the address.
    pub domain: Option<String>,
    /// PEM file with the client certificate of this server.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Refuses connections without TLS.
    pub require_tls: bool,
}

impl Default for PolicyServiceOptions {
    fn default() -> Self {
        Self {
            address: String::new(),
            timeout_ms: policy_service::limits::TIMEOUT_DEFAULT.as_millis() as u64,
            ca: None,
            domain: None,
            certificate: None,
            key: None,
            require_tls: false,
        }
    }
}

impl PolicyServiceOptions {
    pub(crate) fn client(&self) -> Result<policy_service::Options, Error> {
        let identity = match (&self.certificate, &self.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                Some(policy_service::Identity { certificate: certificate.clone(), key: key.clone() })
            }
            (Some(_), None) | (None, Some(_)) => {
                return Err(Error::Policy(
                    "`policy.service` needs both `certificate` and `key`, or neither".to_owned(),
                ));
            }
        };
        let tls = match &self.ca {
            Some(ca) => Some(policy_service::Tls { ca: ca.clone(), domain: self.domain.clone(), identity }),
            None if identity.is_some() || self.domain.is_some() => {
                return Err(Error::Policy("`policy.service` needs `ca` for TLS".to_owned()));
            }
            None => None,
        };
        let mut options = policy_service::Options::new(&self.address);
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

/// Settings of a topic.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TopicOptions {
    pub pools: BTreeSet<String>,
    /// Limit of dispatch tries of a job without an eligible runner. 0: no limit.
    pub dispatch_tries_max: u32,
    pub output: OutputOptions,
}

impl Default for TopicOptions {
    fn default() -> Self {
        let Topic { pools, dispatch_tries_max, .. } = Topic::default();
        Self { pools, dispatch_tries_max, output: OutputOptions::default() }
    }
}

/// Output policy of a topic.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutputOptions {
    /// Scans results for secrets and personal data; the policy decides about the findings.
    pub scan: bool,
    /// Withholds results until they are scanned.
    pub hold_until_scanned: bool,
    /// Results that cannot be scanned: `open`, they are shown, or `closed`, they are quarantined.
    #[serde(deserialize_with = "fail_mode")]
    pub fail_mode: Option<FailMode>,
}

/// Settings of a runner pool.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PoolOptions {
    /// Capabilities of all its runners.
    pub capabilities: BTreeSet<String>,
    /// Runners with 90 % of their slots, CPU or GPU in use get no jobs at all. Otherwise they are only chosen last.
    pub spare_overloaded: bool,
}

/// Limits of a tenant. Default: none.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantOptions {
    /// Concurrently running jobs.
    pub max_running: Option<u32>,
    /// Non-terminal jobs.
    pub max_live: Option<u32>,
    pub submits_per_second: Option<u32>,
}

/// Attributes of this node's runner, for placement.
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
    /// The shards' settings under a policy mode.
    pub(crate) fn settings(&self, policy: PolicyMode) -> Settings {
        let others = match (self.topics.get(WILDCARD), self.topics.is_empty()) {
            (Some(others), _) => Some(topic(others)),
            (None, true) => Some(Topic::default()),
            // With topics configured, jobs of unlisted topics cannot be placed.
            (None, false) => None,
        };
        let named = |name: &&String| name.as_str() != WILDCARD;
        Settings {
            policy,
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
            other_tenants: self.tenants.get(WILDCARD).map(limits).unwrap_or_default(),
            cordoned: BTreeSet::new(),
            failing: BTreeMap::new(),
        }
    }
}
