//! Dependency graph of the rules: depth, cycles, and the parts of `input` that they read.

use std::collections::{BTreeMap, BTreeSet};

use super::contract::{self, Package};
use super::tree::{Module, Position, Reference};
use crate::error::LoadError;
use crate::limits;
use crate::read_set::ReadSet;

/// Target of a reference.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A part of the input.
    Input(Vec<String>),
    /// Rules, by node index.
    Rules(Vec<usize>),
    /// A path below `data` without rules.
    Data,
    /// A variable or a built-in function.
    Local,
}

/// All rules of one name in one package.
struct Node {
    name: String,
    file: String,
    position: Position,
    dependencies: BTreeSet<usize>,
    reads: Vec<Vec<String>>,
}

/// All rules of a set.
pub(super) struct Graph {
    nodes: Vec<Node>,
    by_path: BTreeMap<Vec<String>, usize>,
}

impl Graph {
    pub fn of(modules: &[Module]) -> Self {
        let mut graph = Self { nodes: Vec::new(), by_path: BTreeMap::new() };
        for module in modules {
            for rule in &module.rules {
                let path: Vec<String> = module.package.iter().chain([&rule.name]).cloned().collect();
                graph.by_path.entry(path).or_insert_with_key(|path| {
                    let (name, file) = (path.join("."), module.file.clone());
                    let (dependencies, reads) = (BTreeSet::new(), Vec::new());
                    graph.nodes.push(Node { name, file, position: rule.position, dependencies, reads });
                    graph.nodes.len() - 1
                });
            }
        }
        for module in modules {
            for rule in &module.rules {
                let path: Vec<String> = module.package.iter().chain([&rule.name]).cloned().collect();
                let references = rule.references.iter().chain(rule.calls.iter().map(|call| &call.function));
                let targets: Vec<Target> = references.map(|reference| graph.resolve(module, reference)).collect();
                let node = &mut graph.nodes[graph.by_path[&path]];
                for target in targets {
                    match target {
                        Target::Input(path) => node.reads.push(path),
                        Target::Rules(rules) => node.dependencies.extend(rules),
                        Target::Data | Target::Local => {}
                    }
                }
            }
        }
        graph
    }

    /// Resolves a reference within its module. A variable with the name of a rule counts as the rule.
    pub fn resolve(&self, module: &Module, reference: &Reference) -> Target {
        let imported = module.imports.iter().find(|(name, _)| *name == reference.base).map(|(_, import)| import);
        let base = imported.map_or(&reference.base, |import| &import.base);
        let path: Vec<String> =
            imported.iter().flat_map(|import| &import.path).chain(&reference.path).cloned().collect();
        match base.as_str() {
            "input" => Target::Input(path),
            "data" => self.below(&path),
            // The built-in clock is `input.time`.
            "time" if path.first().is_none_or(|name| name == "now_ns") => Target::Input(vec!["time".to_owned()]),
            name => {
                let package = module.package.iter().map(String::as_str).chain([name]).map(str::to_owned);
                match self.below(&package.chain(path).collect::<Vec<_>>()) {
                    Target::Data => Target::Local,
                    target @ (Target::Input(_) | Target::Rules(_) | Target::Local) => target,
                }
            }
        }
    }

    /// All rules on a path below `data`, or below its end.
    fn below(&self, path: &[String]) -> Target {
        let passed = (0..path.len()).filter_map(|length| self.by_path.get(&path[..length]));
        let reached = self.by_path.range(path.to_vec()..).take_while(|(known, _)| known.starts_with(path));
        let rules: Vec<usize> = passed.copied().chain(reached.map(|(_, rule)| *rule)).collect();
        if rules.is_empty() { Target::Data } else { Target::Rules(rules) }
    }

    /// Rejects cycles and chains that are too long: the evaluation recurses on the caller's stack.
    pub fn check_depth(&self) -> Result<(), LoadError> {
        let mut depths = vec![None; self.nodes.len()];
        (0..self.nodes.len()).try_for_each(|node| self.depth(node, &mut Vec::new(), &mut depths).map(drop))
    }

    fn depth(&self, node: usize, path: &mut Vec<usize>, depths: &mut [Option<usize>]) -> Result<usize, LoadError> {
        let reject = |message: String| {
            let Node { file, position, .. } = &self.nodes[node];
            Err(LoadError::At { file: file.clone(), line: position.line, column: position.column, message })
        };
        if let Some(start) = path.iter().position(|known| *known == node) {
            let cycle: Vec<&str> =
                path[start..].iter().chain([&node]).map(|node| self.nodes[*node].name.as_str()).collect();
            return reject(format!(
                "rules depend on each other in a cycle: {}. If one of these is a variable, rename it",
                cycle.join(" → ")
            ));
        }
        let known = depths[node];
        if path.len() + known.unwrap_or(1) > limits::RULE_DEPTH_MAX {
            return reject(format!(
                "a chain of more than {} rules that depend on each other: merge some of them",
                limits::RULE_DEPTH_MAX
            ));
        }
        if let Some(known) = known {
            return Ok(known);
        }
        path.push(node);
        let mut depth = 1;
        for dependency in &self.nodes[node].dependencies {
            depth = depth.max(1 + self.depth(*dependency, path, depths)?);
        }
        path.pop();
        depths[node] = Some(depth);
        Ok(depth)
    }

    /// Input paths that these rules of a package read, directly or through their dependencies.
    pub fn reads(&self, package: Package, names: &[&str]) -> ReadSet {
        let mut reads = ReadSet::default();
        let path = |name: &str| package.path().into_iter().chain([name]).map(str::to_owned).collect::<Vec<_>>();
        let mut pending: Vec<usize> = names.iter().filter_map(|name| self.by_path.get(&path(name))).copied().collect();
        let mut seen: BTreeSet<usize> = pending.iter().copied().collect();
        while let Some(node) = pending.pop() {
            let node = &self.nodes[node];
            node.reads.iter().for_each(|path| reads.add(path.iter().map(String::as_str)));
            pending.extend(node.dependencies.iter().filter(|dependency| seen.insert(**dependency)));
        }
        reads
    }
}

/// Error at the position of a reference.
pub(super) fn error_at(module: &Module, reference: &Reference, message: String) -> LoadError {
    contract::error_at(module, reference.position, message)
}
