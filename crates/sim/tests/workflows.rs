//! Workflows in the simulation: crashes at every commit, and coverage of a range of seeds.

use sim::{Coverage, Options, crash_every_commit, run};

// FEATURES: B2, B3, B11, D5, D11
#[test]
fn a_workflow_has_the_same_outcome_wherever_its_shard_crashes() {
    let mut coverage = Coverage::default();
    for seed in 1..=4 {
        match crash_every_commit(seed) {
            Ok(report) => {
                assert!(report.commits > 10, "seed {seed} has {} commits", report.commits);
                assert_eq!(report.runs, 2 * report.commits + 1);
                assert!(!report.outcome.is_empty());
                coverage.merge(&report.coverage);
            }
            Err(failure) => panic!("seed {seed} violates {:?}\n{}", failure.violation, failure.last_lines.join("\n")),
        }
    }
    for what in ["crashes while workflows run", "crashes while workflows roll back", "compensations done"] {
        assert!(coverage.counted(what) > 0, "{what}");
    }
}

// FEATURES: B1, B2, B3, B4, D5, D11
#[test]
fn seeds_with_workflows_keep_every_invariant() {
    let mut coverage = Coverage::default();
    for seed in 21..=44 {
        match run(seed, &Options::default()) {
            Ok(report) => coverage.merge(&report.coverage),
            Err(failure) => panic!("seed {seed} violates {:?}\n{}", failure.violation, failure.last_lines.join("\n")),
        }
    }
    for what in [
        "workflows succeeded",
        "workflows failed",
        "workflows cancelled",
        "workflows rerun",
        "sub-workflows started",
        "complete rollbacks",
        "compensations done",
        "tasks merged",
        "epochs reached",
        "switches decided",
        "crashes while workflows run",
    ] {
        assert!(coverage.counted(what) > 0, "{what}");
    }
}
