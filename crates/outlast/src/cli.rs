//! Commands and global options of the command line.

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};

use crate::context::Context;
use crate::output::Format;
use crate::{
    approvals, audit, bench, blobs, completions, dlq, doctor, duration, jobs, join, logs, nodes, policy, queues, run,
    schedules, stack, submit, tenants, up, workers, workflows,
};

/// Durable jobs and workflows that survive the failure of the machines they run on.
#[derive(Parser)]
#[command(name = "outlast", version, propagate_version = true, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 success, 1 the job or request failed, 2 invalid usage, 3 not found, 4 server unreachable, \
5 denied by policy or access rights. `submit --wait` returns the job's exit code, `run --wait` returns 0 or 1; \
both return 120 plus the code above for Outlast's own failures."
)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args)]
pub struct Global {
    /// URL of the server. Of several, separated by commas, the first one that works is used.
    #[arg(long, global = true, env = "OUTLAST_SERVER", default_value = "http://127.0.0.1:7070", value_name = "URL,…")]
    pub server: String,
    /// How long to repeat a request that gets no answer, for example while the server restarts.
    #[arg(long, global = true, env = "OUTLAST_RETRY_FOR", default_value = "60s", value_parser = duration::parse, value_name = "TIME")]
    pub retry_for: Duration,
    /// How long to wait for a server that cannot be reached at first.
    #[arg(long, global = true, env = "OUTLAST_CONNECT_WAIT", default_value = "500ms", value_parser = duration::parse, value_name = "TIME")]
    pub connect_wait: Duration,
    /// Authentication token.
    #[arg(long, global = true, env = "OUTLAST_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Output format.
    #[arg(long, global = true, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub output: Format,
}

#[derive(Subcommand)]
enum Command {
    Up(up::Options),
    Join(join::Options),
    Submit(Box<submit::Options>),
    Run(Box<run::Options>),
    Workflows(workflows::Options),
    Schedules(schedules::Options),
    Jobs(jobs::Options),
    Logs(logs::Options),
    Queues(queues::Options),
    Approvals(approvals::Options),
    Dlq(dlq::Options),
    Policy(policy::Options),
    Audit(audit::Options),
    Tenants(tenants::Options),
    Workers(workers::Options),
    Blobs(blobs::Options),
    Nodes(nodes::Options),
    Stack(stack::Options),
    Bench(bench::Options),
    Doctor(doctor::Options),
    Completions(completions::Options),
}

impl Cli {
    /// Whether the exit code is that of the job or workflow.
    pub fn waits(&self) -> bool {
        match &self.command {
            Command::Submit(options) => options.wait,
            Command::Run(options) => options.wait,
            Command::Up(_)
            | Command::Join(_)
            | Command::Workflows(_)
            | Command::Schedules(_)
            | Command::Jobs(_)
            | Command::Logs(_)
            | Command::Queues(_)
            | Command::Approvals(_)
            | Command::Dlq(_)
            | Command::Policy(_)
            | Command::Audit(_)
            | Command::Tenants(_)
            | Command::Workers(_)
            | Command::Blobs(_)
            | Command::Nodes(_)
            | Command::Stack(_)
            | Command::Bench(_)
            | Command::Doctor(_)
            | Command::Completions(_) => false,
        }
    }

    /// Runs the command and returns its exit code.
    pub fn run(self) -> Result<u8> {
        let global = self.global;
        match self.command {
            Command::Up(options) => up::run(options),
            Command::Join(options) => join::run(options),
            Command::Submit(options) => block_on(submit::run(*options, &Context::new(&global)?)),
            Command::Run(options) => block_on(run::run(*options, &Context::new(&global)?)),
            Command::Workflows(options) => block_on(workflows::run(options, &Context::new(&global)?)),
            Command::Schedules(options) => block_on(schedules::run(options, &Context::new(&global)?)),
            Command::Jobs(options) => block_on(jobs::run(options, &Context::new(&global)?)),
            Command::Logs(options) => block_on(logs::run(options, &Context::new(&global)?)),
            Command::Queues(options) => block_on(queues::run(options, &Context::new(&global)?)),
            Command::Approvals(options) => block_on(approvals::run(options, &Context::new(&global)?)),
            Command::Dlq(options) => block_on(dlq::run(options, &Context::new(&global)?)),
            Command::Policy(options) => block_on(policy::run(options, &Context::new(&global)?)),
            Command::Audit(options) => block_on(audit::run(options, &Context::new(&global)?)),
            Command::Tenants(options) => block_on(tenants::run(&options, &Context::new(&global)?)),
            Command::Workers(options) => block_on(workers::run(options, &Context::new(&global)?)),
            Command::Blobs(options) => block_on(blobs::run(options, &Context::new(&global)?)),
            Command::Nodes(options) => block_on(nodes::run(options, &Context::new(&global)?)),
            Command::Stack(options) => block_on(stack::run(options, global)),
            Command::Doctor(options) => block_on(doctor::run(options, &Context::new(&global)?)),
            Command::Bench(options) => bench::run(options, &global),
            Command::Completions(options) => completions::run(&options),
        }
    }
}

/// Single-threaded: commands mostly wait for the server.
fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the asynchronous runtime")?;
    let result = runtime.block_on(future);
    // A blocked read of standard input must not delay the exit.
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_are_accepted_after_a_command() {
        let cli =
            Cli::try_parse_from(["outlast", "jobs", "list", "--output", "json", "--server", "http://x:1"]).unwrap();
        assert_eq!((cli.global.output, cli.global.server.as_str()), (Format::Json, "http://x:1"));
    }

    #[test]
    fn only_submit_and_run_with_wait_return_the_exit_code_of_the_work() {
        let waits = |line: &str| Cli::try_parse_from(line.split(' ')).unwrap().waits();
        assert!(waits("outlast submit --wait -- true"));
        assert!(!waits("outlast submit -- true --wait"));
        assert!(!waits("outlast submit true --wait"));
        assert!(!waits("outlast queues drain --wait q_1"));
        assert!(waits("outlast run x.yaml --wait"));
        assert!(!waits("outlast run x.yaml"));
    }
}
