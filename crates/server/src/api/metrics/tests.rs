//! The text is valid for Prometheus, and documentation and dashboard match the metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use engine::{Config, Input, RequestId, Shard, Step, Submission};
use model::id::{Epoch, NodeId, ShardId, Shards};
use model::spec::{EchoRun, JobSpec, Run};
use model::state::State;
use model::time::{Millis, Now};
use policy_service::breaker::{State as Breaker, Transitions};
use policy_service::{BreakerStatus, PolicyServiceStatus};
use serde_json::Value;

use super::*;
use crate::measures::{Histogram, Reload};

const DOCUMENT: &str = include_str!("../../../../../docs/metrics.md");
const DASHBOARD: &str = include_str!("../../../../../examples/grafana/outlast.json");

type Labels = BTreeMap<String, String>;

/// A parsed text.
#[derive(Debug, Default)]
struct Exposition {
    /// The type of each family.
    types: BTreeMap<String, String>,
    /// Every sample by its name and its labels.
    samples: BTreeMap<(String, Labels), f64>,
}

/// The value of a label up to its closing quote, and the rest.
fn unquote(text: &str) -> (String, &str) {
    let mut content = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (content, &text[at + 1..]),
            '\\' => match characters.next().map(|(_, escaped)| escaped) {
                Some('n') => content.push('\n'),
                Some(escaped @ ('\\' | '"')) => content.push(escaped),
                other => panic!("{other:?} is not escaped in {text}"),
            },
            other => content.push(other),
        }
    }
    panic!("no end of {text}");
}

fn parse_sample(line: &str) -> (String, Labels, f64) {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, quoted) = rest.split_once("=\"").unwrap();
            let (content, after) = unquote(quoted);
            assert!(labels.insert(label.to_owned(), content).is_none(), "a label twice: {line}");
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None => {
                    rest = after.strip_prefix('}').unwrap();
                    break;
                }
            }
        }
    }
    let value = rest.strip_prefix(' ').unwrap().parse().unwrap();
    (name.to_owned(), labels, value)
}

impl Exposition {
    fn parse(text: &str) -> Self {
        let mut exposition = Self::default();
        let mut helped = BTreeSet::new();
        let mut family = String::new();
        let text = text.strip_suffix("# EOF\n").unwrap();
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').unwrap();
                assert!(!help.is_empty() && helped.insert(name.to_owned()), "{line}");
                family = name.to_owned();
            } else if let Some(announced) = line.strip_prefix("# TYPE ") {
                let (name, kind) = announced.split_once(' ').unwrap();
                assert_eq!(name, family, "its help comes first");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                if kind == "counter" {
                    family.push_str("_total");
                }
                assert_eq!(kind == "counter", family.ends_with("_total"), "{line}");
                assert!(exposition.types.insert(family.clone(), kind.to_owned()).is_none(), "twice: {line}");
            } else {
                let (name, labels, value) = parse_sample(line);
                let is_histogram = exposition.types[&family] == "histogram";
                let suffix = name.strip_prefix(&family).unwrap_or_else(|| panic!("{line} is not of {family}"));
                let expected = if is_histogram { &["_bucket", "_sum", "_count"][..] } else { &[""] };
                assert!(expected.contains(&suffix), "{line}");
                assert!(exposition.samples.insert((name, labels), value).is_none(), "twice: {line}");
            }
        }
        exposition.check_histograms();
        exposition
    }

    /// Buckets are cumulative, and the last one has all values.
    fn check_histograms(&self) {
        let mut buckets: BTreeMap<(String, Labels), Vec<(f64, f64)>> = BTreeMap::new();
        for ((name, labels), value) in &self.samples {
            let Some(family) = name.strip_suffix("_bucket") else { continue };
            let mut labels = labels.clone();
            let bound = labels.remove("le").unwrap().parse::<f64>().unwrap();
            buckets.entry((family.to_owned(), labels)).or_default().push((bound, *value));
        }
        for ((family, labels), mut buckets) in buckets {
            buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
            assert!(buckets.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1), "{family}: {buckets:?}");
            let (bound, all) = buckets[buckets.len() - 1];
            assert_eq!(bound, f64::INFINITY);
            assert_eq!(all, self.samples[&(format!("{family}_count"), labels.clone())], "{family}");
            assert!(self.samples.contains_key(&(format!("{family}_sum"), labels)), "{family}");
        }
    }

    fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels = labels.iter().map(|(label, content)| ((*label).to_owned(), (*content).to_owned())).collect();
        self.samples[&(name.to_owned(), labels)]
    }
}

fn gate(state: Breaker) -> BreakerStatus {
    BreakerStatus {
        state,
        failures_in_a_row: 0,
        opened_at: None,
        open_until: None,
        calls: 5,
        failures: 4,
        timeouts: 3,
        denied_invalid: 2,
        denied_refused: 0,
        denied_too_large: 0,
        open_rejections: 1,
        busy_rejections: 0,
        late_reports: 0,
        transitions: Transitions { opened: 3, half_opened: 2, closed: 1 },
        last_error: None,
    }
}

fn service_status() -> PolicyServiceStatus {
    PolicyServiceStatus {
        address: "policy:1".to_owned(),
        tls: false,
        policy_version: None,
        service_version: None,
        in_flight: 7,
        waiting: 8,
        input: gate(Breaker::HalfOpen),
        output: gate(Breaker::Closed),
    }
}

/// A shard that has accepted a job of this topic.
fn status_with(topic: &str) -> Status {
    let config = Config::new(ShardId(0), Shards::new(1).unwrap());
    let mut shard = Shard::new(config, Arc::default(), Epoch(1), Now::both(Millis(1)));
    let mut spec = JobSpec::new(Run::Echo(EchoRun::default()));
    spec.topic = topic.to_owned();
    let jobs = vec![Submission::new(spec.pack(), None)];
    shard.handle(Now::both(Millis(1)), Input::Submit { request: RequestId(1), jobs }, &mut Step::new());
    Status { stats: shard.stats().clone(), topics: shard.topics().clone(), runners: 2, ..Status::default() }
}

fn read(statuses: Vec<Status>, policy: &PolicyMeasures, service: Option<PolicyServiceStatus>) -> Exposition {
    let commits = Histogram::default();
    commits.observe(Duration::from_millis(2));
    commits.observe(Duration::from_secs(3600));
    let node =
        |id| NodeSample { node: NodeId(id), state: "ready".to_owned(), is_healthy: id % 2 == 0, attempts: id as u32 };
    let reading = Reading {
        nodes: (0..103).map(node).collect(),
        statuses,
        requests_waiting: 9,
        commit_times: commits.snapshot(),
        subscribers: 1,
        policy,
        service,
    };
    Exposition::parse(&reading.render())
}

// FEATURES: C13
#[test]
fn a_hundred_nodes_have_samples_of_their_own() {
    let exposition = read(Vec::new(), &PolicyMeasures::default(), None);
    assert_eq!(exposition.value("outlast_nodes", &[("state", "ready")]), 103.0);
    assert_eq!(exposition.value("outlast_nodes", &[("state", "lost")]), 0.0);
    assert_eq!(exposition.value("outlast_nodes_healthy", &[]), 52.0);
    let of_nodes = exposition.samples.keys().filter(|(name, _)| name == "outlast_node_attempts").count();
    assert_eq!(of_nodes, 101);
    assert_eq!(exposition.value("outlast_node_attempts", &[("node", &NodeId(7).to_string())]), 7.0);
    assert_eq!(exposition.value("outlast_node_attempts", &[("node", "other")]), 100.0 + 101.0 + 102.0);
}

#[test]
fn shards_add_up() {
    let mut status = Status { live_jobs: 2, runners: 3, ..status_with("mail") };
    status.stats.ended[usize::from(State::Failed.code())] = 3;
    let exposition = read(vec![status.clone(), status], &PolicyMeasures::default(), None);
    assert_eq!(exposition.value("outlast_jobs_live", &[]), 4.0);
    assert_eq!(exposition.value("outlast_jobs_ended_total", &[("state", "failed")]), 6.0);
    assert_eq!(exposition.value("outlast_jobs_received_total", &[("topic", "mail")]), 2.0);
    assert_eq!(exposition.value("outlast_runners", &[]), 3.0, "they serve both");
    assert_eq!(exposition.value("outlast_commit_seconds_count", &[]), 2.0);
    let unnamed =
        exposition.samples.keys().any(|(_, labels)| labels.get("topic").is_some_and(|topic| topic == "other"));
    assert!(!unnamed, "nothing was counted there");
}

#[test]
fn a_topic_of_any_name_is_shown() {
    let topic = "a \"topic\" \\ of {any}\nname";
    let exposition = read(vec![status_with(topic)], &PolicyMeasures::default(), None);
    assert_eq!(exposition.value("outlast_jobs_received_total", &[("topic", topic)]), 1.0);
    let failed = [("topic", topic), ("status", "failed")];
    assert_eq!(exposition.value("outlast_jobs_completed_total", &failed), 0.0);
    assert_eq!(exposition.value("outlast_dispatch_latency_seconds_count", &[("topic", topic)]), 0.0);
}

#[test]
fn the_policy_service_and_its_breakers_are_shown_where_one_is_configured() {
    let exposition = read(vec![Status::default()], &PolicyMeasures::default(), Some(service_status()));
    let state = |gate, state| exposition.value("outlast_policy_breaker_state", &[("gate", gate), ("state", state)]);
    assert_eq!(["closed", "open", "half_open"].map(|name| state("input", name)), [0.0, 0.0, 1.0]);
    assert_eq!(["closed", "open", "half_open"].map(|name| state("output", name)), [1.0, 0.0, 0.0]);
    let opened = [("gate", "input"), ("state", "open")];
    assert_eq!(exposition.value("outlast_policy_breaker_transitions_total", &opened), 3.0);
    assert_eq!(exposition.value("outlast_policy_service_timeouts_total", &[("gate", "input")]), 3.0);
    assert_eq!(exposition.value("outlast_policy_service_waiting", &[]), 8.0);
    let without = read(vec![Status::default()], &PolicyMeasures::default(), None);
    assert!(!without.types.keys().any(|name| name.contains("policy_service") || name.contains("breaker")));
}

#[test]
fn what_is_measured_of_the_policy_is_shown() {
    let measures = PolicyMeasures::default();
    measures.count_reload(Reload::Refused);
    measures.decisions.observe(Duration::from_micros(40));
    measures.content.observe(Duration::from_secs(2));
    let exposition = read(vec![Status::default()], &measures, None);
    assert_eq!(exposition.value("outlast_policy_reloads_total", &[("outcome", "refused")]), 1.0);
    assert_eq!(exposition.value("outlast_policy_decision_seconds_bucket", &[("le", "0.00001")]), 0.0);
    assert_eq!(exposition.value("outlast_policy_decision_seconds_bucket", &[("le", "0.00005")]), 1.0);
    assert_eq!(exposition.value("outlast_output_check_seconds_sum", &[("phase", "content")]), 2.0);
    assert_eq!(exposition.value("outlast_output_check_seconds_count", &[("phase", "metadata")]), 0.0);
}

/// Name, type and labels of every metric that the documentation lists.
fn documented() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut rows = BTreeMap::new();
    let table = DOCUMENT.split("\n## ").find(|section| section.starts_with("All of them\n")).unwrap();
    for row in table.lines().filter(|line| line.starts_with("| `outlast_")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, name, kind, labels, meaning, _] = cells[..] else { panic!("{row}") };
        let labels =
            labels.split(", ").filter(|label| !label.is_empty()).map(|label| label.trim_matches('`').to_owned());
        assert!(!meaning.is_empty(), "{row}");
        let earlier = rows.insert(name.trim_matches('`').to_owned(), (kind.to_owned(), labels.collect()));
        assert!(earlier.is_none(), "twice: {row}");
    }
    rows
}

// FEATURES: D15
#[test]
fn the_documentation_lists_every_metric_and_no_other() {
    let exposition = read(vec![status_with("mail")], &PolicyMeasures::default(), Some(service_status()));
    let mut shown: BTreeMap<String, (String, BTreeSet<String>)> =
        exposition.types.iter().map(|(name, kind)| (name.clone(), (kind.clone(), BTreeSet::new()))).collect();
    for (sample, labels) in exposition.samples.keys() {
        let plain = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| sample.strip_suffix(suffix));
        let family = plain.filter(|family| shown.contains_key(*family)).unwrap_or(sample);
        let known = &mut shown.get_mut(family).unwrap().1;
        known.extend(labels.keys().filter(|label| *label != "le").cloned());
    }
    assert_eq!(documented(), shown);
}

/// Everything in the text that looks like the name of a metric.
fn names_in(text: &str) -> BTreeSet<String> {
    let is_part = |character: char| character.is_ascii_lowercase() || character == '_';
    let words = text.split(|character| !is_part(character)).filter(|word| word.starts_with("outlast_"));
    words.map(str::to_owned).collect()
}

fn panels(value: &Value) -> Vec<&Value> {
    let nested = value["panels"].as_array().into_iter().flatten();
    nested.flat_map(|panel| std::iter::once(panel).chain(panels(panel))).collect()
}

// FEATURES: D15
#[test]
fn the_dashboard_asks_only_for_metrics_that_there_are() {
    let documented = documented();
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = panels(&dashboard);
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "two panels have the same id");
    let expressions: Vec<&str> = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten())
        .map(|target| target["expr"].as_str().unwrap())
        .collect();
    assert!(expressions.len() >= 15);
    for name in names_in(DASHBOARD) {
        let plain = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        let histogram = plain.is_some_and(|family| documented.get(family).is_some_and(|(kind, _)| kind == "histogram"));
        assert!(histogram || documented.contains_key(&name), "{name} is not in docs/metrics.md");
    }
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
    }
}
