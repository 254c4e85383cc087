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
    is_noticed(Sabotage::StartUnapproved, &["invariant_starts_follow_the_rules_in_force"]);
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

#[test]
fn a_start_on_the_word_of_old_rules_is_noticed() {
    is_noticed(Sabotage::StartUnderOldRules, &["invariant_starts_follow_the_rules_in_force"]);
}

#[test]
fn a_decision_that_nobody_made_is_noticed() {
    is_noticed(Sabotage::InventDecision, &["invariant_decisions_are_never_invented"]);
}

#[test]
fn an_approval_that_nobody_gave_is_noticed() {
    is_noticed(Sabotage::InventApproval, &["invariant_approvals_are_never_invented"]);
}

#[test]
fn a_start_without_its_limits_is_noticed() {
    is_noticed(Sabotage::LiftLimits, &["invariant_starts_are_limited_as_decided"]);
}

#[test]
fn a_runner_that_is_not_told_the_limits_is_noticed() {
    is_noticed(Sabotage::ForgetLimits, &["invariant_runners_are_told_the_limits"]);
}

#[test]
fn a_retry_beyond_what_the_policy_leaves_is_noticed() {
    is_noticed(Sabotage::RetryBeyondLimits, &["invariant_retries_stay_within_their_limits"]);
}

#[test]
fn a_held_result_that_is_shown_is_noticed() {
    is_noticed(Sabotage::ShowHeld, &["invariant_what_is_shown_may_be_seen"]);
}

#[test]
fn a_release_that_nobody_asked_for_is_noticed() {
    is_noticed(Sabotage::ReleaseUnasked, &["invariant_every_act_has_one_entry"]);
}

#[test]
fn a_finding_that_nobody_made_is_noticed() {
    is_noticed(Sabotage::InventFinding, &["invariant_output_decisions_are_never_invented"]);
}

#[test]
fn an_original_that_is_shown_instead_of_its_copy_is_noticed() {
    let either = ["invariant_terminal_is_final", "invariant_results_are_of_the_newest_attempt"];
    is_noticed(Sabotage::ShowOriginal, &either);
}

/// Held results wait for ever, and those that are shown keep their markers.
#[test]
fn results_that_nobody_looks_at_are_noticed() {
    is_noticed(Sabotage::NeverScan, &["invariant_every_job_ends", "invariant_nothing_is_left_over"]);
}

#[test]
fn a_lost_letter_is_noticed() {
    is_noticed(Sabotage::LoseLetter, &["invariant_what_ends_undone_leaves_a_letter"]);
}

#[test]
fn a_letter_of_a_job_that_did_its_work_is_noticed() {
    is_noticed(Sabotage::AddLetter, &["invariant_what_ends_undone_leaves_a_letter"]);
}

#[test]
fn an_entry_that_is_written_over_is_noticed() {
    is_noticed(Sabotage::ChangeEntry, &["invariant_the_chain_is_unbroken"]);
}

#[test]
fn an_entry_that_is_taken_out_is_noticed() {
    is_noticed(Sabotage::RemoveEntry, &["invariant_the_chain_is_unbroken"]);
}

#[test]
fn a_forgotten_end_of_the_audit_log_is_noticed() {
    is_noticed(Sabotage::ForgetEnd, &["invariant_the_chain_is_unbroken"]);
}

#[test]
fn an_act_that_nobody_wrote_down_is_noticed() {
    is_noticed(Sabotage::CancelUnnoted, &["invariant_every_act_has_one_entry"]);
}
