//! `outlast blobs`: uploads and downloads blobs.

use std::path::{Path, PathBuf};

use anyhow::Result;
use api::{BlobView, MissingView};
use clap::{Args, Subcommand};
use client::blobs::{Content, HashedContent};
use model::blob::BlobId;
use serde::Serialize;

use crate::context::Context;
use crate::download::FileOptions;
use crate::exit::{NotFound, Usage};
use crate::{download, exit, ids, output, upload};

/// Upload and download blobs.
#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Upload a file unless the server has it, and print its blob id.
    Put {
        /// File to upload.
        file: PathBuf,
    },
    /// Download a blob to standard output or to a file.
    Get {
        /// Blob id.
        id: String,
        /// Target file [default: standard output]
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
        /// Replace an existing file.
        #[arg(long, requires = "to")]
        force: bool,
    },
    /// Print the blobs the server lacks.
    Missing {
        /// Blob ids.
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

pub async fn run(options: Options, context: &Context) -> Result<u8> {
    match options.command {
        Command::Put { file } => put(&file, context).await?,
        Command::Get { id, to, force } => get(ids::blob(&id)?, to.as_deref(), force, context).await?,
        Command::Missing { ids: texts } => {
            let ids: Vec<BlobId> = texts.iter().map(|text| ids::blob(text)).collect::<Result<_>>()?;
            let view = MissingView { missing: context.client.missing(&ids).await? };
            context
                .printer
                .print(&view, |view: &MissingView, _| view.missing.iter().map(|id| format!("{id}\n")).collect())?;
        }
    }
    Ok(exit::DONE)
}

/// Hashes a file.
pub fn hash(path: &Path) -> Result<HashedContent> {
    match path.metadata() {
        Ok(found) if found.is_file() => Ok(client::blobs::hash(Content::File(path.to_owned()))?),
        Ok(_) => Err(Usage(format!("{} is not a file", path.display())).into()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(NotFound(format!("no such file: {}", path.display())).into())
        }
        Err(error) => Err(anyhow::Error::from(error).context(format!("cannot read {}", path.display()))),
    }
}

async fn put(file: &Path, context: &Context) -> Result<()> {
    let content = hash(file)?;
    let view = BlobView { id: content.id, bytes: content.bytes };
    upload::upload_missing(&context.client, vec![content]).await?;
    context.printer.print(&view, |view: &BlobView, _| format!("{}\n", view.id))
}

/// JSON and YAML output of a download.
#[derive(Serialize)]
struct Downloaded {
    id: BlobId,
    bytes: u64,
    file: PathBuf,
}

async fn get(id: BlobId, to: Option<&Path>, force: bool, context: &Context) -> Result<()> {
    let Some(file) = to else {
        let mut download = context.client.get_blob(id).await?;
        while let Some(chunk) = download.chunk().await? {
            output::write(&chunk)?;
        }
        return Ok(());
    };
    let file_options = FileOptions { executable: false, force };
    let bytes = download::to_file(&context.client, id, file, file_options, |_| {}).await?;
    let downloaded = Downloaded { id, bytes, file: file.to_owned() };
    context.printer.print(&downloaded, |_, _| String::new())
}
