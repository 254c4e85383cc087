//! Verification of the audit log.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use api::{AuditReportView, BrokenView, ShardAuditView};
use client::audit::{Filter, KnownLink, Verifier};
use model::audit::{Invalid, PublicKey};
use model::id::ShardId;

use crate::context::Context;
use crate::exit;
use crate::exit::NotFound;
use crate::paint::{Paint, Tone};
use crate::table::{Align, Cell, Table};

/// Limit of a line of an exported log. Entries have no texts beyond a few kilobytes.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Lets the server verify its log, and checks that it contains the known links.
pub async fn server(known: &[KnownLink], key: Option<PublicKey>, context: &Context) -> Result<u8> {
    let mut report = context.client.verify_audit().await?;
    if let Some(key) = key {
        report.shards.iter_mut().for_each(|shard| expect_key(shard, key));
    }
    for known in known {
        let Some(message) = find_known(known, &report, context).await? else { continue };
        if let Some(shard) = report.shards.iter_mut().find(|shard| shard.shard == known.shard) {
            shard.ok = false;
            shard.broken.get_or_insert(BrokenView { number: known.number, message });
        }
    }
    report.ok = report.shards.iter().all(|shard| shard.ok);
    print_report(&report, context)
}

/// The checkpoint must be signed with this key.
fn expect_key(shard: &mut ShardAuditView, key: PublicKey) {
    if let Some(verified) = &mut shard.checkpoint
        && let Some(signed) = verified.checkpoint.signed(ShardId(shard.shard))
        && signed.public_key != key
    {
        verified.valid = false;
        shard.ok = false;
        shard.broken = Some(BrokenView::checkpoint(signed.checkpoint.number, Invalid::OtherKey(signed.public_key)));
    }
}

/// Looks for a known link on the server. Returns the problem.
async fn find_known(known: &KnownLink, report: &AuditReportView, context: &Context) -> Result<Option<String>> {
    let shard = report.shards.iter().find(|shard| shard.shard == known.shard);
    if let Some(verified) = shard.and_then(|shard| shard.checkpoint.as_ref())
        && known.number <= verified.checkpoint.number
    {
        return Ok(known.compare(&verified.checkpoint));
    }
    let filter =
        Filter { shard: Some(known.shard), after: Some(known.number - 1), limit: Some(1), ..Filter::default() };
    let found = context.client.audit(&filter).await?.items.into_iter().next();
    Ok(match found {
        Some(entry) if entry.number == known.number && entry.link == known.link => None,
        Some(_) => Some(format!("entry {} has a different link than the known one", known.number)),
        None => Some(format!("the chain ends before entry {}, which is known to exist", known.number)),
    })
}

/// Verifies an exported log locally.
pub fn file(path: &Path, known: Vec<KnownLink>, key: Option<PublicKey>, context: &Context) -> Result<u8> {
    let file = File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow::Error::from(NotFound(format!("no such file: {}", path.display()))),
        _ => anyhow::Error::from(error).context(format!("cannot open {}", path.display())),
    })?;
    let mut reader = BufReader::new(file);
    let mut verifier = Verifier::new(known, key);
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
            Cell::new(format!("{}:{}:{}", shard.shard, shard.last, shard.head)),
            Cell::option(shard.broken.as_ref().map(|broken| &broken.message)),
        ]);
    }
    let checkpoints = report.shards.iter().filter_map(checkpoint);
    let key = report.public_key.iter().map(|key| format!("\nThe server signs checkpoints with the key {key}\n"));
    std::iter::once(table.render(paint)).chain(checkpoints).chain(key).collect()
}

/// Where a shortened chain begins.
fn checkpoint(shard: &ShardAuditView) -> Option<String> {
    let verified = shard.checkpoint.as_ref()?;
    let checkpoint = &verified.checkpoint;
    let signature = if verified.valid { "valid" } else { "invalid" };
    Some(format!(
        "\nShard {}: entries up to {} were removed after their retention\n\
         checkpoint  {0}:{1}:{}\n\
         removed at  {}\n\
         signed with {}\n\
         signature   {signature}\n",
        shard.shard, checkpoint.number, checkpoint.link, checkpoint.at, checkpoint.public_key,
    ))
}

#[cfg(test)]
mod tests {
    use api::{CheckpointView, VerifiedCheckpointView};
    use model::time::{Millis, Timestamp};

    use super::*;

    fn shard() -> ShardAuditView {
        ShardAuditView {
            shard: 0,
            first: 1,
            entries: 2,
            last: 2,
            head: "ab".repeat(32),
            checkpoint: None,
            ok: true,
            broken: None,
        }
    }

    fn printed(shard: ShardAuditView) -> String {
        table(&AuditReportView { ok: shard.ok, public_key: None, shards: vec![shard] }, Paint::NONE)
    }

    fn shortened() -> ShardAuditView {
        let checkpoint = CheckpointView {
            number: 5,
            link: "12".repeat(32),
            at: Timestamp(Millis(0)),
            public_key: "34".repeat(32),
            signature: "56".repeat(64),
        };
        let checkpoint = Some(VerifiedCheckpointView { checkpoint, valid: true });
        ShardAuditView { first: 6, last: 7, checkpoint, ..shard() }
    }

    #[test]
    fn the_printed_head_is_accepted_as_a_known_link() {
        for (shard, number) in [(shard(), 2), (shortened(), 7)] {
            let text = printed(shard);
            let head = text.split_whitespace().find(|word| word.starts_with(&format!("0:{number}:"))).unwrap();
            assert_eq!(head.parse::<KnownLink>().unwrap().number, number);
        }
    }

    #[test]
    fn a_shortened_log_is_printed_with_its_checkpoint() {
        let expected = format!(
            "\
SHARD  ENTRIES  CHAIN   HEAD                                                                  PROBLEM
    0        2  intact  0:7:{}  -

Shard 0: entries up to 5 were removed after their retention
checkpoint  0:5:{}
removed at  1970-01-01T00:00:00.000Z
signed with {}
signature   valid
",
            "ab".repeat(32),
            "12".repeat(32),
            "34".repeat(32),
        );
        assert_eq!(printed(shortened()), expected);
    }

    #[test]
    fn another_key_than_the_recorded_one_is_a_problem() {
        let mut shard = shortened();
        expect_key(&mut shard, PublicKey([0x34; 32]));
        assert!(shard.ok);
        expect_key(&mut shard, PublicKey([0x35; 32]));
        assert!(!shard.ok);
        let text = printed(shard);
        assert!(
            text.contains("broken") && text.contains("signed with another key") && text.contains("signature   invalid"),
            "{text}"
        );
    }
}
