//! Submits a stream of jobs in chunks and counts accepted and refused ones.

use anyhow::{Context as _, Result, bail};
use api::{BatchItem, BatchRefusal, Problem};
use client::jobs::SubmitOptions;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::chunk::Chunk;
use super::source::{Jobs, Position};
use crate::context::Context;
use crate::{exit, output};

/// JSON and YAML output.
#[derive(Default, Serialize)]
struct Summary {
    accepted: usize,
    refused: usize,
    results: Vec<BatchItem>,
}

pub async fn submit(jobs: Jobs, options: &SubmitOptions, context: &Context) -> Result<u8> {
    let bar = progress_bar(jobs.total_bytes);
    let mut items = jobs.items.peekable();
    let mut summary = Summary::default();
    while let Some(chunk) = Chunk::next(&mut items)? {
        send(chunk, options, context, &mut summary, &bar).await.with_context(|| {
            format!("{} jobs were accepted and {} refused before the error", summary.accepted, summary.refused)
        })?;
    }
    bar.finish_and_clear();
    if context.printer.is_human_readable() {
        eprintln!("{} accepted, {} refused", summary.accepted, summary.refused);
    } else {
        context.printer.print(&summary, |_, _| String::new())?;
    }
    Ok(if summary.refused == 0 { exit::DONE } else { exit::FAILED })
}

async fn send(
    chunk: Chunk,
    options: &SubmitOptions,
    context: &Context,
    summary: &mut Summary,
    bar: &ProgressBar,
) -> Result<()> {
    let sent_bytes = chunk.body.len() as u64;
    let batch = context.client.submit_ndjson(chunk.body.into(), options).await?;
    if batch.results.len() != chunk.positions.len() {
        bail!("protocol error: {} jobs were sent but {} results received", chunk.positions.len(), batch.results.len());
    }
    let mut ids = String::new();
    for (position, result) in chunk.positions.iter().zip(&batch.results) {
        match result {
            BatchItem::Accepted(accepted) => {
                summary.accepted += 1;
                ids.push_str(&format!("{}\n", accepted.id));
            }
            BatchItem::Refused(BatchRefusal { error }) => {
                summary.refused += 1;
                bar.suspend(|| eprintln!("{}", describe(*position, error)));
            }
        }
    }
    if context.printer.is_human_readable() {
        bar.suspend(|| output::write(ids.as_bytes()))?;
    } else {
        summary.results.extend(batch.results);
    }
    bar.inc(sent_bytes);
    bar.set_message(format!("{} accepted, {} refused", summary.accepted, summary.refused));
    Ok(())
}

fn describe(position: Position, problem: &Problem) -> String {
    format!("{position}: {}", client::describe(problem))
}

/// Hidden if standard error is not a terminal.
fn progress_bar(total_bytes: Option<u64>) -> ProgressBar {
    let (bar, template) = match total_bytes {
        Some(total) => (ProgressBar::new(total), "{bar:30} {percent:>3}%  {msg}  {elapsed}"),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes}  {msg}  {elapsed}"),
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_job_is_reported_with_its_position_and_reason() {
        let problem = Problem {
            kind: "about:blank".to_owned(),
            title: "Invalid".to_owned(),
            status: 422,
            detail: "it is empty".to_owned(),
            code: "invalid".to_owned(),
            field: Some("topic".to_owned()),
            blobs: Vec::new(),
            offset: None,
            diagnostics: Vec::new(),
        };
        assert_eq!(describe(Position::Line(7), &problem), "line 7: topic: it is empty (invalid)");
        let problem = Problem { field: None, ..problem };
        assert_eq!(describe(Position::Entry(2), &problem), "job 2: it is empty (invalid)");
    }
}
