//! Static analysis of a set of rules: the contract, the dependencies between rules, and the parts of `input` they read.
//!
//! It works on the parser's syntax tree, as JSON, and visits every node without knowing most of them. An unknown name
//! therefore counts as read, never as not read.

mod builtins;
mod contract;
mod graph;
mod tree;

use crate::error::LoadError;
use crate::read_set::ReadSet;

use contract::defined;
pub(crate) use contract::{DEFAULT_VERDICT, Package};
pub(crate) use tree::{Module, parse};

/// Analysis of one of the two evaluated packages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PackageAnalysis {
    /// Verdict names that the rules define.
    pub defined: Vec<&'static str>,
    pub reads: ReadSet,
    /// Whether an answer can depend on the time.
    pub reads_time: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Analysis {
    pub job: PackageAnalysis,
    pub output: PackageAnalysis,
}

/// Validates and analyses a set of rules.
pub(crate) fn analyse(modules: &[Module]) -> Result<Analysis, LoadError> {
    contract::check(modules)?;
    let graph = graph::Graph::of(modules);
    builtins::check(modules, &graph)?;
    graph.check_depth()?;
    let analyse_package = |package: Package| {
        let defined = defined(modules, package);
        let reads = graph.reads(package, &defined);
        let reads_time = !reads.extent().below("time").is_nothing();
        PackageAnalysis { defined, reads, reads_time }
    };
    Ok(Analysis { job: analyse_package(Package::Job), output: analyse_package(Package::Output) })
}
