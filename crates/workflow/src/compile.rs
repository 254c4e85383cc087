//! Compiler: turns a definition into a plan.
//!
//! The text is parsed into a tree, shorthands are expanded, and the tree is written as normalised JSON: the source of
//! the plan. Then the tree is checked and compiled. All problems are collected, not only the first.

mod definition;
mod edges;
mod inputs;
mod job;
mod shape;
mod shorthands;
mod task;
mod templates;
mod values;
mod work;

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use model::spec::Digest;

use crate::diagnostic::{Diagnostics, Position, Problems, code};
use crate::limits;
use crate::node::{self, Node};
use crate::plan::Plan;

/// Text of a definition.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    Yaml(&'a str),
    Json(&'a [u8]),
}

/// Parses, checks and compiles a definition.
pub fn compile(source: Source<'_>) -> Result<Arc<Plan>, Diagnostics> {
    let mut problems = Problems::default();
    let bytes = match source {
        Source::Yaml(text) => text.len(),
        Source::Json(text) => text.len(),
    };
    if bytes > limits::DEFINITION_BYTES_MAX {
        return Err(too_large(problems, bytes));
    }
    let read = match source {
        Source::Yaml(text) => node::yaml::read(text, &mut problems),
        Source::Json(text) => node::json::read(text, &mut problems),
    };
    let Some(mut root) = read else {
        return Err(problems.into_diagnostics());
    };
    node::refuse_duplicates(&root, &mut problems);
    shorthands::expand(&mut root, None);
    let (normalised, nodes) = node::normalise(&mut root);
    // Checked after the expansion of shorthands, because the stored source must pass the limits when it is loaded.
    if nodes > limits::NODES_MAX {
        let message = format!("the definition has {nodes} values: at most {} are allowed", limits::NODES_MAX);
        return Err(refuse(problems, code::TOO_LARGE, message));
    }
    if normalised.len() > limits::DEFINITION_BYTES_MAX {
        return Err(too_large(problems, normalised.len()));
    }
    let source = Bytes::from(normalised);
    let mut compiler = Compiler {
        digest_source: source.clone(),
        source: Arc::new(source),
        problems,
        field_names: HashMap::default(),
        tasks: 0,
        expressions: 0,
    };
    match compiler.root(&root) {
        Some(plan) => compiler.problems.finish().map(|()| Arc::new(plan)),
        // Every missing part has its diagnostic.
        None => Err(compiler.problems.into_diagnostics()),
    }
}

impl Plan {
    /// Compiles a plan from its stored [`Plan::source`].
    pub fn load(source: &[u8]) -> Result<Arc<Plan>, Diagnostics> {
        compile(Source::Json(source))
    }
}

fn too_large(problems: Problems, bytes: usize) -> Diagnostics {
    let message = format!("the definition has {bytes} bytes: at most {} are allowed", limits::DEFINITION_BYTES_MAX);
    refuse(problems, code::TOO_LARGE, message)
}

/// Ends with a problem of the definition as a whole.
fn refuse(mut problems: Problems, code: &'static str, message: String) -> Diagnostics {
    problems.add(Position::default(), code, "", message);
    problems.into_diagnostics()
}

/// State shared by all definitions of one text.
struct Compiler {
    /// Normalised text. The sources of the plans are slices of it.
    digest_source: Bytes,
    source: Arc<Bytes>,
    problems: Problems,
    /// Interned field names, shared by all templates in fields of the same name.
    field_names: HashMap<String, Arc<str>, foldhash::fast::RandomState>,
    /// Tasks of all definitions so far, including nested ones.
    tasks: usize,
    expressions: usize,
}

impl Compiler {
    /// Normalised text of a definition, with its digest.
    fn source_of(&self, node: &Node<'_>) -> (Bytes, Digest) {
        let source = self.digest_source.slice(node.span.0 as usize..node.span.1 as usize);
        let digest = Digest::of(&source);
        (source, digest)
    }
}
