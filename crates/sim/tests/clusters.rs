//! Clusters in virtual time: the production membership, the watch over links and tethers, and the engine on one network.

use sim::{ClusterSabotage, Options, Sabotage, measure, run_cluster, story_of_a_death};

/// Not every seed has a fitting moment; at least one of these does.
const SEEDS: std::ops::Range<u64> = 1..40;

// FEATURES: A5, B6, B8
#[test]
fn ten_clusters_keep_every_invariant() {
    for seed in 1..=10 {
        if let Err(failure) = run_cluster(seed, &Options::default()) {
            panic!("seed {seed} violates {:?}\n{}", failure.violation, failure.last_lines.join("\n"));
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_cluster() {
    let hash = |seed| {
        let report = run_cluster(seed, &Options::default()).expect("the seed passes");
        (report.trace_hash, report.trace_lines, report.events)
    };
    assert_eq!(hash(2), hash(2));
    assert_ne!(hash(2), hash(3));
}

#[track_caller]
fn is_detected(sabotage: ClusterSabotage, invariant: &str) {
    let options = Options { sabotage: Some(Sabotage::Cluster(sabotage)), ..Options::default() };
    // In some seeds another invariant is violated first.
    let violations = SEEDS.filter_map(|seed| run_cluster(seed, &options).err()).map(|it| it.violation);
    let mut reported = Vec::new();
    let is_found = violations.inspect(|it| reported.push(it.invariant)).any(|it| it.invariant == invariant);
    assert!(is_found, "{sabotage:?} was reported as {reported:?}");
}

#[test]
fn a_reachable_node_that_is_declared_lost_is_detected() {
    is_detected(ClusterSabotage::DeclareReachableLost, "invariant_reachable_nodes_are_not_lost");
}

#[test]
fn an_attempt_of_a_reachable_node_that_is_given_up_is_detected() {
    is_detected(ClusterSabotage::GiveUpReachable, "invariant_attempts_of_reachable_nodes_are_kept");
}

#[test]
fn a_death_that_nobody_finds_is_detected() {
    is_detected(ClusterSabotage::IgnoreDeaths, "invariant_dead_nodes_are_found");
}

#[test]
fn a_restarted_server_that_is_not_waited_for_is_detected() {
    is_detected(ClusterSabotage::WaitForNobody, "invariant_restarted_servers_are_waited_for");
}

#[test]
fn a_second_result_of_a_job_is_detected() {
    is_detected(ClusterSabotage::TakeSecondResult, "invariant_one_result_is_taken");
}

/// Detection, recovery and the work that goes elsewhere, in the order and at the times that the configuration implies.
// FEATURES: A16
#[test]
fn the_timeline_of_a_death_is_exact() {
    let story = story_of_a_death(5, 1).expect("no invariant is violated").join("\n");
    println!("{story}");
    assert_eq!(story.trim(), include_str!("timeline_of_a_death.txt").trim());
}

// FEATURES: A5
#[test]
#[ignore = "minutes in a debug build; runs with `cargo xtask test --all`"]
fn two_hundred_nodes_find_dead_nodes_in_time() {
    let report = measure(200, 0, 1..2).expect("no invariant is violated");
    println!("{report}");
    assert_eq!((report.detections.false_alarms, report.detections.false_suspects), (0, 0));
}
