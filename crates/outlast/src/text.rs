//! Texts from files and from standard input, up to a size.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::exit::{NotFound, Usage};

/// What may be read, and how it is said that something may not.
pub struct Wanted {
    pub bytes_max: usize,
    /// Where it was named, before the colon; empty: nowhere.
    pub at: &'static str,
    /// For "has more than the n MiB that …".
    pub too_much: &'static str,
    /// After "is not UTF-8 text (see byte n)".
    pub why_text: &'static str,
}

/// The name of a file as it is said to people; `-` is standard input.
pub fn called(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

/// The text of a file, or of standard input (`-`).
pub fn read(path: &Path, wanted: &Wanted) -> Result<String> {
    let name = called(path);
    if path == Path::new("-") {
        return read_from(io::stdin().lock(), &name, wanted);
    }
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => anyhow::Error::from(NotFound(format!("there is no file {name}"))),
        _ => anyhow::Error::from(error).context(format!("cannot open {name}")),
    })?;
    read_from(file, &name, wanted)
}

pub fn read_from(reader: impl Read, name: &str, wanted: &Wanted) -> Result<String> {
    let Wanted { bytes_max, at, too_much, why_text } = *wanted;
    let mut bytes = Vec::new();
    // One byte more than there may be tells what is too much, without reading all of an endless input.
    reader.take(bytes_max as u64 + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    if bytes.len() > bytes_max {
        let max = bytes_max >> 20;
        return Err(Usage(format!("{at}{name} has more than the {max} MiB that {too_much}")).into());
    }
    String::from_utf8(bytes).map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        Usage(format!("{at}{name} is not UTF-8 text (see byte {byte}){why_text}")).into()
    })
}
