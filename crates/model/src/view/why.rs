//! Why jobs are where they are, as the API shows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::governance::{ApprovalWordView, DecisionView, OutputDecisionView};
use crate::id::{Attempt, JobId};
use crate::job::Placement;
use crate::state::State;
use crate::time::Timestamp;

/// Why an attempt went where it went: how the job stood with all runners that were known then.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PlacementView {
    /// The load of the chosen one: attempts in hand, its processor and its graphics card. Less is better.
    pub score: f64,
    /// The job had asked for this very runner.
    pub preferred: bool,
    /// Runners that could have taken it.
    pub available: u32,
    /// Fit for it, and full or overloaded.
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

/// Why a job is where it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WhyView {
    pub id: JobId,
    pub state: State,
    pub since: Timestamp,
    pub reason: Option<String>,
    pub message: Option<String>,
    /// When it is looked at next, while it waits.
    pub eligible_at: Option<Timestamp>,
    /// How often no runner was there that could ever take it.
    pub dispatch_tries: u32,
    /// After so many it fails; 0: never. Absent where nobody looks for a runner for it.
    pub dispatch_tries_max: Option<u32>,
    /// What a job that waits for a runner waits for.
    pub waits_for: Option<WaitsForView>,
    /// The same in sentences for people.
    pub explanation: Vec<String>,
    pub decisions: Vec<DecisionView>,
    pub approval: Option<ApprovalWordView>,
    pub output_decisions: Vec<OutputDecisionView>,
    /// Where its attempts went, and why there.
    pub placements: Vec<PlacedView>,
    /// How the runners there are stand to it now, as many as are told of one by one.
    pub runners: Vec<RunnerWhyView>,
    /// How many of them stand to it in each way.
    pub runner_counts: BTreeMap<String, u32>,
}

/// What a job waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitsForView {
    /// `time`, `runner`, `tenant_limit`, `queue_limit`, `concurrency_limit` or `turn`.
    pub kind: String,
    /// The same for people.
    pub message: String,
}

/// How a runner stands to a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunnerWhyView {
    pub runner: String,
    /// Its load; less is better.
    pub score: f64,
    /// `fit`, `full`, `overloaded`, `failed_before`, `other_pool`, `lack_capability` or `other_label`.
    pub verdict: String,
    pub message: Option<String>,
}

/// An attempt's runner, and why it was chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlacedView {
    pub attempt: Attempt,
    pub runner: String,
    /// Absent where there was no other.
    pub placement: Option<PlacementView>,
}
