//! Invariants that cannot fail prove nothing: each rule is broken on purpose, and the right invariant must notice.

use sim::{Options, Sabotage, run};

/// Seeds differ in what they have to break; among so many there is one that fits.
const SEEDS: std::ops::Range<u64> = 1..25;

#[track_caller]
fn is_noticed(sabotage: Sabotage, invariants: &[&str]) {
    let options = Options { sabotage: Some(sabotage), ..Options::default() };
    let failure = SEEDS.into_iter().find_map(|seed| run(seed, &options).err());
    let Some(failure) = failure else { panic!("{sabotage:?} went unnoticed") };
    let violation = failure.violation;
    assert!(invariants.contains(&violation.invariant), "{sabotage:?} was taken for {violation:?}");
}

#[test]
fn a_lost_job_is_noticed() {
    is_noticed(Sabotage::LoseJob, &["invariant_nothing_is_forgotten_early"]);
}

#[test]
fn a_revived_job_is_noticed() {
    is_noticed(Sabotage::ReviveCancelled, &["invariant_terminal_is_final"]);
}

#[test]
fn a_changed_result_is_noticed() {
    is_noticed(Sabotage::ChangeResult, &["invariant_terminal_is_final"]);
}

#[test]
fn a_retry_too_many_is_noticed() {
    is_noticed(Sabotage::RetryTooOften, &["invariant_budgets_are_kept"]);
}

#[test]
fn an_early_start_is_noticed() {
    is_noticed(Sabotage::StartEarly, &["invariant_nothing_starts_early"]);
}

#[test]
fn a_start_without_approval_is_noticed() {
    is_noticed(Sabotage::StartUnapproved, &["invariant_nothing_passes_the_gate_unasked"]);
}

#[test]
fn a_denied_job_that_runs_is_noticed() {
    is_noticed(Sabotage::RunDenied, &["invariant_runners_get_what_is_on_record"]);
}

#[test]
fn a_wrong_counter_is_noticed() {
    is_noticed(Sabotage::Miscount, &["invariant_counters_equal_a_recount"]);
}

#[test]
fn a_write_that_nobody_committed_is_noticed() {
    is_noticed(Sabotage::WriteBehind, &["invariant_the_store_is_what_was_committed"]);
}

#[test]
fn a_stale_owner_that_commits_is_noticed() {
    is_noticed(Sabotage::IgnoreFence, &["invariant_only_the_owner_commits"]);
}

/// Whichever comes first: an answer to a client, or an order to a runner.
#[test]
fn an_effect_before_its_commit_is_noticed() {
    let either = ["invariant_answers_follow_commits", "invariant_runners_get_what_is_on_record"];
    is_noticed(Sabotage::AnswerFirst, &either);
}

#[test]
fn a_key_used_twice_is_noticed() {
    is_noticed(Sabotage::ReuseKey, &["invariant_a_key_makes_one_thing"]);
}

#[test]
fn jobs_that_never_end_are_noticed() {
    is_noticed(Sabotage::DeafShards, &["invariant_every_job_ends"]);
}

#[test]
fn a_living_attempt_that_is_given_up_is_noticed() {
    is_noticed(Sabotage::ForgetTheLiving, &["invariant_what_is_alive_is_not_lost"]);
}

#[test]
fn an_attempt_that_changes_its_runner_is_noticed() {
    is_noticed(Sabotage::MoveAttempt, &["invariant_an_attempt_stays_with_its_runner"]);
}

#[test]
fn an_attempt_that_runs_twice_at_once_is_noticed() {
    is_noticed(Sabotage::StartTwice, &["invariant_an_attempt_runs_in_one_place"]);
}
