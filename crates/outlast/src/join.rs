//! `outlast join`: runs this machine as a node of a cluster.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use parking_lot::Mutex;
use server::{RunnerNodeEvent, RunnerNodeOptions};

use crate::paint::{Paint, Tone};
use crate::up::{classify, start_logging};
use crate::{exit, output};

/// Join a cluster and run its jobs on this machine. Ctrl-C stops the node and its processes.
#[derive(Args)]
#[command(
    after_help = "A token is needed once: create it with `outlast nodes join-token` on the control node. Later starts need only the data directory.
SIGTERM stops only this process: its jobs continue, and the next start with the same data directory adopts them.
OUTLAST_LOG sets the log level: error, warn (default), info, debug or trace."
)]
pub struct Options {
    /// Addresses of control nodes, such as build-1:7071. Remembered in the data directory.
    #[arg(value_name = "ADDR")]
    control: Vec<String>,
    /// Join token.
    #[arg(long, value_name = "TOKEN", env = "OUTLAST_JOIN_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Data directory [default: outlast-runner-data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// YAML configuration file. Command line options take precedence.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name of the node for people [default: the name of the machine]
    #[arg(long)]
    name: Option<String>,
    /// Label for placement. May be repeated.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Capability for placement. May be repeated.
    #[arg(long = "capability", value_name = "NAME")]
    capabilities: Vec<String>,
    /// Pool of the node instead of `default`. May be repeated.
    #[arg(long = "pool", value_name = "NAME")]
    pools: Vec<String>,
    /// Concurrent processes [default: two per core, limited by memory]
    #[arg(long, value_name = "N")]
    process_slots: Option<u32>,
    /// UDP address for probes [default: 0.0.0.0:7071, or any port if that is in use]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// IP address under which other nodes reach this one [default: the one from which it reaches the control node]
    #[arg(long, value_name = "IP")]
    advertise: Option<IpAddr>,
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not of the form NAME=VALUE")),
    }
}

pub fn run(options: Options) -> Result<u8> {
    start_logging();
    server::run_runner_node(options.settings()?, Arc::new(Console::default().into_handler())).map_err(classify)?;
    Ok(exit::DONE)
}

impl Options {
    fn settings(self) -> Result<RunnerNodeOptions> {
        let mut settings = match &self.config {
            Some(file) => RunnerNodeOptions::from_file(file).map_err(classify)?,
            None => RunnerNodeOptions::default(),
        };
        if let Some(data_dir) = self.data_dir {
            settings.data_dir = data_dir;
        }
        if !self.control.is_empty() {
            settings.control = self.control;
        }
        if !self.pools.is_empty() {
            settings.runner.pools = self.pools.into_iter().collect();
        }
        settings.runner.capabilities.extend(self.capabilities);
        settings.runner.labels.extend(self.labels.into_iter().collect::<BTreeMap<_, _>>());
        settings.process_slots = self.process_slots.unwrap_or(settings.process_slots);
        settings.token = self.token.or(settings.token);
        settings.name = self.name.or(settings.name);
        settings.listen = self.listen.or(settings.listen);
        settings.advertise = self.advertise.or(settings.advertise);
        Ok(settings)
    }
}

/// Prints what happens to the node. A repeated problem is printed once.
#[derive(Default)]
struct Console {
    last_problem: Mutex<Option<String>>,
}

impl Console {
    fn into_handler(self) -> impl Fn(RunnerNodeEvent) + Send + Sync {
        move |event| {
            if let Some(text) = self.text(event, Paint::for_stdout()) {
                // The node runs even if nothing can be printed.
                let _ = output::write(text.as_bytes());
            }
        }
    }

    fn text(&self, event: RunnerNodeEvent, paint: Paint) -> Option<String> {
        match event {
            RunnerNodeEvent::Joined { node, cluster } => {
                Some(format!("{} cluster {cluster} as {node}\n", paint.apply(Tone::Strong, "Joined")))
            }
            RunnerNodeEvent::Connected { node, address } => {
                *self.last_problem.lock() = None;
                Some(format!(
                    "{} to {address} as {node}. Press Ctrl-C to stop.\n",
                    paint.apply(Tone::Good, "Connected")
                ))
            }
            RunnerNodeEvent::Disconnected { reason } => self.problem("Disconnected", reason, paint),
            RunnerNodeEvent::Unreachable { reasons } => self.problem("Waiting", reasons.join("; "), paint),
        }
    }

    fn problem(&self, what: &str, reason: String, paint: Paint) -> Option<String> {
        let mut last = self.last_problem.lock();
        if last.as_ref() == Some(&reason) {
            return None;
        }
        let text = format!("{}: {reason}. Running jobs go on.\n", paint.apply(Tone::Bad, what));
        *last = Some(reason);
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use model::id::NodeId;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn the_command_line_overrides_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("runner.yaml");
        std::fs::write(&file, "control: [\"a:1\"]\nname: one\nrunner: {labels: {zone: a, rack: r}}\n").unwrap();
        let line = ["join", "--config", file.to_str().unwrap(), "--label", "zone=b", "--pool", "gpu", "b:1", "c:1"];
        let settings = Line::try_parse_from(line).unwrap().options.settings().unwrap();
        assert_eq!(
            (settings.control, settings.name),
            (vec!["b:1".to_owned(), "c:1".to_owned()], Some("one".to_owned()))
        );
        assert_eq!((settings.runner.labels["zone"].as_str(), settings.runner.labels["rack"].as_str()), ("b", "r"));
        assert_eq!(settings.runner.pools, ["gpu".to_owned()].into());
        assert!(Line::try_parse_from(["join", "--label", "zone"]).is_err());
    }

    #[test]
    fn a_repeated_problem_is_printed_once() {
        let console = Console::default();
        let unreachable = || RunnerNodeEvent::Unreachable { reasons: vec!["cannot reach a:1".to_owned()] };
        assert!(console.text(unreachable(), Paint::NONE).is_some_and(|text| text.contains("cannot reach a:1")));
        assert_eq!(console.text(unreachable(), Paint::NONE), None);
        let connected = RunnerNodeEvent::Connected { node: NodeId(1), address: "a:1".to_owned() };
        assert!(console.text(connected, Paint::NONE).is_some());
        assert!(console.text(unreachable(), Paint::NONE).is_some());
    }
}
