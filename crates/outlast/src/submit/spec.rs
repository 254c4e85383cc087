//! Builds a job from command line options.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::Args;
use model::blob::{BlobId, WorkerId};
use model::json::Json;
use model::spec::{EchoRun, JobSpec, Limits, Priority, ProcessRun, Run, Sandbox, WasmRun};
use model::time::{Millis, Timestamp};

use super::content::Source;
use super::input;
use crate::exit::Usage;
use crate::{duration, size};

#[derive(Args, Default)]
#[group(skip)]
pub struct Options {
    /// Topic of the job [default: default]
    #[arg(long)]
    topic: Option<String>,
    /// Tenant of the job [default: default]
    #[arg(long)]
    tenant: Option<String>,
    /// Priority class: critical, interactive or batch [default: interactive]
    #[arg(long, value_parser = parse_priority)]
    priority: Option<Priority>,
    /// Time limit of one attempt, such as 10s, 5m or 1h30m.
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    timeout: Option<Duration>,
    /// Retry budget [default: that of the queue; 0 with --wait and without --queue]
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// Delay before the start.
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    delay: Option<Duration>,
    /// Never run two attempts at the same time, whatever fails; a retry may have to wait for a lease to run out.
    #[arg(long)]
    exclusive: bool,
    /// Environment variable; repeatable.
    #[arg(long, value_parser = parse_pair, value_name = "NAME=VALUE")]
    env: Vec<(String, String)>,
    /// Label of the job; repeatable.
    #[arg(long, value_parser = parse_pair, value_name = "NAME=VALUE")]
    label: Vec<(String, String)>,
    /// Text file for the standard input of the process, at most 8 MiB; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    stdin: Option<PathBuf>,
    /// File, directory or blob available as inputs/NAME, uploaded if the server lacks it; repeatable.
    #[arg(long, value_parser = parse_input, value_name = "NAME=PATH|blob:…")]
    pub input: Vec<(String, Source)>,
    /// Store the matching files in outputs/ as artifacts; repeatable.
    #[arg(long, value_name = "GLOB")]
    artifact: Vec<String>,
    /// Sandbox: strict, standard or, if the server allows it, none [default: standard]
    #[arg(long, value_parser = parse_sandbox, value_name = "SANDBOX")]
    sandbox: Option<Sandbox>,
    /// CPU time limit, such as 10s or 5m.
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    cpu: Option<Duration>,
    /// Memory limit, such as 512M or 2G.
    #[arg(long, value_parser = size::parse, value_name = "BYTES")]
    memory: Option<u64>,
    /// Limit of concurrent processes and threads.
    #[arg(long, value_name = "N")]
    pids: Option<u64>,
    /// Limit of the total size of the files in outputs/.
    #[arg(long, value_parser = size::parse, value_name = "BYTES")]
    output_bytes: Option<u64>,
    /// Limit of open files.
    #[arg(long, value_name = "N")]
    open_files: Option<u64>,
    /// Instruction limit of a WebAssembly component.
    #[arg(long, value_name = "N", requires = "wasm")]
    fuel: Option<u64>,
    /// Registered worker, available as worker/.
    #[arg(long, value_name = "w_…")]
    worker: Option<WorkerId>,
    /// Function of the worker to run. COMMAND is appended to its arguments.
    #[arg(long, value_name = "NAME", requires = "worker")]
    function: Option<String>,
}

impl Options {
    /// Options that conflict with --file, because the file sets them.
    pub const NAMES: [&str; 21] = [
        "topic",
        "tenant",
        "priority",
        "timeout",
        "retries",
        "delay",
        "exclusive",
        "env",
        "label",
        "stdin",
        "input",
        "artifact",
        "sandbox",
        "cpu",
        "memory",
        "pids",
        "output_bytes",
        "open_files",
        "fuel",
        "worker",
        "function",
    ];
    /// Options that do not apply to echo jobs.
    pub const NOT_FOR_ECHO: [&str; 12] = [
        "env",
        "stdin",
        "input",
        "artifact",
        "cpu",
        "memory",
        "pids",
        "output_bytes",
        "open_files",
        "fuel",
        "worker",
        "function",
    ];
    /// Options that do not apply to WebAssembly components.
    pub const NOT_FOR_WASM: [&str; 4] = ["pids", "open_files", "worker", "function"];

    fn env(&self) -> BTreeMap<String, String> {
        self.env.iter().cloned().collect()
    }

    fn stdin(&self) -> Result<String> {
        Ok(self.stdin.as_deref().map(input::read).transpose()?.unwrap_or_default())
    }
}

/// Input blobs by name.
pub type Inputs = BTreeMap<String, BlobId>;

pub fn process(options: &Options, inputs: Inputs, command: Vec<String>) -> Result<Bytes> {
    let (worker, function) = (options.worker, options.function.clone());
    let run = ProcessRun { command, env: options.env(), stdin: options.stdin()?, worker, function };
    to_json(&JobSpec { inputs, ..with_options(options, Run::Process(run))? })
}

pub fn wasm(options: &Options, inputs: Inputs, component: BlobId, args: Vec<String>) -> Result<Bytes> {
    let run = WasmRun { component, args, env: options.env(), stdin: options.stdin()? };
    to_json(&JobSpec { inputs, ..with_options(options, Run::Wasm(run))? })
}

pub fn echo(options: &Options, value: &str) -> Result<Bytes> {
    let value = Json::parse(value.as_bytes())
        .ok_or_else(|| Usage(format!("--echo: `{value}` is not JSON; write a text with quotes: '\"hello\"'")))?;
    to_json(&with_options(options, Run::Echo(EchoRun { value, ..EchoRun::default() }))?)
}

fn with_options(options: &Options, run: Run) -> Result<JobSpec> {
    let mut spec = JobSpec::new(run);
    if let Some(topic) = &options.topic {
        spec.topic.clone_from(topic);
    }
    if let Some(tenant) = &options.tenant {
        spec.tenant.clone_from(tenant);
    }
    spec.priority = options.priority.unwrap_or_default();
    spec.timeout_ms = options.timeout.map(millis);
    spec.not_before = options.delay.map(from_now).transpose()?;
    spec.max_retries = options.retries;
    spec.labels = options.label.iter().cloned().collect();
    spec.exclusive = options.exclusive;
    spec.sandbox = options.sandbox;
    spec.outputs.clone_from(&options.artifact);
    spec.limits = Limits {
        cpu_ms: options.cpu.map(millis),
        memory_bytes: options.memory,
        pids: options.pids,
        output_bytes: options.output_bytes,
        open_files: options.open_files,
        fuel: options.fuel,
    };
    Ok(spec)
}

fn to_json(spec: &JobSpec) -> Result<Bytes> {
    Ok(serde_json::to_vec(spec)?.into())
}

fn from_now(delay: Duration) -> Result<Timestamp> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("this machine's clock is before 1970")?;
    Ok(Timestamp(Millis(millis(now.saturating_add(delay)))))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err(format!("`{text}` is not of the form NAME=VALUE")),
    }
}

fn parse_input(text: &str) -> Result<(String, Source), String> {
    let (name, source) =
        parse_pair(text).map_err(|_| format!("invalid input `{text}`; expected NAME=PATH or NAME=blob:…"))?;
    Ok((name, source.parse()?))
}

fn parse_sandbox(text: &str) -> Result<Sandbox, String> {
    match text {
        "strict" => Ok(Sandbox::Strict),
        "standard" => Ok(Sandbox::Standard),
        "none" => Ok(Sandbox::None),
        _ => Err(format!("unknown sandbox `{text}`; expected strict, standard or none")),
    }
}

fn parse_priority(text: &str) -> Result<Priority, String> {
    match text {
        "critical" => Ok(Priority::Critical),
        "interactive" => Ok(Priority::Interactive),
        "batch" => Ok(Priority::Batch),
        _ => Err(format!("unknown priority `{text}`; expected critical, interactive or batch")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_job_contains_every_option() {
        let options = Options {
            topic: Some("t".to_owned()),
            priority: Some(Priority::Batch),
            timeout: Some(Duration::from_secs(10)),
            retries: Some(0),
            delay: Some(Duration::from_secs(5)),
            env: vec![parse_pair("A=b=c").unwrap()],
            label: vec![parse_pair("team=x").unwrap()],
            artifact: vec!["out/*".to_owned()],
            sandbox: Some(Sandbox::Strict),
            cpu: Some(Duration::from_secs(3)),
            memory: Some(1 << 20),
            pids: Some(8),
            output_bytes: Some(1 << 30),
            open_files: Some(64),
            exclusive: true,
            ..Options::default()
        };
        let inputs = Inputs::from([("in/a".to_owned(), BlobId::of(b"x"))]);
        let job = process(&options, inputs, vec!["echo".to_owned(), "hi".to_owned()]).unwrap();
        let spec: JobSpec = serde_json::from_slice(&job).unwrap();
        assert_eq!(spec.validate(), Ok(()));
        assert_eq!((spec.topic.as_str(), spec.tenant.as_str(), spec.timeout_ms), ("t", "default", Some(10_000)));
        assert_eq!((spec.max_retries, spec.priority), (Some(0), Priority::Batch));
        assert_eq!(spec.labels["team"], "x");
        assert!(spec.not_before.is_some());
        assert_eq!((spec.inputs["in/a"], spec.outputs.as_slice()), (BlobId::of(b"x"), &["out/*".to_owned()][..]));
        assert_eq!((spec.sandbox, spec.exclusive), (Some(Sandbox::Strict), true));
        let limits = spec.limits;
        assert_eq!((limits.cpu_ms, limits.memory_bytes), (Some(3_000), Some(1 << 20)));
        assert_eq!((limits.pids, limits.output_bytes, limits.open_files), (Some(8), Some(1 << 30), Some(64)));
        let Run::Process(run) = spec.run else { panic!("not a process") };
        assert_eq!((run.command.len(), run.env["A"].as_str()), (2, "b=c"));
    }

    #[test]
    fn a_function_and_a_component_take_arguments() {
        let worker = Some(WorkerId::of(b"bundle"));
        let options = Options { worker, function: Some("render".to_owned()), ..Options::default() };
        let spec: JobSpec = serde_json::from_slice(&process(&options, Inputs::new(), Vec::new()).unwrap()).unwrap();
        assert_eq!((spec.validate(), spec.sandbox), (Ok(()), None));
        let component = BlobId::of(b"component");
        let options = Options { fuel: Some(1_000), ..Options::default() };
        let job = wasm(&options, Inputs::new(), component, vec!["a".to_owned()]).unwrap();
        let spec: JobSpec = serde_json::from_slice(&job).unwrap();
        assert_eq!(spec.validate(), Ok(()));
        assert_eq!(spec.limits.fuel, Some(1_000));
        let Run::Wasm(run) = spec.run else { panic!("not a component") };
        assert_eq!((run.component, run.args.len()), (component, 1));
    }

    #[test]
    fn an_echo_job_takes_json_only() {
        let job = echo(&Options::default(), r#"{"a": 1}"#).unwrap();
        assert!(String::from_utf8_lossy(&job).contains(r#""value":{"a": 1}"#));
        let error = echo(&Options::default(), "hello").unwrap_err();
        assert!(error.is::<Usage>(), "{error}");
    }

    #[test]
    fn malformed_options_are_rejected_with_a_hint() {
        assert!(parse_pair("NAME").is_err());
        assert!(parse_pair("=x").is_err());
        assert!(parse_priority("high").unwrap_err().contains("critical"));
        assert!(parse_sandbox("off").unwrap_err().contains("none"));
        assert!(parse_input("a.txt").unwrap_err().contains("NAME=PATH"));
        assert!(parse_input("a=blob:12").unwrap_err().contains("blob:<64"));
    }

    #[test]
    fn the_names_are_those_of_the_options() {
        let command = Options::augment_args(clap::Command::new("x"));
        let names: Vec<_> = command.get_arguments().map(|argument| argument.get_id().as_str()).collect();
        let mut expected = Options::NAMES.to_vec();
        expected.sort_unstable_by_key(|name| names.iter().position(|other| other == name));
        assert_eq!(names, expected);
    }
}
