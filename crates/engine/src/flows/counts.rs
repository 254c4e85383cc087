//! What is counted of workflows, and the count made again from the records.

use model::workflow::{Tally, TaskState, WorkflowState};

use super::flow::Flow;
use crate::recount::Miscount;
use crate::shard::Shard;

/// Counts of what has become of workflows since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlowStats {
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
    /// Rollbacks under way.
    pub rolling_back: u64,
}

impl FlowStats {
    pub(super) fn end(&mut self, state: WorkflowState) {
        match state {
            WorkflowState::Succeeded => self.ended[0] += 1,
            WorkflowState::Failed => self.ended[1] += 1,
            WorkflowState::Cancelled => self.ended[2] += 1,
            WorkflowState::Running | WorkflowState::Paused | WorkflowState::Stopping | WorkflowState::RollingBack => {}
        }
    }
}

/// The tallies as the tasks say.
pub(super) fn tally(flow: &Flow) -> (Tally, Tally) {
    let (mut tasks, mut items) = (Tally::default(), Tally::default());
    for slot in &flow.slots {
        tasks.add(slot.state, 1);
        for item in slot.each.iter().flat_map(|each| &each.slots) {
            items.add(item.state, 1);
        }
    }
    (tasks, items)
}

impl Shard {
    /// Compares every number of every workflow with a count over its tasks.
    pub(crate) fn recount_flows(&self) -> Result<(), Miscount> {
        let wrong = |what: String| Err(Miscount { what, kept: 0, counted: 0 });
        for flow in self.flows.map.values() {
            let id = flow.record.id;
            let (tasks, items) = tally(flow);
            if (tasks, items) != (flow.record.tasks, flow.record.items) {
                return wrong(format!("tasks of {id}: {:?} are {tasks:?}", flow.record.tasks));
            }
            let open = flow.slots.iter().filter(|slot| !slot.state.is_terminal()).count() as u32;
            if open != flow.open_in_epoch.iter().sum::<u32>() {
                return wrong(format!("open tasks of {id}: {:?} are {open}", flow.open_in_epoch));
            }
            if flow.record.state.is_terminal() && open > 0 {
                return wrong(format!("{id} has ended with {open} open tasks"));
            }
            for (task, slot) in flow.slots.iter().enumerate() {
                let Some(each) = &slot.each else { continue };
                let live = each.slots.iter().filter(|item| item.state.is_live()).count() as u32;
                let left = each.slots.iter().filter(|item| !item.state.is_terminal()).count() as u32;
                if (live, left) != (each.live, each.left) {
                    return wrong(format!(
                        "items of task {task} of {id}: {}/{} are {live}/{left}",
                        each.live, each.left
                    ));
                }
            }
        }
        let rolling = self.flows.map.values().filter(|flow| flow.record.state == WorkflowState::RollingBack).count();
        let (kept, counted) = (self.stats.flows.rolling_back, rolling as u64);
        if kept != counted {
            return Err(Miscount { what: "rollbacks under way".to_owned(), kept, counted });
        }
        Ok(())
    }
}
