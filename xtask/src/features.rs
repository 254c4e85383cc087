//! `cargo xtask features`: which tests prove which row of the feature list.
//!
//! A test names the rows it shows working in a comment above it or inside it: `// FEATURES: <id>, <id>`.
//! The rows themselves are in `xtask/features.txt`.

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
    let proofs = collect(&repo::root())?;
    print!("{}", if options.json { report::json(&proofs)? } else { report::table(&proofs) });
    Ok(())
}

/// Says how many rows are proven; an error lists every marker that is wrong.
pub fn check(root: &Path) -> Result<String> {
    let proofs = collect(root)?;
    let proven = proofs.iter().filter(|proof| !proof.tests.is_empty()).count();
    Ok(format!("{proven} of {} rows have tests", proofs.len()))
}

/// One row of the list and the tests that name it.
pub struct Proof {
    row: rows::Row,
    tests: Vec<String>,
}

fn collect(root: &Path) -> Result<Vec<Proof>> {
    let workspace = Workspace::read(root)?;
    let read = |file: &Path| std::fs::read_to_string(file).ok();
    let mut tests: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut mistakes = Vec::new();
    for module in tree::modules(&workspace.targets, &read) {
        let Some(source) = read(&module.file) else { continue };
        for found in scan::scan(&source, &module.path) {
            match found {
                Ok(claim) => tests.entry(claim.row).or_default().push(claim.test),
                Err(mistake) => {
                    let file = module.file.strip_prefix(root).unwrap_or(&module.file).display();
                    mistakes.push(format!("{file}:{}: {}", mistake.line, mistake.message));
                }
            }
        }
    }
    // A file that two targets share is scanned for each.
    mistakes.sort();
    mistakes.dedup();
    if !mistakes.is_empty() {
        bail!("feature markers that prove nothing:\n{}", mistakes.join("\n"));
    }
    let proof = |row: rows::Row| {
        let mut tests = tests.remove(row.id).unwrap_or_default();
        tests.sort();
        tests.dedup();
        Proof { row, tests }
    };
    Ok(rows::all().map(proof).collect())
}
