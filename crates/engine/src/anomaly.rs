//! States that must not occur.
//!
//! An anomaly is a panic in debug builds, so that tests and the simulation find it. In release builds the shard goes
//! on: the anomaly is counted, and the shell logs it.

use std::fmt;

use model::id::{JobId, QueueId, RunnerId, ScheduleId, WorkflowId};

use crate::step::Step;

/// At most this many are reported with one step; all are counted.
const REPORTED_PER_STEP_MAX: usize = 16;

/// A broken expectation of the shard about its own memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Anomaly {
    MissingJob(JobId),
    MissingQueue(QueueId),
    MissingRunner(RunnerId),
    MissingRunnerIndex(u32),
    MissingWorkflow(WorkflowId),
    MissingSchedule(ScheduleId),
    MissingCandidateSet(u32),
    MissingTenant(u32),
    MissingRequirement(usize),
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingJob(id) => write!(f, "{id} is not in memory"),
            Self::MissingQueue(id) => write!(f, "{id} is not in memory"),
            Self::MissingRunner(id) => write!(f, "{id} is not in memory"),
            Self::MissingRunnerIndex(index) => write!(f, "there is no runner number {index}"),
            Self::MissingWorkflow(id) => write!(f, "{id} is not in memory"),
            Self::MissingSchedule(id) => write!(f, "{id} is not in memory"),
            Self::MissingCandidateSet(index) => write!(f, "there is no candidate set number {index}"),
            Self::MissingTenant(index) => write!(f, "there is no tenant number {index}"),
            Self::MissingRequirement(index) => write!(f, "there is no requirement number {index}"),
        }
    }
}

/// Counts anomalies and hands them to the shell with the next step.
#[derive(Debug, Default)]
pub(crate) struct Anomalies {
    total: u64,
    unreported: Vec<(Anomaly, &'static str)>,
}

impl Anomalies {
    /// `during` names the operation that found it.
    #[track_caller]
    pub fn note(&mut self, anomaly: Anomaly, during: &'static str) {
        debug_assert!(false, "{during}: {anomaly}");
        self.total += 1;
        if self.unreported.len() < REPORTED_PER_STEP_MAX {
            self.unreported.push((anomaly, during));
        }
    }

    /// Takes over the anomalies that another component has noted.
    pub fn absorb(&mut self, other: &mut Self) {
        self.total += std::mem::take(&mut other.total);
        let room = REPORTED_PER_STEP_MAX.saturating_sub(self.unreported.len());
        self.unreported.extend(other.unreported.drain(..).take(room));
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn report(&mut self, step: &mut Step) {
        step.anomalies.append(&mut self.unreported);
    }
}
