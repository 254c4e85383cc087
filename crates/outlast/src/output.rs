//! Output of results: tables for people, JSON and YAML for programs.

mod ordered;

use std::io::{self, Write};
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;
use tokio::io::Interest;
use tokio::net::unix::pipe::Sender;

use crate::paint::Paint;
use ordered::Ordered;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
    Yaml,
}

/// Prints in the requested format.
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    pub format: Format,
}

impl Printer {
    pub fn new(format: Format) -> Self {
        Self { format }
    }

    /// Prints the value as JSON or YAML, or rendered as a table by `render`.
    pub fn print<T: Serialize>(self, value: &T, render: impl FnOnce(&T, Paint) -> String) -> Result<()> {
        let text = match self.format {
            Format::Table => render(value, Paint::for_stdout()),
            Format::Json => serde_json::to_string_pretty(value)? + "\n",
            Format::Yaml => to_yaml(value)?,
        };
        write(text.as_bytes())?;
        Ok(())
    }

    /// Whether the output is the table format.
    pub fn is_human_readable(self) -> bool {
        match self.format {
            Format::Table => true,
            Format::Json | Format::Yaml => false,
        }
    }
}

/// Writes to standard output. Unlike `print!`, a closed pipe is an error, not a panic.
pub fn write(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// Completes when the reader of standard output closes it. A write would notice that only with the next output.
pub async fn closed() {
    // Files and the like cannot be watched and are never closed by a reader.
    if let Ok(stdout) = watched_stdout()
        && stdout.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// For polling only. The checked constructor would make standard output non-blocking for all processes that share it.
fn watched_stdout() -> io::Result<Sender> {
    Sender::from_owned_fd_unchecked(io::stdout().as_fd().try_clone_to_owned()?)
}

/// Converts via JSON, because some values are raw JSON texts that only a JSON serializer can write.
fn to_yaml<T: Serialize>(value: &T) -> Result<String> {
    let json = serde_json::to_string(value)?;
    let ordered: Ordered = serde_json::from_str(&json)?;
    let yaml = serde_saphyr::to_string(&ordered).context("the result cannot be written as YAML; use --output json")?;
    Ok(if yaml.ends_with('\n') { yaml } else { yaml + "\n" })
}

#[cfg(test)]
mod tests {
    use model::json::Json;

    use super::*;

    #[test]
    fn yaml_keeps_the_order_and_expands_raw_json() {
        #[derive(Serialize)]
        struct Shown {
            z: u8,
            a: Option<Json>,
        }
        let value = Shown { z: 1, a: Json::parse(br#"{"y": ["no", 2.5, null], "b": {}}"#) };
        let yaml = to_yaml(&value).unwrap();
        let back: serde_json::Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(back, serde_json::json!({"z": 1, "a": {"y": ["no", 2.5, null], "b": {}}}));
        assert!(yaml.starts_with("z: 1\n"), "{yaml}");
    }
}
