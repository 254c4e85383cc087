//! The same run again and again, each time with a crash at another commit: what it comes to must always be the same.

use std::fmt::Write;

use model::id::WorkflowId;

use crate::coverage::Coverage;
use crate::invariants::Violation;
use crate::ledger::flows::Flows;
use crate::world::World;
use crate::{Failure, outcome_of};

/// When a process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// With everything that this commit would have made durable.
    Before(u64),
    /// With everything that was to be done after it.
    After(u64),
}

/// A workflow that came to the same wherever its shard crashed.
#[derive(Debug)]
pub struct CrashReport {
    pub seed: u64,
    pub commits: u64,
    pub runs: u64,
    pub outcome: String,
    pub coverage: Coverage,
}

/// Runs the chain of a seed once without a crash and then with one before and after each of its commits.
pub fn crash_every_commit(seed: u64) -> Result<CrashReport, Box<Failure>> {
    let (expected, commits, mut coverage) = run(seed, None)?;
    let mut runs = 1;
    for number in 1..=commits {
        for crash in [Crash::Before(number), Crash::After(number)] {
            let (outcome, _, seen) = run(seed, Some(crash))?;
            runs += 1;
            coverage.merge(&seen);
            if outcome != expected {
                let detail = format!("with a crash {crash:?} it comes to\n{outcome}instead of\n{expected}");
                let violation = Violation { invariant: "invariant_a_crash_changes_nothing", detail };
                return Err(Box::new(Failure { seed, violation, trace_hash: 0, last_lines: Vec::new() }));
            }
        }
    }
    Ok(CrashReport { seed, commits, runs, outcome: expected, coverage })
}

fn run(seed: u64, crash: Option<Crash>) -> Result<(String, u64, Coverage), Box<Failure>> {
    let mut world = World::calm(seed, crash);
    match outcome_of(&mut world) {
        Ok(_) => Ok((told(&world.ledger.flows), world.commits, world.coverage)),
        Err(mut violation) => {
            let _ = write!(violation.detail, " (crash: {crash:?})");
            let trace_hash = world.trace.hash();
            Err(Box::new(Failure { seed, violation, trace_hash, last_lines: world.trace.last_lines() }))
        }
    }
}

/// What all workflows have come to, without anything that depends on when.
fn told(flows: &Flows) -> String {
    let mut text = String::new();
    for (id, _) in flows.known.iter().filter(|(_, flow)| flow.record.parent.is_none()) {
        tell(flows, *id, 0, &mut text);
    }
    text
}

fn tell(flows: &Flows, id: WorkflowId, depth: usize, text: &mut String) {
    let Some(flow) = flows.known.get(&id) else { return };
    let record = &flow.record;
    let undone = record.rollback.as_ref().map(|undo| (undo.state, undo.total, undo.undone, undo.failed));
    let reason = record.reason.as_ref().map(|reason| reason.code.as_str());
    let indent = "  ".repeat(depth);
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{indent}{} {reason:?} {undone:?} jobs {}", record.state, record.totals.jobs);
    for (place, row) in &flow.rows {
        let name = &flow.plan.tasks[place.task as usize].name;
        let undo = row.compensation.as_ref().map(|undo| undo.state);
        let result = row.result.as_ref().map(|result| result.as_str());
        let (item, merged) = (place.item, row.merged_into);
        let _ = writeln!(
            text,
            "{indent}  {name} {item:?} {} {result:?} order {} {undo:?} {:?} {merged:?} {:?}",
            row.state, row.order, row.items, row.job_state
        );
        if let Some(child) = row.child {
            tell(flows, child, depth + 2, text);
        }
    }
}
