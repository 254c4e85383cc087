//! `outlast schedules`: what starts workflows by the clock.

mod file;
mod show;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use client::schedules::ScheduleRef;
use model::view::{Page, ScheduleView, WorkflowView};

use crate::context::Context;
use crate::jobs::list::now;
use crate::{exit, output};

const PAGE_SCHEDULES: usize = 500;

/// List schedules, look at one, create, pause, resume, trigger or remove it.
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
        /// At most this many.
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Show a schedule, by name or id.
    Show(Named),
    /// Create the schedule of a file.
    #[command(after_help = "\
The file is YAML or JSON:
  name: nightly
  cron: 30 2 * * *           # minute hour day month weekday, or @hourly, @daily …
  timezone: Europe/Berlin    # UTC if absent
  workflow: ./report.yaml    # a file, relative to this one, or the definition itself
  inputs: {days: 1}
  catch_up: once             # slots that passed while no server ran: skip, once or all
  overlap: forbid            # while the one before runs: allow, forbid or replace
  jitter: 30s
  paused: false
  queue: q_…
  tenant: default")]
    Create {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Leave out slots until it is resumed.
    Pause(Named),
    /// Start workflows again when their time has come.
    Resume(Named),
    /// Start its workflow now.
    Trigger(Named),
    /// Remove a schedule; what it has started goes on.
    Rm(Named),
}

#[derive(Args)]
struct Named {
    /// Its name or id.
    schedule: String,
    /// Whose it is, where the name alone is not enough.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
}

impl Named {
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
        Command::Show(named) => printer.print(&client.schedule(named.reference()).await?, show::page)?,
        Command::Create { file } => {
            let schedule = client.create_schedule(&file::read(&file)?).await?;
            printer.print(&schedule, |schedule: &ScheduleView, _| {
                let next = schedule.next_slot.map(|next| format!("next at {next}")).unwrap_or("paused".to_owned());
                format!("{} {}: {next}\n", schedule.id, schedule.name)
            })?;
        }
        Command::Pause(named) => printer.print(&client.pause_schedule(named.reference()).await?, show::line)?,
        Command::Resume(named) => printer.print(&client.resume_schedule(named.reference()).await?, show::line)?,
        Command::Trigger(named) => {
            let workflow = client.trigger_schedule(named.reference()).await?;
            printer.print(&workflow, |workflow: &WorkflowView, _| format!("{}\n", workflow.id))?;
        }
        Command::Rm(named) => {
            client.remove_schedule(named.reference()).await?;
            if printer.is_for_people() {
                output::write(format!("{} removed\n", named.schedule).as_bytes())?;
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
