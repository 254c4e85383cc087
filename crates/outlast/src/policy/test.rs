//! Runs the test cases of policy rules.

use std::path::Path;

use anyhow::{Result, bail};
use policy::{CaseResult, Report, run_cases};

use crate::context::Context;
use crate::exit;
use crate::paint::{Paint, Tone, sanitize};
use crate::table::{Align, Cell, Table};

pub fn run(directory: &Path, context: &Context) -> Result<u8> {
    let report = run_cases(directory)?;
    if report.cases.is_empty() {
        bail!("no test cases in {}: add them in a file such as rules_test.yaml", directory.display());
    }
    context.printer.print(&report, page)?;
    Ok(if report.passed() { exit::DONE } else { exit::FAILED })
}

fn page(report: &Report, paint: Paint) -> String {
    let mut table = Table::new(&[("RESULT", Align::Left), ("FILE", Align::Left), ("CASE", Align::Left)]);
    for case in &report.cases {
        let (status, tone) = if case.passed { ("passed", Tone::Good) } else { ("failed", Tone::Bad) };
        table.row([Cell::new(status).tone(tone), Cell::new(&case.file), Cell::new(&case.name)]);
    }
    let mut text = table.render(paint);
    let failed: Vec<&CaseResult> = report.cases.iter().filter(|case| !case.passed).collect();
    for case in &failed {
        let (file, name) = (sanitize(&case.file), sanitize(&case.name));
        text.push_str(&format!("\n{}\n", paint.apply(Tone::Strong, &format!("{file}: {name}"))));
        text.push_str(&format!("  expected  {}\n  got       {}\n", sanitize(&case.expected), sanitize(&case.got)));
    }
    let passed = report.cases.len() - failed.len();
    text.push_str(&format!("\n{passed} passed, {} failed\n", failed.len()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_explained_below_the_table() {
        let case = |name: &str, passed, expected: &str| CaseResult {
            file: "rules_test.yaml".to_owned(),
            name: name.to_owned(),
            passed,
            expected: expected.to_owned(),
            got: "verdict allow, rule default".to_owned(),
        };
        let report = Report { cases: vec![case("one", true, ""), case("two", false, "verdict deny")] };
        let expected = "\
RESULT  FILE             CASE
passed  rules_test.yaml  one
failed  rules_test.yaml  two

rules_test.yaml: two
  expected  verdict deny
  got       verdict allow, rule default

1 passed, 1 failed
";
        assert_eq!(page(&report, Paint::NONE), expected);
    }
}
