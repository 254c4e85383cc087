//! Style checks.
//!
//! An exception is a comment with its reason, on the line of the finding or the line above: `style: expect(<rule>)`.
//! As with `#[expect]`, an expectation without a finding is itself a finding.

mod dead_files;
mod expectations;
mod leftovers;
mod lengths;
mod links;
mod machine_paths;
mod signposts;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::cargo::Workspace;
use crate::repo::Repo;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    LongFile,
    LongFunction,
    Leftover,
    Allow,
    DeadFile,
    MachinePath,
    BrokenLink,
    Signpost,
    Expectation,
}

impl Rule {
    const ALL: [Rule; 9] = [
        Rule::LongFile,
        Rule::LongFunction,
        Rule::Leftover,
        Rule::Allow,
        Rule::DeadFile,
        Rule::MachinePath,
        Rule::BrokenLink,
        Rule::Signpost,
        Rule::Expectation,
    ];

    fn name(self) -> &'static str {
        match self {
            Rule::LongFile => "long-file",
            Rule::LongFunction => "long-function",
            Rule::Leftover => "leftover",
            Rule::Allow => "allow",
            Rule::DeadFile => "dead-file",
            Rule::MachinePath => "machine-path",
            Rule::BrokenLink => "broken-link",
            Rule::Signpost => "signpost",
            Rule::Expectation => "expectation",
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    rule: Rule,
    file: PathBuf,
    line: usize,
    message: String,
}

impl Finding {
    fn new(rule: Rule, file: &Path, line: usize, message: impl Into<String>) -> Self {
        Self { rule, file: file.to_path_buf(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {} [{}]", self.file.display(), self.line, self.message, self.rule.name())
    }
}

/// Checks every file of the repository. The error lists all findings.
pub fn check(repo: &Repo) -> Result<String> {
    let workspace = Workspace::read(&repo.root)?;
    let mut findings = dead_files::check(repo, &workspace);
    for file in &repo.files {
        let Some(text) = repo.read(file) else { continue };
        findings.extend(lengths::check(file, &text));
        findings.extend(leftovers::check(file, &text));
        findings.extend(machine_paths::check(file, &text));
        findings.extend(links::check(file, &text, repo));
        findings.extend(signposts::check(file, &text, repo));
    }
    let mut findings = expectations::apply(findings, repo);
    findings.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    if findings.is_empty() {
        return Ok(format!("{} files", repo.files.len()));
    }
    let lines: Vec<_> = findings.iter().map(ToString::to_string).collect();
    bail!("{}\n{} findings", lines.join("\n"), findings.len());
}

fn is_rust(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "rs")
}

fn is_markdown(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "md")
}
