//! `outlast workers`: registers directories of executables for jobs to run.

mod show;

use std::path::{Path, PathBuf};

use anyhow::Result;
use api::{Page, WorkerView};
use blobs::workers::{LocalFile, scan_directory};
use clap::{Args, Subcommand};
use client::blobs::{Content, HashedContent};

use crate::context::Context;
use crate::exit::{NotFound, Usage};
use crate::{exit, ids, output, size, upload};

const PAGE_WORKERS: usize = 500;

/// List, register, inspect and delete workers.
#[derive(Args)]
#[command(after_help = "\
A worker is the content of a directory. The file worker.json at its top declares its functions:
  {\"name\": \"images\", \"version\": \"1\", \"env\": {\"LEVEL\": \"9\"},
   \"functions\": [{\"name\": \"resize\", \"command\": [\"bin/resize\", \"--fast\"]}]}
`outlast submit --worker w_… --function resize -- ARGUMENT` runs a function.")]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// List workers by name and version.
    List,
    /// Register a directory as a worker and print its id. Uploads only the files the server lacks.
    Register {
        /// Directory of the worker.
        directory: PathBuf,
    },
    /// Show a worker with its functions and files.
    Show {
        /// Worker id.
        id: String,
    },
    /// Delete a worker. Jobs that use it fail from then on.
    Rm {
        /// Worker id.
        id: String,
    },
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
            if context.printer.is_human_readable() {
                output::write(format!("{id} deleted\n").as_bytes())?;
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
        return Err(NotFound(format!("no such directory: {}", directory.display())).into());
    }
    let scanned = scan_directory(directory).map_err(classify)?;
    let files = scanned.files.len();
    let contents = scanned.files.into_iter().map(hashed_content).collect();
    let uploaded = upload::upload_missing(&context.client, contents).await?;
    let worker = context.client.register_worker(&scanned.manifest).await?;
    if context.printer.is_human_readable() {
        eprintln!("{} of {files} files uploaded, {}", uploaded.files, size::show(uploaded.bytes));
    }
    context.printer.print(&worker, |worker: &WorkerView, _| format!("{}\n", worker.id))
}

fn hashed_content(file: LocalFile) -> HashedContent {
    HashedContent { content: Content::File(file.path), id: file.blob, bytes: file.bytes }
}

/// Problems of the directory itself are invalid usage.
fn classify(error: blobs::Error) -> anyhow::Error {
    match &error {
        blobs::Error::BadManifest { .. } | blobs::Error::BadPath { .. } | blobs::Error::TooMany { .. } => {
            Usage(error.to_string()).into()
        }
        _ => error.into(),
    }
}
