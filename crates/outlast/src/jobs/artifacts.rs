//! Download of a job's artifacts.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use model::job::Artifact;
use model::state::State;
use serde::Serialize;

use crate::context::Context;
use crate::download::{self, FileOptions};
use crate::paint::{Paint, Tone};
use crate::{exit, ids, upload};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    /// Job id.
    id: String,
    /// Target directory.
    #[arg(long, value_name = "DIR", default_value = ".")]
    to: PathBuf,
    /// Replace existing files.
    #[arg(long)]
    force: bool,
}

/// JSON and YAML output.
#[derive(Serialize)]
struct Fetched<'a> {
    #[serde(flatten)]
    artifact: &'a Artifact,
    file: PathBuf,
}

pub async fn fetch(options: &Options, context: &Context) -> Result<u8> {
    let job = context.client.job(ids::job(&options.id)?).await?;
    if job.artifacts.is_empty() && context.printer.is_human_readable() {
        let why = if job.state == State::Succeeded {
            "no file matched its outputs"
        } else if job.state.is_terminal() {
            "only succeeded jobs have artifacts"
        } else {
            "it has not ended yet"
        };
        eprintln!("{}", Paint::for_stderr().apply(Tone::Quiet, &format!("{} has no artifacts: {why}", job.id)));
    }
    std::fs::create_dir_all(&options.to).with_context(|| format!("cannot create {}", options.to.display()))?;
    let bar = upload::progress_bar(job.artifacts.iter().map(|artifact| artifact.bytes).sum());
    let mut fetched = Vec::new();
    for artifact in &job.artifacts {
        let file = fetch_one(artifact, &options.to, options.force, context, |bytes| bar.inc(bytes)).await;
        fetched.push(Fetched { artifact, file: file.with_context(|| artifact.path.clone())? });
    }
    bar.finish_and_clear();
    context.printer.print(&fetched, |fetched: &Vec<Fetched<'_>>, _| {
        fetched
            .iter()
            .map(|fetched| format!("{}\n", crate::paint::sanitize(&fetched.file.display().to_string())))
            .collect()
    })?;
    Ok(exit::DONE)
}

async fn fetch_one(
    artifact: &Artifact,
    to: &Path,
    force: bool,
    context: &Context,
    on_bytes: impl Fn(u64),
) -> Result<PathBuf> {
    let file = download::resolve_path(to, &artifact.path)?;
    let file_options = FileOptions { executable: artifact.executable, force };
    download::to_file(&context.client, artifact.blob, &file, file_options, on_bytes).await?;
    Ok(file)
}
