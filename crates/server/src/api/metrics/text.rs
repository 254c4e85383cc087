//! Families of samples, encoded as OpenMetrics text by `prometheus-client`.
//!
//! Values are read once per scrape and not kept in a registry: the counters on the hot path are those of the shards.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn metric_type(self) -> MetricType {
        match self {
            Self::Counter => MetricType::Counter,
            Self::Gauge => MetricType::Gauge,
            Self::Histogram => MetricType::Histogram,
        }
    }
}

/// A histogram of durations.
pub(super) struct Buckets<'a> {
    /// Upper bounds in seconds, ascending.
    pub bounds: &'a [f64],
    /// Count of each bucket, not cumulative, then of values beyond the last bound.
    pub counts: &'a [u64],
    pub sum_seconds: f64,
}

#[derive(Debug)]
enum Value {
    Number(u64),
    Histogram { sum_seconds: f64, buckets: Vec<(f64, u64)> },
}

/// All families of one scrape.
#[derive(Debug, Default)]
pub(super) struct Text(Vec<Family>);

impl Text {
    pub fn render(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut text, &registry);
        text
    }

    /// Starts a family. The name of a counter ends in `_total`.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) -> &mut Family {
        self.0.push_mut(Family { name, kind, help, samples: Vec::new() })
    }

    /// A counter without labels.
    pub fn counter(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.family(name, Kind::Counter, help).sample(&[], value);
    }

    /// A gauge without labels.
    pub fn gauge(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.family(name, Kind::Gauge, help).sample(&[], value);
    }
}

impl Collector for Text {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.0 {
            // The encoder appends the suffix of counters.
            let name = family.name.strip_suffix("_total").unwrap_or(family.name);
            let mut encoder = encoder.encode_descriptor(name, family.help, None, family.kind.metric_type())?;
            for (labels, value) in &family.samples {
                if labels.is_empty() {
                    encode(&mut encoder, family.kind, value)?;
                } else {
                    encode(&mut encoder.encode_family(&labels.as_slice())?, family.kind, value)?;
                }
            }
        }
        Ok(())
    }
}

fn encode(encoder: &mut MetricEncoder<'_>, kind: Kind, value: &Value) -> fmt::Result {
    match (kind, value) {
        (Kind::Counter, Value::Number(value)) => encoder.encode_counter::<NoLabelSet, _, u64>(value, None),
        (Kind::Gauge | Kind::Histogram, Value::Number(value)) => encoder.encode_gauge(value),
        (_, Value::Histogram { sum_seconds, buckets }) => {
            let count = buckets.iter().map(|(_, count)| count).sum();
            encoder.encode_histogram::<NoLabelSet>(*sum_seconds, count, buckets, None)
        }
    }
}

/// Samples of one name.
#[derive(Debug)]
pub(super) struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    samples: Vec<(Vec<(String, String)>, Value)>,
}

impl Family {
    pub fn sample(&mut self, labels: &[(&str, &str)], value: u64) {
        self.add(labels, Value::Number(value));
    }

    pub fn histogram(&mut self, labels: &[(&str, &str)], buckets: &Buckets<'_>) {
        let bounds = buckets.bounds.iter().copied().chain([f64::INFINITY]);
        let counts = bounds.zip(buckets.counts.iter().copied()).collect();
        self.add(labels, Value::Histogram { sum_seconds: buckets.sum_seconds, buckets: counts });
    }

    fn add(&mut self, labels: &[(&str, &str)], value: Value) {
        let owned = labels.iter().map(|(label, content)| ((*label).to_owned(), (*content).to_owned()));
        self.samples.push((owned.collect(), value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_end_their_quotes() {
        let mut text = Text::default();
        text.family("name", Kind::Gauge, "Help.").sample(&[("a", "x\"} 1\n\\"), ("b", "ü")], 3);
        let expected = "# HELP name Help.\n# TYPE name gauge\nname{a=\"x\\\"} 1\\n\\\\\",b=\"ü\"} 3\n# EOF\n";
        assert_eq!(text.render(), expected);
    }

    #[test]
    fn a_counter_keeps_its_name() {
        let mut text = Text::default();
        text.counter("name_total", "Help.", 3);
        assert_eq!(text.render(), "# HELP name Help.\n# TYPE name counter\nname_total 3\n# EOF\n");
    }

    #[test]
    fn the_buckets_of_a_histogram_add_up() {
        let mut text = Text::default();
        let buckets = Buckets { bounds: &[0.000_01, 2.5], counts: &[2, 0, 1], sum_seconds: 7.25 };
        text.family("name", Kind::Histogram, "Help.").histogram(&[("phase", "content")], &buckets);
        let expected = "# HELP name Help.\n# TYPE name histogram\n\
            name_sum{phase=\"content\"} 7.25\n\
            name_count{phase=\"content\"} 3\n\
            name_bucket{le=\"0.00001\",phase=\"content\"} 2\n\
            name_bucket{le=\"2.5\",phase=\"content\"} 2\n\
            name_bucket{le=\"+Inf\",phase=\"content\"} 3\n\
            # EOF\n";
        assert_eq!(text.render(), expected);
    }
}
