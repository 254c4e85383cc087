//! Policy decisions about jobs and results, by operators' rules in Rego.
//!
//! [`Rules`] is a validated set of rules from one directory. [`Rules::decide`] decides about a job,
//! [`Rules::decide_output`] about a result. Both are deterministic and without side effects; the time is a parameter.
//! If the evaluation fails or gives an invalid answer, jobs are denied and results quarantined.
//!
//! [`Policy`] is the set in force. It caches decisions by exactly those parts of a job that the rules read, and reloads
//! rules without blocking callers. [`run_cases`] and [`Rules::explain`] are for authors of rules.

mod analysis;
mod cache;
mod cases;
mod combine;
mod document;
mod error;
mod evaluator;
mod explain;
mod facts;
mod files;
mod functions;
mod key;
pub mod limits;
mod nesting;
mod policy;
mod project;
mod read_set;
mod rules;
mod verdicts;

pub use cache::Cache;
pub use cases::{CaseResult, Expected, Report, run_cases};
pub use error::LoadError;
pub use explain::{Explanation, RuleVerdict};
pub use facts::{ArtifactFacts, FindingFacts, FindingKind, JobFacts, OutcomeFacts, OutputFacts};
pub use policy::{Policy, PolicyStatus, Reloaded};
pub use rules::{OutputCheck, Rules};
