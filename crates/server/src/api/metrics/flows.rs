//! What becomes of workflows, of their tasks and of what undoes them, and what schedules start.

use model::workflow::{TaskState, WorkflowState};

use super::Reading;
use super::text::{Kind, Text};

/// The ends of workflows, as the engine counts them.
const ENDS: [WorkflowState; 3] = [WorkflowState::Succeeded, WorkflowState::Failed, WorkflowState::Cancelled];

impl Reading<'_> {
    pub(super) fn workflows(&self, text: &mut Text) {
        let live = self.sum(|s| s.live_workflows as u64);
        text.gauge("outlast_workflows_live", "Workflows that have not ended, with those that are part of them.", live);
        let started = self.sum(|s| s.stats.flows.started);
        text.counter("outlast_workflows_started_total", "Workflows started, or run again.", started);
        let mut ended = text.family("outlast_workflows_ended_total", Kind::Counter, "Workflows that ended, by state.");
        for (index, state) in ENDS.into_iter().enumerate() {
            ended.sample(&[("state", state.as_str())], self.sum(|s| s.stats.flows.ended[index]));
        }
        let help = "Tasks of workflows, and items of tasks, that ended, by state.";
        let mut tasks = text.family("outlast_workflow_tasks_total", Kind::Counter, help);
        for state in TaskState::ALL.into_iter().filter(|state| state.is_terminal()) {
            let count = self.sum(|s| s.stats.flows.tasks_ended[usize::from(state.code())]);
            tasks.sample(&[("state", state.as_str())], count);
        }
        let signals = self.sum(|s| s.stats.flows.signals);
        text.counter("outlast_workflow_signals_total", "Signals taken for workflows.", signals);
        let timers = self.sum(|s| s.stats.flows.timers_fired);
        text.counter("outlast_workflow_timers_fired_total", "Delays and timeouts of workflows that came due.", timers);
        let errors = self.sum(|s| s.stats.flows.template_errors);
        text.counter("outlast_workflow_template_errors_total", "Tasks that failed because of a template.", errors);
    }

    pub(super) fn sagas(&self, text: &mut Text) {
        let began = self.sum(|s| s.stats.flows.rollbacks);
        text.counter("outlast_saga_rollbacks_total", "Workflows that began to be undone.", began);
        let help = "Workflows that were undone, wholly or in part.";
        let mut done = text.family("outlast_saga_rollbacks_ended_total", Kind::Counter, help);
        done.sample(&[("outcome", "rolled_back")], self.sum(|s| s.stats.flows.rolled_back));
        done.sample(&[("outcome", "partially_rolled_back")], self.sum(|s| s.stats.flows.partially_rolled_back));
        let mut steps = text.family("outlast_saga_compensations_total", Kind::Counter, "Steps undone, or not.");
        steps.sample(&[("outcome", "done")], self.sum(|s| s.stats.flows.compensations_done));
        steps.sample(&[("outcome", "failed")], self.sum(|s| s.stats.flows.compensations_failed));
        let active = self.sum(|s| s.stats.flows.rolling_back);
        text.gauge("outlast_saga_active", "Workflows that are being undone.", active);
    }

    pub(super) fn schedules(&self, text: &mut Text) {
        let fired = self.sum(|s| s.stats.flows.schedules_fired);
        text.counter("outlast_schedules_fired_total", "Workflows that schedules have started.", fired);
        let skipped = self.sum(|s| s.stats.flows.schedules_skipped);
        text.counter("outlast_schedules_skipped_total", "Slots of schedules that were left out.", skipped);
    }
}
