//! Metrics for Prometheus, described in `docs/metrics.md`.

mod governance;
mod jobs;
mod nodes;
#[cfg(test)]
mod tests;
mod text;
mod workflows;

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use policy_service::PolicyServiceStatus;

use super::App;
use super::nodes::NodeViews;
use super::parameters::Parameters;
use super::problem::Refused;
use crate::inbox::{Inbox, Status};
use crate::measures::{BOUNDS_MICROS, PolicyMeasures, Snapshot};
use nodes::NodeSample;
use text::{Buckets, Family, Kind, Text};

pub(crate) async fn metrics(Shared(app): Shared<Arc<App>>, _: Parameters) -> Result<Response, Refused> {
    let core = app.core()?;
    let mut commit_times = Snapshot::default();
    core.inboxes.iter().for_each(|inbox| commit_times.merge(&inbox.commit_times()));
    let nodes = core.read(|core| Ok(NodeViews::new(core).all())).await?;
    let reading = Reading {
        nodes: nodes.into_iter().map(NodeSample::from).collect(),
        statuses: core.inboxes.iter().map(Inbox::status).collect(),
        requests_waiting: core.inboxes.iter().map(Inbox::requests_waiting).sum(),
        commit_times,
        subscribers: app.subscribers.in_use(),
        policy: core.policy.measures(),
        service: core.policy.service().map(policy_service::Client::status),
    };
    Ok(([(header::CONTENT_TYPE, text::CONTENT_TYPE)], reading.render()).into_response())
}

/// A snapshot of all values.
struct Reading<'a> {
    nodes: Vec<NodeSample>,
    /// One per shard.
    statuses: Vec<Status>,
    requests_waiting: usize,
    commit_times: Snapshot,
    subscribers: usize,
    policy: &'a PolicyMeasures,
    /// Absent without a policy service.
    service: Option<PolicyServiceStatus>,
}

impl Reading<'_> {
    fn render(&self) -> String {
        let mut text = Text::default();
        self.jobs(&mut text);
        self.topics(&mut text);
        self.placement(&mut text);
        self.policy(&mut text);
        if let Some(service) = &self.service {
            governance::policy_service(service, &mut text);
        }
        self.outputs(&mut text);
        self.workflows(&mut text);
        self.sagas(&mut text);
        self.schedules(&mut text);
        self.nodes(&mut text);
        self.node(&mut text);
        text.render()
    }

    fn sum(&self, number: impl Fn(&Status) -> u64) -> u64 {
        self.statuses.iter().map(number).sum()
    }

    fn node(&self, text: &mut Text) {
        text.counter("outlast_commits_total", "Durable commits.", self.sum(|s| s.commits));
        let help = "Restarts of shards after an error; the node goes on.";
        text.counter("outlast_shard_restarts_total", help, self.sum(|s| s.restarts));
        let help = "Shards that do not serve requests because they restart.";
        text.gauge("outlast_shards_down", help, self.sum(|s| u64::from(s.down.is_some())));
        let help = "Replies to an earlier owner of a shard, dropped.";
        text.counter("outlast_stale_replies_total", help, self.sum(|s| s.stale_replies));
        let times = text.family("outlast_commit_seconds", Kind::Histogram, "Duration of durable commits.");
        measured(times, &[], &self.commit_times);
        let waiting = self.requests_waiting as u64;
        text.gauge("outlast_requests_waiting", "Requests that no shard has received yet.", waiting);
        text.gauge("outlast_subscribers", "Subscribers to changes.", self.subscribers as u64);
    }
}

fn measured(family: &mut Family, labels: &[(&str, &str)], times: &Snapshot) {
    let bounds = BOUNDS_MICROS.map(|micros| micros as f64 / 1e6);
    let buckets = Buckets { bounds: &bounds, counts: &times.counts, sum_seconds: times.sum.as_secs_f64() };
    family.histogram(labels, &buckets);
}
