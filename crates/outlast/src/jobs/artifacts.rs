//! The files that a job left behind and its outputs caught, brought here.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use model::job::Artifact;
use serde::Serialize;

use crate::context::Context;
use crate::download::{self, Manner};
use crate::paint::{Paint, Tone};
use crate::{exit, ids, upload};

#[derive(Args)]
#[group(skip)]
pub struct Options {
    id: String,
    /// The directory they are written to; the current one if absent.
    #[arg(long, value_name = "DIR", default_value = ".")]
    to: PathBuf,
    /// Replace files that are there.
    #[arg(long)]
    force: bool,
}

/// What programs get.
#[derive(Serialize)]
struct Fetched<'a> {
    #[serde(flatten)]
    artifact: &'a Artifact,
    file: PathBuf,
}

pub async fn fetch(options: &Options, context: &Context) -> Result<u8> {
    let job = context.client.job(ids::job(&options.id)?).await?;
    if job.artifacts.is_empty() && context.printer.is_for_people() {
        let why = if job.state.is_terminal() { "it left none that its outputs name" } else { "it has not ended yet" };
        eprintln!("{}", Paint::for_stderr().apply(Tone::Quiet, &format!("{} has no artifacts: {why}", job.id)));
    }
    std::fs::create_dir_all(&options.to).with_context(|| format!("cannot make {}", options.to.display()))?;
    let bar = upload::progress_bar(job.artifacts.iter().map(|artifact| artifact.bytes).sum());
    let mut fetched = Vec::new();
    for artifact in &job.artifacts {
        let file = one(artifact, &options.to, options.force, context, |bytes| bar.inc(bytes)).await;
        fetched.push(Fetched { artifact, file: file.with_context(|| artifact.path.clone())? });
    }
    bar.finish_and_clear();
    context.printer.print(&fetched, |fetched: &Vec<Fetched<'_>>, _| {
        fetched.iter().map(|one| format!("{}\n", crate::paint::tame(&one.file.display().to_string()))).collect()
    })?;
    Ok(exit::DONE)
}

async fn one(artifact: &Artifact, to: &Path, force: bool, context: &Context, got: impl Fn(u64)) -> Result<PathBuf> {
    let file = download::place_in(to, &artifact.path)?;
    let manner = Manner { executable: artifact.executable, force };
    download::to_file(&context.client, artifact.blob, &file, manner, got).await?;
    Ok(file)
}
