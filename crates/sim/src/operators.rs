//! Operators: they put rules in force, take them back, and say what becomes of results, at any time. What they say
//! reaches every shard, each at its own time.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{FailMode, Gate, OutputRules, Setup, Topic};
use model::verdict::PolicyVersion;

use crate::coverage::Fault;
use crate::plan::{Gates, Plan};
use crate::rng::Rng;
use crate::world::{Event, World, trace};

/// What jobs of the workload are about.
pub const TOPICS: [&str; 3] = ["default", "build", "report"];

/// Everything that operators have ever said; the newest last.
#[derive(Debug)]
pub struct Operators {
    setups: Vec<Arc<Setup>>,
    /// Every set of rules that was ever in force.
    versions: Vec<PolicyVersion>,
}

impl Operators {
    pub fn new(plan: &Plan, rng: &mut Rng) -> Self {
        let first = version(0);
        let gate = match plan.gates {
            Gates::Open => Gate::Open,
            Gates::Policy | Gates::Changing => Gate::Policy(first),
        };
        let setup = Setup { gate, topics: topics(rng, plan), tenants: plan.tenants.clone(), ..Setup::default() };
        Self { setups: vec![Arc::new(setup)], versions: vec![first] }
    }

    /// Counts what was said.
    pub fn newest(&self) -> usize {
        self.setups.len() - 1
    }

    pub fn setup(&self, number: usize) -> Option<&Arc<Setup>> {
        self.setups.get(number)
    }

    /// What a shard starts with.
    pub fn newest_setup(&self) -> Arc<Setup> {
        self.setups[self.newest()].clone()
    }

    /// The rules of which the policy itself has heard last.
    pub fn newest_version(&self) -> PolicyVersion {
        let in_force = self.setups.iter().rev().find_map(|setup| version_of(setup.gate));
        in_force.unwrap_or(self.versions[0])
    }

    pub fn some_version(&self, rng: &mut Rng) -> PolicyVersion {
        rng.pick(&self.versions).copied().unwrap_or(self.versions[0])
    }

    fn gate(&self) -> Gate {
        self.setups[self.newest()].gate
    }
}

/// The rules that a gate goes by.
pub fn version_of(gate: Gate) -> Option<PolicyVersion> {
    match gate {
        Gate::Open => None,
        Gate::Policy(version) => Some(version),
    }
}

fn version(number: usize) -> PolicyVersion {
    PolicyVersion::of(&number.to_le_bytes())
}

fn topics(rng: &mut Rng, plan: &Plan) -> BTreeMap<String, Topic> {
    let mut topic = || {
        let output = OutputRules {
            scan: rng.chance(plan.outputs.scan),
            hold_until_scanned: rng.chance(plan.outputs.hold),
            fail_mode: if rng.chance(plan.outputs.closed) { FailMode::Closed } else { FailMode::Open },
        };
        Topic { output, dispatch_tries_max: plan.dispatch_tries_max, ..Topic::default() }
    };
    TOPICS.iter().map(|name| ((*name).to_owned(), topic())).collect()
}

impl World {
    /// New rules, those of before, or none.
    pub(crate) fn change_policy(&mut self) {
        if self.plan.gates == Gates::Open {
            return;
        }
        let gate = if self.plan.gates == Gates::Changing && self.rng.one_in(3) {
            self.coverage.fault(Fault::PolicySwitchedOff);
            Gate::Open
        } else if self.rng.one_in(4) {
            self.coverage.fault(Fault::PolicyCameBack);
            Gate::Policy(self.operators.some_version(&mut self.rng))
        } else {
            self.coverage.fault(Fault::PolicyChanged);
            let new = version(self.operators.versions.len());
            self.operators.versions.push(new);
            Gate::Policy(new)
        };
        let topics = self.operators.newest_setup().topics.clone();
        self.say(Setup { gate, topics, ..Setup::clone(&self.operators.newest_setup()) });
    }

    pub(crate) fn change_outputs(&mut self) {
        self.coverage.fault(Fault::OutputRulesChanged);
        let topics = topics(&mut self.rng, &self.plan);
        self.say(Setup { topics, ..Setup::clone(&self.operators.newest_setup()) });
    }

    fn say(&mut self, setup: Setup) {
        self.operators.setups.push(Arc::new(setup));
        let number = self.operators.newest();
        trace!(self, "operators say {number}: {:?}", self.operators.gate());
        for shard in 0..self.hosts.len() {
            let delay = self.rng.below(self.plan.setup_delay_max);
            self.after(delay, Event::OperatorsHeard { shard, number });
        }
    }

    /// Every process of a shard hears it, also one that has lost the shard and does not know.
    pub(crate) fn operators_heard(&mut self, shard: usize, number: usize) {
        let Some(setup) = self.operators.setup(number).cloned() else { return };
        let processes: Vec<u64> = self.hosts[shard].processes.iter().map(|process| process.number).collect();
        for process in processes {
            let setup = setup.clone();
            self.hand_over(shard, process, crate::world::Inbound::Setup { number, setup });
        }
    }
}
