//! What can be known about a set of rules without running it: whether it keeps to the contract, which rules need which,
//! and which parts of their input they read.
//!
//! It works on the parser's own tree, as JSON, and looks at every node of it without knowing what most of them mean.
//! A name that it does not understand therefore counts as read, never as not read.

mod contract;
mod graph;
mod names;
mod tree;

use crate::error::LoadError;
use crate::reads::Reads;

use contract::defined;
pub(crate) use contract::{DEFAULT_VERDICT, Package};
pub(crate) use tree::{Module, parse};

/// What there is to know about one of the two packages that are asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Asked {
    /// Those of the names that have a meaning which the rules define.
    pub defined: Vec<&'static str>,
    pub reads: Reads,
    /// Whether anything it says can depend on when it is asked.
    pub reads_time: bool,
}

/// Everything there is to know.
#[derive(Debug, Default)]
pub(crate) struct Analysis {
    pub job: Asked,
    pub output: Asked,
}

/// Checks the whole set.
pub(crate) fn analyse(modules: &[Module]) -> Result<Analysis, LoadError> {
    contract::check(modules)?;
    let graph = graph::Graph::of(modules);
    names::check(modules, &graph)?;
    graph.check_depth()?;
    let asked = |package: Package| {
        let defined = defined(modules, package);
        let reads = graph.reads(package, &defined);
        let reads_time = !reads.extent().below("time").is_nothing();
        Asked { defined, reads, reads_time }
    };
    Ok(Analysis { job: asked(Package::Job), output: asked(Package::Output) })
}
