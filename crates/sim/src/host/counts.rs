//! Coverage counters of shard processes.

use model::id::WorkflowId;
use model::workflow::{TaskState, WorkflowState};

use super::Process;
use crate::operators::version_of;
use crate::world::{Inbound, Reply, World};

impl World {
    /// Counts settings and verdicts that arrive too late to apply.
    pub(super) fn count_late_inbound(&mut self, process: &Process, inbound: &Inbound) {
        match inbound {
            Inbound::Settings { number, .. } if *number <= process.settings_number => {
                self.coverage.count("settings overtaken by newer ones");
            }
            Inbound::Reply { reply: Reply::Verdict { decision, .. }, .. }
                if decision.policy != version_of(process.owner.shard().settings().policy) =>
            {
                self.coverage.count("verdicts of a policy version not in force");
            }
            Inbound::Settings { .. }
            | Inbound::Reply { .. }
            | Inbound::Request { .. }
            | Inbound::RunnerFrame(_)
            | Inbound::FromShard { .. }
            | Inbound::RunnerLost { .. }
            | Inbound::RunnerDisconnected { .. }
            | Inbound::RetractAll { .. }
            | Inbound::AbandonAll { .. } => {}
        }
    }

    /// Adds the statistics of a shard to the coverage.
    pub(super) fn count_stats(&mut self, stats: &engine::Stats) {
        self.coverage.add("duplicate runner messages", stats.duplicate_messages);
        self.coverage.add("gaps in runner messages", stats.gaps);
        self.coverage.add("events ignored", stats.ignored.iter().sum());
        self.coverage.add("jobs rechecked by the policy", stats.rechecked);
        self.coverage.add("policy checks and scans retried", stats.replayed);
        self.coverage.add("failed placements", stats.unplaced);
        self.coverage.add("workflow timers fired", stats.workflows.timers_fired);
        self.coverage.add("schedule slots started", stats.workflows.schedules_fired);
        self.coverage.add("schedule slots skipped", stats.workflows.schedules_skipped);
        self.coverage.add("template errors", stats.workflows.template_errors);
    }

    /// Adds the statistics of the processes alive at the end.
    pub(crate) fn count_final_stats(&mut self) {
        let processes = self.hosts.iter().flat_map(|host| &host.processes);
        let stats: Vec<engine::Stats> = processes.map(|process| process.owner.shard().stats().clone()).collect();
        for stats in &stats {
            self.count_stats(stats);
        }
    }

    /// Counts the states of workflows at the crash of their process.
    pub(super) fn count_interrupted_workflows(&mut self, shard: usize) {
        let id = self.shard_id(shard);
        let own = |workflow: &&WorkflowId| self.scenario.shards.owner(workflow.slot()) == id;
        let open: Vec<WorkflowId> = self.ledger.workflows.open.iter().filter(own).copied().collect();
        for workflow in open.iter().filter_map(|workflow| self.ledger.workflows.known.get(workflow)) {
            let fans_out = workflow.record.items.of(TaskState::Waiting) > 0;
            match workflow.record.state {
                WorkflowState::Running if fans_out => self.coverage.count("crashes while items start"),
                WorkflowState::Running => self.coverage.count("crashes while workflows run"),
                WorkflowState::Paused => self.coverage.count("crashes while workflows are paused"),
                WorkflowState::Stopping => self.coverage.count("crashes while workflows stop"),
                WorkflowState::RollingBack => self.coverage.count("crashes while workflows roll back"),
                WorkflowState::Succeeded | WorkflowState::Failed | WorkflowState::Cancelled => {
                    self.coverage.count("crashes while ended workflows are archived");
                }
            }
        }
    }
}
