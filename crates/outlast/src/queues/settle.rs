//! Waiting until the last job of a queue has ended.

use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use model::queue::QueueRef;
use model::view::QueueView;
use tokio::time::sleep;

use super::show::{ended, page};
use crate::context::Context;
use crate::exit;
use crate::interrupt::{Raced, race};

const POLL: Duration = Duration::from_millis(200);

/// Shows the queue, at once or when it has nothing left to do.
pub async fn show(reference: QueueRef, queue: QueueView, wait: bool, context: &Context) -> Result<u8> {
    let settled = async { if wait { settle(reference, queue, context).await } else { Ok(queue) } };
    match race(settled).await? {
        Raced::Done(queue) => {
            context.printer.print(&queue, page)?;
            Ok(exit::DONE)
        }
        Raced::Interrupted => {
            eprintln!("\nthe queue goes on ending its jobs; `outlast queues show {reference}` shows how far it is");
            Ok(exit::INTERRUPTED)
        }
    }
}

async fn settle(reference: QueueRef, mut queue: QueueView, context: &Context) -> Result<QueueView> {
    let left_at_first = queue.counters.active;
    let bar = ProgressBar::new(left_at_first);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} ended  {msg}  {elapsed}");
    let bar = if let Ok(style) = style { bar.with_style(style) } else { bar };
    while queue.counters.active > 0 {
        bar.set_position(left_at_first.saturating_sub(queue.counters.active));
        bar.set_message(format!("{} in all", ended(&queue.counters)));
        sleep(POLL).await;
        queue = context.client.queue(reference).await?;
    }
    bar.finish_and_clear();
    Ok(queue)
}
