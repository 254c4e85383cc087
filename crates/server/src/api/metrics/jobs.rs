//! Metrics of jobs, in total and by topic, and of placement.

use std::collections::BTreeMap;

use engine::{DURATION_BOUNDS, DurationHistogram, TopicCounts, UNPLACED_REASONS};
use model::machine::Ignored;
use model::spec::ExecutorKind;
use model::state::State;

use super::Reading;
use super::text::{Buckets, Family, Kind, Text};

impl Reading<'_> {
    pub(super) fn jobs(&self, text: &mut Text) {
        text.counter("outlast_jobs_submitted_total", "Jobs accepted.", self.sum(|s| s.stats.submitted));
        let help = "Submissions deduplicated by their idempotency key.";
        text.counter("outlast_jobs_deduplicated_total", help, self.sum(|s| s.stats.deduplicated));
        text.counter("outlast_jobs_refused_total", "Submissions refused by a shard.", self.sum(|s| s.stats.refused));
        text.gauge("outlast_jobs_live", "Jobs that have not ended.", self.sum(|s| s.live_jobs as u64));
        let states = text.family("outlast_jobs_state", Kind::Gauge, "Jobs that have not ended, by state.");
        for state in State::ALL.into_iter().filter(|state| !state.is_terminal()) {
            states.sample(&[("state", state.as_str())], self.sum(|s| s.stats.states[usize::from(state.code())]));
        }
        let ended = text.family("outlast_jobs_ended_total", Kind::Counter, "Jobs that ended, by state.");
        for state in terminal() {
            ended.sample(&[("state", state.as_str())], self.sum(|s| s.stats.ended[usize::from(state.code())]));
        }
        let help = "Time from acceptance to end of jobs.";
        let mut durations = DurationHistogram::default();
        self.statuses.iter().for_each(|status| durations.merge(&status.stats.durations));
        spans(text.family("outlast_job_duration_seconds", Kind::Histogram, help), &[], &durations);
        let dead = self.sum(|s| s.stats.dead_letters);
        text.counter("outlast_dead_letters_total", "Jobs that became dead letters.", dead);
        let parked = self.sum(|s| s.stats.rejected_messages);
        text.counter("outlast_rejected_messages_total", "Rejected messages of runners.", parked);
        let help = "Repeated requests for policy checks and scans.";
        text.counter("outlast_reconciler_replayed_total", help, self.sum(|s| s.stats.replayed));
        let ignored = text.family("outlast_events_ignored_total", Kind::Counter, "Events that changed nothing.");
        for why in Ignored::ALL {
            ignored.sample(&[("reason", why.as_str())], self.sum(|s| s.stats.ignored[why as usize]));
        }
    }

    pub(super) fn topics(&self, text: &mut Text) {
        let topics = self.by_topic();
        let received = text.family("outlast_jobs_received_total", Kind::Counter, "Jobs accepted, by topic.");
        for (topic, counts) in &topics {
            received.sample(&[("topic", topic)], counts.received);
        }
        let help = "Dispatched attempts, by topic.";
        let dispatched = text.family("outlast_jobs_dispatched_total", Kind::Counter, help);
        for (topic, counts) in &topics {
            dispatched.sample(&[("topic", topic)], counts.dispatched);
        }
        let help = "Jobs that ended, by topic and state.";
        let completed = text.family("outlast_jobs_completed_total", Kind::Counter, help);
        for (topic, counts) in &topics {
            for state in terminal() {
                let count = counts.ended[usize::from(state.code())];
                completed.sample(&[("topic", topic), ("status", state.as_str())], count);
            }
        }
        let help = "Time that eligible jobs waited for a runner, by topic.";
        let waits = text.family("outlast_dispatch_latency_seconds", Kind::Histogram, help);
        for (topic, counts) in &topics {
            spans(waits, &[("topic", topic)], &counts.waits);
        }
    }

    /// Topics with a counted value only.
    fn by_topic(&self) -> BTreeMap<&str, TopicCounts> {
        let mut topics: BTreeMap<&str, TopicCounts> = BTreeMap::new();
        for (name, counts) in self.statuses.iter().flat_map(|status| status.topics.iter()) {
            if *counts != TopicCounts::default() {
                topics.entry(name).or_default().merge(counts);
            }
        }
        topics
    }

    pub(super) fn placement(&self, text: &mut Text) {
        let ready = text.family("outlast_jobs_ready", Kind::Gauge, "Jobs that wait for a runner.");
        for executor in ExecutorKind::ALL {
            ready.sample(&[("executor", executor.as_str())], self.sum(|s| s.ready[executor as usize] as u64));
        }
        let help = "Searches for a runner without an eligible one, by reason.";
        let unplaced = text.family("outlast_jobs_unplaced_total", Kind::Counter, help);
        for (index, reason) in UNPLACED_REASONS.iter().enumerate() {
            unplaced.sample(&[("reason", reason.as_str())], self.sum(|s| s.stats.unplaced_by[index]));
        }
        text.counter("outlast_attempts_total", "Dispatched attempts.", self.sum(|s| s.stats.dispatched));
        let help = "Attempts adopted after a restart of the server.";
        text.counter("outlast_attempts_adopted_total", help, self.sum(|s| s.stats.adopted));
        let help = "Infrastructure failures that jobs were not charged for because their node was at fault.";
        text.counter("outlast_failures_refunded_total", help, self.sum(|s| s.stats.refunded_failures));
        let held = text.family("outlast_attempts_in_flight", Kind::Gauge, "Attempts in flight.");
        for executor in ExecutorKind::ALL {
            held.sample(&[("executor", executor.as_str())], self.sum(|s| u64::from(s.with_runners[executor as usize])));
        }
        // Every runner serves every shard: a sum would count each runner several times.
        let runners = self.statuses.iter().map(|status| status.runners).max().unwrap_or_default();
        text.gauge("outlast_runners", "Registered runners.", u64::from(runners));
        let help = "Duplicate messages of runners.";
        text.counter("outlast_runner_messages_duplicate_total", help, self.sum(|s| s.stats.duplicate_messages));
        text.counter(
            "outlast_runner_messages_gap_total",
            "Gaps in the messages of runners.",
            self.sum(|s| s.stats.gaps),
        );
        let help = "Messages that were sent to a runner again.";
        text.counter("outlast_runner_messages_retransmitted_total", help, self.sum(|s| s.stats.retransmitted));
        text.counter("outlast_anomalies_total", "Unexpected states of a shard.", self.sum(|s| s.stats.anomalies));
    }
}

fn terminal() -> impl Iterator<Item = State> {
    State::ALL.into_iter().filter(|state| state.is_terminal())
}

fn spans(family: &mut Family, labels: &[(&str, &str)], spans: &DurationHistogram) {
    let bounds = DURATION_BOUNDS.map(|bound| bound.0 as f64 / 1e3);
    let sum_seconds = spans.sum.0 as f64 / 1e3;
    family.histogram(labels, &Buckets { bounds: &bounds, counts: &spans.counts, sum_seconds });
}
