//! What was measured, for people and as JSON.

use std::io::Write;
use std::path::Path;

use serde::Serialize;

use crate::conditions::Conditions;

/// One figure beside what it is compared with.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: String,
    /// What it is compared with, measured in the same run.
    pub reference: Option<Reference>,
    /// The value over the reference's, or the value itself where the target is absolute.
    pub measured: f64,
    pub target: f64,
    /// Whether more is better.
    pub at_least: bool,
    pub reached: bool,
    pub note: String,
}

#[derive(Debug, Clone, Serialize)]
pub struct Reference {
    pub name: String,
    pub value: f64,
}

#[derive(Serialize)]
pub struct Report {
    conditions: Conditions,
    figures: Vec<Figure>,
    #[serde(skip)]
    only: Option<String>,
}

impl Report {
    pub fn new(conditions: Conditions, only: Option<String>) -> Self {
        println!("{conditions}\n");
        Self { conditions, figures: Vec::new(), only }
    }

    /// Whether anyone wants this figure.
    pub fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    /// A value that has to reach `target` by itself.
    pub fn absolute(&mut self, name: &str, unit: &str, value: f64, target: Target, note: impl Into<String>) {
        self.add(name, unit, value, None, value, target, note.into());
    }

    /// A value that has to reach `target` times its reference.
    pub fn ratio(
        &mut self,
        name: &str,
        unit: &str,
        value: f64,
        reference: (&str, f64),
        target: Target,
        note: impl Into<String>,
    ) {
        let measured = value / reference.1;
        let reference = Reference { name: reference.0.to_owned(), value: reference.1 };
        self.add(name, unit, value, Some(reference), measured, target, note.into());
    }

    #[expect(clippy::too_many_arguments, reason = "the two ways in above name them")]
    fn add(
        &mut self,
        name: &str,
        unit: &str,
        value: f64,
        reference: Option<Reference>,
        measured: f64,
        target: Target,
        note: String,
    ) {
        let (target, at_least) = match target {
            Target::AtLeast(target) => (target, true),
            Target::AtMost(target) => (target, false),
        };
        let reached = if at_least { measured >= target } else { measured <= target };
        let (name, unit) = (name.to_owned(), unit.to_owned());
        let figure = Figure { name, value, unit, reference, measured, target, at_least, reached, note };
        print(&figure);
        self.figures.push(figure);
    }

    pub fn finish(&self, json: Option<&Path>) -> anyhow::Result<()> {
        let missed = self.figures.iter().filter(|figure| !figure.reached).count();
        println!("\n{} figures, {missed} not reached", self.figures.len());
        if let Some(path) = json {
            std::fs::write(path, serde_json::to_vec_pretty(self)?)?;
        }
        Ok(())
    }
}

/// What a figure has to reach.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
}

fn print(figure: &Figure) {
    let mark = if figure.reached { "ok  " } else { "MISS" };
    let sign = if figure.at_least { "≥" } else { "≤" };
    print!("{mark} {:<44} {:>12} {:<8}", figure.name, number(figure.value), figure.unit);
    if let Some(reference) = &figure.reference {
        print!(" / {} {} = {:.2}", number(reference.value), reference.name, figure.measured);
    }
    print!("  (wanted {sign} {})", number(figure.target));
    if !figure.note.is_empty() {
        print!("  {}", figure.note);
    }
    println!();
    let _ = std::io::stdout().flush();
}

/// Thousands apart, and decimals only where they matter.
pub fn number(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(super::number(1_234_567.0), "1,234,567");
        assert_eq!(super::number(999.0), "999");
        assert_eq!(super::number(0.5), "0.50");
    }
}
