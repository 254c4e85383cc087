//! `outlast queues`: creates, inspects and closes queues.

mod show;
mod wait;

pub use show::ended;

use anyhow::Result;
use api::{Page, QueueSpec, QueueView};
use clap::{Args, Subcommand};

use crate::context::Context;
use crate::{exit, ids, output};

const PAGE_QUEUES: usize = 500;

/// List, create, inspect, drain, cancel and delete queues.
#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// List queues.
    List {
        /// Maximum number of queues [default: all]
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Create a queue and print its id and token. The token is shown only once.
    Create {
        /// Display name.
        #[arg(long, default_value = "")]
        tag: String,
        /// Maximum number of running jobs [default: no limit]
        #[arg(long, value_name = "N")]
        max_running: Option<u32>,
        /// Default retry budget of its jobs.
        #[arg(long, value_name = "N")]
        max_retries: Option<u32>,
        /// Tenant of the queue.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Show a queue, by id or token.
    Show {
        /// Queue id or token.
        queue: String,
    },
    /// Close a queue for new jobs and finish its jobs.
    Drain {
        /// Queue id or token.
        queue: String,
        /// Wait until all jobs are terminal.
        #[arg(long)]
        wait: bool,
    },
    /// Close a queue for new jobs and cancel its jobs.
    Cancel {
        /// Queue id or token.
        queue: String,
        /// Wait until all jobs are terminal.
        #[arg(long)]
        wait: bool,
    },
    /// Delete a queue.
    Rm {
        /// Queue id or token.
        queue: String,
    },
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
            return wait::show(queue, drained, wait, context).await;
        }
        Command::Cancel { queue, wait } => {
            let queue = ids::queue(&queue)?;
            let cancelled = client.cancel_queue(queue).await?;
            return wait::show(queue, cancelled, wait, context).await;
        }
        Command::Rm { queue } => {
            client.remove_queue(ids::queue(&queue)?).await?;
            if context.printer.is_human_readable() {
                output::write(format!("{queue} deleted\n").as_bytes())?;
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
