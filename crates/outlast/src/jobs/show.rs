//! Page with all details of a job.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use api::{
    ApprovalDecisionView, AttemptView, ConstraintsView, DecisionView, HistoryView, JobView, OutputDecisionView,
    StateView,
};
use model::job::Artifact;
use model::spec::{Limits, Sandbox};
use model::verdict::OutputVerdict;

use super::list::{describe_run, took};
use crate::approvals::origin;
use crate::context::Context;
use crate::paint::{Paint, Tone, sanitize};
use crate::table::{Align, Cell, Pairs, Table};
use crate::{duration, exit, ids, size};

pub async fn job(id: &str, context: &Context) -> Result<u8> {
    let id = ids::job(id)?;
    let job = context.client.job(id).await?;
    if !context.printer.is_human_readable() {
        context.printer.print(&job, |_, _| String::new())?;
        return Ok(exit::DONE);
    }
    let history = context.client.history(id).await?;
    context.printer.print(&job, |job, paint| page(job, &history, paint))?;
    Ok(exit::DONE)
}

pub async fn history(id: &str, context: &Context) -> Result<u8> {
    let history = context.client.history(ids::job(id)?).await?;
    context.printer.print(&history, timeline)?;
    Ok(exit::DONE)
}

fn page(job: &JobView, history: &HistoryView, paint: Paint) -> String {
    let mut text = facts(job).render(paint);
    text.push_str(&format!("\n{}", timeline(history, paint)));
    if !job.artifacts.is_empty() {
        text.push_str(&format!("\n{}", artifacts(&job.artifacts).render(paint)));
    }
    if let Some(result) = &job.result {
        let pretty = serde_json::from_slice::<serde_json::Value>(result.as_bytes())
            .and_then(|value| serde_json::to_string_pretty(&value))
            .unwrap_or_else(|_| sanitize(result.as_str()));
        text.push_str(&format!("\n{}\n{pretty}\n", paint.apply(Tone::Quiet, "RESULT")));
    }
    text
}

pub fn facts(job: &JobView) -> Pairs {
    let mut pairs = Pairs::default();
    pairs.add_cell("id", Cell::new(job.id).tone(Tone::Strong));
    pairs.add_cell("state", Cell::new(job.state).tone(Tone::of_state(job.state)));
    pairs.add_option("reason", job.reason.as_ref());
    pairs.add_option("message", job.message.as_ref());
    pairs.add_option("workflow", job.origin.as_ref().map(origin));
    pairs.add("run", describe_run(&job.run));
    pairs.add("topic", &job.topic);
    pairs.add("queue", job.queue);
    pairs.add("tenant", &job.tenant);
    pairs.add_option("submitter", job.submitter.as_ref());
    pairs.add("priority", format!("{:?}", job.priority).to_lowercase());
    pairs.add("created", job.created_at);
    pairs.add_option("took", took(job).map(duration::show));
    pairs.add_option("not before", job.not_before);
    pairs.add_option("deadline", job.deadline);
    pairs.add_option("next try", job.eligible_at);
    pairs.add_option("timeout", job.timeout_ms.map(|millis| duration::show(Duration::from_millis(millis))));
    pairs.add("attempt", job.attempt);
    pairs.add("retries", format!("{} of {}", job.retries, job.max_retries));
    pairs.add_option("runner", job.runner.as_ref());
    pairs.add_option("exit code", job.exit_code);
    pairs.add_option("signal", job.signal);
    pairs.add_option("cpu", cpu(job));
    pairs.add_option("memory peak", job.memory_peak_bytes.map(size::show));
    pairs.add_option("sandbox", job.sandbox.map(Sandbox::as_str));
    pairs.add_option("limits", (!job.limits.is_empty()).then(|| limits(&job.limits)));
    pairs.add_option("policy", job.constraints.as_ref().map(constraints));
    pairs.add_option("approval", job.approval.as_ref().map(approval));
    pairs.add_option("exclusive", job.exclusive.then_some("no two attempts at the same time"));
    pairs.add_option("requires", (!job.requires.is_empty()).then(|| job.requires.join(" ")));
    pairs.add_option(
        "inputs",
        (!job.inputs.is_empty()).then(|| job.inputs.keys().cloned().collect::<Vec<_>>().join(" ")),
    );
    pairs.add_option("outputs", (!job.outputs.is_empty()).then(|| job.outputs.join(" ")));
    pairs.add_option("labels", (!job.labels.is_empty()).then(|| labels(&job.labels)));
    // A generated key only serves to repeat the request.
    pairs.add_option("key", job.idempotency_key.as_ref().filter(|key| !client::is_generated_key(key)));
    pairs
}

/// CPU time used, and current use in percent of one core.
fn cpu(job: &JobView) -> Option<String> {
    let used = job.cpu_seconds.map(|seconds| format!("{seconds:.2}s"));
    let now = job.cpu_percent.map(|percent| format!("{percent:.0} %"));
    match (used, now) {
        (Some(used), Some(now)) => Some(format!("{used} ({now})")),
        (used, now) => used.or(now),
    }
}

fn limits(limits: &Limits) -> String {
    let parts = [
        limits.cpu_ms.map(|millis| format!("cpu {}", duration::show(Duration::from_millis(millis)))),
        limits.memory_bytes.map(|bytes| format!("memory {}", size::show(bytes))),
        limits.pids.map(|pids| format!("{pids} processes")),
        limits.output_bytes.map(|bytes| format!("output {}", size::show(bytes))),
        limits.open_files.map(|files| format!("{files} open files")),
        limits.fuel.map(|fuel| format!("fuel {fuel}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Artifacts with their blobs.
fn artifacts(artifacts: &[Artifact]) -> Table {
    let mut table = Table::new(&[("ARTIFACT", Align::Left), ("SIZE", Align::Right), ("BLOB", Align::Left)]);
    for artifact in artifacts {
        table.row([Cell::new(&artifact.path), Cell::new(size::show(artifact.bytes)), Cell::new(artifact.blob)]);
    }
    table
}

fn timeline(history: &HistoryView, paint: Paint) -> String {
    let mut text = states(&history.states).render(paint);
    if history.states_dropped > 0 {
        text.push_str(&format!("({} states between these were dropped)\n", history.states_dropped));
    }
    if !history.attempts.is_empty() {
        text.push_str(&format!("\n{}", attempts(&history.attempts).render(paint)));
    }
    if history.attempts_dropped > 0 {
        text.push_str(&format!("({} attempts between these were dropped)\n", history.attempts_dropped));
    }
    if !history.decisions.is_empty() {
        text.push_str(&format!("\n{}", decisions(&history.decisions).render(paint)));
    }
    if !history.output_decisions.is_empty() {
        text.push_str(&format!("\n{}", output_decisions(&history.output_decisions).render(paint)));
    }
    text
}

/// States with the time since the previous one.
fn states(states: &[StateView]) -> Table {
    let mut table = Table::new(&[("STATE", Align::Left), ("AT", Align::Left), ("AFTER", Align::Right)]);
    let mut before = None;
    for entry in states {
        let after = before.map(|before: u64| Duration::from_millis(entry.at.0.0.saturating_sub(before)));
        before = Some(entry.at.0.0);
        table.row([
            Cell::new(entry.state).tone(Tone::of_state(entry.state)),
            Cell::new(entry.at),
            Cell::option(after.map(duration::show)),
        ]);
    }
    table
}

fn attempts(attempts: &[AttemptView]) -> Table {
    let mut table = Table::new(&[
        ("ATTEMPT", Align::Right),
        ("END", Align::Left),
        ("STARTED", Align::Left),
        ("TOOK", Align::Right),
        ("EXIT", Align::Right),
        ("SIGNAL", Align::Right),
        ("CPU", Align::Right),
        ("MEMORY", Align::Right),
        ("RUNNER", Align::Left),
        ("MESSAGE", Align::Left),
    ]);
    for attempt in attempts {
        let took = attempt.started_at.zip(attempt.ended_at);
        let took = took.map(|(start, end)| duration::show(Duration::from_millis(end.0.0.saturating_sub(start.0.0))));
        table.row([
            Cell::new(attempt.attempt),
            Cell::option(attempt.end.as_ref()),
            Cell::option(attempt.started_at),
            Cell::option(took),
            Cell::option(attempt.exit_code),
            Cell::option(attempt.signal),
            Cell::option(attempt.cpu_seconds.map(|seconds| format!("{seconds:.2}s"))),
            Cell::option(attempt.memory_peak_bytes.map(size::show)),
            Cell::new(&attempt.runner),
            Cell::option(attempt.message.as_ref()),
        ]);
    }
    table
}

pub fn decisions(decisions: &[DecisionView]) -> Table {
    let columns = [("DECIDED", Align::Left), ("VERDICT", Align::Left), ("RULE", Align::Left), ("MESSAGE", Align::Left)];
    let mut table = Table::new(&columns);
    for decision in decisions {
        table.row([
            Cell::new(decision.at),
            Cell::new(&decision.verdict),
            Cell::new(&decision.rule),
            Cell::option(decision.message.as_ref()),
        ]);
    }
    table
}

pub fn output_decisions(decisions: &[OutputDecisionView]) -> Table {
    let columns = [
        ("RESULT DECIDED", Align::Left),
        ("PHASE", Align::Left),
        ("VERDICT", Align::Left),
        ("RULE", Align::Left),
        ("FINDINGS", Align::Left),
        ("MESSAGE", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for decision in decisions {
        let phase = format!("{:?}", decision.phase).to_lowercase();
        let tone = if decision.verdict == OutputVerdict::Allow { Tone::Plain } else { Tone::Bad };
        let found =
            decision.findings.iter().map(|found| format!("{}×{} in {}", found.count, found.pattern, found.place));
        let found = found.collect::<Vec<_>>().join(", ");
        table.row([
            Cell::new(decision.at),
            Cell::new(phase),
            Cell::new(decision.verdict.as_str()).tone(tone),
            Cell::new(&decision.rule),
            Cell::option((!found.is_empty()).then_some(found)),
            Cell::option(decision.message.as_ref()),
        ]);
    }
    table
}

/// Policy constraints in one line.
pub fn constraints(constraints: &ConstraintsView) -> String {
    let ConstraintsView { max_runtime_ms, max_retries, max_artifact_bytes, max_concurrent, sandbox, network } =
        constraints;
    let parts = [
        max_runtime_ms.map(|millis| format!("at most {}", duration::show(Duration::from_millis(millis)))),
        max_retries.map(|retries| format!("at most {retries} retries")),
        max_artifact_bytes.map(|bytes| format!("artifacts up to {}", size::show(bytes))),
        max_concurrent.map(|jobs| format!("at most {jobs} at once")),
        sandbox.map(|sandbox| format!("sandbox {}", sandbox.as_str())),
        network.map(|network| if network { "network".to_owned() } else { "no network".to_owned() }),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// An approval decision in one line.
pub fn approval(decision: &ApprovalDecisionView) -> String {
    let verb = if decision.approved { "approved" } else { "rejected" };
    let by = decision.by.as_deref().unwrap_or("an unknown person");
    let comment = decision.comment.as_ref().map(|comment| format!(": {comment}")).unwrap_or_default();
    format!("{verb} by {by} at {}{comment}", decision.at)
}

pub fn labels(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::example;

    #[test]
    fn a_page_has_facts_states_attempts_and_result() {
        let text = page(&example::job(), &example::history(), Paint::NONE);
        let expected = "\
id           job_0000000000001
state        succeeded
run          sh -c 'echo hi'
topic        default
queue        q_0000000000002
tenant       default
priority     interactive
created      2026-01-01T00:00:00.000Z
took         1.5s
attempt      1
retries      0 of 3
runner       runner_0000000000003
exit code    0
cpu          0.25s
memory peak  3.0 MiB
sandbox      none
limits       memory 512.0 MiB, 16 processes
inputs       in.csv
outputs      out/*
labels       team=x

STATE      AT                        AFTER
pending    2026-01-01T00:00:00.000Z      -
succeeded  2026-01-01T00:00:01.500Z   1.5s

ATTEMPT  END     STARTED                    TOOK  EXIT  SIGNAL    CPU   MEMORY  RUNNER                MESSAGE
      1  exited  2026-01-01T00:00:00.500Z  1000ms     0       -  0.25s  3.0 MiB  runner_0000000000003  -

ARTIFACT        SIZE     BLOB
out/report.txt  2.0 KiB  blob:abababababababababababababababababababababababababababababababab

RESULT
{
  \"x\": 1
}
";
        let squeeze = |text: &str| {
            text.split('\n')
                .map(|line| line.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        assert_eq!(squeeze(&text), squeeze(&expected.replace("1000ms", "1.0s")), "{text}");
    }
}
