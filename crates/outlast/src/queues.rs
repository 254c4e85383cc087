//! `outlast queues`: making queues, looking at them, ending them.

mod settle;
mod show;

pub use show::ended;

use anyhow::Result;
use clap::{Args, Subcommand};
use model::view::{Page, QueueSpec, QueueView};

use crate::context::Context;
use crate::{exit, ids, output};

const PAGE_QUEUES: usize = 500;

/// List queues, create one, look at it, drain, cancel or remove it.
#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// List queues.
    List {
        /// At most this many.
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Create a queue and print its id and its token, which is shown only now.
    Create {
        /// A name for people.
        #[arg(long, default_value = "")]
        tag: String,
        /// How many of its jobs may run at once.
        #[arg(long, value_name = "N")]
        max_running: Option<u32>,
        /// Retries of its jobs that name no number of their own.
        #[arg(long, value_name = "N")]
        max_retries: Option<u32>,
        /// Whose queue it is.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Show a queue, by id or token.
    Show { queue: String },
    /// Take no new jobs and finish those there are.
    Drain {
        queue: String,
        /// Stay until the last job has ended.
        #[arg(long)]
        wait: bool,
    },
    /// Take no new jobs and cancel those there are.
    Cancel {
        queue: String,
        /// Stay until the last job has ended.
        #[arg(long)]
        wait: bool,
    },
    /// Remove a queue.
    Rm { queue: String },
}

pub async fn run(options: Options, context: &Context) -> Result<u8> {
    let client = &context.client;
    match options.command.unwrap_or(Command::List { limit: None }) {
        Command::List { limit } => {
            let page = fetch(limit.unwrap_or(usize::MAX), context).await?;
            context.printer.print(&page, |page: &Page<QueueView>, paint| show::table(&page.items, paint))?;
        }
        Command::Create { tag, max_running, max_retries, tenant } => {
            let queue = client.create_queue(&QueueSpec { tag, tenant, max_retries, max_running }).await?;
            context.printer.print(&queue, show::page)?;
        }
        Command::Show { queue } => {
            let queue = client.queue(ids::queue(&queue)?).await?;
            context.printer.print(&queue, show::page)?;
        }
        Command::Drain { queue, wait } => {
            let queue = ids::queue(&queue)?;
            let drained = client.drain_queue(queue).await?;
            return settle::show(queue, drained, wait, context).await;
        }
        Command::Cancel { queue, wait } => {
            let queue = ids::queue(&queue)?;
            let cancelled = client.cancel_queue(queue).await?;
            return settle::show(queue, cancelled, wait, context).await;
        }
        Command::Rm { queue } => {
            client.remove_queue(ids::queue(&queue)?).await?;
            if context.printer.is_for_people() {
                output::write(format!("{queue} removed\n").as_bytes())?;
            }
        }
    }
    Ok(exit::DONE)
}

async fn fetch(limit: usize, context: &Context) -> Result<Page<QueueView>> {
    let mut items = Vec::new();
    let mut cursor = None;
    loop {
        let page_limit = (limit - items.len()).min(PAGE_QUEUES);
        let page = context.client.queues(Some(page_limit), cursor.as_deref()).await?;
        items.extend(page.items);
        cursor = page.next_cursor;
        if items.len() >= limit || cursor.is_none() {
            return Ok(Page { items, next_cursor: cursor });
        }
    }
}
