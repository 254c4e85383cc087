//! Numbers for Prometheus.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State as Shared;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use model::spec::Lane;
use model::state::State;

use super::App;
use super::list::Parameters;
use super::problem::Refused;
use crate::inbox::Status;

const IGNORED: [&str; 6] =
    ["terminal", "stale_attempt", "duplicate", "out_of_order", "budget_exhausted", "other_content"];

pub(crate) async fn metrics(Shared(app): Shared<Arc<App>>, _: Parameters) -> Result<Response, Refused> {
    let core = app.core()?;
    let statuses: Vec<Status> = core.inboxes.iter().map(crate::inbox::Inbox::status).collect();
    let mut text = String::with_capacity(4096);
    render(&statuses, app.subscribers.load(Ordering::Relaxed), &mut text);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

fn render(statuses: &[Status], subscribers: usize, text: &mut String) {
    let sum = |number: &dyn Fn(&Status) -> u64| statuses.iter().map(number).sum::<u64>();
    let mut single = |name: &str, kind: &str, help: &str, value: u64| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    };
    single("outlast_jobs_submitted_total", "counter", "Jobs accepted.", sum(&|s| s.stats.submitted));
    single(
        "outlast_jobs_deduplicated_total",
        "counter",
        "Submits answered from their key.",
        sum(&|s| s.stats.deduplicated),
    );
    single("outlast_jobs_refused_total", "counter", "Submits refused by a shard.", sum(&|s| s.stats.refused));
    single("outlast_attempts_total", "counter", "Attempts given to runners.", sum(&|s| s.stats.dispatched));
    single(
        "outlast_attempts_adopted_total",
        "counter",
        "Attempts that outlived their server and went on.",
        sum(&|s| s.stats.adopted),
    );
    single("outlast_jobs_live", "gauge", "Jobs that have not ended.", sum(&|s| s.live_jobs as u64));
    single("outlast_commits_total", "counter", "Durable commits.", sum(&|s| s.commits));
    single(
        "outlast_runner_words_duplicate_total",
        "counter",
        "Words of runners heard before.",
        sum(&|s| s.stats.duplicate_words),
    );
    single("outlast_runner_words_gap_total", "counter", "Gaps in the words of runners.", sum(&|s| s.stats.gaps));
    single("outlast_subscribers", "gauge", "Subscribers to changes.", subscribers as u64);
    let mut family = |name: &str, kind: &str, help: &str, label: &str, values: Vec<(&str, u64)>| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (value, number) in values {
            let _ = writeln!(text, "{name}{{{label}=\"{value}\"}} {number}");
        }
    };
    let ended = State::ALL.into_iter().filter(|state| state.is_terminal());
    let ended = ended.map(|state| (state.as_str(), sum(&|s| s.stats.ended[usize::from(state.code())]))).collect();
    family("outlast_jobs_ended_total", "counter", "Jobs that ended, by state.", "state", ended);
    let ignored = IGNORED.into_iter().enumerate().map(|(index, why)| (why, sum(&|s| s.stats.ignored[index]))).collect();
    family("outlast_events_ignored_total", "counter", "Events that changed nothing.", "reason", ignored);
    let ready = Lane::ALL.map(|lane| (lane.as_str(), sum(&|s| s.ready[lane as usize] as u64)));
    family("outlast_jobs_ready", "gauge", "Jobs that wait for a runner.", "lane", ready.to_vec());
    let held = Lane::ALL.map(|lane| (lane.as_str(), sum(&|s| u64::from(s.with_runners[lane as usize]))));
    family("outlast_attempts_held", "gauge", "Attempts in the hands of runners.", "lane", held.to_vec());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_add_up() {
        let mut status = Status { live_jobs: 2, ..Status::default() };
        status.stats.ended[usize::from(State::Failed.code())] = 3;
        let mut text = String::new();
        render(&[status.clone(), status], 1, &mut text);
        assert!(text.contains("\noutlast_jobs_live 4\n"));
        assert!(text.contains("outlast_jobs_ended_total{state=\"failed\"} 6\n"));
    }
}
