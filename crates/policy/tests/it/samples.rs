//! The samples that come with the project do what their cases say.

use std::path::PathBuf;

use policy::{Rules, run_cases};

fn sample(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

#[test]
fn every_case_of_the_samples_passes() {
    for (name, least) in [("policy", 11), ("policy-hours", 5)] {
        let report = run_cases(&sample(name)).unwrap();
        assert!(report.cases.len() >= least);
        for case in &report.cases {
            assert!(case.passed, "{}: {}: expected {}, got {}", case.file, case.name, case.expected, case.got);
        }
    }
}

#[test]
fn the_samples_without_hours_can_be_cached_and_read_little() {
    let rules = Rules::load(&sample("policy")).unwrap();
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
    assert!(!Rules::load(&sample("policy-hours")).unwrap().is_cacheable());
}
