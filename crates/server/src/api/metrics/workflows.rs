//! Metrics of workflows, tasks, rollbacks and schedules.

use model::workflow::{TaskState, WorkflowState};

use super::Reading;
use super::text::{Kind, Text};

/// Ends of workflows, as counted by the engine.
const ENDS: [WorkflowState; 3] = [WorkflowState::Succeeded, WorkflowState::Failed, WorkflowState::Cancelled];

impl Reading<'_> {
    pub(super) fn workflows(&self, text: &mut Text) {
        let live = self.sum(|s| s.live_workflows as u64);
        text.gauge("outlast_workflows_live", "Workflows that have not ended, including sub-workflows.", live);
        let suspended = self.sum(|s| s.suspended_workflows as u64);
        text.gauge("outlast_workflows_suspended", "Workflows that this version cannot read.", suspended);
        let started = self.sum(|s| s.stats.workflows.started);
        text.counter("outlast_workflows_started_total", "Workflows started or rerun.", started);
        let ended = text.family("outlast_workflows_ended_total", Kind::Counter, "Workflows that ended, by state.");
        for (index, state) in ENDS.into_iter().enumerate() {
            ended.sample(&[("state", state.as_str())], self.sum(|s| s.stats.workflows.ended[index]));
        }
        let help = "Tasks of workflows, and items of tasks, that ended, by state.";
        let tasks = text.family("outlast_workflow_tasks_total", Kind::Counter, help);
        for state in TaskState::ALL.into_iter().filter(|state| state.is_terminal()) {
            let count = self.sum(|s| s.stats.workflows.tasks_ended[usize::from(state.code())]);
            tasks.sample(&[("state", state.as_str())], count);
        }
        let signals = self.sum(|s| s.stats.workflows.signals);
        text.counter("outlast_workflow_signals_total", "Signals accepted for workflows.", signals);
        let timers = self.sum(|s| s.stats.workflows.timers_fired);
        text.counter("outlast_workflow_timers_fired_total", "Delays and timeouts of workflows that came due.", timers);
        let errors = self.sum(|s| s.stats.workflows.template_errors);
        text.counter("outlast_workflow_template_errors_total", "Tasks that failed because of a template.", errors);
    }

    pub(super) fn sagas(&self, text: &mut Text) {
        let began = self.sum(|s| s.stats.workflows.rollbacks);
        text.counter("outlast_saga_rollbacks_total", "Rollbacks started.", began);
        let help = "Rollbacks ended, fully or partially.";
        let done = text.family("outlast_saga_rollbacks_ended_total", Kind::Counter, help);
        done.sample(&[("outcome", "rolled_back")], self.sum(|s| s.stats.workflows.rolled_back));
        done.sample(&[("outcome", "partially_rolled_back")], self.sum(|s| s.stats.workflows.partially_rolled_back));
        let steps = text.family("outlast_saga_compensations_total", Kind::Counter, "Compensations ended, by result.");
        steps.sample(&[("outcome", "done")], self.sum(|s| s.stats.workflows.compensations_done));
        steps.sample(&[("outcome", "failed")], self.sum(|s| s.stats.workflows.compensations_failed));
        let active = self.sum(|s| s.stats.workflows.rolling_back);
        text.gauge("outlast_saga_active", "Rollbacks in progress.", active);
    }

    pub(super) fn schedules(&self, text: &mut Text) {
        let fired = self.sum(|s| s.stats.workflows.schedules_fired);
        text.counter("outlast_schedules_fired_total", "Workflows started by schedules.", fired);
        let skipped = self.sum(|s| s.stats.workflows.schedules_skipped);
        text.counter("outlast_schedules_skipped_total", "Skipped slots of schedules.", skipped);
    }
}
