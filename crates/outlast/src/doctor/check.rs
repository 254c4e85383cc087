//! Result of one check, and the list of results.

use serde::Serialize;

use crate::paint::{Paint, Tone, sanitize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    Good,
    Bad,
    /// Works with restrictions; does not affect the exit code.
    Warning,
    /// Not checked, or inconclusive.
    Skipped,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    pub name: String,
    pub mark: Mark,
    pub finding: String,
    /// Suggested fix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Check {
    fn new(name: impl Into<String>, mark: Mark, finding: impl Into<String>) -> Self {
        Self { name: name.into(), mark, finding: finding.into(), advice: None }
    }

    pub fn good(name: impl Into<String>, finding: impl Into<String>) -> Self {
        Self::new(name, Mark::Good, finding)
    }

    pub fn bad(name: impl Into<String>, finding: impl Into<String>) -> Self {
        Self::new(name, Mark::Bad, finding)
    }

    pub fn warning(name: impl Into<String>, finding: impl Into<String>) -> Self {
        Self::new(name, Mark::Warning, finding)
    }

    pub fn skipped(name: impl Into<String>, finding: impl Into<String>) -> Self {
        Self::new(name, Mark::Skipped, finding)
    }

    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

#[derive(Debug, Serialize)]
pub struct Checks {
    pub checks: Vec<Check>,
}

impl Checks {
    pub fn render(&self, paint: Paint) -> String {
        let width = self.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
        let mut text = String::new();
        for check in &self.checks {
            let (mark, tone) = match check.mark {
                Mark::Good => ("✓", Tone::Good),
                Mark::Bad => ("✗", Tone::Bad),
                Mark::Warning => ("!", Tone::Strong),
                Mark::Skipped => ("–", Tone::Quiet),
            };
            let line = format!("{:width$}  {}", check.name, sanitize(&check.finding));
            text.push_str(&format!("{} {line}\n", paint.apply(tone, mark)));
            if let Some(advice) = &check.advice {
                text.push_str(&format!("  {:width$}  {}\n", "", paint.apply(Tone::Quiet, &format!("→ {advice}"))));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_listed_with_marks_and_advice() {
        let checks = Checks {
            checks: vec![
                Check::good("server", "reachable"),
                Check::bad("open files", "1024").advice("raise it"),
                Check::warning("files", "not in force"),
                Check::skipped("version", "unknown"),
            ],
        };
        let expected = "✓ server      reachable\n✗ open files  1024\n              → raise it\n! files       not in force\n– version     unknown\n";
        assert_eq!(checks.render(Paint::NONE), expected);
    }
}
