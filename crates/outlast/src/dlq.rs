//! `outlast dlq`: dead letters and rejected runner messages.

use std::time::Duration;

use anyhow::Result;
use api::{DeadLetterDetailView, DeadLetterView, Page, PurgedView, RejectedMessageView};
use clap::{Args, Subcommand};
use client::dead_letters::Filter;

use crate::context::Context;
use crate::exit::Usage;
use crate::jobs::actions::{self, JobAction};
use crate::jobs::list::now;
use crate::jobs::show::facts;
use crate::paint::{Paint, Tone};
use crate::table::{Align, Cell, Pairs, Table, shorten};
use crate::{duration, exit, ids};

const PAGE_DEAD_LETTERS: usize = 500;
const MESSAGE_WIDTH: usize = 60;

/// List, inspect, retry and delete dead letters: jobs that failed for good, compensations that could not be submitted.
#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// List dead letters, oldest job first.
    List {
        #[command(flatten)]
        filter: FilterOptions,
        /// Maximum number of dead letters [default: all]
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Show a dead letter with its job.
    Show {
        /// Job id.
        id: String,
    },
    /// List runner messages rejected for breaking a limit. Their attempts count as failed.
    Rejected,
    /// Retry jobs, within their retry budget.
    Retry {
        /// Job ids.
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Delete dead letters and their jobs, by id or by filter.
    Purge {
        /// Job ids.
        ids: Vec<String>,
        #[command(flatten)]
        filter: FilterOptions,
        /// Delete all dead letters.
        #[arg(long)]
        all: bool,
    },
}

#[derive(Args, Default, Clone)]
struct FilterOptions {
    /// Only dead letters of this topic.
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only dead letters of this tenant.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Only dead letters with this reason code.
    #[arg(long, value_name = "CODE")]
    reason: Option<String>,
    /// Only dead letters of at least this age, such as 7d.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    older_than: Option<Duration>,
}

impl FilterOptions {
    fn filter(self) -> Filter {
        let Self { topic, tenant, reason, older_than } = self;
        Filter { topic, tenant, reason, older_than }
    }
}

pub async fn run(options: Options, context: &Context) -> Result<u8> {
    let list = Command::List { filter: FilterOptions::default(), limit: None };
    match options.command.unwrap_or(list) {
        Command::List { filter, limit } => {
            let page = fetch(&filter.filter(), limit.unwrap_or(usize::MAX), context).await?;
            context.printer.print(&page, |page: &Page<DeadLetterView>, paint| table(&page.items, now(), paint))?;
        }
        Command::Show { id } => {
            let dead_letter = context.client.dead_letter(ids::job(&id)?).await?;
            context.printer.print(&dead_letter, page)?;
        }
        Command::Rejected => {
            let page = context.client.rejected_messages().await?;
            context
                .printer
                .print(&page, |page: &Page<RejectedMessageView>, paint| rejected_table(&page.items, now(), paint))?;
        }
        Command::Retry { ids } => return actions::run(JobAction::RetryDeadLetter, &ids, context).await,
        Command::Purge { ids, filter, all } => return purge(&ids, filter.filter(), all, context).await,
    }
    Ok(exit::DONE)
}

async fn purge(ids: &[String], filter: Filter, all: bool, context: &Context) -> Result<u8> {
    let has_filter = all || filter != Filter::default();
    match (ids.is_empty(), has_filter) {
        (false, false) => return actions::run(JobAction::Purge, ids, context).await,
        (false, true) => return Err(Usage("give ids or a filter, not both".to_owned()).into()),
        (true, false) => {
            let message = "nothing selected: give ids, or use --all, --older-than, --topic, --tenant or --reason";
            return Err(Usage(message.to_owned()).into());
        }
        (true, true) => {}
    }
    let mut purged = 0;
    // Each request deletes a bounded number.
    let more = loop {
        let batch = context.client.purge_dead_letters(&filter, all).await?;
        purged += batch.purged;
        if !batch.more || batch.purged == 0 {
            break batch.more;
        }
    };
    context.printer.print(&PurgedView { purged, more }, |view, _| format!("{} deleted\n", view.purged))?;
    Ok(exit::DONE)
}

async fn fetch(filter: &Filter, limit: usize, context: &Context) -> Result<Page<DeadLetterView>> {
    let mut items = Vec::new();
    let mut cursor = None;
    loop {
        let page_limit = (limit - items.len()).min(PAGE_DEAD_LETTERS);
        let page = context.client.dead_letters(filter, Some(page_limit), cursor.as_deref()).await?;
        items.extend(page.items);
        cursor = page.next_cursor;
        if items.len() >= limit || cursor.is_none() {
            return Ok(Page { items, next_cursor: cursor });
        }
    }
}

fn table(dead_letters: &[DeadLetterView], now: Duration, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("STATE", Align::Left),
        ("TOPIC", Align::Left),
        ("TENANT", Align::Left),
        ("AGE", Align::Right),
        ("REASON", Align::Left),
        ("MESSAGE", Align::Left),
    ]);
    for dead_letter in dead_letters {
        let age = now.saturating_sub(Duration::from_millis(dead_letter.at.0.0));
        table.row([
            Cell::new(dead_letter.id),
            Cell::new(dead_letter.state).tone(Tone::of_state(dead_letter.state)),
            Cell::new(&dead_letter.topic),
            Cell::new(&dead_letter.tenant),
            Cell::new(duration::show(age)),
            Cell::option(dead_letter.reason.as_ref()),
            Cell::option(dead_letter.message.as_ref().map(|message| shorten(message, MESSAGE_WIDTH))),
        ]);
    }
    table.render(paint)
}

fn rejected_table(messages: &[RejectedMessageView], now: Duration, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("JOB", Align::Left),
        ("ATTEMPT", Align::Right),
        ("RUNNER", Align::Left),
        ("AGE", Align::Right),
        ("REASON", Align::Left),
    ]);
    for message in messages {
        let age = now.saturating_sub(Duration::from_millis(message.at.0.0));
        table.row([
            Cell::new(message.job),
            Cell::new(message.attempt),
            Cell::new(message.runner),
            Cell::new(duration::show(age)),
            Cell::new(&message.why),
        ]);
    }
    table.render(paint)
}

fn page(detail: &DeadLetterDetailView, paint: Paint) -> String {
    let mut pairs = Pairs::default();
    pairs.add_cell("failed at", Cell::new(detail.letter.at).tone(Tone::Strong));
    pairs.add_option("reason", detail.letter.reason.as_ref());
    pairs.add_option("message", detail.letter.message.as_ref());
    if let Some(compensation) = &detail.letter.compensation {
        pairs.add_cell("compensation of", Cell::new(&compensation.task));
        pairs.add_cell("workflow", Cell::new(compensation.workflow));
    }
    match &detail.job {
        Some(job) => format!("{}\n{}", pairs.render(paint), facts(job).render(paint)),
        None => pairs.render(paint),
    }
}

#[cfg(test)]
mod tests {
    use model::id::JobId;
    use model::state::State;
    use model::time::{Millis, Timestamp};

    use super::*;

    #[test]
    fn a_list_is_one_line_per_dead_letter() {
        let dead_letter = DeadLetterView {
            id: JobId(1),
            at: Timestamp(Millis(0)),
            state: State::Failed,
            reason: Some("retries_exhausted".to_owned()),
            message: Some("exit code 3".to_owned()),
            topic: "reports".to_owned(),
            tenant: "default".to_owned(),
            compensation: None,
        };
        let expected = "\
ID                 STATE   TOPIC    TENANT     AGE  REASON             MESSAGE
job_0000000000001  failed  reports  default  1m00s  retries_exhausted  exit code 3
";
        assert_eq!(table(&[dead_letter], Duration::from_secs(60), Paint::NONE), expected);
    }
}
