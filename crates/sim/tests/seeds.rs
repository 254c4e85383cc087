//! Runs a few seeds with every test run, and checks that a run depends on its seed alone.

use sim::{Coverage, Fault, Options, run};

// FEATURES: B2, D1, D2, D3, D8, D9, D16
#[test]
fn twenty_seeds_keep_every_invariant() {
    let mut coverage = Coverage::default();
    for seed in 1..=20 {
        match run(seed, &Options::default()) {
            Ok(report) => {
                assert!(report.jobs > 10, "seed {seed} has {} jobs", report.jobs);
                coverage.merge(&report.coverage);
            }
            Err(failure) => panic!("seed {seed} violates {:?}\n{}", failure.violation, failure.last_lines.join("\n")),
        }
    }
    for fault in [Fault::MessageLost, Fault::CrashAfterCommit, Fault::StaleCommitRefused, Fault::ClockBackward] {
        assert!(coverage.times(fault) > 0, "{}", fault.as_str());
    }
    for fault in [Fault::PolicyChanged, Fault::PolicyUnavailable, Fault::ApprovalOfOtherRule, Fault::ScanFailed] {
        assert!(coverage.times(fault) > 0, "{}", fault.as_str());
    }
    for what in [
        "attempts adopted",
        "results of adopted attempts",
        "attempts started after a policy change",
        "attempts started with an approval",
        "output_quarantined",
        "output_redacted",
        "letter_purged",
    ] {
        assert!(coverage.counted(what) > 0, "{what}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let hash = |seed| {
        let report = run(seed, &Options::default()).expect("the seed passes");
        (report.trace_hash, report.trace_lines, report.events)
    };
    let (first, again, other) = (hash(3), hash(3), hash(4));
    assert_eq!(first, again);
    assert_ne!(first, other);
}

#[test]
fn a_failing_seed_replays_exactly() {
    let options = Options { sabotage: Some(sim::Sabotage::LoseJob), ..Options::default() };
    let failure = || run(5, &options).expect_err("a lost job is detected");
    let (first, again) = (failure(), failure());
    assert_eq!((first.trace_hash, &first.violation), (again.trace_hash, &again.violation));
    assert_eq!(first.last_lines, again.last_lines);
    assert!(!first.last_lines.is_empty());
}
