//! The example policies of the repository pass their test cases.

use std::path::PathBuf;

use policy::{Rules, run_cases};

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

#[test]
fn every_case_of_the_examples_passes() {
    for (name, least) in [("policy", 11), ("policy-hours", 5)] {
        let report = run_cases(&example(name)).unwrap();
        assert!(report.cases.len() >= least);
        for case in &report.cases {
            assert!(case.passed, "{}: {}: expected {}, got {}", case.file, case.name, case.expected, case.got);
        }
    }
}

#[test]
fn the_example_without_time_is_cacheable_and_reads_little() {
    let rules = Rules::load(&example("policy")).unwrap();
    assert!(rules.is_cacheable());
    assert!(rules.has_output_rules());
    assert!(rules.needs_content());
    assert_eq!(
        rules.reads(),
        [
            "input.job.limits.output_bytes",
            "input.job.run.process",
            "input.job.sandbox",
            "input.labels.env",
            "input.tenant",
            "input.topic"
        ]
    );
    assert!(!Rules::load(&example("policy-hours")).unwrap().is_cacheable());
}
