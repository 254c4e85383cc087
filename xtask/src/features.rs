//! `cargo xtask features`: the tests of each row of the feature list.
//!
//! A comment above or inside a test names the rows it covers: `// FEATURES: <id>, <id>`.
//! The rows are in `xtask/features.txt`.

mod report;
mod rows;
mod scan;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;

use crate::cargo::Workspace;
use crate::repo;
use crate::rust::tree;

#[derive(Args)]
pub struct Options {
    /// Print `{"<row>": ["<test>", …], …}`
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let rows = collect(&repo::root())?;
    print!("{}", if options.json { report::json(&rows)? } else { report::table(&rows) });
    Ok(())
}

/// Returns how many rows have tests. The error lists all invalid markers.
pub fn check(root: &Path) -> Result<String> {
    let rows = collect(root)?;
    let covered = rows.iter().filter(|coverage| !coverage.tests.is_empty()).count();
    Ok(format!("{covered} of {} rows have tests", rows.len()))
}

/// A row of the feature list and its tests.
pub struct RowCoverage {
    row: rows::Row,
    tests: Vec<String>,
}

fn collect(root: &Path) -> Result<Vec<RowCoverage>> {
    let workspace = Workspace::read(root)?;
    let read = |file: &Path| std::fs::read_to_string(file).ok();
    let mut tests: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut errors = Vec::new();
    for module in tree::modules(&workspace.targets, &read) {
        let Some(source) = read(&module.file) else { continue };
        for found in scan::scan(&source, &module.path) {
            match found {
                Ok(row_test) => tests.entry(row_test.row).or_default().push(row_test.test),
                Err(error) => {
                    let file = module.file.strip_prefix(root).unwrap_or(&module.file).display();
                    errors.push(format!("{file}:{}: {}", error.line, error.message));
                }
            }
        }
    }
    // A file shared by two targets is scanned once per target.
    errors.sort();
    errors.dedup();
    if !errors.is_empty() {
        bail!("invalid feature markers:\n{}", errors.join("\n"));
    }
    let coverage = |row: rows::Row| {
        let mut tests = tests.remove(row.id).unwrap_or_default();
        tests.sort();
        tests.dedup();
        RowCoverage { row, tests }
    };
    Ok(rows::all().map(coverage).collect())
}
