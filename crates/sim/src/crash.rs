//! Repeats one run with a crash at each commit in turn. The outcome must always be the same.

use std::fmt::Write;

use model::id::WorkflowId;

use crate::coverage::Coverage;
use crate::invariants::Violation;
use crate::ledger::workflows::Workflows;
use crate::world::World;
use crate::{Failure, outcome_of};

/// Where a process crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// Before this commit: its writes are lost.
    Before(u64),
    /// After this commit: its effects are lost.
    After(u64),
}

/// A workflow with the same outcome for every crash.
#[derive(Debug)]
pub struct CrashReport {
    pub seed: u64,
    pub commits: u64,
    pub runs: u64,
    pub outcome: String,
    pub coverage: Coverage,
}

/// Runs the chain of a seed once without a crash, then with one before and after each commit.
pub fn crash_every_commit(seed: u64) -> Result<CrashReport, Box<Failure>> {
    let (expected, commits, mut coverage) = run(seed, None)?;
    let mut runs = 1;
    for number in 1..=commits {
        for crash in [Crash::Before(number), Crash::After(number)] {
            let (outcome, _, seen) = run(seed, Some(crash))?;
            runs += 1;
            coverage.merge(&seen);
            if outcome != expected {
                let detail = format!("with a crash {crash:?} the outcome is\n{outcome}instead of\n{expected}");
                let violation = Violation { invariant: "invariant_a_crash_does_not_change_the_outcome", detail };
                return Err(Box::new(Failure { seed, violation, trace_hash: 0, last_lines: Vec::new() }));
            }
        }
    }
    Ok(CrashReport { seed, commits, runs, outcome: expected, coverage })
}

fn run(seed: u64, crash: Option<Crash>) -> Result<(String, u64, Coverage), Box<Failure>> {
    let mut world = World::calm(seed, crash);
    match outcome_of(&mut world) {
        Ok(_) => Ok((outcome_text(&world.ledger.workflows), world.commits, world.coverage)),
        Err(mut violation) => {
            let _ = write!(violation.detail, " (crash: {crash:?})");
            let trace_hash = world.trace.hash();
            Err(Box::new(Failure { seed, violation, trace_hash, last_lines: world.trace.last_lines() }))
        }
    }
}

/// The outcome of all workflows, without anything that depends on time.
fn outcome_text(workflows: &Workflows) -> String {
    let mut text = String::new();
    for (id, _) in workflows.known.iter().filter(|(_, workflow)| workflow.record.parent.is_none()) {
        append_outcome(workflows, *id, 0, &mut text);
    }
    text
}

fn append_outcome(workflows: &Workflows, id: WorkflowId, depth: usize, text: &mut String) {
    let Some(workflow) = workflows.known.get(&id) else { return };
    let record = &workflow.record;
    let compensated = record
        .rollback
        .as_ref()
        .map(|rollback| (rollback.state, rollback.total, rollback.compensated, rollback.failed));
    let reason = record.reason.as_ref().map(|reason| reason.code.as_str());
    let indent = "  ".repeat(depth);
    // A write to a String cannot fail.
    let _ = writeln!(text, "{indent}{} {reason:?} {compensated:?} jobs {}", record.state, record.totals.jobs);
    for (task_key, row) in &workflow.rows {
        let name = &workflow.plan.tasks[task_key.task as usize].name;
        let compensation = row.compensation.as_ref().map(|compensation| compensation.state);
        let result = row.result.as_ref().map(|result| result.as_str());
        let (item, merged) = (task_key.item, row.merged_into);
        let _ = writeln!(
            text,
            "{indent}  {name} {item:?} {} {result:?} order {} {compensation:?} {:?} {merged:?} {:?}",
            row.state, row.order, row.items, row.job_state
        );
        if let Some(child) = row.child {
            append_outcome(workflows, child, depth + 2, text);
        }
    }
}
