//! Failure detection in virtual time.

use model::time::Millis;

use super::*;
use crate::fence::Contact;
use crate::leadership::leader;
use crate::profile::Profile;
use crate::view::{Event, Source, State};

/// Seeds of the random scenarios in the test suite. More: `FABRIC_SEEDS=10000 cargo test -p fabric -- --ignored`.
const SEEDS: u64 = 300;

fn joined(nodes: usize, profile: Profile, seed: u64) -> Cluster {
    let mut cluster = Cluster::new(Settings::new(nodes, profile, seed));
    for node in 0..nodes {
        cluster.start(node);
    }
    assert!(cluster.run_until(Millis::from_secs(120), Cluster::agree), "{:?}", cluster.disagreement());
    cluster.take_observations();
    cluster
}

/// Times of one detection per seed, all observers together, in ascending order; and the false alarms.
fn detections(nodes: usize, profile: Profile, loss: u64, seeds: std::ops::Range<u64>) -> (Vec<u64>, u64) {
    let mut times = Vec::new();
    let mut false_alarms = 0;
    for seed in seeds {
        let detection = measure_detection(Settings::new(nodes, profile, seed), loss).unwrap();
        times.extend(detection.times.iter().map(|time| time.0));
        false_alarms += detection.false_alarms;
    }
    times.sort_unstable();
    (times, false_alarms)
}

fn describe(times: &[u64]) -> String {
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    format!("min {} median {} p99 {} max {} ms", times[0], at(50), at(99), at(100))
}

// FEATURES: A5
#[test]
fn a_dead_node_of_five_is_dead_everywhere_within_three_seconds() {
    let (times, false_alarms) = detections(5, Profile::default(), 0, 0..200);
    println!("default, 5 nodes: {}", describe(&times));
    assert_eq!((times.len(), false_alarms), (800, 0));
    assert!(times.last() < Some(&3_000));
}

// FEATURES: A5
#[test]
fn the_time_of_detection_grows_slowly_with_the_cluster() {
    for (nodes, seeds, limit) in [(3, 60, 3_000), (20, 20, 4_000), (200, 1, 7_000)] {
        let (times, false_alarms) = detections(nodes, Profile::default(), 0, 0..seeds);
        println!("default, {nodes} nodes: {}", describe(&times));
        assert!(times.last() < Some(&limit));
        assert_eq!(false_alarms, 0);
    }
}

// FEATURES: A5
#[test]
#[ignore = "a minute of measurements; runs with `cargo xtask test --all`"]
fn detection_times_in_detail() {
    for (nodes, seeds) in [(5, 5_000), (50, 40), (200, 12)] {
        for loss in [0, 1_000, 3_000] {
            let (times, false_alarms) = detections(nodes, Profile::default(), loss, 0..seeds);
            let alarms = format!("{false_alarms} false alarms");
            println!("default, {nodes} nodes, {} % loss, {seeds} deaths: {}, {alarms}", loss / 100, describe(&times));
            assert!(nodes > 5 || loss > 0 || times.last() < Some(&3_000));
        }
    }
}

// FEATURES: A5
#[test]
fn the_classic_profile_finds_a_dead_node_within_its_bound() {
    let profile = Profile::classic();
    let (times, false_alarms) = detections(5, profile, 0, 0..60);
    println!("classic, 5 nodes: {}", describe(&times));
    // At most seven periods until someone probes the node, one for the probe, the suspicion, and the gossip. Clocks differ.
    let bound = 8 * profile.probe_period.0 + profile.suspicion.0 + 2 * profile.gossip_interval.0;
    assert!(times.first() >= Some(&((profile.suspicion.0 + profile.probe_period.0) * 97 / 100)));
    assert!(times.last() <= Some(&(bound * 103 / 100)), "{bound}");
    assert_eq!(false_alarms, 0);
}

// FEATURES: A5
#[test]
fn loss_up_to_ten_percent_kills_nobody() {
    for loss in [200, 1_000] {
        let (times, false_alarms) = detections(5, Profile::default(), loss, 0..60);
        println!("default, 5 nodes, {} % loss: {}", loss / 100, describe(&times));
        assert_eq!(false_alarms, 0);
    }
}

// FEATURES: A5, A6, A7
#[test]
fn random_faults_end_in_agreement() {
    summarise(0..SEEDS);
}

// FEATURES: A5, A6, A7
#[test]
#[ignore = "thousands of seeds, chosen by FABRIC_SEEDS and FABRIC_FIRST_SEED; runs with `cargo xtask test --all`"]
fn many_random_faults_end_in_agreement() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("FABRIC_FIRST_SEED").unwrap_or(SEEDS);
    summarise(first..first + number("FABRIC_SEEDS").unwrap_or(5_000));
}

fn summarise(seeds: std::ops::Range<u64>) {
    let mut reports = Vec::new();
    let mut violations = Vec::new();
    for seed in seeds {
        match run(seed, Profile::default()) {
            Ok(report) => reports.push(report),
            Err(Violation(what)) => violations.push(what),
        }
    }
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    let (lossy, calm): (Vec<_>, Vec<_>) = reports.iter().partition(|report| report.faults.loss > 1_000);
    let alarms = |reports: &[&Report]| reports.iter().map(|report| report.false_alarms).sum::<u64>();
    println!(
        "{} seeds: {} deaths, {} restarts, {} returns, {} refutations, {} false suspicions",
        reports.len(),
        sum(|report| report.deaths),
        sum(|report| report.restarts),
        sum(|report| report.returns),
        sum(|report| report.refutations),
        sum(|report| report.false_suspicions),
    );
    println!(
        "false alarms: {} in {} seeds with loss up to 10 %, {} in {} seeds with loss up to 30 %",
        alarms(&calm),
        calm.len(),
        alarms(&lossy),
        lossy.len(),
    );
    let mut agreement: Vec<_> = reports.iter().map(|report| report.agreement.0).collect();
    agreement.sort_unstable();
    println!("agreement after the faults: {}", describe(&agreement));
}

// FEATURES: A5
#[test]
fn false_alarms_are_rare_even_with_heavy_loss() {
    for (loss, alarms_max) in [(1_000, 0), (2_000, 0), (3_000, 5)] {
        let mut cluster = joined(5, Profile::default(), loss);
        let mut checker = Checker::default();
        for observer in 0..5 {
            checker.adopt(observer, &cluster.members(observer));
        }
        cluster.network.loss = loss;
        cluster.run_for(Millis::from_secs(600));
        checker.check(&mut cluster).unwrap();
        let Checker { false_alarms, false_suspicions, .. } = checker;
        println!("5 nodes, 10 min, {} % loss: {false_suspicions} suspicions, {false_alarms} false alarms", loss / 100);
        assert!(false_suspicions > 0, "the loss has an effect");
        assert!(false_alarms <= alarms_max);
    }
}

#[test]
fn the_checker_notices_a_hasty_profile() {
    let hasty = Profile { suspicion: Millis(10), gossip_interval: Millis(400), ..Profile::default() };
    let violations = (0..20).filter_map(|seed| run(seed, hasty).err());
    assert!(violations.into_iter().any(|Violation(what)| what.contains("false alarms")));
}

#[test]
fn a_seed_replays_exactly() {
    let history = |seed| {
        let mut cluster = joined(6, Profile::default(), seed);
        cluster.network.loss = 2_000;
        cluster.pause(2);
        cluster.run_for(Millis(5_000));
        cluster.take_observations()
    };
    assert!(!history(3).is_empty());
    assert_eq!(history(3), history(3));
    assert_ne!(history(3), history(4));
}

// FEATURES: A16
#[test]
fn the_timeline_of_a_death_follows_the_configuration() {
    for profile in [Profile::default(), Profile::classic()] {
        let mut cluster = Cluster::new(Settings { drift_ppm: 0, ..Settings::new(5, profile, 11) });
        for node in 0..5 {
            cluster.start(node);
        }
        assert!(cluster.run_until(Millis::from_secs(120), Cluster::agree));
        cluster.run_for(profile.probe_period);
        cluster.take_observations();
        cluster.crash(4);
        let died_at = cluster.now();
        let everywhere = |cluster: &Cluster| (0..4).all(|node| cluster.state(node, 4) == Some(State::Dead));
        assert!(cluster.run_until(Millis::from_secs(120), everywhere));
        let mut own: Vec<(usize, State, u64)> = Vec::new();
        println!("suspicion {} ms, probe period {} ms:", profile.suspicion.0, profile.probe_period.0);
        for observation in cluster.take_observations() {
            let Event::Changed { member, was } = observation.event else { panic!("{observation:?}") };
            let at = (observation.at - died_at).0;
            let observer = Cluster::id(observation.observer);
            println!("  {at:>6} ms  {observer}: {was:?} → {:?} ({:?})", member.state, member.source);
            assert_eq!(member.node, Cluster::id(4));
            if member.source == Source::Probe {
                own.push((observation.observer, member.state, at));
            }
        }
        let first_death = own.iter().find(|(_, state, _)| *state == State::Dead).unwrap();
        let steps: Vec<_> = own.iter().filter(|(observer, ..)| *observer == first_death.0).collect();
        let states: Vec<_> = steps.iter().map(|(_, state, _)| *state).collect();
        assert_eq!(states, [State::ProbeFailed, State::Suspected, State::Dead]);
        let [failed, suspected, dead] = [steps[0].2, steps[1].2, steps[2].2];
        assert_eq!(suspected - failed, profile.probe_period.0 - profile.probe_timeout.0);
        assert_eq!(dead - suspected, profile.suspicion.0);
    }
}

// FEATURES: A5
#[test]
fn a_stopped_node_accuses_nobody_when_it_continues_and_returns_if_it_was_declared_dead() {
    for (seed, stop_ms) in (0..60).map(|seed| (seed, [90, 300, 900, 5_000, 60_000][seed as usize % 5])) {
        let mut cluster = joined(5, Profile::default(), seed);
        cluster.run_for(Millis(seed * 7));
        cluster.pause(2);
        cluster.run_for(Millis(stop_ms));
        cluster.take_observations();
        cluster.resume(2);
        assert!(cluster.run_until(Millis(8_000), Cluster::agree), "seed {seed}: {:?}", cluster.disagreement());
        cluster.run_for(Millis(3_000));
        let accused: Vec<_> = cluster
            .take_observations()
            .into_iter()
            .filter(|observation| observation.observer == 2)
            .filter_map(|observation| match observation.event {
                Event::Changed { member, .. } if !member.state.is_visible() => Some(member),
                _ => None,
            })
            .collect();
        assert!(accused.is_empty(), "seed {seed}: {accused:?}");
    }
}

// FEATURES: A5
#[test]
fn a_suspected_node_refutes() {
    let mut refutations = 0;
    for seed in 0..30 {
        let mut cluster = joined(5, Profile::default(), seed);
        // Long enough to be suspected, too short to be dead.
        cluster.pause(1);
        cluster.run_until(Millis(3_000), |cluster| cluster.state(0, 1) == Some(State::Suspected));
        cluster.resume(1);
        assert!(cluster.run_until(Millis(3_000), Cluster::agree), "seed {seed}: {:?}", cluster.disagreement());
        // Longer than the suspicion: it has no consequence.
        cluster.run_for(Millis(5_000));
        for observation in cluster.take_observations() {
            match observation.event {
                Event::SelfDeclaredDead { .. } => panic!("seed {seed}: told to be dead after a refutation"),
                Event::Refuted { member } => refutations += usize::from(member.node == Cluster::id(1)),
                Event::Changed { member, .. } => assert_ne!(member.state, State::Dead, "seed {seed}"),
                _ => {}
            }
        }
    }
    assert!(refutations >= 30, "{refutations}");
}

// FEATURES: A5
#[test]
fn a_quick_restart_is_seen_as_a_restart_and_never_as_a_death() {
    for seed in 0..60 {
        let mut cluster = joined(5, Profile::default(), seed);
        cluster.crash(3);
        cluster.run_for(Millis(seed * 10));
        cluster.start(3);
        assert!(cluster.run_until(Millis(5_000), Cluster::agree), "seed {seed}: {:?}", cluster.disagreement());
        cluster.run_for(Millis(5_000));
        let mut restarts = 0;
        for observation in cluster.take_observations().into_iter().filter(|observation| observation.observer != 3) {
            match observation.event {
                Event::Restarted { .. } => restarts += 1,
                Event::Changed { member, .. } => assert_ne!(member.state, State::Dead, "seed {seed}"),
                _ => {}
            }
        }
        assert_eq!(restarts, 4, "seed {seed}");
    }
}

// FEATURES: A5
#[test]
fn a_graceful_leave_is_known_at_once() {
    for nodes in [3, 5, 40] {
        let mut cluster = joined(nodes, Profile::default(), nodes as u64);
        cluster.leave(1);
        let gone = |cluster: &Cluster| {
            (0..nodes).filter(|node| *node != 1).all(|node| cluster.state(node, 1) == Some(State::Left))
        };
        assert!(cluster.run_until(Millis(40), gone), "{nodes} nodes");
        cluster.run_for(Millis(10_000));
        assert!(gone(&cluster), "and it stays gone");
        cluster.start(1);
        assert!(cluster.run_until(Millis(3_000), Cluster::agree));
    }
}

// FEATURES: A5
#[test]
fn the_transport_knows_better_than_the_probes() {
    let mut cluster = joined(5, Profile::default(), 5);
    let incarnation = cluster.incarnation(4);
    cluster.crash(4);
    cluster.with(0, |membership, now| membership.declare_dead(now, Cluster::id(4), incarnation, Source::Transport));
    let dead = |cluster: &Cluster| (0..4).all(|node| cluster.state(node, 4) == Some(State::Dead));
    assert!(cluster.run_until(Millis(400), dead));
    cluster.start(4);
    assert!(cluster.run_until(Millis(3_000), Cluster::agree));
    // A verdict about the earlier incarnation is late.
    cluster.with(0, |membership, now| membership.declare_dead(now, Cluster::id(4), incarnation, Source::Transport));
    assert!(cluster.agree());
}

// FEATURES: A6, A7
#[test]
fn the_smaller_part_of_a_divided_cluster_fences_itself_and_recovers() {
    // Node 3 is a runner; 0, 1, 2, 4, 5 and 6 are control nodes.
    let mut cluster = joined(7, Profile::default(), 9);
    cluster.network.divide(7, &[0, 5]);
    cluster.run_for(Millis(6_000));
    let fenced = |cluster: &Cluster, node: usize| Contact::of(Cluster::id(node), &cluster.members(node)).is_fenced();
    let leader_of = |cluster: &Cluster, node: usize| leader(&cluster.members(node)).map(Cluster::index);
    assert!(fenced(&cluster, 0) && fenced(&cluster, 5));
    assert!([1, 2, 4, 6].iter().all(|node| !fenced(&cluster, *node)));
    assert_eq!((leader_of(&cluster, 5), leader_of(&cluster, 6)), (Some(0), Some(1)));
    cluster.network.mend();
    assert!(cluster.run_until(Millis(10_000), Cluster::agree), "{:?}", cluster.disagreement());
    assert!((0..7).all(|node| !fenced(&cluster, node) && leader_of(&cluster, node) == Some(0)));
}

// FEATURES: A5
#[test]
fn a_busy_node_is_neither_declared_dead_nor_accuses_others() {
    for seed in 0..20 {
        let mut cluster = joined(5, Profile::default(), seed);
        // Every packet and timer of two nodes waits up to 150 ms for a core: longer than a probe.
        cluster.set_busy(1, 150);
        cluster.set_busy(2, 150);
        for _ in 0..30 {
            cluster.run_for(Millis(1_000));
            for observation in cluster.take_observations() {
                if let Event::Changed { member, .. } = observation.event {
                    assert_ne!(member.state, State::Dead, "seed {seed}: {observation:?}");
                }
            }
        }
        assert!(cluster.membership(1).is_some_and(|membership| membership.health_score() > 0));
    }
}

#[test]
fn nodes_that_all_died_and_return_find_each_other() {
    let mut cluster = joined(6, Profile::default(), 2);
    for node in 1..6 {
        cluster.crash(node);
    }
    cluster.run_for(Millis(20_000));
    assert!(cluster.agree());
    for node in 3..6 {
        cluster.start(node);
    }
    assert!(cluster.run_until(Millis(5_000), Cluster::agree), "{:?}", cluster.disagreement());
}
