//! Which rules need which, how deep that goes, and what is read on the way.

use std::collections::{BTreeMap, BTreeSet};

use super::contract::{self, Package};
use super::tree::{Module, Place, Reference};
use crate::error::LoadError;
use crate::limits;
use crate::reads::Reads;

/// What a reference may lead to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A part of the input.
    Input(Vec<String>),
    /// Rules, as their places in the graph.
    Rules(Vec<usize>),
    /// A path below `data` that no rule has.
    Data,
    /// A variable or a function of the language.
    Local,
}

/// All rules of one name in one package.
struct Node {
    name: String,
    file: String,
    place: Place,
    needs: BTreeSet<usize>,
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
                    let (needs, reads) = (BTreeSet::new(), Vec::new());
                    graph.nodes.push(Node { name, file, place: rule.place, needs, reads });
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
                        Target::Rules(rules) => node.needs.extend(rules),
                        Target::Data | Target::Local => {}
                    }
                }
            }
        }
        graph
    }

    /// What a reference leads to, as seen from its module. A variable that is called like a rule counts as the rule.
    pub fn resolve(&self, module: &Module, reference: &Reference) -> Target {
        let imported = module.imports.iter().find(|(name, _)| *name == reference.base).map(|(_, import)| import);
        let base = imported.map_or(&reference.base, |import| &import.base);
        let path: Vec<String> =
            imported.iter().flat_map(|import| &import.path).chain(&reference.path).cloned().collect();
        match base.as_str() {
            "input" => Target::Input(path),
            "data" => self.below(&path),
            // The clock of the language is the time of the question.
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

    /// All rules that a path below `data` passes or that lie below it.
    fn below(&self, path: &[String]) -> Target {
        let passed = (0..path.len()).filter_map(|length| self.by_path.get(&path[..length]));
        let reached = self.by_path.range(path.to_vec()..).take_while(|(known, _)| known.starts_with(path));
        let rules: Vec<usize> = passed.copied().chain(reached.map(|(_, rule)| *rule)).collect();
        if rules.is_empty() { Target::Data } else { Target::Rules(rules) }
    }

    /// Refuses rules that need themselves, and those that go too deep: it is the stack of whoever asks.
    pub fn check_depth(&self) -> Result<(), LoadError> {
        let mut depths = vec![None; self.nodes.len()];
        (0..self.nodes.len()).try_for_each(|node| self.depth(node, &mut Vec::new(), &mut depths).map(drop))
    }

    fn depth(&self, at: usize, way: &mut Vec<usize>, depths: &mut [Option<usize>]) -> Result<usize, LoadError> {
        let refuse = |message: String| {
            let Node { file, place, .. } = &self.nodes[at];
            Err(LoadError::At { file: file.clone(), line: place.line, column: place.column, message })
        };
        if let Some(place) = way.iter().position(|known| *known == at) {
            let circle: Vec<&str> =
                way[place..].iter().chain([&at]).map(|node| self.nodes[*node].name.as_str()).collect();
            return refuse(format!(
                "a rule that needs itself never ends: {}. If one of these is a variable, give it another name",
                circle.join(" → ")
            ));
        }
        let known = depths[at];
        if way.len() + known.unwrap_or(1) > limits::RULE_DEPTH_MAX {
            return refuse(format!(
                "more than {} rules need each other in a row: bring some of them together",
                limits::RULE_DEPTH_MAX
            ));
        }
        if let Some(known) = known {
            return Ok(known);
        }
        way.push(at);
        let mut depth = 1;
        for need in &self.nodes[at].needs {
            depth = depth.max(1 + self.depth(*need, way, depths)?);
        }
        way.pop();
        depths[at] = Some(depth);
        Ok(depth)
    }

    /// What these rules of a package read, with all rules that they need.
    pub fn reads(&self, package: Package, names: &[&str]) -> Reads {
        let mut reads = Reads::default();
        let path = |name: &str| package.path().into_iter().chain([name]).map(str::to_owned).collect::<Vec<_>>();
        let mut open: Vec<usize> = names.iter().filter_map(|name| self.by_path.get(&path(name))).copied().collect();
        let mut seen: BTreeSet<usize> = open.iter().copied().collect();
        while let Some(node) = open.pop() {
            let node = &self.nodes[node];
            node.reads.iter().for_each(|path| reads.add(path.iter().map(String::as_str)));
            open.extend(node.needs.iter().filter(|need| seen.insert(**need)));
        }
        reads
    }
}

/// Where a problem is, for those who look at references.
pub(super) fn at(module: &Module, reference: &Reference, message: String) -> LoadError {
    contract::at(module, reference.place, message)
}
