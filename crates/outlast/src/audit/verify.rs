//! Verification of the audit log.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use api::{AuditReportView, BrokenView};
use client::audit::{Filter, KnownLink, Verifier};

use crate::context::Context;
use crate::exit;
use crate::exit::NotFound;
use crate::paint::{Paint, Tone};
use crate::table::{Align, Cell, Table};

/// Limit of a line of an exported log. Entries have no texts beyond a few kilobytes.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Lets the server verify its log, and checks that it contains the known links.
pub async fn server(known: &[KnownLink], context: &Context) -> Result<u8> {
    let mut report = context.client.verify_audit().await?;
    for known in known {
        let filter =
            Filter { shard: Some(known.shard), after: Some(known.number - 1), limit: Some(1), ..Filter::default() };
        let found = context.client.audit(&filter).await?.items.into_iter().next();
        let message = match found {
            Some(entry) if entry.number == known.number && entry.link == known.link => continue,
            Some(_) => format!("entry {} has a different link than the known one", known.number),
            None => format!("the chain ends before entry {}, which is known to exist", known.number),
        };
        if let Some(shard) = report.shards.iter_mut().find(|shard| shard.shard == known.shard) {
            report.ok = false;
            shard.ok = false;
            shard.broken.get_or_insert(BrokenView { number: known.number, message });
        }
    }
    print_report(&report, context)
}

/// Verifies an exported log locally.
pub fn file(path: &Path, known: Vec<KnownLink>, context: &Context) -> Result<u8> {
    let file = File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow::Error::from(NotFound(format!("no such file: {}", path.display()))),
        _ => anyhow::Error::from(error).context(format!("cannot open {}", path.display())),
    })?;
    let mut reader = BufReader::new(file);
    let mut verifier = Verifier::new(known);
    for number in 1_u64.. {
        let mut line = String::new();
        let limited = reader.by_ref().take(LINE_BYTES_MAX).read_line(&mut line);
        let read = limited.with_context(|| format!("cannot read line {number} of {}", path.display()))?;
        if read == 0 {
            break;
        }
        if read as u64 == LINE_BYTES_MAX {
            bail!("line {number} of {} is too long for an exported audit log", path.display());
        }
        verifier.line(&line).with_context(|| format!("line {number} of {}", path.display()))?;
    }
    print_report(&verifier.finish(), context)
}

fn print_report(report: &AuditReportView, context: &Context) -> Result<u8> {
    context.printer.print(report, table)?;
    Ok(if report.ok { exit::DONE } else { exit::FAILED })
}

fn table(report: &AuditReportView, paint: Paint) -> String {
    if report.shards.is_empty() {
        return "the log is empty\n".to_owned();
    }
    let columns = [
        ("SHARD", Align::Right),
        ("ENTRIES", Align::Right),
        ("CHAIN", Align::Left),
        ("HEAD", Align::Left),
        ("PROBLEM", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for shard in &report.shards {
        let (status, tone) = if shard.ok { ("intact", Tone::Good) } else { ("broken", Tone::Bad) };
        table.row([
            Cell::new(shard.shard),
            Cell::new(shard.entries),
            Cell::new(status).tone(tone),
            Cell::new(format!("{}:{}:{}", shard.shard, shard.entries, shard.head)),
            Cell::option(shard.broken.as_ref().map(|broken| &broken.message)),
        ]);
    }
    table.render(paint)
}

#[cfg(test)]
mod tests {
    use api::ShardAuditView;

    use super::*;

    #[test]
    fn the_printed_head_is_accepted_as_a_known_link() {
        let shard = ShardAuditView { shard: 0, entries: 2, head: "ab".repeat(32), ok: true, broken: None };
        let text = table(&AuditReportView { ok: true, shards: vec![shard] }, Paint::NONE);
        let head = text.split_whitespace().find(|word| word.starts_with("0:2:")).unwrap();
        assert_eq!(head.parse::<KnownLink>().unwrap().number, 2);
    }
}
