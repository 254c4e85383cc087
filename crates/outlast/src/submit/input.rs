//! `--stdin`: what a process is to read on its standard input.

use std::path::Path;

use anyhow::Result;
use model::limits::JOB_BODY_BYTES_MAX;

use crate::text::{self, Wanted};

const WANTED: Wanted = Wanted {
    bytes_max: JOB_BODY_BYTES_MAX,
    at: "--stdin: ",
    too_much: "a job may carry",
    why_text: ", and a job carries only text",
};

/// The text of a file, or of our own standard input (`-`).
pub fn read(path: &Path) -> Result<String> {
    text::read(path, &WANTED)
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use super::*;
    use crate::exit::{NotFound, Usage};

    fn read_text(reader: impl Read, name: &str) -> Result<String> {
        text::read_from(reader, name, &WANTED)
    }

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
