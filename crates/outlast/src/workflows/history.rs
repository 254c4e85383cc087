//! Events of a workflow.

use std::time::Duration;

use anyhow::Result;
use api::{WorkflowEventView, WorkflowHistoryView};
use clap::Args;

use super::tree::describe_reason;
use crate::context::Context;
use crate::paint::{Paint, Tone};
use crate::table::{Align, Cell, Table, shorten};
use crate::{duration, exit, ids};

const PAGE_EVENTS: usize = 1000;
const REASON_WIDTH: usize = 80;

#[derive(Args)]
pub struct Options {
    /// Workflow id.
    id: String,
    /// Maximum number of events [default: all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

pub async fn run(options: &Options, context: &Context) -> Result<u8> {
    let history = fetch(options, context).await?;
    context.printer.print(&history, table)?;
    Ok(exit::DONE)
}

async fn fetch(options: &Options, context: &Context) -> Result<WorkflowHistoryView> {
    let id = ids::workflow(&options.id)?;
    let limit = options.limit.unwrap_or(usize::MAX);
    let mut history = context.client.workflow_history(id, Some(limit.min(PAGE_EVENTS)), None).await?;
    while let Some(cursor) = history.next_cursor.take().filter(|_| history.items.len() < limit) {
        let page = (limit - history.items.len()).min(PAGE_EVENTS);
        let more = context.client.workflow_history(id, Some(page), Some(&cursor)).await?;
        history.items.extend(more.items);
        history.next_cursor = more.next_cursor;
        history.incomplete |= more.incomplete;
    }
    Ok(history)
}

/// Events with the time since the first one.
fn table(history: &WorkflowHistoryView, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("AT", Align::Left),
        ("AFTER", Align::Right),
        ("EVENT", Align::Left),
        ("TASK", Align::Left),
        ("STATE", Align::Left),
        ("BY", Align::Left),
        ("JOB", Align::Left),
        ("REASON", Align::Left),
    ]);
    let first = history.items.first().map_or(0, |event| event.at.0.0);
    for event in &history.items {
        let after = Duration::from_millis(event.at.0.0.saturating_sub(first));
        table.row([
            Cell::new(event.at),
            Cell::new(duration::show(after)),
            Cell::new(event.kind.replace('_', " ")),
            Cell::option(task(event)),
            Cell::option(event.state.as_ref()),
            Cell::option(event.by.as_ref()),
            Cell::option(event.job),
            Cell::option(reason(event)),
        ]);
    }
    let mut text = table.render(paint);
    let mut add_note = |note: String| text.push_str(&format!("{}\n", paint.apply(Tone::Quiet, &note)));
    if history.notes_dropped > 0 {
        add_note(format!("({} events between these were dropped)", history.notes_dropped));
    }
    if history.incomplete {
        add_note("(incomplete: too many tasks to list all their events)".to_owned());
    }
    text
}

fn task(event: &WorkflowEventView) -> Option<String> {
    let item = event.item.map(|item| format!("[{item}]")).unwrap_or_default();
    event.task.as_ref().map(|task| format!("{task}{item}"))
}

fn reason(event: &WorkflowEventView) -> Option<String> {
    let parts = [event.reason.as_ref().map(describe_reason), event.text.clone()];
    let reason = parts.into_iter().flatten().collect::<Vec<_>>().join(": ");
    (!reason.is_empty()).then(|| shorten(&reason, REASON_WIDTH))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_listed_with_the_time_since_the_first() {
        let event = |at: &str, kind: &str| {
            json!({"at": at, "kind": kind, "task": null, "item": null, "state": null, "reason": null, "by": null,
                   "text": null, "job": null})
        };
        let mut failed = event("2026-01-01T00:00:02.500Z", "task_ended");
        failed["task"] = json!("build");
        failed["item"] = json!(3);
        failed["state"] = json!("failed");
        failed["reason"] = json!({"code": "job_failed", "message": "it exited with 1"});
        failed["job"] = json!("job_0000000000001");
        let mut signalled = event("2026-01-01T00:01:00.000Z", "signalled");
        signalled["by"] = json!("ada");
        signalled["text"] = json!("go");
        let items = [event("2026-01-01T00:00:00.000Z", "started"), failed, signalled];
        let history = serde_json::from_value(json!({"id": "wf_0000000000001", "state": "failed", "items": items,
            "notes_dropped": 2, "next_cursor": null}))
        .unwrap();
        insta::assert_snapshot!(table(&history, Paint::NONE), @"
        AT                        AFTER  EVENT       TASK      STATE   BY   JOB                REASON
        2026-01-01T00:00:00.000Z    0ms  started     -         -       -    -                  -
        2026-01-01T00:00:02.500Z   2.5s  task ended  build[3]  failed  -    job_0000000000001  job failed: it exited with 1
        2026-01-01T00:01:00.000Z  1m00s  signalled   -         -       ada  -                  go
        (2 events between these were dropped)
        ");
    }
}
