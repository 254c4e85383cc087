//! Tests of the invariants: each rule is violated deliberately, and the right invariant must detect it.

use sim::{Options, Sabotage, run};

/// Not every seed has a fitting record; at least one of these does.
const SEEDS: std::ops::Range<u64> = 1..25;

#[track_caller]
fn is_detected(sabotage: Sabotage, invariants: &[&str]) {
    let options = Options { sabotage: Some(sabotage), ..Options::default() };
    let failure = SEEDS.into_iter().find_map(|seed| run(seed, &options).err());
    let Some(failure) = failure else { panic!("no invariant detected {sabotage:?}") };
    let violation = failure.violation;
    assert!(invariants.contains(&violation.invariant), "{sabotage:?} was reported as {violation:?}");
}

#[test]
fn a_lost_job_is_detected() {
    is_detected(Sabotage::LoseJob, &["invariant_no_job_is_removed_early"]);
}

#[test]
fn a_restarted_cancelled_job_is_detected() {
    is_detected(Sabotage::RestartCancelled, &["invariant_terminal_is_final"]);
}

#[test]
fn a_changed_result_is_detected() {
    is_detected(Sabotage::ChangeResult, &["invariant_terminal_is_final"]);
}

#[test]
fn an_exceeded_retry_budget_is_detected() {
    is_detected(Sabotage::RetryTooOften, &["invariant_retry_budgets_hold"]);
}

#[test]
fn an_early_start_is_detected() {
    is_detected(Sabotage::StartEarly, &["invariant_nothing_starts_early"]);
}

#[test]
fn a_start_without_approval_is_detected() {
    is_detected(Sabotage::StartUnapproved, &["invariant_starts_follow_the_policy_in_force"]);
}

/// The dispatch is found when it is sent, or when the runner accepts it.
#[test]
fn a_dispatched_denied_job_is_detected() {
    let either = ["invariant_dispatches_are_on_record", "invariant_no_dispatch_is_accepted_after_it_was_given_up"];
    is_detected(Sabotage::RunDenied, &either);
}

#[test]
fn an_attempt_that_outlives_its_lease_is_detected() {
    is_detected(Sabotage::IgnoreLeases, &["invariant_exclusive_attempts_run_alone"]);
}

#[test]
fn a_wrong_queue_counter_is_detected() {
    is_detected(Sabotage::MiscountQueue, &["invariant_counters_equal_a_recount"]);
}

#[test]
fn a_write_without_a_commit_is_detected() {
    is_detected(Sabotage::WriteWithoutCommit, &["invariant_the_store_equals_the_commits"]);
}

#[test]
fn a_commit_of_a_stale_owner_is_detected() {
    is_detected(Sabotage::IgnoreFencing, &["invariant_only_the_owner_commits"]);
}

#[test]
fn an_answer_of_a_superseded_owner_is_detected() {
    is_detected(Sabotage::AnswerUnconfirmed, &["invariant_only_the_owner_answers"]);
}

/// The first effect is an answer to a client or a dispatch.
#[test]
fn an_effect_before_its_commit_is_detected() {
    let either = ["invariant_answers_follow_commits", "invariant_dispatches_are_on_record"];
    is_detected(Sabotage::EffectsBeforeCommit, &either);
}

#[test]
fn an_idempotency_key_with_two_jobs_is_detected() {
    is_detected(Sabotage::ReuseKey, &["invariant_a_key_creates_one_object"]);
}

#[test]
fn jobs_that_never_end_are_detected() {
    is_detected(Sabotage::DropRunnerMessages, &["invariant_every_job_ends"]);
}

#[test]
fn a_registered_attempt_that_is_given_up_is_detected() {
    is_detected(Sabotage::ClearRegisteredAttempts, &["invariant_registered_attempts_are_not_lost"]);
}

#[test]
fn an_attempt_that_changes_its_runner_is_detected() {
    is_detected(Sabotage::MoveAttempt, &["invariant_an_attempt_stays_with_its_runner"]);
}

#[test]
fn an_attempt_that_starts_twice_is_detected() {
    is_detected(Sabotage::StartTwice, &["invariant_an_attempt_starts_once"]);
}

#[test]
fn a_start_on_a_decision_of_an_old_policy_is_detected() {
    is_detected(Sabotage::StartUnderOldPolicy, &["invariant_starts_follow_the_policy_in_force"]);
}

#[test]
fn a_forged_decision_is_detected() {
    is_detected(Sabotage::ForgeDecision, &["invariant_decisions_come_from_the_policy"]);
}

#[test]
fn a_forged_approval_is_detected() {
    is_detected(Sabotage::ForgeApproval, &["invariant_approvals_come_from_approvers"]);
}

#[test]
fn a_start_without_its_constraints_is_detected() {
    is_detected(Sabotage::DropConstraints, &["invariant_starts_have_their_constraints"]);
}

#[test]
fn a_dispatch_without_its_constraints_is_detected() {
    is_detected(Sabotage::DispatchWithoutConstraints, &["invariant_runners_receive_the_constraints"]);
}

#[test]
fn a_retry_beyond_the_constraints_is_detected() {
    is_detected(Sabotage::RetryBeyondConstraints, &["invariant_retries_stay_within_constraints"]);
}

#[test]
fn a_shown_result_that_waits_for_its_scan_is_detected() {
    is_detected(Sabotage::ShowUnscanned, &["invariant_shown_results_are_allowed"]);
}

#[test]
fn a_release_without_a_request_is_detected() {
    is_detected(Sabotage::ReleaseWithoutRequest, &["invariant_every_operation_has_one_audit_entry"]);
}

#[test]
fn a_forged_scan_decision_is_detected() {
    is_detected(Sabotage::ForgeScanDecision, &["invariant_output_decisions_come_from_the_scanner"]);
}

#[test]
fn a_shown_original_of_a_redacted_result_is_detected() {
    let either = ["invariant_terminal_is_final", "invariant_results_are_of_the_newest_attempt"];
    is_detected(Sabotage::ShowOriginal, &either);
}

/// Withheld results wait for ever, and shown ones keep their scan records.
#[test]
fn unscanned_results_are_detected() {
    is_detected(Sabotage::NeverScan, &["invariant_every_job_ends", "invariant_nothing_is_left_over"]);
}

#[test]
fn a_lost_dead_letter_is_detected() {
    is_detected(Sabotage::LoseDeadLetter, &["invariant_failed_jobs_have_a_dead_letter"]);
}

#[test]
fn a_dead_letter_of_a_succeeded_job_is_detected() {
    is_detected(Sabotage::AddDeadLetter, &["invariant_failed_jobs_have_a_dead_letter"]);
}

#[test]
fn an_overwritten_audit_entry_is_detected() {
    is_detected(Sabotage::OverwriteAuditEntry, &["invariant_the_audit_chain_is_unbroken"]);
}

#[test]
fn a_removed_audit_entry_is_detected() {
    is_detected(Sabotage::RemoveAuditEntry, &["invariant_the_audit_log_is_shortened_in_order"]);
}

#[test]
fn an_audit_entry_removed_before_its_retention_is_detected() {
    is_detected(Sabotage::ShortenAuditEarly, &["invariant_the_audit_log_is_shortened_in_order"]);
}

#[test]
fn a_changed_audit_checkpoint_is_detected() {
    is_detected(Sabotage::ChangeAuditCheckpoint, &["invariant_the_audit_log_is_shortened_in_order"]);
}

#[test]
fn a_reset_audit_head_is_detected() {
    is_detected(Sabotage::ResetAuditHead, &["invariant_the_audit_chain_is_unbroken"]);
}

#[test]
fn a_cancel_without_an_audit_entry_is_detected() {
    is_detected(Sabotage::CancelWithoutAuditEntry, &["invariant_every_operation_has_one_audit_entry"]);
}
