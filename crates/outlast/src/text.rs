//! Reads text files and standard input with a size limit.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::exit::{NotFound, Usage};

/// Size limit and the wording of errors.
pub struct TextLimits {
    pub bytes_max: usize,
    /// Prefix of error messages, such as the option; may be empty.
    pub prefix: &'static str,
    /// After "is larger than n MiB, ".
    pub limit_reason: &'static str,
    /// After "is not UTF-8 text (invalid byte at n)".
    pub encoding_reason: &'static str,
}

/// Display name of a file; `-` is standard input.
pub fn display_name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

/// Reads a file, or standard input for `-`.
pub fn read(path: &Path, limits: &TextLimits) -> Result<String> {
    let name = display_name(path);
    if path == Path::new("-") {
        return read_from(io::stdin().lock(), &name, limits);
    }
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => anyhow::Error::from(NotFound(format!("no such file: {name}"))),
        _ => anyhow::Error::from(error).context(format!("cannot open {name}")),
    })?;
    read_from(file, &name, limits)
}

pub fn read_from(reader: impl Read, name: &str, limits: &TextLimits) -> Result<String> {
    let TextLimits { bytes_max, prefix, limit_reason, encoding_reason } = *limits;
    let mut bytes = Vec::new();
    // One byte above the limit detects an oversized input without reading all of it.
    reader.take(bytes_max as u64 + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    if bytes.len() > bytes_max {
        let max = bytes_max >> 20;
        return Err(Usage(format!("{prefix}{name} is larger than {max} MiB, {limit_reason}")).into());
    }
    String::from_utf8(bytes).map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        Usage(format!("{prefix}{name} is not UTF-8 text (invalid byte at {byte}){encoding_reason}")).into()
    })
}
