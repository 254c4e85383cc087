//! `outlast up`: starts a server on this machine.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use server::Error;
use tracing_subscriber::EnvFilter;

use crate::exit::{self, Usage};
use crate::output;
use crate::paint::{Paint, Tone};

/// Start a server on this machine. Ctrl-C stops it and its processes.
#[derive(Args)]
#[command(
    after_help = "SIGTERM stops only the server: its processes continue, and the next server with the same data directory adopts them.
OUTLAST_LOG sets the log level: error, warn (default), info, debug or trace."
)]
pub struct Options {
    /// Data directory [default: outlast-data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Listen address [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// YAML configuration file. Command line options take precedence.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Allow a listen address that other machines can reach without authentication.
    #[arg(long)]
    insecure: bool,
    /// Number of shards of a new data directory [default: 1]
    #[arg(long, value_name = "N")]
    shards: Option<u16>,
    /// Address for other nodes, opened with the first join token [default: 0.0.0.0:7071]
    #[arg(long, value_name = "ADDR")]
    cluster_listen: Option<SocketAddr>,
}

pub fn run(options: Options) -> Result<u8> {
    start_logging();
    let settings = options.settings()?;
    let data_dir = settings.data_dir.clone();
    server::run(settings, |address| print_banner(&address.url(), &data_dir.display().to_string())).map_err(classify)?;
    Ok(exit::DONE)
}

impl Options {
    fn settings(self) -> Result<server::Options> {
        let mut settings = match &self.config {
            Some(file) => server::Options::from_file(file).map_err(classify)?,
            None => server::Options::default(),
        };
        if let Some(data_dir) = self.data_dir {
            settings.data_dir = data_dir;
        }
        if let Some(listen) = self.listen {
            settings.listen = listen;
        }
        if let Some(shards) = self.shards {
            settings.shards = shards;
        }
        if let Some(listen) = self.cluster_listen {
            settings.cluster.listen = listen;
        }
        settings.insecure |= self.insecure;
        Ok(settings)
    }
}

/// Separates invalid settings (exit code 2) from run-time failures.
pub fn classify(error: Error) -> anyhow::Error {
    match error {
        Error::NotLoopback(_)
        | Error::LeaseOutOfRange { .. }
        | Error::ShardCount { .. }
        | Error::ShardsDiffer { .. }
        | Error::Config { .. }
        | Error::Policy(_)
        | Error::BlobStore(_)
        | Error::Cluster(_) => Usage(error.to_string()).into(),
        Error::Listen { .. }
        | Error::Store(_)
        | Error::Document { .. }
        | Error::ClusterListen { .. }
        | Error::TooManyTokens
        | Error::Transport(_)
        | Error::Membership(_)
        | Error::Join(_)
        | Error::Signing(_)
        | Error::Blobs(_)
        | Error::Spawner(_)
        | Error::Shard(_)
        | Error::Io(_)
        | Error::Panicked(_) => error.into(),
    }
}

fn print_banner(url: &str, data_dir: &str) {
    let paint = Paint::for_stdout();
    let name = |text: &str| paint.apply(Tone::Quiet, text);
    let ready = paint.apply(Tone::Strong, &format!("Outlast {} is ready", env!("CARGO_PKG_VERSION")));
    let text = format!(
        "{ready}\n  {}   {url}\n  {}  {url}/docs\n  {}  {data_dir}\nPress Ctrl-C to stop.\n",
        name("API"),
        name("docs"),
        name("data")
    );
    // The server starts even if the banner cannot be printed.
    let _ = output::write(text.as_bytes());
}

pub fn start_logging() {
    let filter = EnvFilter::try_from_env("OUTLAST_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    let colours = Paint::for_stderr() != Paint::NONE;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours).init();
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn settings(words: &[&str]) -> Result<server::Options> {
        Line::try_parse_from([&["up"], words].concat()).unwrap().options.settings()
    }

    #[test]
    fn the_command_line_overrides_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("outlast.yaml");
        std::fs::write(&file, "listen: 127.0.0.1:9\nshards: 3\ninsecure: true\n").unwrap();
        let file = file.to_str().unwrap();
        let both = settings(&["--config", file, "--listen", "127.0.0.1:10", "--data-dir", "x"]).unwrap();
        assert_eq!((both.listen.port(), both.shards, both.insecure), (10, 3, true));
        assert_eq!(both.data_dir, PathBuf::from("x"));
        assert_eq!(settings(&[]).unwrap().listen.port(), 7070);
    }

    #[test]
    fn an_unreadable_configuration_file_is_invalid_usage() {
        assert!(settings(&["--config", "/does/not/exist.yaml"]).unwrap_err().is::<Usage>());
    }
}
