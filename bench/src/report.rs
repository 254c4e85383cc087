//! The report: figures as text and as JSON.

use std::io::Write;
use std::path::Path;

use serde::Serialize;

use crate::machine::Machine;

/// A measured value with its reference and target.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: String,
    /// Measured in the same run.
    pub reference: Option<Reference>,
    /// `value / reference.value`, or `value` if the target is absolute.
    pub measured: f64,
    pub target: f64,
    /// The target is a minimum, not a maximum.
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
    #[serde(rename = "conditions")]
    machine: Machine,
    figures: Vec<Figure>,
    #[serde(skip)]
    only: Option<String>,
}

impl Report {
    pub fn new(machine: Machine, only: Option<String>) -> Self {
        println!("{machine}\n");
        Self { machine, figures: Vec::new(), only }
    }

    /// Whether `--only` selects this figure.
    pub fn selects(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    /// Adds a value with an absolute target.
    pub fn absolute(&mut self, name: &str, unit: &str, value: f64, target: Target, note: impl Into<String>) {
        self.add(name, unit, value, None, value, target, note.into());
    }

    /// Adds a value whose target is a ratio to the reference.
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

    #[expect(clippy::too_many_arguments, reason = "private; the callers `absolute` and `ratio` name the arguments")]
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
        println!("\n{} figures, {missed} missed their target", self.figures.len());
        if let Some(path) = json {
            std::fs::write(path, serde_json::to_vec_pretty(self)?)?;
        }
        Ok(())
    }
}

/// Minimum or maximum of a figure.
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
    print!("  (target {sign} {})", number(figure.target));
    if !figure.note.is_empty() {
        print!("  {}", figure.note);
    }
    println!();
    let _ = std::io::stdout().flush();
}

/// Formats with thousands separators; two decimals below 100.
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
    fn numbers_have_thousands_separators_or_decimals() {
        assert_eq!(super::number(1_234_567.0), "1,234,567");
        assert_eq!(super::number(999.0), "999");
        assert_eq!(super::number(0.5), "0.50");
    }
}
