//! Task list of a workflow, or one task with its result.

use std::time::Duration;

use anyhow::Result;
use api::{Page, TaskView};
use clap::Args;
use client::workflows::TaskFilter;
use model::workflow::TaskState;

use super::tree::{elapsed, task_label, task_note};
use crate::context::Context;
use crate::paint::{Paint, Tone};
use crate::table::{Align, Cell, Pairs, Table, shorten};
use crate::{duration, exit, ids};

const PAGE_TASKS: usize = 1000;
const NOTE_WIDTH: usize = 80;

#[derive(Args)]
pub struct Options {
    /// Workflow id.
    id: String,
    /// Show this task with its result.
    #[arg(value_name = "TASK", conflicts_with_all = ["state", "limit", "all"])]
    task: Option<String>,
    /// With a task: its item N, from 0.
    #[arg(long, value_name = "N", requires = "task")]
    item: Option<u32>,
    /// Only tasks in this state; repeatable.
    #[arg(long, value_name = "STATE")]
    state: Vec<TaskState>,
    /// Maximum number of tasks.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
    /// List all tasks.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

pub async fn run(options: &Options, context: &Context) -> Result<u8> {
    if let Some(name) = &options.task {
        let task = context.client.workflow_task(ids::workflow(&options.id)?, name, options.item).await?;
        context.printer.print(&task, page)?;
        return Ok(exit::DONE);
    }
    let tasks = fetch(options, context).await?;
    context.printer.print(&tasks, |tasks: &Page<TaskView>, paint| table(&tasks.items, paint))?;
    if context.printer.is_human_readable() && tasks.next_cursor.is_some() {
        eprintln!(
            "{}",
            Paint::for_stderr().apply(Tone::Quiet, "more tasks may exist; use --limit N or --all to list them")
        );
    }
    Ok(exit::DONE)
}

async fn fetch(options: &Options, context: &Context) -> Result<Page<TaskView>> {
    let id = ids::workflow(&options.id)?;
    let limit = if options.all { usize::MAX } else { options.limit };
    let mut filter = TaskFilter { states: options.state.clone(), limit: None, cursor: None };
    let mut items = Vec::new();
    loop {
        filter.limit = Some((limit - items.len()).min(PAGE_TASKS));
        let page = context.client.workflow_tasks(id, &filter).await?;
        items.extend(page.items);
        filter.cursor = page.next_cursor;
        if items.len() >= limit || filter.cursor.is_none() {
            return Ok(Page { items, next_cursor: filter.cursor });
        }
    }
}

fn name(task: &TaskView) -> String {
    task.item.map_or_else(|| task.name.clone(), |item| format!("{}[{item}]", task.name))
}

fn table(tasks: &[TaskView], paint: Paint) -> String {
    let mut table = Table::new(&[
        ("TASK", Align::Left),
        ("KIND", Align::Left),
        ("STATE", Align::Left),
        ("TOOK", Align::Right),
        ("ITEMS", Align::Right),
        ("JOB", Align::Left),
        ("NOTE", Align::Left),
    ]);
    for task in tasks {
        let (label, _, tone, _) = task_label(task);
        let note = task_note(task);
        table.row([
            Cell::new(name(task)),
            Cell::new(task.kind.as_str()),
            Cell::new(label).tone(tone),
            Cell::option(elapsed(task, Duration::ZERO).map(duration::show)),
            Cell::option(task.items_total),
            Cell::option(task.job.map(|job| job.to_string()).or_else(|| task.child.map(|child| child.to_string()))),
            Cell::option((!note.is_empty()).then(|| shorten(&note, NOTE_WIDTH))),
        ]);
    }
    table.render(paint)
}

fn page(task: &TaskView, paint: Paint) -> String {
    let (label, _, tone, _) = task_label(task);
    let note = task_note(task);
    let mut pairs = Pairs::default();
    pairs.add_cell("task", Cell::new(name(task)).tone(Tone::Strong));
    pairs.add("kind", task.kind.as_str());
    pairs.add_cell("state", Cell::new(label).tone(tone));
    pairs.add_option("note", (!note.is_empty()).then_some(note));
    pairs.add_option("took", elapsed(task, Duration::ZERO).map(duration::show));
    pairs.add_option("began", task.began_at);
    pairs.add_option("ended", task.ended_at);
    pairs.add_option("due", task.due);
    pairs.add_option("epoch", task.epoch.as_ref());
    pairs.add_option("needs", (!task.needs.is_empty()).then(|| task.needs.join(" ")));
    pairs.add_option("items", task.items_total);
    pairs.add_option("job", task.job);
    pairs.add_option("attempts", task.attempts);
    pairs.add_option("sub-workflow", task.child);
    let mut text = pairs.render(paint);
    if let Some(result) = &task.result {
        let pretty = serde_json::from_slice::<serde_json::Value>(result.as_bytes())
            .and_then(|value| serde_json::to_string_pretty(&value));
        let pretty = pretty.unwrap_or_else(|_| result.as_str().to_owned());
        text.push_str(&format!("\n{}\n{pretty}\n", paint.apply(Tone::Quiet, "RESULT")));
    }
    text
}

#[cfg(test)]
mod tests {
    use model::json::Json;

    use super::*;
    use crate::workflows::tree::example;

    #[test]
    fn a_list_is_one_line_per_task() {
        insta::assert_snapshot!(table(&example::tasks(), Paint::NONE), @"
        TASK     KIND  STATE       TOOK  ITEMS  JOB  NOTE
        fetch    job   succeeded   1.2s      -  -    -
        build    job   failed     900ms      -  -    job failed: it exited with 1
        publish  job   cancelled      -      -  -    upstream failed
        ");
    }

    #[test]
    fn a_page_has_the_result() {
        let mut task = example::tasks().remove(0);
        task.result = Json::parse(b"\"done\"");
        let text = page(&task, Paint::NONE);
        assert!(text.starts_with("task "), "{text}");
        assert!(text.ends_with("\nRESULT\n\"done\"\n"), "{text}");
    }
}
