//! What a benchmark measured, for people and for programs.

use std::time::Duration;

use client::load::Outcome;
use model::queue::Counters;
use serde::Serialize;

use crate::paint::Paint;
use crate::table::Pairs;

/// The names are a contract.
#[derive(Debug, Serialize)]
pub struct Report {
    pub jobs: u64,
    pub failed: u64,
    pub seconds: f64,
    pub accepted_per_s: f64,
    pub finished_per_s: f64,
    pub latency_ms: Latency,
}

#[derive(Debug, Serialize)]
pub struct Latency {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Report {
    /// `whole` is the time from the first submit to the end of the last job.
    pub fn new(jobs: u64, submitted: &Outcome, ends: &Counters, whole: Duration) -> Self {
        let finished = crate::queues::ended(ends);
        // A job that was accepted and then ended badly is counted once, and so is one that was never accepted.
        let succeeded = ends.succeeded.min(jobs);
        let quantile = |fraction| millis(submitted.latencies.quantile(fraction));
        Self {
            jobs,
            failed: submitted.tally.failed.max(jobs - succeeded),
            seconds: round(whole.as_secs_f64(), 1_000_000.0),
            accepted_per_s: rate(submitted.tally.accepted, submitted.elapsed),
            finished_per_s: rate(finished, whole),
            latency_ms: Latency {
                p50: quantile(0.5),
                p90: quantile(0.9),
                p99: quantile(0.99),
                p999: quantile(0.999),
                max: millis(submitted.latencies.max()),
            },
        }
    }

    pub fn table(&self, paint: Paint) -> String {
        let mut pairs = Pairs::default();
        pairs.add("jobs", self.jobs);
        pairs.add("failed", self.failed);
        pairs.add("seconds", format!("{:.3}", self.seconds));
        pairs.add("accepted", format!("{:.0}/s", self.accepted_per_s));
        pairs.add("finished", format!("{:.0}/s", self.finished_per_s));
        let Latency { p50, p90, p99, p999, max } = &self.latency_ms;
        for (name, value) in [("p50", p50), ("p90", p90), ("p99", p99), ("p999", p999), ("max", max)] {
            pairs.add(name, format!("{value:.3} ms"));
        }
        pairs.render(paint)
    }
}

fn rate(jobs: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { round(jobs as f64 / time.as_secs_f64(), 10.0) }
}

fn millis(duration: Duration) -> f64 {
    round(duration.as_secs_f64() * 1000.0, 1000.0)
}

/// Digits beyond what was measured only get in the way.
fn round(value: f64, steps_per_unit: f64) -> f64 {
    (value * steps_per_unit).round() / steps_per_unit
}

#[cfg(test)]
mod tests {
    use client::load::Tally;

    use super::*;

    fn report(jobs: u64, accepted: u64, succeeded: u64, failed: u64) -> Report {
        let mut submitted = Outcome {
            tally: Tally { accepted, failed: jobs - accepted },
            elapsed: Duration::from_millis(500),
            ..Outcome::default()
        };
        submitted.latencies.record(Duration::from_micros(100), accepted);
        let ends = Counters { succeeded, failed, ..Counters::default() };
        Report::new(jobs, &submitted, &ends, Duration::from_secs(2))
    }

    #[test]
    fn rates_are_over_their_own_times() {
        let json = serde_json::to_string(&report(1000, 1000, 1000, 0)).unwrap();
        let expected = r#"{"jobs":1000,"failed":0,"seconds":2.0,"accepted_per_s":2000.0,"finished_per_s":500.0,"latency_ms":{"p50":0.1,"p90":0.1,"p99":0.1,"p999":0.1,"max":0.1}}"#;
        assert_eq!(json, expected);
    }

    #[test]
    fn refused_and_failed_jobs_count_as_failed_once() {
        assert_eq!(report(10, 8, 7, 1).failed, 3);
        assert_eq!(report(10, 10, 10, 0).failed, 0);
    }
}
