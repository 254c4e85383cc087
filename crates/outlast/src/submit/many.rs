//! Many jobs, chunk by chunk, with a count of what was taken and what was not.

use anyhow::{Context as _, Result, bail};
use client::jobs::Submit;
use indicatif::{ProgressBar, ProgressStyle};
use model::view::{BatchItem, Problem};
use serde::Serialize;

use super::chunk::Chunk;
use super::source::{Jobs, Place};
use crate::context::Context;
use crate::{exit, output};

/// What programs get.
#[derive(Default, Serialize)]
struct Summary {
    accepted: usize,
    refused: usize,
    results: Vec<BatchItem>,
}

pub async fn submit(jobs: Jobs, submit: &Submit, context: &Context) -> Result<u8> {
    let bar = progress_bar(jobs.total_bytes);
    let mut items = jobs.items.peekable();
    let mut summary = Summary::default();
    while let Some(chunk) = Chunk::next(&mut items)? {
        send(chunk, submit, context, &mut summary, &bar).await.with_context(|| {
            format!("{} jobs were accepted and {} refused before this", summary.accepted, summary.refused)
        })?;
    }
    bar.finish_and_clear();
    if context.printer.is_for_people() {
        eprintln!("{} accepted, {} refused", summary.accepted, summary.refused);
    } else {
        context.printer.print(&summary, |_, _| String::new())?;
    }
    Ok(if summary.refused == 0 { exit::DONE } else { exit::FAILED })
}

async fn send(
    chunk: Chunk,
    submit: &Submit,
    context: &Context,
    summary: &mut Summary,
    bar: &ProgressBar,
) -> Result<()> {
    let sent_bytes = chunk.body.len() as u64;
    let batch = context.client.submit_ndjson(chunk.body.into(), submit).await?;
    if batch.results.len() != chunk.places.len() {
        bail!("{} jobs were sent and {} answers came", chunk.places.len(), batch.results.len());
    }
    let mut ids = String::new();
    for (place, result) in chunk.places.iter().zip(&batch.results) {
        match result {
            BatchItem::Accepted(accepted) => {
                summary.accepted += 1;
                ids.push_str(&format!("{}\n", accepted.id));
            }
            BatchItem::Refused { error } => {
                summary.refused += 1;
                bar.suspend(|| eprintln!("{}", describe(*place, error)));
            }
        }
    }
    if context.printer.is_for_people() {
        bar.suspend(|| output::write(ids.as_bytes()))?;
    } else {
        summary.results.extend(batch.results);
    }
    bar.inc(sent_bytes);
    bar.set_message(format!("{} accepted, {} refused", summary.accepted, summary.refused));
    Ok(())
}

fn describe(place: Place, problem: &Problem) -> String {
    format!("{place}: {}", client::in_words(problem))
}

/// Only a terminal gets to see it.
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
    fn a_refused_line_is_named_with_its_reason() {
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
        assert_eq!(describe(Place::Line(7), &problem), "line 7: topic: it is empty (invalid)");
        let problem = Problem { field: None, ..problem };
        assert_eq!(describe(Place::Entry(2), &problem), "job 2: it is empty (invalid)");
    }
}
