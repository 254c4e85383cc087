//! `outlast schedules`: creates and controls schedules of workflows.

mod file;
mod show;

use std::path::PathBuf;

use anyhow::Result;
use api::{Page, ScheduleView, WorkflowView};
use clap::{Args, Subcommand};
use client::schedules::ScheduleRef;

use crate::context::Context;
use crate::jobs::list::now;
use crate::{exit, output};

const PAGE_SCHEDULES: usize = 500;

/// List, create, inspect, pause, resume, trigger and delete schedules.
#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// List schedules, oldest first.
    List {
        /// Only schedules of this tenant.
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// Maximum number of schedules [default: all]
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Show a schedule, by name or id.
    Show(ScheduleArgs),
    /// Create a schedule from a file.
    #[command(after_help = "\
The file is YAML or JSON:
  name: nightly
  cron: 30 2 * * *           # minute hour day month weekday, or @hourly, @daily …
  timezone: Europe/Berlin    # default: UTC
  workflow: ./report.yaml    # a file relative to this one, or an inline definition
  inputs: {days: 1}
  catch_up: once             # slots missed while no server ran: skip, once or all
  overlap: forbid            # while the previous one runs: allow, forbid or replace
  jitter: 30s
  paused: false
  queue: q_…
  tenant: default")]
    Create {
        /// Schedule file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Pause a schedule. Slots are skipped until it is resumed.
    Pause(ScheduleArgs),
    /// Resume a paused schedule.
    Resume(ScheduleArgs),
    /// Trigger a schedule immediately and print the workflow id.
    Trigger(ScheduleArgs),
    /// Delete a schedule. Workflows it has started continue.
    Rm(ScheduleArgs),
}

#[derive(Args)]
struct ScheduleArgs {
    /// Name or id of the schedule.
    schedule: String,
    /// Tenant of the schedule, if the name alone is ambiguous.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
}

impl ScheduleArgs {
    fn reference(&self) -> ScheduleRef<'_> {
        ScheduleRef { name: &self.schedule, tenant: self.tenant.as_deref() }
    }
}

pub async fn run(options: Options, context: &Context) -> Result<u8> {
    let client = &context.client;
    let printer = context.printer;
    let list = Command::List { tenant: None, limit: None };
    match options.command.unwrap_or(list) {
        Command::List { tenant, limit } => {
            let page = fetch(tenant.as_deref(), limit, context).await?;
            printer.print(&page, |page: &Page<ScheduleView>, paint| show::table(&page.items, now(), paint))?;
        }
        Command::Show(args) => printer.print(&client.schedule(args.reference()).await?, show::page)?,
        Command::Create { file } => {
            let schedule = client.create_schedule(&file::read(&file)?).await?;
            printer.print(&schedule, |schedule: &ScheduleView, _| {
                let next = schedule.next_slot.map(|next| format!("next at {next}")).unwrap_or("paused".to_owned());
                format!("{} {}: {next}\n", schedule.id, schedule.name)
            })?;
        }
        Command::Pause(args) => printer.print(&client.pause_schedule(args.reference()).await?, show::line)?,
        Command::Resume(args) => printer.print(&client.resume_schedule(args.reference()).await?, show::line)?,
        Command::Trigger(args) => {
            let workflow = client.trigger_schedule(args.reference()).await?;
            printer.print(&workflow, |workflow: &WorkflowView, _| format!("{}\n", workflow.id))?;
        }
        Command::Rm(args) => {
            client.remove_schedule(args.reference()).await?;
            if printer.is_human_readable() {
                output::write(format!("{} deleted\n", args.schedule).as_bytes())?;
            }
        }
    }
    Ok(exit::DONE)
}

async fn fetch(tenant: Option<&str>, limit: Option<usize>, context: &Context) -> Result<Page<ScheduleView>> {
    let limit = limit.unwrap_or(usize::MAX);
    let mut items = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page_size = (limit - items.len()).min(PAGE_SCHEDULES);
        let page = context.client.schedules(tenant, Some(page_size), cursor.as_deref()).await?;
        items.extend(page.items);
        cursor = page.next_cursor;
        if items.len() >= limit || cursor.is_none() {
            return Ok(Page { items, next_cursor: cursor });
        }
    }
}
