//! `--stdin`: what a process is to read on its standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result};
use model::limits::JOB_BODY_BYTES_MAX;

use crate::exit::{NotFound, Usage};

/// The text of a file, or of our own standard input (`-`).
pub fn read(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        return read_text(io::stdin().lock(), "standard input");
    }
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => anyhow::Error::from(NotFound(format!("there is no file {name}"))),
        _ => anyhow::Error::from(error).context(format!("cannot open {name}")),
    })?;
    read_text(file, &name)
}

fn read_text(reader: impl Read, name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    // One byte more than there may be tells what is too much, without reading all of an endless input.
    let limit = JOB_BODY_BYTES_MAX as u64 + 1;
    reader.take(limit).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    if bytes.len() > JOB_BODY_BYTES_MAX {
        let max = JOB_BODY_BYTES_MAX >> 20;
        return Err(Usage(format!("--stdin: {name} has more than the {max} MiB that a job may carry")).into());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Usage(format!("--stdin: {name} is not UTF-8 text (see byte {at}), and a job carries only text")).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_of_a_bearable_size_is_taken() {
        assert_eq!(read_text("grüße\n".as_bytes(), "x").unwrap(), "grüße\n");
        let error = read_text(&b"ab\xff"[..], "x").unwrap_err();
        assert!(error.is::<Usage>() && error.to_string().contains("not UTF-8 text (see byte 2)"), "{error}");
        let error = read_text(io::repeat(b'x'), "x").unwrap_err();
        assert!(error.is::<Usage>() && error.to_string().contains("8 MiB"), "{error}");
        assert!(read(Path::new("/does/not/exist")).unwrap_err().is::<NotFound>());
    }
}
