//! Prometheus text format: families of samples.

use std::fmt::Write;

/// Type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
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

/// The text.
#[derive(Debug, Default)]
pub(super) struct Text(String);

impl Text {
    pub fn into_string(self) -> String {
        self.0
    }

    /// Starts a family.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {}", kind.as_str());
        Family { text: &mut self.0, name }
    }

    /// A counter without labels.
    pub fn counter(&mut self, name: &'static str, help: &str, value: u64) {
        self.family(name, Kind::Counter, help).sample(&[], value);
    }

    /// A gauge without labels.
    pub fn gauge(&mut self, name: &'static str, help: &str, value: u64) {
        self.family(name, Kind::Gauge, help).sample(&[], value);
    }
}

/// Samples of one name.
pub(super) struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Family<'_> {
    pub fn sample(&mut self, labels: &[(&str, &str)], value: u64) {
        self.line("", labels, None, &value.to_string());
    }

    pub fn histogram(&mut self, labels: &[(&str, &str)], buckets: &Buckets<'_>) {
        let mut seen = 0;
        for (place, count) in buckets.counts.iter().enumerate() {
            seen += count;
            let bound = buckets.bounds.get(place).map_or("+Inf".to_owned(), f64::to_string);
            self.line("_bucket", labels, Some(&bound), &seen.to_string());
        }
        self.line("_sum", labels, None, &buckets.sum_seconds.to_string());
        self.line("_count", labels, None, &seen.to_string());
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], bound: Option<&str>, value: &str) {
        let Self { text, name } = self;
        let _ = write!(text, "{name}{suffix}");
        let mut separator = '{';
        for (label, content) in labels.iter().copied().chain(bound.map(|bound| ("le", bound))) {
            let _ = write!(text, "{separator}{label}=\"");
            escape(content, text);
            text.push('"');
            separator = ',';
        }
        let end = if separator == ',' { "} " } else { " " };
        let _ = writeln!(text, "{end}{value}");
    }
}

/// Escapes a label value: users choose the names of topics.
fn escape(content: &str, text: &mut String) {
    for character in content.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_end_their_quotes() {
        let mut text = Text::default();
        text.family("name", Kind::Gauge, "Help.").sample(&[("a", "x\"} 1\n\\"), ("b", "ü")], 3);
        let expected = "# HELP name Help.\n# TYPE name gauge\nname{a=\"x\\\"} 1\\n\\\\\",b=\"ü\"} 3\n";
        assert_eq!(text.into_string(), expected);
    }

    #[test]
    fn the_buckets_of_a_histogram_add_up() {
        let mut text = Text::default();
        let buckets = Buckets { bounds: &[0.000_01, 2.5], counts: &[2, 0, 1], sum_seconds: 7.25 };
        text.family("name", Kind::Histogram, "Help.").histogram(&[("phase", "content")], &buckets);
        let expected = "# HELP name Help.\n# TYPE name histogram\n\
            name_bucket{phase=\"content\",le=\"0.00001\"} 2\n\
            name_bucket{phase=\"content\",le=\"2.5\"} 2\n\
            name_bucket{phase=\"content\",le=\"+Inf\"} 3\n\
            name_sum{phase=\"content\"} 7.25\n\
            name_count{phase=\"content\"} 3\n";
        assert_eq!(text.into_string(), expected);
    }
}
