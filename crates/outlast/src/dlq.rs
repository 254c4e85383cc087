//! `outlast dlq`: dead letters, which are jobs that ended undone.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use client::letters::Filter;
use model::view::{LetterDetailView, LetterView, Page, ParkedView, PurgedView};

use crate::context::Context;
use crate::exit::Usage;
use crate::jobs::act::{self, Act};
use crate::jobs::list::now;
use crate::jobs::show::facts;
use crate::paint::{Paint, Tone};
use crate::table::{Align, Cell, Pairs, Table, shorten};
use crate::{duration, exit, ids};

const PAGE_LETTERS: usize = 500;
const MESSAGE_WIDTH: usize = 60;

/// List jobs that ended undone, look at one, try it again or be done with it.
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
        /// At most this many.
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Show a dead letter with its job.
    Show { id: String },
    /// List what runners said and could not be taken: their attempts count as failed.
    Parked,
    /// Give jobs another try, if their retry limits allow it.
    Retry {
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Remove dead letters, and their jobs with them: some by their ids, or those that the options name.
    Purge {
        ids: Vec<String>,
        #[command(flatten)]
        filter: FilterOptions,
        /// All there are.
        #[arg(long)]
        all: bool,
    },
}

#[derive(Args, Default, Clone)]
struct FilterOptions {
    /// Only those of this topic.
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only those of this tenant.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Only those with this reason.
    #[arg(long, value_name = "CODE")]
    reason: Option<String>,
    /// Only those that ended at least so long ago, such as 7d.
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
            context.printer.print(&page, |page: &Page<LetterView>, paint| table(&page.items, now(), paint))?;
        }
        Command::Show { id } => {
            let letter = context.client.letter(ids::job(&id)?).await?;
            context.printer.print(&letter, page)?;
        }
        Command::Parked => {
            let page = context.client.parked().await?;
            context.printer.print(&page, |page: &Page<ParkedView>, paint| parked_table(&page.items, now(), paint))?;
        }
        Command::Retry { ids } => return act::each(Act::Retry, &ids, context).await,
        Command::Purge { ids, filter, all } => return purge(&ids, filter.filter(), all, context).await,
    }
    Ok(exit::DONE)
}

async fn purge(ids: &[String], filter: Filter, all: bool, context: &Context) -> Result<u8> {
    let names_many = all || filter != Filter::default();
    match (ids.is_empty(), names_many) {
        (false, false) => return act::each(Act::Purge, ids, context).await,
        (false, true) => return Err(Usage("name some ids, or say which are meant, but not both".to_owned()).into()),
        (true, false) => {
            let which = "which ones? Name their ids, or say --all, --older-than, --topic, --tenant or --reason";
            return Err(Usage(which.to_owned()).into());
        }
        (true, true) => {}
    }
    let mut purged = 0;
    // Each request takes away a bounded number.
    let more = loop {
        let some = context.client.purge_letters(&filter, all).await?;
        purged += some.purged;
        if !some.more || some.purged == 0 {
            break some.more;
        }
    };
    context.printer.print(&PurgedView { purged, more }, |view, _| format!("{} purged\n", view.purged))?;
    Ok(exit::DONE)
}

async fn fetch(filter: &Filter, limit: usize, context: &Context) -> Result<Page<LetterView>> {
    let mut items = Vec::new();
    let mut cursor = None;
    loop {
        let page_limit = (limit - items.len()).min(PAGE_LETTERS);
        let page = context.client.letters(filter, Some(page_limit), cursor.as_deref()).await?;
        items.extend(page.items);
        cursor = page.next_cursor;
        if items.len() >= limit || cursor.is_none() {
            return Ok(Page { items, next_cursor: cursor });
        }
    }
}

fn table(letters: &[LetterView], now: Duration, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("STATE", Align::Left),
        ("TOPIC", Align::Left),
        ("TENANT", Align::Left),
        ("AGE", Align::Right),
        ("REASON", Align::Left),
        ("MESSAGE", Align::Left),
    ]);
    for letter in letters {
        let age = now.saturating_sub(Duration::from_millis(letter.at.0.0));
        table.row([
            Cell::new(letter.id),
            Cell::new(letter.state).tone(Tone::of_state(letter.state)),
            Cell::new(&letter.topic),
            Cell::new(&letter.tenant),
            Cell::new(duration::show(age)),
            Cell::option(letter.reason.as_ref()),
            Cell::option(letter.message.as_ref().map(|message| shorten(message, MESSAGE_WIDTH))),
        ]);
    }
    table.render(paint)
}

fn parked_table(words: &[ParkedView], now: Duration, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("JOB", Align::Left),
        ("ATTEMPT", Align::Right),
        ("RUNNER", Align::Left),
        ("AGE", Align::Right),
        ("WHY", Align::Left),
    ]);
    for word in words {
        let age = now.saturating_sub(Duration::from_millis(word.at.0.0));
        table.row([
            Cell::new(word.job),
            Cell::new(word.attempt),
            Cell::new(word.runner),
            Cell::new(duration::show(age)),
            Cell::new(&word.why),
        ]);
    }
    table.render(paint)
}

fn page(detail: &LetterDetailView, paint: Paint) -> String {
    let mut pairs = Pairs::default();
    pairs.add_cell("dead since", Cell::new(detail.letter.at).tone(Tone::Strong));
    pairs.add_option("reason", detail.letter.reason.as_ref());
    pairs.add_option("message", detail.letter.message.as_ref());
    format!("{}\n{}", pairs.render(paint), facts(&detail.job).render(paint))
}

#[cfg(test)]
mod tests {
    use model::id::JobId;
    use model::state::State;
    use model::time::{Millis, Timestamp};

    use super::*;

    #[test]
    fn a_list_is_one_line_per_letter_with_its_reason() {
        let letter = LetterView {
            id: JobId(1),
            at: Timestamp(Millis(0)),
            state: State::Failed,
            reason: Some("retries_exhausted".to_owned()),
            message: Some("exit code 3".to_owned()),
            topic: "reports".to_owned(),
            tenant: "default".to_owned(),
        };
        let expected = "\
ID                 STATE   TOPIC    TENANT     AGE  REASON             MESSAGE
job_0000000000001  failed  reports  default  1m00s  retries_exhausted  exit code 3
";
        assert_eq!(table(&[letter], Duration::from_secs(60), Paint::NONE), expected);
    }
}
