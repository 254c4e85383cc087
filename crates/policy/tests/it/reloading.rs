//! Reloading of changed rules.

use std::fs;

use model::time::Millis;
use policy::{Cache, JobFacts, LoadError, Policy, Reloaded};
use tempfile::TempDir;

use crate::support::{NOW, directory, echo, write};

fn deny(rule: &str) -> String {
    format!("package outlast.job\ndeny contains {{\"rule\": \"{rule}\", \"reason\": \"r\"}}\n")
}

fn opened() -> (TempDir, Policy) {
    let directory = directory(&[("a.rego", &deny("old"))]);
    let policy = Policy::open(directory.path(), Cache::default(), NOW).unwrap();
    (directory, policy)
}

fn rule(policy: &Policy) -> String {
    policy.decide(&JobFacts::of(&echo()), NOW).rule
}

#[test]
fn changed_files_are_detected_and_loaded() {
    let (directory, policy) = opened();
    assert!(!policy.needs_reload());
    assert_eq!(rule(&policy), "old");
    write(directory.path(), "a.rego", deny("newer").as_bytes());
    assert!(policy.needs_reload());
    assert_eq!(rule(&policy), "old");
    let Reloaded::Changed(version) = policy.reload(NOW + Millis(5)) else { panic!("the rules have changed") };
    assert_eq!(rule(&policy), "newer");
    assert!(!policy.needs_reload());
    let status = policy.status();
    assert_eq!((status.version, status.loaded_at.0, status.error), (version, NOW + Millis(5), None));
    assert!(matches!(policy.reload(NOW), Reloaded::Unchanged));
}

#[test]
fn new_and_removed_files_are_detected() {
    let (directory, policy) = opened();
    write(directory.path(), "more/b.rego", deny("another").as_bytes());
    assert!(policy.needs_reload());
    assert!(matches!(policy.reload(NOW), Reloaded::Changed(_)));
    assert_eq!(rule(&policy), "another, old");
    fs::remove_file(directory.path().join("a.rego")).unwrap();
    assert!(policy.needs_reload());
    assert!(matches!(policy.reload(NOW), Reloaded::Changed(_)));
    assert_eq!(rule(&policy), "another");
    // Test cases are not part of the rules.
    write(directory.path(), "a_test.yaml", b"[]");
    assert!(!policy.needs_reload());
}

#[test]
fn invalid_rules_leave_the_old_ones_in_force() {
    let (directory, policy) = opened();
    write(directory.path(), "a.rego", b"package outlast.job\ndeny contains {");
    let Reloaded::Refused(LoadError::At { line, .. }) = policy.reload(NOW) else { panic!("the rules are invalid") };
    assert_eq!(line, 2);
    assert_eq!(rule(&policy), "old");
    assert!(policy.status().error.unwrap().starts_with("a.rego:2:"));
    // No reload until the next change.
    assert!(!policy.needs_reload());
    write(directory.path(), "a.rego", deny("old").as_bytes());
    assert!(matches!(policy.reload(NOW), Reloaded::Unchanged));
    assert_eq!(policy.status().error, None);
}

#[test]
fn a_removed_directory_leaves_the_old_rules_in_force() {
    let (directory, policy) = opened();
    let (path, text) = (directory.path().join("a.rego"), deny("old"));
    fs::remove_dir_all(directory.path()).unwrap();
    assert!(policy.needs_reload());
    assert!(matches!(policy.reload(NOW), Reloaded::Refused(LoadError::Io { .. })));
    assert!(!policy.needs_reload());
    assert_eq!(rule(&policy), "old");
    assert!(policy.status().error.is_some());
    fs::create_dir_all(directory.path()).unwrap();
    fs::write(path, text).unwrap();
    assert!(policy.needs_reload());
    assert!(matches!(policy.reload(NOW), Reloaded::Unchanged));
    assert_eq!(policy.status().error, None);
}

#[test]
fn the_status_serialises_to_json() {
    let (_directory, policy) = opened();
    let json = serde_json::to_value(policy.status()).unwrap();
    assert_eq!(json["version"], policy.rules().version().to_string());
    assert_eq!(json["loaded_at"], "2026-01-07T12:00:00.000Z");
    assert_eq!(json["files"], serde_json::json!(["a.rego"]));
    assert_eq!(json["cacheable"], true);
    assert!(json.get("error").is_none());
}
