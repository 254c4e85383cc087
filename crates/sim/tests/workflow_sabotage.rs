//! Tests of the invariants of workflows: each is violated deliberately, and the right one must detect it.

use sim::{Options, Sabotage, WorkflowSabotage, run};

/// Half of the seeds have workflows, and not all of those a fitting record; at least one of these does.
const SEEDS: std::ops::Range<u64> = 1..80;

#[track_caller]
fn is_detected(sabotage: Sabotage, invariants: &[&str]) {
    let options = Options { sabotage: Some(sabotage), ..Options::default() };
    let failure = SEEDS.into_iter().find_map(|seed| run(seed, &options).err());
    let Some(failure) = failure else { panic!("no invariant detected {sabotage:?}") };
    let violation = failure.violation;
    assert!(invariants.contains(&violation.invariant), "{sabotage:?} was reported as {violation:?}");
}

macro_rules! detected {
    ($($name:ident: $sabotage:ident => $($invariant:literal)|+;)*) => {
        $(
            #[test]
            fn $name() {
                is_detected(Sabotage::Workflow(WorkflowSabotage::$sabotage), &[$($invariant),+]);
            }
        )*
    };
}

detected! {
    a_lost_workflow_is_detected: Lose => "invariant_no_workflow_is_removed_early";
    a_restarted_ended_workflow_is_detected: Restart => "invariant_ended_workflows_stay_ended";
    a_workflow_that_ends_before_its_tasks_is_detected: EndEarly => "invariant_workflows_end_with_their_tasks";
    a_restarted_ended_task_is_detected: RestartTask => "invariant_ended_tasks_stay_ended";
    a_changed_result_of_a_task_is_detected: ChangeTaskResult => "invariant_ended_tasks_stay_ended";
    a_task_that_starts_before_the_tasks_it_needs_is_detected: StartTaskEarly => "invariant_tasks_begin_in_order";
    an_exceeded_concurrency_of_items_is_detected:
        ExceedConcurrency => "invariant_items_stay_within_their_concurrency" | "invariant_ended_tasks_stay_ended";
    a_delay_that_ends_early_is_detected: EndDelayEarly => "invariant_timers_do_not_fire_early";
    an_epoch_that_is_reached_early_is_detected: ReachEpochEarly => "invariant_epochs_come_in_order";
    a_wrong_count_of_tasks_is_detected: MiscountTasks => "invariant_tallies_equal_a_recount";
    a_job_counted_twice_is_detected: MiscountJobs => "invariant_totals_count_every_job_once";
    compensating_the_first_task_first_is_detected: CompensateInOrder => "invariant_tasks_are_compensated_last_first";
    a_wrong_count_of_a_rollback_is_detected: MiscountRollback => "invariant_rollback_counters_equal_a_recount";
    a_partial_rollback_reported_as_complete_is_detected: ReportRolledBack => "invariant_rollback_counters_equal_a_recount";
    a_slot_that_starts_twice_is_detected: StartSlotTwice => "invariant_every_slot_starts_once";
    a_skipped_slot_is_detected: SkipSlot => "invariant_no_slot_is_lost";
}

#[test]
fn workflows_that_wait_for_ever_are_detected() {
    // The schedules of a run that does not end start jobs; one may run when the time is up.
    let invariants = ["invariant_every_workflow_ends", "invariant_every_job_ends", "invariant_nothing_is_left_over"];
    is_detected(Sabotage::NeverSignal, &invariants);
}
