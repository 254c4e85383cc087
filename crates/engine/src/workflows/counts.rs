//! Workflow counters, and their recount from the records.

use model::workflow::{Tally, TaskState, WorkflowState};

use super::live::LiveWorkflow;
use crate::recount::Miscount;
use crate::shard::Shard;

/// Workflow counters since the start of the shard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkflowStats {
    pub started: u64,
    /// Succeeded, failed, cancelled.
    pub ended: [u64; 3],
    /// Ends of tasks and items, in the order of [`TaskState::ALL`].
    pub tasks_ended: [u64; TaskState::ALL.len()],
    pub rollbacks: u64,
    pub rolled_back: u64,
    pub partially_rolled_back: u64,
    pub compensations_done: u64,
    pub compensations_failed: u64,
    pub signals: u64,
    pub timers_fired: u64,
    pub schedules_fired: u64,
    pub schedules_skipped: u64,
    pub template_errors: u64,
    /// Rollbacks in progress.
    pub rolling_back: u64,
}

impl WorkflowStats {
    /// Counts the end of a workflow.
    pub(super) fn end(&mut self, state: WorkflowState) {
        match state {
            WorkflowState::Succeeded => self.ended[0] += 1,
            WorkflowState::Failed => self.ended[1] += 1,
            WorkflowState::Cancelled => self.ended[2] += 1,
            WorkflowState::Running | WorkflowState::Paused | WorkflowState::Stopping | WorkflowState::RollingBack => {}
        }
    }
}

/// Counts tasks and items by state.
pub(super) fn tally(workflow: &LiveWorkflow) -> (Tally, Tally) {
    let (mut tasks, mut items) = (Tally::default(), Tally::default());
    for live_task in &workflow.tasks {
        tasks.add(live_task.state, 1);
        for item in live_task.for_each.iter().flat_map(|each| &each.items) {
            items.add(item.state, 1);
        }
    }
    (tasks, items)
}

impl Shard {
    /// Compares the counters of every workflow with a count of its tasks.
    pub(crate) fn recount_workflows(&self) -> Result<(), Miscount> {
        let wrong = |what: String| Err(Miscount { what, kept: 0, counted: 0 });
        for workflow in self.workflows.map.values() {
            let id = workflow.record.id;
            let (tasks, items) = tally(workflow);
            if (tasks, items) != (workflow.record.tasks, workflow.record.items) {
                return wrong(format!("tasks of {id}: recorded {:?}, counted {tasks:?}", workflow.record.tasks));
            }
            let open = workflow.tasks.iter().filter(|live_task| !live_task.state.is_terminal()).count() as u32;
            if open != workflow.open_in_epoch.iter().sum::<u32>() {
                return wrong(format!("open tasks of {id}: recorded {:?}, counted {open}", workflow.open_in_epoch));
            }
            if workflow.record.state.is_terminal() && open > 0 {
                return wrong(format!("{id} has ended with {open} open tasks"));
            }
            for (task, live_task) in workflow.tasks.iter().enumerate() {
                let Some(each) = &live_task.for_each else { continue };
                let live = each.items.iter().filter(|item| item.state.is_live()).count() as u32;
                let left = each.items.iter().filter(|item| !item.state.is_terminal()).count() as u32;
                if (live, left) != (each.live, each.left) {
                    return wrong(format!(
                        "live/open items of task {task} of {id}: recorded {}/{}, counted {live}/{left}",
                        each.live, each.left
                    ));
                }
            }
        }
        let rolling =
            self.workflows.map.values().filter(|workflow| workflow.record.state == WorkflowState::RollingBack).count();
        let (kept, counted) = (self.stats.workflows.rolling_back, rolling as u64);
        if kept != counted {
            return Err(Miscount { what: "rollbacks in progress".to_owned(), kept, counted });
        }
        Ok(())
    }
}
