//! `outlast workers`: directories of executables, registered so that jobs can run what is in them.

mod show;

use std::path::{Path, PathBuf};

use anyhow::Result;
use blobs::workers::{LocalFile, scan_directory};
use clap::{Args, Subcommand};
use client::blobs::{Content, Named};
use model::view::{Page, WorkerView};

use crate::context::Context;
use crate::exit::{NotFound, Usage};
use crate::{exit, ids, output, size, upload};

const PAGE_WORKERS: usize = 500;

/// List workers, register a directory as one, look at it or remove it.
#[derive(Args)]
#[command(after_help = "\
A directory becomes a worker as it is. A file worker.json at its top says what the worker offers:
  {\"name\": \"images\", \"version\": \"1\", \"env\": {\"LEVEL\": \"9\"},
   \"functions\": [{\"name\": \"resize\", \"command\": [\"bin/resize\", \"--fast\"]}]}
`outlast submit --worker w_… --function resize -- ARGUMENT` then runs it.")]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// List workers by name and version.
    List,
    /// Upload what the server lacks of a directory, register it and print the worker's id.
    Register { directory: PathBuf },
    /// Show a worker with its functions and files.
    Show { id: String },
    /// Remove a worker; jobs that name it fail from then on.
    Rm { id: String },
}

pub async fn run(options: Options, context: &Context) -> Result<u8> {
    match options.command.unwrap_or(Command::List) {
        Command::List => {
            let page = fetch(context).await?;
            context.printer.print(&page, |page: &Page<WorkerView>, paint| show::table(&page.items, paint))?;
        }
        Command::Register { directory } => register(&directory, context).await?,
        Command::Show { id } => {
            let worker = context.client.worker(ids::worker(&id)?).await?;
            context.printer.print(&worker, show::page)?;
        }
        Command::Rm { id } => {
            context.client.remove_worker(ids::worker(&id)?).await?;
            if context.printer.is_for_people() {
                output::write(format!("{id} removed\n").as_bytes())?;
            }
        }
    }
    Ok(exit::DONE)
}

async fn fetch(context: &Context) -> Result<Page<WorkerView>> {
    let mut items = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = context.client.workers(Some(PAGE_WORKERS), cursor.as_deref()).await?;
        items.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(Page { items, next_cursor: None });
        }
    }
}

async fn register(directory: &Path, context: &Context) -> Result<()> {
    if !directory.is_dir() {
        return Err(NotFound(format!("there is no directory {}", directory.display())).into());
    }
    let scanned = scan_directory(directory).map_err(unusable)?;
    let files = scanned.files.len();
    let contents = scanned.files.into_iter().map(named).collect();
    let sent = upload::make_sure(&context.client, contents).await?;
    let worker = context.client.register_worker(&scanned.manifest).await?;
    if context.printer.is_for_people() {
        eprintln!("{} of {files} files sent, {}", sent.files, size::show(sent.bytes));
    }
    context.printer.print(&worker, |worker: &WorkerView, _| format!("{}\n", worker.id))
}

fn named(file: LocalFile) -> Named {
    Named { content: Content::File(file.path), id: file.blob, bytes: file.bytes }
}

/// What is wrong with the directory itself is for its owner to mend.
fn unusable(error: blobs::Error) -> anyhow::Error {
    match &error {
        blobs::Error::BadManifest { .. } | blobs::Error::BadPath { .. } | blobs::Error::TooMany { .. } => {
            Usage(error.to_string()).into()
        }
        _ => error.into(),
    }
}
