//! Explanations of a job's state and placement.

use std::collections::BTreeMap;

use model::id::{Attempt, JobId};
use model::job::Placement;
use model::state::State;
use model::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ApprovalDecisionView, DecisionView, OutputDecisionView};

/// Why an attempt was placed on its runner, with the number of other runners by their fitness at that time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Placement)]
pub struct PlacementView {
    /// Load of the chosen runner: attempts in flight, processor and graphics card. Lower is better.
    pub score: f64,
    /// The job asked for this runner.
    pub preferred: bool,
    /// Runners that could have taken the job.
    pub available: u32,
    /// Eligible runners that were full or overloaded.
    pub busy: u32,
    pub other_pool: u32,
    pub lack_capability: u32,
    pub other_labels: u32,
}

impl From<&Placement> for PlacementView {
    fn from(placement: &Placement) -> Self {
        let Placement { score_milli, preferred, available, busy, other_pool, lack_capability, other_labels } =
            *placement;
        let score = score_milli as f64 / 1000.0;
        Self { score, preferred, available, busy, other_pool, lack_capability, other_labels }
    }
}

/// Why a job is in its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Why)]
pub struct WhyView {
    pub id: JobId,
    pub state: State,
    pub since: Timestamp,
    pub reason: Option<String>,
    pub message: Option<String>,
    /// When a waiting job is next considered.
    pub eligible_at: Option<Timestamp>,
    /// How often no runner was registered that could ever take the job.
    pub dispatch_tries: u32,
    /// The job fails after this many tries; 0 for never. Null while no runner is being sought.
    pub dispatch_tries_max: Option<u32>,
    pub waits_for: Option<WaitsForView>,
    /// The same in sentences.
    pub explanation: Vec<String>,
    pub decisions: Vec<DecisionView>,
    pub approval: Option<ApprovalDecisionView>,
    pub output_decisions: Vec<OutputDecisionView>,
    /// Placements of the attempts.
    pub placements: Vec<PlacedView>,
    /// Runners and their fitness for the job now; at most a bounded number of them.
    pub runners: Vec<RunnerWhyView>,
    /// Number of runners by verdict.
    pub runner_counts: BTreeMap<String, u32>,
}

/// What a job waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WaitsFor)]
pub struct WaitsForView {
    /// `time`, `lease`, `runner`, `tenant_limit`, `queue_limit`, `concurrency_limit` or `turn`.
    pub kind: String,
    /// The same as a sentence.
    pub message: String,
}

/// Fitness of a runner for a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = RunnerWhy)]
pub struct RunnerWhyView {
    pub runner: String,
    /// Load of the runner. Lower is better.
    pub score: f64,
    /// `fit`, `cordoned`, `disconnected`, `full`, `overloaded`, `failed_before`, `other_pool`, `lack_capability` or
    /// `other_label`.
    pub verdict: String,
    pub message: Option<String>,
}

/// The runner of an attempt and why it was chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Placed)]
pub struct PlacedView {
    pub attempt: Attempt,
    pub runner: String,
    /// Null if there was no other runner.
    pub placement: Option<PlacementView>,
}
