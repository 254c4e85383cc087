//! `--stdin`: standard input of a process.

use std::path::Path;

use anyhow::Result;
use model::limits::JOB_BODY_BYTES_MAX;

use crate::text::{self, TextLimits};

const TEXT_LIMITS: TextLimits = TextLimits {
    bytes_max: JOB_BODY_BYTES_MAX,
    prefix: "--stdin: ",
    limit_reason: "the limit of a job",
    encoding_reason: "; a job can only contain text",
};

/// Reads a file, or this command's standard input for `-`.
pub fn read(path: &Path) -> Result<String> {
    text::read(path, &TEXT_LIMITS)
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use super::*;
    use crate::exit::{NotFound, Usage};

    fn read_text(reader: impl Read, name: &str) -> Result<String> {
        text::read_from(reader, name, &TEXT_LIMITS)
    }

    #[test]
    fn oversized_and_binary_input_is_rejected() {
        assert_eq!(read_text("grüße\n".as_bytes(), "x").unwrap(), "grüße\n");
        let error = read_text(&b"ab\xff"[..], "x").unwrap_err();
        assert!(error.is::<Usage>() && error.to_string().contains("not UTF-8 text (invalid byte at 2)"), "{error}");
        let error = read_text(io::repeat(b'x'), "x").unwrap_err();
        assert!(error.is::<Usage>() && error.to_string().contains("8 MiB"), "{error}");
        assert!(read(Path::new("/does/not/exist")).unwrap_err().is::<NotFound>());
    }
}
