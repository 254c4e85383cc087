//! A definition becomes a plan.
//!
//! The text is read into a tree, shorthands in it are written out, and the tree is written as normalised JSON: the
//! source of the plan. Then the tree is checked and compiled. Problems are gathered, not only the first is told.

mod definition;
mod edges;
mod inputs;
mod job;
mod kinds;
mod prepare;
mod shape;
mod task;
mod templates;
mod values;

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use model::spec::Digest;

use crate::diagnostic::{Diagnostics, Place, Problems, code};
use crate::limits;
use crate::node::{self, Node};
use crate::plan::Plan;

/// The text of a definition.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    Yaml(&'a str),
    Json(&'a [u8]),
}

/// Reads, checks and compiles a definition.
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
    prepare::prepare(&mut root, None);
    let (normalised, nodes) = node::normalise(&mut root);
    // Shorthands are written out now: what is kept must be readable again.
    if nodes > limits::NODES_MAX {
        let message = format!("{nodes} values are too many for one definition: at most {}", limits::NODES_MAX);
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
        // Whatever is left out was told.
        None => Err(compiler.problems.into_diagnostics()),
    }
}

impl Plan {
    /// Makes a plan again from its [`Plan::source`].
    pub fn load(source: &[u8]) -> Result<Arc<Plan>, Diagnostics> {
        compile(Source::Json(source))
    }
}

fn too_large(problems: Problems, bytes: usize) -> Diagnostics {
    let message = format!("a definition of {bytes} bytes is too large: at most {}", limits::DEFINITION_BYTES_MAX);
    refuse(problems, code::TOO_LARGE, message)
}

/// Adds a problem of the definition as a whole, and ends with it.
fn refuse(mut problems: Problems, code: &'static str, message: String) -> Diagnostics {
    problems.add(Place::default(), code, "", message);
    problems.into_diagnostics()
}

/// What all definitions of one text have in common.
struct Compiler {
    /// For the sources of plans, which are parts of it.
    digest_source: Bytes,
    source: Arc<Bytes>,
    problems: Problems,
    /// Names of fields, shared by all templates that stand in a field of that name.
    field_names: HashMap<String, Arc<str>, foldhash::fast::RandomState>,
    /// Of all definitions so far.
    tasks: usize,
    expressions: usize,
}

impl Compiler {
    /// The normalised text of a definition.
    fn source_of(&self, node: &Node<'_>) -> (Bytes, Digest) {
        let source = self.digest_source.slice(node.span.0 as usize..node.span.1 as usize);
        let digest = Digest::of(&source);
        (source, digest)
    }
}
