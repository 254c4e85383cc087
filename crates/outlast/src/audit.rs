//! `outlast audit`: lists, verifies and exports the audit log.

mod export;
mod verify;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use api::{AuditEntryView, Page};
use clap::{Args, Subcommand};
use client::audit::{Filter, KnownLink};
use model::audit::PublicKey;

use crate::context::Context;
use crate::jobs::list::now;
use crate::paint::Paint;
use crate::table::{Align, Cell, Table, shorten};
use crate::{duration, exit, ids};

const PAGE_ENTRIES: usize = 500;
const LIMIT_DEFAULT: usize = 50;
const MESSAGE_WIDTH: usize = 60;

/// List, verify and export the audit log.
#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// List policy decisions and operations of people, newest first.
    List(ListOptions),
    /// Verify the hash chain for changes and omissions, on the server or in an exported file.
    Verify {
        /// File written by `outlast audit export`, verified without a server.
        file: Option<PathBuf>,
        /// Link recorded earlier that the chain must still contain; repeatable.
        #[arg(long, value_name = "SHARD:NUMBER:LINK")]
        head: Vec<KnownLink>,
        /// Public key recorded earlier that must have signed the checkpoints of a shortened log.
        #[arg(long, value_name = "PUBLIC_KEY")]
        key: Option<PublicKey>,
    },
    /// Write the whole log to a file that can be verified elsewhere; `-` for standard output.
    Export {
        /// Output file.
        file: PathBuf,
        /// Replace an existing file.
        #[arg(long)]
        force: bool,
    },
}

#[derive(Args)]
struct ListOptions {
    /// Only entries about this job.
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// Only entries with this action, such as approved or denied.
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// Maximum number of entries.
    #[arg(long, value_name = "N", default_value_t = LIMIT_DEFAULT)]
    limit: usize,
    /// List the oldest entries first.
    #[arg(long)]
    oldest_first: bool,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self { job: None, action: None, limit: LIMIT_DEFAULT, oldest_first: false }
    }
}

pub async fn run(options: Options, context: &Context) -> Result<u8> {
    match options.command.unwrap_or(Command::List(ListOptions::default())) {
        Command::List(options) => {
            let page = fetch(&options, context).await?;
            context.printer.print(&page, |page: &Page<AuditEntryView>, paint| table(&page.items, now(), paint))?;
            Ok(exit::DONE)
        }
        Command::Verify { file: Some(file), head, key } => verify::file(&file, head, key, context),
        Command::Verify { file: None, head, key } => verify::server(&head, key, context).await,
        Command::Export { file, force } => export::to(&file, force, context).await,
    }
}

async fn fetch(options: &ListOptions, context: &Context) -> Result<Page<AuditEntryView>> {
    let mut filter = Filter {
        job: options.job.as_deref().map(ids::job).transpose()?,
        action: options.action.clone(),
        newest_first: !options.oldest_first,
        ..Filter::default()
    };
    let mut items = Vec::new();
    loop {
        filter.limit = Some((options.limit - items.len()).min(PAGE_ENTRIES));
        let page = context.client.audit(&filter).await?;
        items.extend(page.items);
        filter.cursor = page.next_cursor;
        if items.len() >= options.limit || filter.cursor.is_none() {
            return Ok(Page { items, next_cursor: filter.cursor });
        }
    }
}

fn table(entries: &[AuditEntryView], now: Duration, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("ENTRY", Align::Right),
        ("AGE", Align::Right),
        ("ACTION", Align::Left),
        ("BY", Align::Left),
        ("ABOUT", Align::Left),
        ("RULE", Align::Left),
        ("MESSAGE", Align::Left),
    ]);
    for entry in entries {
        let age = now.saturating_sub(Duration::from_millis(entry.at.0.0));
        let about = entry.job.map(|job| job.to_string()).or_else(|| entry.queue.map(|queue| queue.to_string()));
        table.row([
            Cell::new(format!("{}:{}", entry.shard, entry.number)),
            Cell::new(duration::show(age)),
            Cell::new(&entry.action),
            Cell::option(entry.by.as_ref()),
            Cell::option(about),
            Cell::option(entry.rule.as_ref()),
            Cell::option(entry.message.as_ref().map(|message| shorten(message, MESSAGE_WIDTH))),
        ]);
    }
    table.render(paint)
}

#[cfg(test)]
mod tests {
    use model::id::JobId;
    use model::time::{Millis, Timestamp};

    use super::*;

    #[test]
    fn a_list_is_one_line_per_entry() {
        let entry = AuditEntryView {
            shard: 0,
            number: 17,
            link: "00".repeat(32),
            at: Timestamp(Millis(0)),
            action: "approved".to_owned(),
            by: Some("ada".to_owned()),
            job: Some(JobId(1)),
            queue: None,
            rule: None,
            policy: None,
            message: Some("looked at it".to_owned()),
        };
        let expected = "\
ENTRY    AGE  ACTION    BY   ABOUT              RULE  MESSAGE
 0:17  1m00s  approved  ada  job_0000000000001  -     looked at it
";
        assert_eq!(table(&[entry], Duration::from_secs(60), Paint::NONE), expected);
    }
}
