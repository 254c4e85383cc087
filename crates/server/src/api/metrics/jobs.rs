//! What becomes of jobs, in all and by topic, and where they are placed.

use std::collections::BTreeMap;

use engine::{SPAN_BOUNDS, Spans, TopicCounts, UNPLACED_REASONS};
use model::machine::Ignored;
use model::spec::Lane;
use model::state::State;

use super::Reading;
use super::text::{Buckets, Family, Kind, Text};

impl Reading<'_> {
    pub(super) fn jobs(&self, text: &mut Text) {
        text.counter("outlast_jobs_submitted_total", "Jobs accepted.", self.sum(|s| s.stats.submitted));
        let deduplicated = self.sum(|s| s.stats.deduplicated);
        text.counter("outlast_jobs_deduplicated_total", "Submits answered from their key.", deduplicated);
        text.counter("outlast_jobs_refused_total", "Submits refused by a shard.", self.sum(|s| s.stats.refused));
        text.gauge("outlast_jobs_live", "Jobs that have not ended.", self.sum(|s| s.live_jobs as u64));
        let mut states = text.family("outlast_jobs_state", Kind::Gauge, "Jobs that have not ended, by state.");
        for state in State::ALL.into_iter().filter(|state| !state.is_terminal()) {
            states.sample(&[("state", state.as_str())], self.sum(|s| s.stats.states[usize::from(state.code())]));
        }
        let mut ended = text.family("outlast_jobs_ended_total", Kind::Counter, "Jobs that ended, by state.");
        for state in terminal() {
            ended.sample(&[("state", state.as_str())], self.sum(|s| s.stats.ended[usize::from(state.code())]));
        }
        let help = "How long jobs took from being accepted to their end.";
        let mut durations = Spans::default();
        self.statuses.iter().for_each(|status| durations.merge(&status.stats.durations));
        spans(&mut text.family("outlast_job_duration_seconds", Kind::Histogram, help), &[], &durations);
        let dead = self.sum(|s| s.stats.dead_letters);
        text.counter("outlast_dead_letters_total", "Jobs that became dead letters.", dead);
        let parked = self.sum(|s| s.stats.parked_words);
        text.counter("outlast_parked_words_total", "Words of runners that could not be taken.", parked);
        let help = "Questions to the policy and looks at results that were asked for again.";
        text.counter("outlast_reconciler_replayed_total", help, self.sum(|s| s.stats.replayed));
        let mut ignored = text.family("outlast_events_ignored_total", Kind::Counter, "Events that changed nothing.");
        for why in Ignored::ALL {
            ignored.sample(&[("reason", why.as_str())], self.sum(|s| s.stats.ignored[why as usize]));
        }
    }

    pub(super) fn topics(&self, text: &mut Text) {
        let topics = self.by_topic();
        let mut received = text.family("outlast_jobs_received_total", Kind::Counter, "Jobs accepted, by topic.");
        for (topic, counts) in &topics {
            received.sample(&[("topic", topic)], counts.received);
        }
        let help = "Attempts given to runners, by topic.";
        let mut dispatched = text.family("outlast_jobs_dispatched_total", Kind::Counter, help);
        for (topic, counts) in &topics {
            dispatched.sample(&[("topic", topic)], counts.dispatched);
        }
        let help = "Jobs that ended, by topic and state.";
        let mut completed = text.family("outlast_jobs_completed_total", Kind::Counter, help);
        for (topic, counts) in &topics {
            for state in terminal() {
                let count = counts.ended[usize::from(state.code())];
                completed.sample(&[("topic", topic), ("status", state.as_str())], count);
            }
        }
        let help = "How long jobs that could run waited for a runner, by topic.";
        let mut waits = text.family("outlast_dispatch_latency_seconds", Kind::Histogram, help);
        for (topic, counts) in &topics {
            spans(&mut waits, &[("topic", topic)], &counts.waits);
        }
    }

    /// Only those of which anything was counted.
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
        let mut ready = text.family("outlast_jobs_ready", Kind::Gauge, "Jobs that wait for a runner.");
        for lane in Lane::ALL {
            ready.sample(&[("lane", lane.as_str())], self.sum(|s| s.ready[lane as usize] as u64));
        }
        let help = "Looks for a runner when no runner there was could take the job, by reason.";
        let mut unplaced = text.family("outlast_jobs_unplaced_total", Kind::Counter, help);
        for (index, reason) in UNPLACED_REASONS.iter().enumerate() {
            unplaced.sample(&[("reason", reason.as_str())], self.sum(|s| s.stats.unplaced_by[index]));
        }
        text.counter("outlast_attempts_total", "Attempts given to runners.", self.sum(|s| s.stats.dispatched));
        let help = "Attempts that outlived their server and went on.";
        text.counter("outlast_attempts_adopted_total", help, self.sum(|s| s.stats.adopted));
        let mut held = text.family("outlast_attempts_held", Kind::Gauge, "Attempts in the hands of runners.");
        for lane in Lane::ALL {
            held.sample(&[("lane", lane.as_str())], self.sum(|s| u64::from(s.with_runners[lane as usize])));
        }
        // Every runner serves every shard: to add them up would count each of them several times.
        let runners = self.statuses.iter().map(|status| status.runners).max().unwrap_or_default();
        text.gauge("outlast_runners", "Runners that are connected.", u64::from(runners));
        let help = "Words of runners heard before.";
        text.counter("outlast_runner_words_duplicate_total", help, self.sum(|s| s.stats.duplicate_words));
        text.counter("outlast_runner_words_gap_total", "Gaps in the words of runners.", self.sum(|s| s.stats.gaps));
    }
}

fn terminal() -> impl Iterator<Item = State> {
    State::ALL.into_iter().filter(|state| state.is_terminal())
}

fn spans(family: &mut Family<'_>, labels: &[(&str, &str)], spans: &Spans) {
    let bounds = SPAN_BOUNDS.map(|bound| bound.0 as f64 / 1e3);
    let sum_seconds = spans.sum.0 as f64 / 1e3;
    family.histogram(labels, &Buckets { bounds: &bounds, counts: &spans.counts, sum_seconds });
}
