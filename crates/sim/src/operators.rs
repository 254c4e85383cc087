//! Operators: they change the policy version and the output rules at any time. New settings reach each shard with its
//! own delay.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{FailMode, OutputRules, PolicyMode, Settings, Topic};
use model::verdict::PolicyVersion;

use crate::coverage::Fault;
use crate::rng::Rng;
use crate::scenario::{PolicyUse, Scenario};
use crate::world::{Event, World, trace};

/// Topics of the jobs.
pub const TOPICS: [&str; 3] = ["default", "build", "report"];

/// All settings ever published, the newest last.
#[derive(Debug)]
pub struct Operators {
    settings: Vec<Arc<Settings>>,
    /// All policy versions ever in force.
    versions: Vec<PolicyVersion>,
}

impl Operators {
    pub fn new(scenario: &Scenario, rng: &mut Rng) -> Self {
        let first = version(0);
        let policy = match scenario.policy_use {
            PolicyUse::Disabled => PolicyMode::Disabled,
            PolicyUse::Enforced | PolicyUse::Intermittent => PolicyMode::Enforced(first),
        };
        let topics = topics(rng, scenario);
        let settings = Settings { policy, topics, tenants: scenario.tenants.clone(), ..Settings::default() };
        Self { settings: vec![Arc::new(settings)], versions: vec![first] }
    }

    /// Number of the newest settings.
    pub fn newest(&self) -> usize {
        self.settings.len() - 1
    }

    pub fn settings(&self, number: usize) -> Option<&Arc<Settings>> {
        self.settings.get(number)
    }

    /// The settings a shard starts with.
    pub fn newest_settings(&self) -> Arc<Settings> {
        self.settings[self.newest()].clone()
    }

    /// The newest policy version that was in force.
    pub fn newest_version(&self) -> PolicyVersion {
        let in_force = self.settings.iter().rev().find_map(|settings| version_of(settings.policy));
        in_force.unwrap_or(self.versions[0])
    }

    pub fn some_version(&self, rng: &mut Rng) -> PolicyVersion {
        rng.pick(&self.versions).copied().unwrap_or(self.versions[0])
    }

    fn policy(&self) -> PolicyMode {
        self.settings[self.newest()].policy
    }
}

/// The policy version in force, if any.
pub fn version_of(policy: PolicyMode) -> Option<PolicyVersion> {
    match policy {
        PolicyMode::Disabled => None,
        PolicyMode::Enforced(version) => Some(version),
    }
}

fn version(number: usize) -> PolicyVersion {
    PolicyVersion::of(&number.to_le_bytes())
}

fn topics(rng: &mut Rng, scenario: &Scenario) -> BTreeMap<String, Topic> {
    let mut topic = || {
        let output = OutputRules {
            scan: rng.chance(scenario.outputs.scan),
            hold_until_scanned: rng.chance(scenario.outputs.hold),
            fail_mode: if rng.chance(scenario.outputs.closed) { FailMode::Closed } else { FailMode::Open },
        };
        Topic { output, dispatch_tries_max: scenario.dispatch_tries_max, ..Topic::default() }
    };
    TOPICS.iter().map(|name| ((*name).to_owned(), topic())).collect()
}

impl World {
    /// Puts a new policy version in force, an earlier one, or none.
    pub(crate) fn change_policy(&mut self) {
        if self.scenario.policy_use == PolicyUse::Disabled {
            return;
        }
        let policy = if self.scenario.policy_use == PolicyUse::Intermittent && self.rng.one_in(3) {
            self.coverage.count_fault(Fault::PolicySwitchedOff);
            PolicyMode::Disabled
        } else if self.rng.one_in(4) {
            self.coverage.count_fault(Fault::PolicyCameBack);
            PolicyMode::Enforced(self.operators.some_version(&mut self.rng))
        } else {
            self.coverage.count_fault(Fault::PolicyChanged);
            let new = version(self.operators.versions.len());
            self.operators.versions.push(new);
            PolicyMode::Enforced(new)
        };
        let topics = self.operators.newest_settings().topics.clone();
        self.publish_settings(Settings { policy, topics, ..Settings::clone(&self.operators.newest_settings()) });
    }

    pub(crate) fn change_outputs(&mut self) {
        self.coverage.count_fault(Fault::OutputRulesChanged);
        let topics = topics(&mut self.rng, &self.scenario);
        self.publish_settings(Settings { topics, ..Settings::clone(&self.operators.newest_settings()) });
    }

    fn publish_settings(&mut self, settings: Settings) {
        self.operators.settings.push(Arc::new(settings));
        let number = self.operators.newest();
        trace!(self, "operators publish settings {number}: {:?}", self.operators.policy());
        for shard in 0..self.hosts.len() {
            let delay = self.rng.below(self.scenario.settings_delay_max);
            self.after(delay, Event::DeliverSettings { shard, number });
        }
    }

    /// Delivers settings to every process of a shard, including a fenced one that has not noticed.
    pub(crate) fn deliver_settings(&mut self, shard: usize, number: usize) {
        let Some(settings) = self.operators.settings(number).cloned() else { return };
        let processes: Vec<u64> = self.hosts[shard].processes.iter().map(|process| process.number).collect();
        for process in processes {
            let settings = settings.clone();
            self.enqueue(shard, process, crate::world::Inbound::Settings { number, settings });
        }
    }
}
