//! Concurrent upload of the files the server lacks, with a progress bar on terminals.

use std::collections::BTreeMap;
use std::collections::HashSet;

use anyhow::{Context as _, Result};
use client::Client;
use client::blobs::HashedContent;
use indicatif::{ProgressBar, ProgressStyle};
use model::blob::BlobId;
use tokio::task::JoinSet;

/// Concurrent uploads.
const UPLOADS_MAX: usize = 4;

/// Number and size of the uploaded files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Uploaded {
    pub files: usize,
    pub bytes: u64,
}

/// Uploads the contents the server lacks.
pub async fn upload_missing(client: &Client, contents: Vec<HashedContent>) -> Result<Uploaded> {
    let mut contents: BTreeMap<BlobId, HashedContent> =
        contents.into_iter().map(|content| (content.id, content)).collect();
    let ids: Vec<BlobId> = contents.keys().copied().collect();
    let missing: HashSet<BlobId> = client.missing(&ids).await?.into_iter().collect();
    contents.retain(|id, _| missing.contains(id));
    let sent = Uploaded { files: contents.len(), bytes: contents.values().map(|content| content.bytes).sum() };
    let bar = progress_bar(sent.bytes);
    let mut uploads = JoinSet::new();
    for content in contents.into_values() {
        if uploads.len() == UPLOADS_MAX {
            check(uploads.join_next().await)?;
        }
        let (client, bar) = (client.clone(), bar.clone());
        uploads.spawn(async move {
            let mut before = 0;
            let on_progress = |now: u64| {
                bar.inc(now.saturating_sub(before));
                before = now;
            };
            client.upload(&content, on_progress).await
        });
    }
    while !uploads.is_empty() {
        check(uploads.join_next().await)?;
    }
    bar.finish_and_clear();
    Ok(sent)
}

fn check(upload: Option<Result<Result<(), client::Error>, tokio::task::JoinError>>) -> Result<()> {
    match upload {
        Some(result) => Ok(result.context("an upload task panicked")??),
        None => Ok(()),
    }
}

/// Progress bar on standard error, hidden if it is not a terminal.
pub fn progress_bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    match ProgressStyle::with_template("{bar:30} {percent:>3}%  {bytes} of {total_bytes}  {elapsed}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
