//! Metrics of policy decisions about jobs and results, and of the policy service.

use engine::{OUTPUT_VERDICTS, VERDICTS};
use model::state::State;
use policy_service::breaker::State as Breaker;
use policy_service::{BreakerStatus, PolicyServiceStatus};

use super::text::{Kind, Text};
use super::{Reading, measured};
use crate::measures::Reload;

impl Reading<'_> {
    pub(super) fn policy(&self, text: &mut Text) {
        let help = "Policy decisions about jobs, by verdict.";
        let decided = text.family("outlast_policy_decisions_total", Kind::Counter, help);
        for (index, verdict) in VERDICTS.into_iter().enumerate() {
            decided.sample(&[("verdict", verdict)], self.sum(|s| s.stats.decided[index]));
        }
        let help = "Duration of policy checks.";
        let times = text.family("outlast_policy_decision_seconds", Kind::Histogram, help);
        measured(times, &[], &self.policy.decisions.snapshot());
        let help = "Jobs delayed because the policy was unavailable.";
        text.counter("outlast_policy_unavailable_total", help, self.sum(|s| s.stats.policy_unavailable));
        let help = "Jobs allowed because the policy was unavailable.";
        text.counter("outlast_policy_fail_open_total", help, self.sum(|s| s.stats.failed_open));
        let help = "Jobs checked again because the policy changed.";
        text.counter("outlast_policy_rechecked_total", help, self.sum(|s| s.stats.rechecked));
        let help = "Reloads of changed rules, by result.";
        let reloads = text.family("outlast_policy_reloads_total", Kind::Counter, help);
        for reload in Reload::ALL {
            reloads.sample(&[("outcome", reload.as_str())], self.policy.reloads(reload));
        }
        let waiting = self.sum(|s| s.stats.states[usize::from(State::ApprovalRequired.code())]);
        text.gauge("outlast_approvals_waiting", "Jobs that wait for an approval.", waiting);
        let help = "Jobs whose approval expired.";
        text.counter("outlast_approvals_expired_total", help, self.sum(|s| s.stats.approvals_expired));
    }

    pub(super) fn outputs(&self, text: &mut Text) {
        let help = "Policy decisions about results, by verdict.";
        let checked = text.family("outlast_output_checked_total", Kind::Counter, help);
        for (index, verdict) in OUTPUT_VERDICTS.into_iter().enumerate() {
            checked.sample(&[("verdict", verdict.as_str())], self.sum(|s| s.stats.outputs[index]));
        }
        let help = "Results shown although their scan failed.";
        text.counter("outlast_output_skipped_total", help, self.sum(|s| s.stats.outputs_skipped));
        let help = "Failed scans of results.";
        text.counter("outlast_output_scans_failed_total", help, self.sum(|s| s.stats.scans_failed));
        let help = "Results shown before their scan.";
        text.gauge("outlast_output_scans_open", help, self.sum(|s| s.open_scans as u64));
        let help = "Duration of scans of results, by phase.";
        let times = text.family("outlast_output_check_seconds", Kind::Histogram, help);
        measured(times, &[("phase", "metadata")], &self.policy.metadata.snapshot());
        measured(times, &[("phase", "content")], &self.policy.content.snapshot());
    }
}

/// The policy service and its circuit breakers.
pub(super) fn policy_service(status: &PolicyServiceStatus, text: &mut Text) {
    let gates = [("input", &status.input), ("output", &status.output)];
    let help = "1 for the current state of the circuit breaker, 0 for the others.";
    let states = text.family("outlast_policy_breaker_state", Kind::Gauge, help);
    for (gate, status) in gates {
        for state in [Breaker::Closed, Breaker::Open, Breaker::HalfOpen] {
            states.sample(&[("gate", gate), ("state", state.as_str())], u64::from(status.state == state));
        }
    }
    let help = "Changes of the breaker's state, by the new one.";
    let transitions = text.family("outlast_policy_breaker_transitions_total", Kind::Counter, help);
    for (gate, status) in gates {
        let counts = status.transitions;
        let by_state =
            [(Breaker::Closed, counts.closed), (Breaker::Open, counts.opened), (Breaker::HalfOpen, counts.half_opened)];
        for (state, count) in by_state {
            transitions.sample(&[("gate", gate), ("state", state.as_str())], count);
        }
    }
    let mut by_gate = |name, help, number: fn(&BreakerStatus) -> u64| {
        let family = text.family(name, Kind::Counter, help);
        for (gate, status) in gates {
            family.sample(&[("gate", gate)], number(status));
        }
    };
    by_gate("outlast_policy_service_calls_total", "Calls to the policy service.", |gate| gate.calls);
    by_gate("outlast_policy_service_failures_total", "Calls without an answer.", |gate| gate.failures);
    by_gate("outlast_policy_service_timeouts_total", "Failed calls that timed out.", |gate| gate.timeouts);
    let help = "Invalid answers; their jobs are denied, their results quarantined.";
    by_gate("outlast_policy_service_invalid_answers_total", help, |gate| gate.denied_invalid);
    let help = "Calls rejected because the breaker was open.";
    by_gate("outlast_policy_service_rejected_total", help, |gate| gate.open_rejections);
    text.gauge("outlast_policy_service_in_flight", "Calls in flight to the policy service.", status.in_flight as u64);
    text.gauge("outlast_policy_service_waiting", "Calls waiting for the policy service.", status.waiting as u64);
}
