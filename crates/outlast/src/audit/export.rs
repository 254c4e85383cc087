//! The whole log into a file.

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::context::Context;
use crate::download::{Manner, Part};
use crate::exit::Usage;
use crate::{exit, output, size};

/// Until all of it has come it lies under another name beside the file.
pub async fn to(path: &Path, force: bool, context: &Context) -> Result<u8> {
    if path == Path::new("-") {
        let mut export = context.client.export_audit().await?;
        while let Some(piece) = export.chunk().await? {
            output::write(&piece)?;
        }
        return Ok(exit::DONE);
    }
    if !force && path.symlink_metadata().is_ok() {
        return Err(Usage(format!("{} is there already; --force replaces it", path.display())).into());
    }
    let mut export = context.client.export_audit().await?;
    let manner = Manner { executable: false, force };
    let mut part = Part::create(path, manner).with_context(|| format!("cannot make {}", path.display()))?;
    let mut bytes = 0;
    while let Some(piece) = export.chunk().await? {
        part.file.write_all(&piece).with_context(|| format!("cannot write {}", path.display()))?;
        bytes += piece.len() as u64;
    }
    part.keep(path).with_context(|| format!("cannot put {} in its place", path.display()))?;
    if context.printer.is_for_people() {
        let words = format!("{} written to {}\n", size::show(bytes), path.display());
        output::write(words.as_bytes())?;
    }
    Ok(exit::DONE)
}
