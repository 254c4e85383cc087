//! Export of the audit log to a file.

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::context::Context;
use crate::download::{FileOptions, PartialFile};
use crate::exit::Usage;
use crate::{exit, output, size};

/// Writes to a temporary file beside `path` and renames it at the end.
pub async fn to(path: &Path, force: bool, context: &Context) -> Result<u8> {
    if path == Path::new("-") {
        let mut export = context.client.export_audit().await?;
        while let Some(chunk) = export.chunk().await? {
            output::write(&chunk)?;
        }
        return Ok(exit::DONE);
    }
    if !force && path.symlink_metadata().is_ok() {
        return Err(Usage(format!("{} already exists; use --force to replace it", path.display())).into());
    }
    let mut export = context.client.export_audit().await?;
    let file_options = FileOptions { executable: false, force };
    let mut part =
        PartialFile::create(path, file_options).with_context(|| format!("cannot create {}", path.display()))?;
    let mut bytes = 0;
    while let Some(chunk) = export.chunk().await? {
        part.file.write_all(&chunk).with_context(|| format!("cannot write {}", path.display()))?;
        bytes += chunk.len() as u64;
    }
    part.rename_to(path).with_context(|| format!("cannot rename the export to {}", path.display()))?;
    if context.printer.is_human_readable() {
        let message = format!("{} written to {}\n", size::show(bytes), path.display());
        output::write(message.as_bytes())?;
    }
    Ok(exit::DONE)
}
