//! Placement against a slow reference model: every choice, count and the order, after random histories.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::{DEFAULT_POOL, Input, Pool, Settings, TenantLimits, Topic};
use model::batch::Keyspace;
use model::id::{JobId, RunnerId};
use model::job::{End, Job, Placement};
use model::message::{Capacity, Load, Profile};
use model::spec::{JobSpec, Requirements, decode_requirements};
use model::state::State;
use proptest::prelude::*;

use crate::support::{Fixture, config_of, job, room};

const POOLS: [&str; 3] = ["a", "b", DEFAULT_POOL];
const CAPABILITIES: [&str; 2] = ["gpu", "avx"];

/// A job's requirement, in small numbers.
#[derive(Debug, Clone)]
struct Order {
    topic: u8,
    requires: u8,
    zone: u8,
    worker: u8,
    tenant: u8,
}

#[derive(Debug, Clone)]
struct Kind {
    pools: u8,
    capabilities: u8,
    zone: u8,
    slots: u32,
}

#[derive(Debug, Clone)]
enum Op {
    Submit(Order),
    Comes(u8, Kind),
    Resize(u8, u32),
    Lose(u8),
    Load(u8, u8, u8),
    End(u8, bool),
    Settings(u8),
    Pass(u16),
}

fn ops() -> impl Strategy<Value = Op> {
    let order = (0..4u8, 0..4u8, 0..4u8, 0..6u8, 0..3u8).prop_map(|(topic, requires, zone, worker, tenant)| Order {
        topic,
        requires: if requires == 3 { 0 } else { requires },
        zone,
        worker,
        tenant,
    });
    let kind = (0..8u8, 0..4u8, 0..3u8, 0..5u32).prop_map(|(pools, capabilities, zone, slots)| Kind {
        pools,
        capabilities,
        zone,
        slots,
    });
    prop_oneof![
        10 => order.prop_map(Op::Submit),
        4 => (0..5u8, kind).prop_map(|(runner, kind)| Op::Comes(runner, kind)),
        1 => (0..5u8, 0..6u32).prop_map(|(runner, slots)| Op::Resize(runner, slots)),
        1 => (0..5u8).prop_map(Op::Lose),
        3 => (0..5u8, 0..101u8, 0..101u8).prop_map(|(runner, cpu, gpu)| Op::Load(runner, cpu, gpu)),
        6 => (any::<u8>(), prop::bool::weighted(0.8)).prop_map(|(which, well)| Op::End(which, well)),
        1 => (0..4u8).prop_map(Op::Settings),
        2 => (0..3_000u16).prop_map(Op::Pass),
    ]
}

fn some(names: &[&str], bits: u8) -> BTreeSet<String> {
    let chosen = names.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0);
    chosen.map(|(_, name)| (*name).to_owned()).collect()
}

fn settings(variant: u8) -> Settings {
    let topic =
        |pools: &[&str]| Topic { pools: pools.iter().map(|name| (*name).to_owned()).collect(), ..Topic::default() };
    let mut settings = Settings::default();
    settings.topics.insert("t1".to_owned(), topic(if variant == 1 { &["b"] } else { &["a"] }));
    settings.topics.insert("t2".to_owned(), topic(&["a", "b"]));
    settings.topics.insert("t3".to_owned(), topic(if variant == 2 { &["a", DEFAULT_POOL] } else { &[] }));
    let gives = if variant == 1 { 1 } else { 2 };
    let spare = Pool { capabilities: some(&CAPABILITIES, gives), spare_overloaded: variant != 2 };
    settings.pools.insert("a".to_owned(), spare);
    if variant == 3 {
        settings.tenants.insert("one".to_owned(), TenantLimits { max_running: Some(2), ..TenantLimits::default() });
    }
    settings
}

fn spec(order: &Order) -> JobSpec {
    job(|spec| {
        spec.topic = format!("t{}", order.topic);
        spec.tenant = ["none", "one", "two"][order.tenant as usize].to_owned();
        spec.requires = some(&CAPABILITIES, order.requires).into_iter().collect();
        if order.zone < 3 {
            spec.labels.insert("placement.zone".to_owned(), format!("z{}", order.zone));
        }
        if order.worker < 5 {
            spec.labels.insert("preferred_worker_id".to_owned(), id(order.worker).to_string());
        }
    })
}

fn id(runner: u8) -> RunnerId {
    RunnerId(u64::from(runner) + 1)
}

/// A runner in the reference model.
#[derive(Debug, Clone, Default)]
struct Known {
    profile: Profile,
    slots: u32,
    load: Load,
    held: u32,
}

impl Known {
    fn pools(&self) -> BTreeSet<String> {
        if self.profile.pools.is_empty() { [DEFAULT_POOL.to_owned()].into() } else { self.profile.pools.clone() }
    }

    fn overloaded(&self) -> bool {
        f64::from(self.held) >= 0.9 * f64::from(self.slots)
            || self.load.cpu_percent >= 90
            || self.load.gpu_percent >= 90
    }

    fn score(&self) -> u64 {
        1000 * u64::from(self.held) + 10 * (u64::from(self.load.cpu_percent) + u64::from(self.load.gpu_percent))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    OtherPool,
    LackCapability,
    OtherLabels,
    Spared,
    Full,
    Roomy { overloaded: bool },
}

struct World {
    shard: Fixture,
    settings: Settings,
    known: BTreeMap<RunnerId, Known>,
    wants: BTreeMap<JobId, Requirements>,
}

impl World {
    fn new() -> Self {
        let settings = settings(0);
        let shard = Fixture::governed(config_of(0, 1), settings.clone());
        Self { shard, settings, known: BTreeMap::new(), wants: BTreeMap::new() }
    }

    fn pools_of(&self, wants: &Requirements) -> BTreeSet<String> {
        let pools = self.settings.topic(&wants.topic).map(|topic| topic.pools.clone()).unwrap_or_default();
        pools.into_iter().filter(|pool| wants.pool.as_ref().is_none_or(|only| only == pool)).collect()
    }

    fn stand(&self, known: &Known, wants: &Requirements) -> Stand {
        let shared: Vec<String> = known.pools().intersection(&self.pools_of(wants)).cloned().collect();
        if shared.is_empty() {
            return Stand::OtherPool;
        }
        let mut can = known.profile.capabilities.clone();
        for pool in known.pools() {
            can.extend(self.settings.pools.get(&pool).map(|pool| pool.capabilities.clone()).unwrap_or_default());
        }
        if !wants.requires.iter().all(|name| can.contains(name)) {
            return Stand::LackCapability;
        }
        if !wants.labels.iter().all(|(name, value)| known.profile.labels.get(name) == Some(value)) {
            return Stand::OtherLabels;
        }
        let spares = |pool: &String| self.settings.pools.get(pool).is_some_and(|pool| pool.spare_overloaded);
        if known.overloaded() && shared.iter().all(spares) {
            return Stand::Spared;
        }
        if known.held >= known.slots { Stand::Full } else { Stand::Roomy { overloaded: known.overloaded() } }
    }

    fn roomy(&self, wants: &Requirements) -> Vec<(RunnerId, bool, u64)> {
        let all = self.known.iter().filter_map(|(id, known)| match self.stand(known, wants) {
            Stand::Roomy { overloaded } => Some((*id, overloaded, known.score())),
            Stand::OtherPool | Stand::LackCapability | Stand::OtherLabels | Stand::Spared | Stand::Full => None,
        });
        all.collect()
    }

    fn counts(&self, wants: &Requirements) -> Placement {
        let mut counts = Placement::default();
        for known in self.known.values() {
            let number = match self.stand(known, wants) {
                Stand::OtherPool => &mut counts.other_pool,
                Stand::LackCapability => &mut counts.lack_capability,
                Stand::OtherLabels => &mut counts.other_labels,
                Stand::Roomy { overloaded: false } => &mut counts.available,
                Stand::Spared | Stand::Full | Stand::Roomy { overloaded: true } => &mut counts.busy,
            };
            *number += 1;
        }
        counts
    }

    fn live(&self) -> Vec<Job> {
        self.shard.records.jobs(Keyspace::Live)
    }

    fn waiting(&self) -> Vec<Job> {
        let waits = |job: &Job| {
            let is_due = job.eligible_at <= self.shard.now || job.dispatch_tries > 0;
            job.state == State::Scheduled && is_due
        };
        self.live().into_iter().filter(waits).collect()
    }

    /// Applies an operation and checks all its consequences.
    fn act(&mut self, act: impl FnOnce(&mut Fixture)) {
        let before: BTreeSet<JobId> = self.waiting().iter().map(|job| job.id).collect();
        self.shard.runs.clear();
        act(&mut self.shard);
        let runs = std::mem::take(&mut self.shard.runs);
        for known in self.known.values_mut() {
            known.held = 0;
        }
        for job in self.live() {
            if let Some((runner, _)) = job.runner()
                && let Some(known) = self.known.get_mut(&runner)
            {
                known.held += 1;
            }
        }
        for (runner, _) in &runs {
            self.known.get_mut(runner).expect("the runner is registered").held -= 1;
        }
        let alone = runs.len() == 1 && self.waiting().is_empty();
        for (runner, attempt_ref) in &runs {
            self.check_choice(*runner, attempt_ref.job, alone);
            self.known.get_mut(runner).expect("the runner is registered").held += 1;
        }
        self.check_conserving();
        let ran: Vec<JobId> = runs.iter().map(|(_, attempt_ref)| attempt_ref.job).collect();
        self.check_order(&before, &ran);
    }

    fn wants(&mut self, job: &Job) -> Requirements {
        self.wants.entry(job.id).or_insert_with(|| decode_requirements(&job.spec).expect("a spec")).clone()
    }

    fn check_choice(&mut self, runner: RunnerId, id: JobId, alone: bool) {
        let mut job = self.shard.job(id);
        let wants = self.wants(&job);
        let placed = job.attempts.pop().expect("an attempt");
        let roomy = self.roomy(&wants);
        let chosen = roomy.iter().find(|(id, ..)| *id == runner);
        let (_, overloaded, score) = *chosen.unwrap_or_else(|| panic!("{runner} is not eligible for {wants:?}"));
        let preferred =
            roomy.iter().find(|(id, overloaded, _)| wants.preferred_runner == Some(id.to_string()) && !overloaded);
        if let Some((preferred, ..)) = preferred {
            assert_eq!(*preferred, runner, "the preferred runner is available");
        } else {
            let failed = job.failed_on(runner);
            assert!(
                !failed || roomy.iter().all(|(id, ..)| job.failed_on(*id)),
                "a runner that has not failed it is available"
            );
            let key = |(id, overloaded, score): &(RunnerId, bool, u64)| (job.failed_on(*id), *overloaded, *score, *id);
            let best = roomy.iter().map(key).min().expect("at least the chosen one");
            assert!(!alone || best == (failed, overloaded, score, runner), "{best:?} is better than {runner}");
        }
        let expected = Placement { score_milli: score, preferred: preferred.is_some(), ..self.counts(&wants) };
        let record = placed.placement.map(|placement| *placement);
        assert_eq!(record, (self.known.len() > 1).then_some(expected), "placement record of {runner}");
    }

    /// No job waits while an eligible runner has a free slot.
    fn check_conserving(&mut self) {
        let live = self.live();
        let tenant = |job: &Job| job.decode_spec().expect("a spec").tenant;
        for waiting in self.waiting() {
            let name = tenant(&waiting);
            let running = live.iter().filter(|job| job.state.is_on_runner() && tenant(job) == name).count() as u32;
            if self.settings.tenant(&name).max_running.is_some_and(|max| running >= max) {
                continue;
            }
            let wants = self.wants(&waiting);
            assert_eq!(self.roomy(&wants), [], "{} waits for {wants:?}", waiting.id);
        }
    }

    /// Jobs with the same requirement run first in, first out.
    fn check_order(&mut self, before: &BTreeSet<JobId>, ran: &[JobId]) {
        let waiting: Vec<Job> = self.waiting().into_iter().filter(|job| before.contains(&job.id)).collect();
        for id in ran {
            let ran = self.shard.job(*id);
            let wants = self.wants(&ran);
            for other in &waiting {
                let overtaken = other.id < ran.id && other.queue == ran.queue && self.wants(other) == wants;
                assert!(!overtaken, "{} overtook {}", ran.id, other.id);
            }
        }
    }

    fn perform(&mut self, op: &Op) {
        match op {
            Op::Submit(order) => {
                let spec = spec(order);
                self.act(|shard| {
                    shard.submit(&spec);
                });
            }
            Op::Comes(runner, kind) => self.comes(id(*runner), kind),
            Op::Resize(runner, slots) => {
                let Some(known) = self.known.get_mut(&id(*runner)) else { return };
                known.slots = *slots;
                self.act(|shard| shard.resize(id(*runner), room(*slots)));
            }
            Op::Lose(runner) => {
                let incarnation = self.shard.runners.get(&id(*runner)).map_or(1, |runner| runner.incarnation.0);
                self.known.remove(&id(*runner));
                self.act(|shard| shard.lose(id(*runner), incarnation));
            }
            Op::Load(runner, cpu_percent, gpu_percent) => {
                let Some(known) = self.known.get_mut(&id(*runner)) else { return };
                let load = Load { cpu_percent: *cpu_percent, gpu_percent: *gpu_percent };
                known.load = load;
                let incarnation = self.shard.runners[&id(*runner)].incarnation;
                self.act(|shard| shard.input(Input::Load { runner: id(*runner), incarnation, load }));
            }
            Op::End(which, well) => {
                let running: Vec<JobId> =
                    self.live().iter().filter(|job| job.state.is_on_runner()).map(|job| job.id).collect();
                let Some(job) = running.get(*which as usize % running.len().max(1)).copied() else { return };
                self.act(|shard| shard.run_attempt(job, if *well { End::Succeeded } else { End::Error }));
            }
            Op::Settings(variant) => {
                self.settings = settings(*variant);
                let settings = Arc::new(self.settings.clone());
                self.act(|shard| shard.input(Input::Settings(settings)));
            }
            Op::Pass(millis) => self.act(|shard| shard.advance(u64::from(*millis))),
        }
    }

    fn comes(&mut self, runner: RunnerId, kind: &Kind) {
        self.known.insert(runner, Known::default());
        self.act(|shard| shard.runner(runner, Capacity::default()));
        let labels = [("zone".to_owned(), format!("z{}", kind.zone))].into();
        let (pools, capabilities) = (some(&POOLS, kind.pools), some(&CAPABILITIES, kind.capabilities));
        let profile = Profile { pools, capabilities, labels, keeps_leases: true };
        self.shard.messages(runner, |runner| runner.profile = Arc::new(profile.clone()));
        self.known.insert(runner, Known { profile, slots: kind.slots, ..Known::default() });
        self.act(|shard| shard.resize(runner, room(kind.slots)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    // FEATURES: D6
    #[test]
    fn placement_follows_the_rules_and_no_job_waits_needlessly(ops in prop::collection::vec(ops(), 1..60)) {
        let mut world = World::new();
        for op in &ops {
            world.perform(op);
        }
    }
}
