//! What is worth knowing of the lives and deaths of processes.

use model::id::WorkflowId;
use model::workflow::{TaskState, WorkflowState};

use super::Process;
use crate::operators::version_of;
use crate::world::{Inbound, World};

impl World {
    /// What has come too late to count.
    pub(super) fn note_inbound(&mut self, process: &Process, inbound: &Inbound) {
        match inbound {
            Inbound::Setup { number, .. } if *number <= process.heard => {
                self.coverage.note("words of operators overtaken by newer ones");
            }
            Inbound::Verdict { decision, .. } if decision.policy != version_of(process.shard.setup().gate) => {
                self.coverage.note("verdicts of rules that are not in force");
            }
            Inbound::Setup { .. }
            | Inbound::Verdict { .. }
            | Inbound::Request { .. }
            | Inbound::Words(_)
            | Inbound::PolicyUnavailable { .. }
            | Inbound::Scanned { .. }
            | Inbound::ScanFailed { .. }
            | Inbound::FromShard { .. }
            | Inbound::RunnerLost { .. }
            | Inbound::Fetched(_) => {}
        }
    }

    /// What a shard has counted that is worth knowing of a run.
    pub(super) fn note_stats(&mut self, stats: &engine::Stats) {
        self.coverage.add("words heard twice", stats.duplicate_words);
        self.coverage.add("gaps in runners' words", stats.gaps);
        self.coverage.add("events ignored", stats.ignored.iter().sum());
        self.coverage.add("jobs sent back to the gate", stats.rechecked);
        self.coverage.add("questions asked again", stats.replayed);
        self.coverage.add("looks for a runner in vain", stats.unplaced);
        self.coverage.add("timers of workflows fired", stats.flows.timers_fired);
        self.coverage.add("slots of schedules started", stats.flows.schedules_fired);
        self.coverage.add("slots of schedules left out", stats.flows.schedules_skipped);
        self.coverage.add("templates that could not be read", stats.flows.template_errors);
    }

    /// The same for the processes that have lived to the end.
    pub(crate) fn note_final_stats(&mut self) {
        let stats: Vec<engine::Stats> =
            self.hosts.iter().flat_map(|host| &host.processes).map(|process| process.shard.stats().clone()).collect();
        for stats in &stats {
            self.note_stats(stats);
        }
    }

    /// What workflows were doing when their process died.
    pub(super) fn note_flows_left(&mut self, shard: usize) {
        let id = self.shard_id(shard);
        let own = |flow: &&WorkflowId| self.plan.shards.owner(flow.slot()) == id;
        let open: Vec<WorkflowId> = self.ledger.flows.open.iter().filter(own).copied().collect();
        for flow in open.iter().filter_map(|flow| self.ledger.flows.known.get(flow)) {
            let fans_out = flow.record.items.of(TaskState::Waiting) > 0;
            match flow.record.state {
                WorkflowState::Running if fans_out => self.coverage.note("crashes while items begin"),
                WorkflowState::Running => self.coverage.note("crashes while workflows run"),
                WorkflowState::Paused => self.coverage.note("crashes while workflows are paused"),
                WorkflowState::Stopping => self.coverage.note("crashes while workflows are stopped"),
                WorkflowState::RollingBack => self.coverage.note("crashes while workflows are undone"),
                WorkflowState::Succeeded | WorkflowState::Failed | WorkflowState::Cancelled => {
                    self.coverage.note("crashes while ended workflows are filed");
                }
            }
        }
    }
}
