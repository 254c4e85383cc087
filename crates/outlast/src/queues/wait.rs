//! Waits until all jobs of a queue are terminal.

use std::time::Duration;

use anyhow::Result;
use api::QueueView;
use indicatif::{ProgressBar, ProgressStyle};
use model::queue::QueueRef;
use tokio::time::sleep;

use super::show::{ended, page};
use crate::context::Context;
use crate::exit;
use crate::interrupt::{OrInterrupt, or_interrupt};

const POLL: Duration = Duration::from_millis(200);

/// Shows the queue immediately or, with `wait`, once all its jobs are terminal.
pub async fn show(reference: QueueRef, queue: QueueView, wait: bool, context: &Context) -> Result<u8> {
    let closed = async { if wait { wait_for_jobs(reference, queue, context).await } else { Ok(queue) } };
    match or_interrupt(closed).await? {
        OrInterrupt::Done(queue) => {
            context.printer.print(&queue, page)?;
            Ok(exit::DONE)
        }
        OrInterrupt::Interrupted => {
            eprintln!("\nthe queue continues to close; check it with `outlast queues show {reference}`");
            Ok(exit::INTERRUPTED)
        }
    }
}

async fn wait_for_jobs(reference: QueueRef, mut queue: QueueView, context: &Context) -> Result<QueueView> {
    let initially_active = queue.counters.active;
    let bar = ProgressBar::new(initially_active);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} terminal  {msg}  {elapsed}");
    let bar = if let Ok(style) = style { bar.with_style(style) } else { bar };
    while queue.counters.active > 0 {
        bar.set_position(initially_active.saturating_sub(queue.counters.active));
        bar.set_message(format!("{} in total", ended(&queue.counters)));
        sleep(POLL).await;
        queue = context.client.queue(reference).await?;
    }
    bar.finish_and_clear();
    Ok(queue)
}
