//! Report of a benchmark.

use std::time::Duration;

use client::load::LoadReport;
use model::queue::Counters;
use serde::Serialize;

use crate::paint::Paint;
use crate::table::Pairs;

/// The field names are part of the public output.
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
    /// `total` is the time from the first submission to the end of the last job.
    pub fn new(jobs: u64, submitted: &LoadReport, ends: &Counters, total: Duration) -> Self {
        let finished = crate::queues::ended(ends);
        // Counts each unsuccessful job once, whether it was refused or failed later.
        let succeeded = ends.succeeded.min(jobs);
        let quantile = |fraction| millis(submitted.latencies.quantile(fraction));
        Self {
            jobs,
            failed: submitted.tally.failed.max(jobs - succeeded),
            seconds: round(total.as_secs_f64(), 1_000_000.0),
            accepted_per_s: rate(submitted.tally.accepted, submitted.elapsed),
            finished_per_s: rate(finished, total),
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

/// Rounds to the measured precision.
fn round(value: f64, steps_per_unit: f64) -> f64 {
    (value * steps_per_unit).round() / steps_per_unit
}

#[cfg(test)]
mod tests {
    use client::load::Tally;

    use super::*;

    fn report(jobs: u64, accepted: u64, succeeded: u64, failed: u64) -> Report {
        let mut submitted = LoadReport {
            tally: Tally { accepted, failed: jobs - accepted },
            elapsed: Duration::from_millis(500),
            ..LoadReport::default()
        };
        submitted.latencies.record(Duration::from_micros(100), accepted);
        let ends = Counters { succeeded, failed, ..Counters::default() };
        Report::new(jobs, &submitted, &ends, Duration::from_secs(2))
    }

    #[test]
    fn each_rate_uses_its_own_duration() {
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
