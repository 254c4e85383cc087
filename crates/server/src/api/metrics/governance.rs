//! What the policy says of jobs and of results, and how the kernel is.

use engine::{OUTPUT_VERDICTS, VERDICTS};
use kernel::breaker::State as Breaker;
use kernel::{GateStatus, KernelStatus};
use model::state::State;

use super::text::{Kind, Text};
use super::{Reading, measured};
use crate::measures::Reload;

impl Reading<'_> {
    pub(super) fn policy(&self, text: &mut Text) {
        let help = "Decisions of the policy about jobs, by verdict.";
        let mut decided = text.family("outlast_policy_decisions_total", Kind::Counter, help);
        for (index, verdict) in VERDICTS.into_iter().enumerate() {
            decided.sample(&[("verdict", verdict)], self.sum(|s| s.stats.decided[index]));
        }
        let help = "How long the rules or the kernel took to answer about a job.";
        let mut times = text.family("outlast_policy_decision_seconds", Kind::Histogram, help);
        measured(&mut times, &[], &self.policy.decisions.snapshot());
        let help = "Jobs that had to wait because the policy could not be asked.";
        text.counter("outlast_policy_unavailable_total", help, self.sum(|s| s.stats.policy_unavailable));
        let help = "Jobs that were allowed because the policy could not be asked.";
        text.counter("outlast_policy_fail_open_total", help, self.sum(|s| s.stats.failed_open));
        let help = "Jobs that were asked about again because the policy had changed.";
        text.counter("outlast_policy_rechecked_total", help, self.sum(|s| s.stats.rechecked));
        let help = "Looks at rules whose files had changed, by what came of them.";
        let mut reloads = text.family("outlast_policy_reloads_total", Kind::Counter, help);
        for reload in Reload::ALL {
            reloads.sample(&[("outcome", reload.as_str())], self.policy.reloads(reload));
        }
        let waiting = self.sum(|s| s.stats.states[usize::from(State::ApprovalRequired.code())]);
        text.gauge("outlast_approvals_waiting", "Jobs that wait for somebody's word.", waiting);
        let help = "Jobs that waited too long for somebody's word.";
        text.counter("outlast_approvals_expired_total", help, self.sum(|s| s.stats.approvals_expired));
    }

    pub(super) fn outputs(&self, text: &mut Text) {
        let help = "Decisions about results, by verdict.";
        let mut checked = text.family("outlast_output_checked_total", Kind::Counter, help);
        for (index, verdict) in OUTPUT_VERDICTS.into_iter().enumerate() {
            checked.sample(&[("verdict", verdict.as_str())], self.sum(|s| s.stats.outputs[index]));
        }
        let help = "Results that were shown though they could not be looked at.";
        text.counter("outlast_output_skipped_total", help, self.sum(|s| s.stats.outputs_skipped));
        let help = "Looks at results that failed.";
        text.counter("outlast_output_scans_failed_total", help, self.sum(|s| s.stats.scans_failed));
        let help = "Results that were shown and are still to be looked at.";
        text.gauge("outlast_output_scans_open", help, self.sum(|s| s.open_scans as u64));
        let help = "How long looks at results took, by phase.";
        let mut times = text.family("outlast_output_check_seconds", Kind::Histogram, help);
        measured(&mut times, &[("phase", "metadata")], &self.policy.metadata.snapshot());
        measured(&mut times, &[("phase", "content")], &self.policy.content.snapshot());
    }
}

/// The kernel and the breakers before it.
pub(super) fn kernel(status: &KernelStatus, text: &mut Text) {
    let gates = [("input", &status.input), ("output", &status.output)];
    let help = "1 for the state that the breaker is in, 0 for the others.";
    let mut states = text.family("outlast_policy_breaker_state", Kind::Gauge, help);
    for (gate, status) in gates {
        for state in [Breaker::Closed, Breaker::Open, Breaker::HalfOpen] {
            states.sample(&[("gate", gate), ("state", state.as_str())], u64::from(status.state == state));
        }
    }
    let help = "Changes of the breaker's state, by the new one.";
    let mut transitions = text.family("outlast_policy_breaker_transitions_total", Kind::Counter, help);
    for (gate, status) in gates {
        let counts = status.transitions;
        let by_state =
            [(Breaker::Closed, counts.closed), (Breaker::Open, counts.opened), (Breaker::HalfOpen, counts.half_opened)];
        for (state, count) in by_state {
            transitions.sample(&[("gate", gate), ("state", state.as_str())], count);
        }
    }
    let mut by_gate = |name, help, number: fn(&GateStatus) -> u64| {
        let mut family = text.family(name, Kind::Counter, help);
        for (gate, status) in gates {
            family.sample(&[("gate", gate)], number(status));
        }
    };
    by_gate("outlast_policy_kernel_calls_total", "Questions that the kernel was asked.", |gate| gate.calls);
    by_gate("outlast_policy_kernel_failures_total", "Of those, the ones without an answer.", |gate| gate.failures);
    by_gate("outlast_policy_kernel_timeouts_total", "Of the failures, those that took too long.", |gate| gate.timeouts);
    let help = "Answers that made no sense, and let nothing pass.";
    by_gate("outlast_policy_kernel_nonsense_total", help, |gate| gate.denied_nonsense);
    let help = "Questions that were not asked because the breaker was open.";
    by_gate("outlast_policy_kernel_turned_away_total", help, |gate| gate.open_rejections);
    text.gauge("outlast_policy_kernel_in_flight", "Questions that the kernel is busy with.", status.in_flight as u64);
    text.gauge("outlast_policy_kernel_waiting", "Questions in line for the kernel.", status.waiting as u64);
}
