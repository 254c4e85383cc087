//! Workflow lists.

use std::time::Duration;

use anyhow::Result;
use api::{Page, WorkflowView};
use clap::Args;
use client::workflows::Filter;
use model::workflow::{TaskState, WorkflowState};

use crate::context::Context;
use crate::jobs::list::now;
use crate::paint::{Paint, Tone};
use crate::table::{Align, Cell, Table};
use crate::{duration, exit, ids};

const PAGE_WORKFLOWS: usize = 500;

#[derive(Args, Clone)]
#[group(skip)]
pub struct Options {
    /// Only workflows in this state; repeatable.
    #[arg(long, value_name = "STATE")]
    state: Vec<WorkflowState>,
    /// Only workflows with this name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only workflows of this tenant.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Only workflows of this queue, by id or token.
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Only workflows started by this schedule, by id.
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<String>,
    /// Include sub-workflows.
    #[arg(long)]
    children: bool,
    /// Maximum number of workflows.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// List all workflows.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Continue after the cursor of an earlier list.
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

pub async fn run(options: &Options, context: &Context) -> Result<u8> {
    let page = fetch(options, context).await?;
    context.printer.print(&page, |page: &Page<WorkflowView>, paint| table(&page.items, now(), paint))?;
    if context.printer.is_human_readable() && has_more(options, page.next_cursor, context).await? {
        eprintln!(
            "{}",
            Paint::for_stderr().apply(Tone::Quiet, "more workflows exist; use --limit N or --all to list them")
        );
    }
    Ok(exit::DONE)
}

/// Whether workflows follow the cursor. A cursor alone does not say that more workflows exist.
async fn has_more(options: &Options, cursor: Option<String>, context: &Context) -> Result<bool> {
    if cursor.is_none() {
        return Ok(false);
    }
    let one_more = Options { cursor, limit: 1, all: false, ..options.clone() };
    Ok(!fetch(&one_more, context).await?.items.is_empty())
}

/// Pages may be short or empty, so that several may be needed.
async fn fetch(options: &Options, context: &Context) -> Result<Page<WorkflowView>> {
    let limit = if options.all { usize::MAX } else { options.limit };
    let mut filter = Filter {
        states: options.state.clone(),
        name: options.name.clone(),
        tenant: options.tenant.clone(),
        queue: options.queue.as_deref().map(ids::queue).transpose()?,
        schedule: options.schedule.as_deref().map(ids::schedule).transpose()?,
        children: options.children,
        limit: None,
        cursor: options.cursor.clone(),
    };
    let mut items = Vec::new();
    loop {
        filter.limit = Some((limit - items.len()).min(PAGE_WORKFLOWS));
        let page = context.client.workflows(&filter).await?;
        items.extend(page.items);
        filter.cursor = page.next_cursor;
        if items.len() >= limit || filter.cursor.is_none() {
            return Ok(Page { items, next_cursor: filter.cursor });
        }
    }
}

fn table(workflows: &[WorkflowView], now: Duration, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("NAME", Align::Left),
        ("STATE", Align::Left),
        ("TASKS", Align::Right),
        ("FAILED", Align::Right),
        ("AGE", Align::Right),
        ("TOOK", Align::Right),
        ("TENANT", Align::Left),
    ]);
    for workflow in workflows {
        let counts = &workflow.counts;
        let ended: u32 =
            TaskState::ALL.into_iter().filter(|state| state.is_terminal()).map(|state| counts.of(state)).sum();
        let failed = counts.failed + counts.quarantined;
        let age = now.saturating_sub(Duration::from_millis(workflow.created_at.0.0));
        let took = workflow.state.is_terminal().then(|| Duration::from_millis(workflow.duration_ms));
        table.row([
            Cell::new(workflow.id),
            Cell::new(&workflow.name),
            Cell::new(workflow.state).tone(Tone::of_workflow(workflow.state)),
            Cell::new(format!("{ended}/{}", workflow.tasks_total)),
            Cell::option((failed > 0).then_some(failed)).tone(if failed > 0 { Tone::Bad } else { Tone::Quiet }),
            Cell::new(duration::show(age)),
            Cell::option(took.map(duration::show)),
            Cell::new(&workflow.tenant),
        ]);
    }
    table.render(paint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflows::tree::example;

    #[test]
    fn a_list_is_one_line_per_workflow() {
        let workflow = example::workflow("failed");
        let now = Duration::from_millis(workflow.created_at.0.0) + Duration::from_secs(90);
        insta::assert_snapshot!(table(&[workflow, example::workflow("running")], now, Paint::NONE), @"
        ID                NAME            STATE    TASKS  FAILED    AGE  TOOK  TENANT
        wf_0000000000001  build-and-test  failed     3/3       1  1m30s   12s  default
        wf_0000000000001  build-and-test  running    1/3       -  1m30s     -  default
        ");
    }
}
