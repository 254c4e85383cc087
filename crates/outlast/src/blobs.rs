//! `outlast blobs`: content by its hash.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};
use client::blobs::{Content, Named};
use model::blob::BlobId;
use model::view::{BlobView, MissingView};
use serde::Serialize;

use crate::context::Context;
use crate::download::Manner;
use crate::exit::{NotFound, Usage};
use crate::{download, exit, ids, output, upload};

/// Upload a file, download a blob, or ask which blobs the server lacks.
#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Upload a file, unless the server has it, and print its id.
    Put { file: PathBuf },
    /// Download a blob to standard output or to a file.
    Get {
        id: String,
        /// Where to write it.
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
        /// Replace the file if it is there.
        #[arg(long, requires = "to")]
        force: bool,
    },
    /// Print those of these blobs that the server lacks.
    Missing {
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

pub async fn run(options: Options, context: &Context) -> Result<u8> {
    match options.command {
        Command::Put { file } => put(&file, context).await?,
        Command::Get { id, to, force } => get(ids::blob(&id)?, to.as_deref(), force, context).await?,
        Command::Missing { ids: texts } => {
            let asked: Vec<BlobId> = texts.iter().map(|text| ids::blob(text)).collect::<Result<_>>()?;
            let view = MissingView { missing: context.client.missing(&asked).await? };
            context
                .printer
                .print(&view, |view: &MissingView, _| view.missing.iter().map(|id| format!("{id}\n")).collect())?;
        }
    }
    Ok(exit::DONE)
}

/// Finds out what a file is called.
pub fn name(path: &Path) -> Result<Named> {
    match path.metadata() {
        Ok(found) if found.is_file() => Ok(client::blobs::name(Content::File(path.to_owned()))?),
        Ok(_) => Err(Usage(format!("{} is not a file", path.display())).into()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(NotFound(format!("there is no file {}", path.display())).into())
        }
        Err(error) => Err(anyhow::Error::from(error).context(format!("cannot look at {}", path.display()))),
    }
}

async fn put(file: &Path, context: &Context) -> Result<()> {
    let named = name(file)?;
    let view = BlobView { id: named.id, bytes: named.bytes };
    upload::make_sure(&context.client, vec![named]).await?;
    context.printer.print(&view, |view: &BlobView, _| format!("{}\n", view.id))
}

/// What programs get of a download.
#[derive(Serialize)]
struct Got {
    id: BlobId,
    bytes: u64,
    file: PathBuf,
}

async fn get(id: BlobId, to: Option<&Path>, force: bool, context: &Context) -> Result<()> {
    let Some(file) = to else {
        let mut download = context.client.get_blob(id).await?;
        while let Some(piece) = download.chunk().await? {
            output::write(&piece)?;
        }
        return Ok(());
    };
    let manner = Manner { executable: false, force };
    let bytes = download::to_file(&context.client, id, file, manner, |_| {}).await?;
    let got = Got { id, bytes, file: file.to_owned() };
    context.printer.print(&got, |_, _| String::new())
}
