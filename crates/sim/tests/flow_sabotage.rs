//! The invariants of workflows, each broken on purpose: the right one must notice.

use sim::{FlowSabotage, Options, Sabotage, run};

/// Half of the seeds have workflows, and they differ in what they have to break; among so many there is one that fits.
const SEEDS: std::ops::Range<u64> = 1..80;

#[track_caller]
fn is_noticed(sabotage: Sabotage, invariants: &[&str]) {
    let options = Options { sabotage: Some(sabotage), ..Options::default() };
    let failure = SEEDS.into_iter().find_map(|seed| run(seed, &options).err());
    let Some(failure) = failure else { panic!("{sabotage:?} went unnoticed") };
    let violation = failure.violation;
    assert!(invariants.contains(&violation.invariant), "{sabotage:?} was taken for {violation:?}");
}

macro_rules! noticed {
    ($($name:ident: $sabotage:ident => $($invariant:literal)|+;)*) => {
        $(
            #[test]
            fn $name() {
                is_noticed(Sabotage::Flow(FlowSabotage::$sabotage), &[$($invariant),+]);
            }
        )*
    };
}

noticed! {
    a_lost_workflow_is_noticed: Lose => "invariant_no_workflow_is_forgotten_early";
    a_revived_workflow_is_noticed: Revive => "invariant_ended_workflows_stay_ended";
    a_workflow_that_ends_before_its_tasks_is_noticed: EndEarly => "invariant_workflows_end_with_their_parts";
    a_revived_task_is_noticed: ReviveTask => "invariant_ended_tasks_stay_ended";
    a_changed_result_of_a_task_is_noticed: ChangeTaskResult => "invariant_ended_tasks_stay_ended";
    a_task_that_begins_before_what_it_needs_is_noticed: BeginEarly => "invariant_tasks_begin_in_order";
    more_items_than_may_run_are_noticed: CrowdItems => "invariant_items_keep_their_concurrency" | "invariant_ended_tasks_stay_ended";
    a_delay_that_ends_early_is_noticed: EndDelayEarly => "invariant_nothing_ends_before_its_time";
    an_epoch_that_is_reached_early_is_noticed: ReachEpochEarly => "invariant_epochs_come_in_order";
    a_wrong_count_of_tasks_is_noticed: MiscountTasks => "invariant_tallies_equal_a_recount";
    a_job_counted_twice_is_noticed: MiscountJobs => "invariant_totals_count_every_job_once";
    undoing_the_first_step_first_is_noticed: UndoInOrder => "invariant_steps_are_undone_last_first";
    a_wrong_count_of_a_rollback_is_noticed: MiscountRollback => "invariant_rollbacks_count_right";
    a_rollback_that_says_more_than_it_did_is_noticed: SayUndone => "invariant_rollbacks_count_right";
    a_slot_that_starts_twice_is_noticed: StartSlotTwice => "invariant_every_slot_starts_once";
    a_slot_that_is_lost_is_noticed: SkipSlot => "invariant_no_slot_is_lost";
}

#[test]
fn workflows_that_wait_for_ever_are_noticed() {
    is_noticed(Sabotage::NeverSignal, &["invariant_every_workflow_ends", "invariant_nothing_is_left_over"]);
}
