//! Files on their way to the server: only those that it lacks, a few at once, with a bar where somebody watches.

use std::collections::BTreeMap;
use std::collections::HashSet;

use anyhow::{Context as _, Result};
use client::Client;
use client::blobs::Named;
use indicatif::{ProgressBar, ProgressStyle};
use model::blob::BlobId;
use tokio::task::JoinSet;

/// How many uploads are under way at the same time.
const AT_ONCE: usize = 4;

/// What had to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sent {
    pub files: usize,
    pub bytes: u64,
}

/// Makes the server have all of this.
pub async fn make_sure(client: &Client, contents: Vec<Named>) -> Result<Sent> {
    let mut contents: BTreeMap<BlobId, Named> = contents.into_iter().map(|named| (named.id, named)).collect();
    let ids: Vec<BlobId> = contents.keys().copied().collect();
    let missing: HashSet<BlobId> = client.missing(&ids).await?.into_iter().collect();
    contents.retain(|id, _| missing.contains(id));
    let sent = Sent { files: contents.len(), bytes: contents.values().map(|named| named.bytes).sum() };
    let bar = progress_bar(sent.bytes);
    let mut uploads = JoinSet::new();
    for named in contents.into_values() {
        if uploads.len() == AT_ONCE {
            ended(uploads.join_next().await)?;
        }
        let (client, bar) = (client.clone(), bar.clone());
        uploads.spawn(async move {
            let mut before = 0;
            let moved = |now: u64| {
                bar.inc(now.saturating_sub(before));
                before = now;
            };
            client.upload(&named, moved).await
        });
    }
    while !uploads.is_empty() {
        ended(uploads.join_next().await)?;
    }
    bar.finish_and_clear();
    Ok(sent)
}

fn ended(upload: Option<Result<Result<(), client::Error>, tokio::task::JoinError>>) -> Result<()> {
    match upload {
        Some(result) => Ok(result.context("an upload ended without a word")??),
        None => Ok(()),
    }
}

/// Draws on standard error, and only where that is a terminal.
pub fn progress_bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    match ProgressStyle::with_template("{bar:30} {percent:>3}%  {bytes} of {total_bytes}  {elapsed}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
