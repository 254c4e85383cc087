//! Random faults from a seed, then peace, then agreement.

use model::time::Millis;

use super::checker::{Checker, Violation};
use super::cluster::{Cluster, JOIN_ADDRESSES, Settings};
use crate::profile::Profile;
use crate::random::Random;

/// A node that was stopped or unreachable may be declared dead for this long: suspicions of slow nodes end late.
const EXCUSE: Millis = Millis::from_secs(12);

/// After the faults, all nodes agree within this time.
const AGREEMENT: Millis = Millis::from_secs(30);

const STEPS: u64 = 30;

/// Loss up to which a running, reachable node is never declared dead, in units of 1/10,000.
const LOSS_WITHOUT_FALSE_ALARM: u64 = 1_000;

/// Which faults a scenario has. Each seed draws its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    pub nodes: usize,
    /// Rates in units of 1/10,000.
    pub loss: u64,
    pub duplication: u64,
    pub reordering: u64,
    pub crashes: bool,
    pub pauses: bool,
    pub divisions: bool,
    pub cut_links: bool,
    pub leaves: bool,
    pub busy: bool,
}

impl Faults {
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0xFAB1);
        let nodes = 3 + random.below(8) as usize;
        let loss_max = if random.below(5) == 0 { 3_000 } else { LOSS_WITHOUT_FALSE_ALARM };
        let mut coin = || random.below(2) == 0;
        let (crashes, pauses, divisions, cut_links) = (coin(), coin(), coin(), coin());
        let (leaves, busy, lossy) = (coin(), coin(), coin());
        Self {
            nodes,
            loss: if lossy { random.below(loss_max + 1) } else { 0 },
            duplication: random.below(1_000),
            reordering: random.below(3_000),
            crashes,
            pauses,
            divisions,
            cut_links,
            leaves,
            busy,
        }
    }
}

/// What happened in a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    pub faults: Faults,
    pub false_alarms: u64,
    pub false_suspicions: u64,
    pub refutations: u64,
    pub returns: u64,
    pub restarts: u64,
    pub deaths: u64,
    /// From the end of the faults until all nodes agreed.
    pub agreement: Millis,
}

struct Run {
    cluster: Cluster,
    checker: Checker,
    random: Random,
    faults: Faults,
    /// The nodes on one side of a division.
    part: Vec<usize>,
    resume_at: Vec<Option<Millis>>,
}

/// Runs the scenario of a seed.
pub fn run(seed: u64, profile: Profile) -> Result<Report, Violation> {
    let faults = Faults::of(seed);
    let mut run = Run {
        cluster: Cluster::new(Settings::new(faults.nodes, profile, seed)),
        checker: Checker::default(),
        random: Random::new(seed ^ 0x5CEA),
        faults,
        part: Vec::new(),
        resume_at: vec![None; faults.nodes],
    };
    run.all().map_err(|Violation(what)| Violation(format!("seed {seed}, {faults:?}: {what}")))
}

impl Run {
    fn all(&mut self) -> Result<Report, Violation> {
        for node in 0..self.faults.nodes {
            self.cluster.start(node);
        }
        self.advance(Millis(2_000))?;
        let network = &mut self.cluster.network;
        network.loss = self.faults.loss;
        network.duplication = self.faults.duplication;
        network.reordering = self.faults.reordering;
        for _ in 0..STEPS {
            self.fault();
            let step = Millis(100 + self.random.below(1_200));
            self.advance(step)?;
        }
        self.peace();
        let peace_at = self.cluster.now();
        while !self.cluster.agree() {
            if self.cluster.now() - peace_at > AGREEMENT {
                let wrong = self.cluster.disagreement();
                return Err(Violation(format!("no agreement (observer, node, state): {wrong:?}")));
            }
            self.advance(Millis(50))?;
        }
        let agreement = self.cluster.now() - peace_at;
        // It stays that way.
        self.advance(Millis(3_000))?;
        if let Some(wrong) = self.cluster.disagreement() {
            return Err(Violation(format!("agreement lost (observer, node, state): {wrong:?}")));
        }
        let Checker { false_alarms, false_suspicions, refutations, returns, restarts, deaths, .. } = self.checker;
        if false_alarms > 0 && self.faults.loss <= LOSS_WITHOUT_FALSE_ALARM {
            return Err(Violation(format!("{false_alarms} false alarms")));
        }
        let faults = self.faults;
        Ok(Report { faults, false_alarms, false_suspicions, refutations, returns, restarts, deaths, agreement })
    }

    fn peace(&mut self) {
        let network = &mut self.cluster.network;
        network.mend();
        (network.loss, network.duplication, network.reordering) = (0, 0, 0);
        self.part.clear();
        for node in 0..self.faults.nodes {
            self.cluster.set_busy(node, 0);
            self.resume_at[node] = self.resume_at[node].map(|_| self.cluster.now());
        }
        self.resume();
        // Nodes that started alone meet only at a join address.
        if !(0..JOIN_ADDRESSES.min(self.faults.nodes)).any(|node| self.cluster.is_up(node)) {
            self.start(0);
        }
    }

    /// Lets time pass in small steps, and paused nodes continue.
    fn advance(&mut self, duration: Millis) -> Result<(), Violation> {
        let end = self.cluster.now() + duration;
        while self.cluster.now() < end {
            let step = Millis(50).min(end - self.cluster.now());
            for node in 0..self.faults.nodes {
                if self.cluster.is_paused(node) || !self.part.is_empty() || self.is_out_of_reach(node) {
                    self.checker.excuse(node, self.cluster.now() + step + EXCUSE);
                }
            }
            self.cluster.run_for(step);
            self.resume();
            self.checker.check(&mut self.cluster)?;
        }
        Ok(())
    }

    /// A link of the node is cut, and fewer than two others can help.
    fn is_out_of_reach(&self, node: usize) -> bool {
        let network = &self.cluster.network;
        let is_cut = |other: usize| network.is_cut(node, other) || network.is_cut(other, node);
        let can_help = |other: &usize| {
            *other != node && self.cluster.is_up(*other) && !self.cluster.is_paused(*other) && !is_cut(*other)
        };
        (0..self.faults.nodes).any(is_cut) && (0..self.faults.nodes).filter(can_help).count() < 2
    }

    fn resume(&mut self) {
        for node in 0..self.faults.nodes {
            if self.resume_at[node].is_some_and(|at| at <= self.cluster.now()) {
                self.resume_at[node] = None;
                if self.cluster.is_paused(node) {
                    self.cluster.resume(node);
                }
            }
        }
    }

    fn fault(&mut self) {
        let nodes = self.faults.nodes;
        let node = self.random.below(nodes as u64) as usize;
        let other = self.random.below(nodes as u64) as usize;
        let up = (0..nodes).filter(|node| self.cluster.is_up(*node)).count();
        match self.random.below(10) {
            0 | 1 if self.faults.crashes => {
                if self.cluster.is_up(node) && up > 2 {
                    // Now and then several at once.
                    self.crash(node);
                    if up > 4 && self.random.below(3) == 0 {
                        self.crash(other);
                    }
                } else if !self.cluster.is_up(node) {
                    self.start(node);
                }
            }
            2 if self.faults.crashes && self.cluster.is_up(node) => {
                // A quick restart: nobody notices that it was away.
                self.crash(node);
                self.start(node);
            }
            3 if self.faults.pauses && self.cluster.is_up(node) && !self.cluster.is_paused(node) => {
                self.cluster.pause(node);
                self.resume_at[node] = Some(self.cluster.now() + Millis(50 + self.random.below(6_000)));
            }
            4 if self.faults.divisions => {
                if self.part.is_empty() {
                    self.part = (0..nodes).filter(|_| self.random.below(2) == 0).collect();
                    self.cluster.network.divide(nodes, &self.part);
                } else {
                    self.part.clear();
                    self.cluster.network.mend();
                }
            }
            // Two nodes lose sight of each other, in one or both directions. The others help.
            5 if self.faults.cut_links && !self.faults.divisions && nodes >= 5 => {
                self.cluster.network.mend();
                self.cluster.network.cut(node, other);
                if self.random.below(2) == 0 {
                    self.cluster.network.cut(other, node);
                }
            }
            6 if self.faults.leaves && self.cluster.is_up(node) && !self.cluster.is_paused(node) && up > 2 => {
                self.cluster.leave(node);
                self.checker.forget_observer(node);
            }
            7 if self.faults.leaves && self.cluster.has_left(node) => self.start(node),
            8 if self.faults.busy => {
                let busy_ms = self.random.below(60);
                self.cluster.set_busy(node, busy_ms);
            }
            _ => {}
        }
    }

    fn crash(&mut self, node: usize) {
        self.cluster.crash(node);
        self.resume_at[node] = None;
        self.checker.forget_observer(node);
    }

    fn start(&mut self, node: usize) {
        self.cluster.start(node);
        self.checker.forget_observer(node);
    }
}
