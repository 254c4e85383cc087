//! Operators: they change the policy version and the output rules and cordon runners at any time. New settings reach each
//! shard with its own delay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::{FailMode, OutputRules, PolicyMode, Settings, Topic};
use model::audit::Action;
use model::id::{NodeId, RunnerId};
use model::verdict::PolicyVersion;

use crate::coverage::Fault;
use crate::rng::Rng;
use crate::scenario::{PolicyUse, Scenario};
use crate::world::{Event, Inbound, World, trace};

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

    /// Cordons a runner or ends its cordon. A cordoned runner may be drained: its attempts are taken back. Or it is given
    /// up: its jobs end.
    pub(crate) fn cordon_or_uncordon(&mut self) {
        let index = self.rng.index(self.runners.len());
        let runner = self.runners[index].id;
        let mut cordoned = self.operators.newest_settings().cordoned.clone();
        if cordoned.remove(&runner) {
            return self.publish_cordons(cordoned);
        }
        self.coverage.count_fault(Fault::RunnerCordoned);
        cordoned.insert(runner);
        self.publish_cordons(cordoned);
        let node = NodeId(runner.0);
        if self.rng.one_in(8) {
            self.coverage.count_fault(Fault::RunnerAbandoned);
            self.ledger.audit.record_named_request(engine::abandoned_message(node), Action::Abandoned);
            self.deliver_to_all(|| Inbound::AbandonAll { runner });
        } else if self.rng.one_in(2) {
            self.coverage.count_fault(Fault::RunnerDrained);
            self.ledger.audit.record_named_request(engine::drained_message(node), Action::Retracted);
            self.deliver_to_all(|| Inbound::RetractAll { runner });
        }
    }

    /// Each shard receives it after a delay of its own.
    fn deliver_to_all(&mut self, inbound: impl Fn() -> Inbound) {
        for shard in 0..self.hosts.len() {
            let delay = self.rng.below(2 * self.scenario.settings_delay_max);
            self.after(delay, Event::Deliver { shard, inbound: inbound() });
        }
    }

    pub(crate) fn uncordon_all(&mut self) {
        if !self.operators.newest_settings().cordoned.is_empty() {
            self.publish_cordons(BTreeSet::new());
        }
    }

    fn publish_cordons(&mut self, cordoned: BTreeSet<RunnerId>) {
        self.publish_settings(Settings { cordoned, ..Settings::clone(&self.operators.newest_settings()) });
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
            self.enqueue(shard, process, Inbound::Settings { number, settings });
        }
    }
}
