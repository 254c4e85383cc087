//! Verdicts on jobs on their way in and on results on their way out, by rules that operators write in Rego.
//!
//! [`Rules`] is a set of rules that was loaded from a directory and checked. It is asked about a job with
//! [`Rules::decide`] and about a result with [`Rules::decide_output`]; it takes the time as a parameter, touches nothing,
//! and gives the same answer to the same question. Where the rules cannot be asked, or say something that means
//! nothing, jobs are denied and results are held back.
//!
//! [`Policy`] is the set in force: it caches what was decided, by exactly those parts of a job that the rules read, and
//! takes new rules while others are asking. [`run_cases`] and [`Rules::explain`] are for those who write them.

mod analysis;
mod answer;
mod cache;
mod cases;
mod document;
mod error;
mod evaluator;
mod explain;
mod facts;
mod files;
mod functions;
mod key;
pub mod limits;
mod policy;
mod reads;
mod rules;
mod shape;
mod walk;
mod weigh;

pub use cache::Cache;
pub use cases::{CaseResult, Expected, Report, run_cases};
pub use error::LoadError;
pub use explain::{ConstraintsView, Explanation, SpokenRule};
pub use facts::{ArtifactFacts, FindingFacts, FindingKind, JobFacts, OutcomeFacts, OutputFacts};
pub use policy::{Policy, PolicyStatus, Reloaded};
pub use rules::{OutputRuling, Rules};
