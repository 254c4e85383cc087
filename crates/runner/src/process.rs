//! Process executor: runs a program under the node's spawner, from its workspace to its outcome.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use blobs::{Blobs, Globs, OutputLimits};
use minicbor::{Decode, Encode};
use model::blob::WorkerId;
use model::id::NodeId;
use model::job::{Artifact, End, LogRef, Outcome, Usage};
use model::json::Json;
use model::limits;
use model::message::AttemptRef;
use model::spec::{ProcessRun, Run, Sandbox, Task};
use model::time::Millis;
use spawner::protocol::{Bounds, Command, Exit, ExitStatus, Launch, Limit, Profile};
use tokio::sync::oneshot;

use crate::HomeId;
use crate::in_flight::SharedLease;
use crate::orphans::{ATTEMPT_VARIABLE, HOME_VARIABLE, JOB_VARIABLE, NODE_VARIABLE};
use crate::progress::ProgressReader;
use crate::spawner_client::{AttemptProgress, SpawnerClient, key_of};
use crate::workspace::{self, Workspace, failure};
use crate::{Defaults, Uplink, logs, steady_clock};

/// Message of an attempt whose lease ran out.
pub(crate) const LEASE_EXPIRED: &str =
    "it was killed because its lease ran out: its node had not heard from its server for too long";
/// Environment variable with the workflow id, set for tasks of workflows.
const WORKFLOW_VARIABLE: &str = "OUTLAST_WORKFLOW";
/// Interval between reads of a process's progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of standard output that become the result.
pub(crate) const RESULT_BYTES_MAX: usize = 64 * 1024;
/// Server variables passed to a program without a sandbox.
const INHERITED_VARIABLES: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];
/// Variables of a program in a sandbox.
const SANDBOX_VARIABLES: [(&str, &str); 4] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/tmp"),
    ("TMPDIR", "/tmp"),
    ("LANG", "C.UTF-8"),
];

/// State shared by all attempts of a runner.
#[derive(Clone)]
pub(crate) struct Env {
    pub node: NodeId,
    pub home: HomeId,
    pub logs: PathBuf,
    pub scratch: PathBuf,
    pub stop_grace: Duration,
    pub defaults: Defaults,
    pub blobs: Blobs,
    pub spawner: SpawnerClient,
    pub uplink: Arc<dyn Uplink>,
}

/// What the runner needs at the end of an attempt. Stored in the spawner, because the server may have been restarted
/// since the attempt began.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub(crate) struct Note {
    #[n(0)]
    pub outputs: Vec<String>,
    #[n(1)]
    pub output_bytes: Option<u64>,
    /// Its files stay in the cache while the attempt runs.
    #[n(2)]
    pub worker: Option<WorkerId>,
    /// Program name for messages.
    #[cbor(n(3), default)]
    pub program: String,
    /// Progress is reported for tasks of workflows only.
    #[cbor(n(4), default)]
    pub reports_progress: bool,
    /// When the program was launched, on the machine's monotonic clock.
    #[cbor(n(5), default)]
    pub launched_at: Option<u64>,
    /// Lease of an exclusive attempt: how long it lasts after a renewal.
    #[cbor(n(6), default)]
    pub lease_ms: Option<u64>,
}

impl Note {
    pub fn of(task: &Task) -> Self {
        let (worker, program, reports_progress) = match &task.run {
            Run::Process(process) => {
                let named = process.function.as_ref().or(process.command.first());
                (process.worker, named.cloned().unwrap_or_default(), process.env.contains_key(WORKFLOW_VARIABLE))
            }
            Run::Wasm(_) | Run::Echo(_) => (None, String::new(), false),
        };
        let (outputs, output_bytes) = (task.outputs.clone(), task.limits.output_bytes);
        let launched_at = Some(steady_clock::now().0);
        Self { outputs, output_bytes, worker, program, reports_progress, launched_at, lease_ms: None }
    }

    pub fn decode(bytes: &[u8]) -> Self {
        // Without its note, an attempt's artifacts are not collected, but its result is.
        minicbor::decode(bytes).unwrap_or_default()
    }
}

/// Runs a program until it ends or is stopped.
pub(crate) async fn run(
    env: Arc<Env>,
    attempt_ref: AttemptRef,
    task: Task,
    process: ProcessRun,
    lease: Option<SharedLease>,
    on_start: impl FnOnce() + Send,
    stopped: oneshot::Receiver<()>,
) -> Outcome {
    if lease.is_some() && !env.spawner.keeps_leases() {
        // Not announced to the shards. An attempt that nobody would kill must not start.
        let message = "the running spawner is of an older version and cannot run exclusive jobs";
        return failure(End::Infrastructure, message.to_owned());
    }
    if task.sandbox == Sandbox::None && !env.defaults.allow_unsandboxed {
        let message = "this server runs no process without a sandbox (`allow_unsandboxed` in its configuration)";
        return failure(End::Fatal, message.to_owned());
    }
    let workspace = match workspace::create(&env.blobs, &env.scratch, attempt_ref, &task).await {
        Ok(workspace) => workspace,
        Err(outcome) => return outcome,
    };
    let note = Note { lease_ms: lease.as_ref().map(|lease| lease.duration().0), ..Note::of(&task) };
    match launch(&env, attempt_ref, &task, &process, &workspace, &note, lease.as_ref()) {
        Ok(progress) => supervise(&env, attempt_ref, &note, progress, on_start, stopped).await,
        Err(outcome) => *outcome,
    }
}

fn launch(
    env: &Env,
    attempt_ref: AttemptRef,
    task: &Task,
    process: &ProcessRun,
    workspace: &Workspace,
    note: &Note,
    lease: Option<&SharedLease>,
) -> Result<AttemptProgress, Box<Outcome>> {
    let setup_failed = |what: &str, error: std::io::Error| {
        Box::new(Outcome::of_node_failure(format!("the attempt could not be set up: {what}: {error}")))
    };
    let launch = Launch {
        command: workspace::command(process, workspace.bundle.as_ref())?,
        environment: environment(env, attempt_ref, task, process, workspace),
        profile: match task.sandbox {
            Sandbox::Strict => Profile::Strict,
            Sandbox::Standard => Profile::Standard,
            Sandbox::None => Profile::None,
        },
        network: !task.without_network && env.defaults.network_topics.contains(&task.topic),
        scratch: workspace.path.is_some().then(|| workspace::directory_name(attempt_ref)),
        worker: workspace.worker.clone(),
        bounds: bounds(env, task, workspace.path.is_some()),
        note: minicbor::to_vec(note).unwrap_or_default(),
        lease_until: lease.map(SharedLease::until),
    };
    let log = logs::create(&logs::path(&env.logs, attempt_ref))
        .map_err(|error| setup_failed("create its log file", error))?;
    let input = input(&process.stdin).map_err(|error| setup_failed("create its standard input", error))?;
    Ok(env.spawner.start(key_of(attempt_ref), launch, log, input))
}

fn input(text: &str) -> std::io::Result<OwnedFd> {
    match text.is_empty() {
        true => Ok(File::open("/dev/null")?.into()),
        false => spawner::memfd_with(text.as_bytes()),
    }
}

fn environment(
    env: &Env,
    attempt_ref: AttemptRef,
    task: &Task,
    process: &ProcessRun,
    workspace: &Workspace,
) -> Vec<(String, String)> {
    let mut variables: std::collections::BTreeMap<String, String> = match task.sandbox {
        Sandbox::None => INHERITED_VARIABLES
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)))
            .collect(),
        Sandbox::Strict | Sandbox::Standard => {
            SANDBOX_VARIABLES.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        }
    };
    if let Some(bundle) = &workspace.bundle {
        variables.extend(bundle.manifest().env.clone());
    }
    variables.extend(process.env.clone());
    variables.insert(NODE_VARIABLE.to_owned(), env.node.to_string());
    variables.insert(HOME_VARIABLE.to_owned(), env.home.to_string());
    variables.insert(JOB_VARIABLE.to_owned(), attempt_ref.job.to_string());
    variables.insert(ATTEMPT_VARIABLE.to_owned(), attempt_ref.attempt.to_string());
    variables.into_iter().collect()
}

fn bounds(env: &Env, task: &Task, has_outputs: bool) -> Bounds {
    let requested = &task.limits;
    let defaults = &env.defaults;
    Bounds {
        cpu_ms: requested.cpu_ms,
        memory_bytes: requested.memory_bytes,
        processes: match task.sandbox {
            Sandbox::None => requested.pids,
            Sandbox::Strict | Sandbox::Standard => Some(at_most(requested.pids, defaults.processes)),
        },
        open_files: requested.open_files,
        output_bytes: has_outputs.then(|| at_most(requested.output_bytes, defaults.output_bytes)),
        log_head_bytes: defaults.log_bytes / 2,
        log_tail_bytes: defaults.log_bytes / 2,
        tmp_bytes: Some(defaults.tmp_bytes),
    }
}

/// Requested limit, at most the node's.
fn at_most(requested: Option<u64>, allowed: u64) -> u64 {
    requested.map_or(allowed, |requested| requested.min(allowed))
}

/// Waits for the end of a running attempt and builds its outcome.
pub(crate) async fn supervise(
    env: &Env,
    attempt_ref: AttemptRef,
    note: &Note,
    progress: AttemptProgress,
    on_start: impl FnOnce() + Send,
    mut stopped: oneshot::Receiver<()>,
) -> Outcome {
    let AttemptProgress { started, exit: mut ended } = progress;
    let announce_start = async {
        if started.await.is_ok() {
            on_start();
        }
        std::future::pending::<()>().await
    };
    let exit = tokio::select! {
        // A start is announced before an end; an end wins over a stop at the same moment.
        biased;
        () = announce_start => unreachable!("it never ends"),
        exit = &mut ended => exit,
        () = report_progress(env, attempt_ref), if note.reports_progress => ended.await,
        Ok(()) = &mut stopped => {
            let grace_ms = env.stop_grace.as_millis().min(u128::from(u32::MAX)) as u32;
            env.spawner.send(Command::Stop { key: key_of(attempt_ref), grace_ms }, Vec::new());
            ended.await
        }
    };
    match exit {
        Ok(exit) => finish(env, attempt_ref, note, exit).await,
        Err(_) => Outcome::of_node_failure("the node's spawner could not be reached".to_owned()),
    }
}

/// Reports the progress of an attempt until cancelled.
async fn report_progress(env: &Env, attempt_ref: AttemptRef) {
    let mut reader = ProgressReader::new(logs::path(&env.logs, attempt_ref));
    loop {
        tokio::time::sleep(PROGRESS_INTERVAL).await;
        if let Some(report) = reader.poll() {
            env.uplink.progress(attempt_ref, report);
        }
    }
}

/// Builds the outcome of an exit: stores log and artifacts as blobs.
pub(crate) async fn finish(env: &Env, attempt_ref: AttemptRef, note: &Note, exit: Exit) -> Outcome {
    let mut outcome = outcome_of(&exit, note);
    outcome.usage = match exit.status {
        ExitStatus::Exited { .. } | ExitStatus::Signalled { .. } | ExitStatus::OverLimit { .. } => {
            Some(Usage { cpu: Millis(exit.cpu_us / 1000), memory_peak_bytes: exit.memory_peak_bytes })
        }
        _ => None,
    };
    match store_log(&env.blobs, env.logs.clone(), attempt_ref).await {
        Ok((log, stdout)) => {
            outcome.log = log;
            if outcome.end == End::Succeeded {
                outcome.result = Some(result(&stdout));
            }
        }
        Err(error) => return Outcome { usage: outcome.usage, ..log_failure(&error) },
    }
    if let Some(errno) = exit.log_errno {
        let error = std::io::Error::from_raw_os_error(errno).to_string();
        return Outcome { usage: outcome.usage, log: outcome.log, ..log_failure(&error) };
    }
    if outcome.end == End::Succeeded && !note.outputs.is_empty() {
        collect_artifacts(env, attempt_ref, note, outcome).await
    } else {
        outcome
    }
}

fn log_failure(error: &str) -> Outcome {
    failure(End::Infrastructure, format!("its output could not be stored: {error}"))
}

/// Stores the log as a blob; returns it with the beginning of standard output.
pub(crate) async fn store_log(
    blobs: &Blobs,
    directory: PathBuf,
    attempt_ref: AttemptRef,
) -> Result<(Option<LogRef>, Vec<u8>), String> {
    let path = logs::path(&directory, attempt_ref);
    if path.metadata().map_or(0, |found| found.len()) == 0 {
        return Ok((None, Vec::new()));
    }
    let file = path.clone();
    let read = tokio::task::spawn_blocking(move || {
        let stdout = logs::read_stdout(&file, RESULT_BYTES_MAX)?;
        let compacted = if logs::has_hole(&file)? { Some(logs::compact(&file)?) } else { None };
        std::io::Result::Ok((stdout, compacted))
    });
    let (stdout, compacted) =
        read.await.map_err(|error| error.to_string())?.map_err(|error: std::io::Error| error.to_string())?;
    let stored = match compacted {
        Some(content) => {
            let bytes = content.len() as u64;
            blobs.put(content).await.map(|blob| (blob, bytes))
        }
        None => blobs.put_file(&path).await,
    };
    let (blob, bytes) = stored.map_err(|error| error.to_string())?;
    Ok((Some(LogRef { blob, bytes }), stdout))
}

/// Stores the artifacts the job requested.
pub(crate) async fn collect_artifacts(env: &Env, attempt_ref: AttemptRef, note: &Note, outcome: Outcome) -> Outcome {
    let failed = |failure: Outcome| Outcome { usage: outcome.usage, log: outcome.log, ..failure };
    let globs = match Globs::new(&note.outputs) {
        Ok(globs) => globs,
        Err(error) => return failed(workspace::blob_failure(&error)),
    };
    let directory = env.scratch.join(workspace::directory_name(attempt_ref)).join("outputs");
    let bounds =
        OutputLimits { files: limits::ARTIFACTS_MAX, bytes: note.output_bytes.unwrap_or(env.defaults.output_bytes) };
    let outputs = match env.blobs.collect_outputs(&directory, &globs, bounds).await {
        Ok(outputs) => outputs,
        Err(error) => return failed(workspace::blob_failure(&error)),
    };
    if let Some(skipped) = outputs.skipped.first() {
        let more = outputs.skipped_count - 1;
        let others = if more == 0 { String::new() } else { format!(" (and {more} more)") };
        let message = format!("the output `{}` cannot be stored: {}{others}", skipped.path, skipped.why);
        return failed(failure(End::Fatal, message));
    }
    let artifacts: Vec<Artifact> = outputs
        .files
        .into_iter()
        .map(|file| Artifact { path: file.path, blob: file.blob, bytes: file.bytes, executable: file.executable })
        .collect();
    if Artifact::fitting(&artifacts) < artifacts.len() {
        let message = format!("{} output files are more than one job can have: pack them into fewer", artifacts.len());
        return failed(failure(End::Fatal, message));
    }
    Outcome { artifacts, ..outcome }
}

fn outcome_of(exit: &Exit, note: &Note) -> Outcome {
    let base = match exit.status {
        ExitStatus::Exited { code } => Outcome { exit_code: Some(code), ..Outcome::of(End::Succeeded) },
        ExitStatus::Signalled { signal } => Outcome { signal: Some(signal), ..Outcome::of(End::Error) },
        _ => Outcome::of(End::Error),
    };
    if exit.lease_expired {
        return Outcome { end: End::LeaseExpired, message: Some(LEASE_EXPIRED.to_owned()), ..base };
    }
    if exit.stopped {
        return Outcome { end: End::Stopped, ..base };
    }
    let with_message = |end: End, message: String| Outcome { end, message: Some(message), ..base.clone() };
    match &exit.status {
        ExitStatus::Exited { code: 0 } => base,
        ExitStatus::Exited { code } => with_message(End::Error, format!("it exited with code {code}")),
        ExitStatus::Signalled { signal } => with_message(End::Error, format!("it was killed by signal {signal}")),
        ExitStatus::ExecFailed { errno } => {
            let error = std::io::Error::from_raw_os_error(*errno);
            with_message(End::Fatal, format!("`{}` cannot be started: {error}", note.program))
        }
        ExitStatus::Refused { reason } => with_message(End::Fatal, format!("it was not started: {reason}")),
        ExitStatus::SetupFailed { step, errno } => {
            let error = std::io::Error::from_raw_os_error(*errno);
            Outcome::of_node_failure(format!("the attempt could not be set up: {step}: {error}"))
        }
        ExitStatus::OverLimit { limit: Limit::Disk } => {
            Outcome::of_node_failure("it was killed because the node's disk is almost full".to_owned())
        }
        ExitStatus::OverLimit { limit } => with_message(End::Error, limit_message(*limit, note)),
        ExitStatus::Lost { reason } => with_message(End::Infrastructure, reason.clone()),
    }
}

fn limit_message(limit: Limit, note: &Note) -> String {
    match limit {
        Limit::Disk => "the node's disk is almost full".to_owned(),
        Limit::Cpu => "it used more processor time than its limit (`limits.cpu_ms`)".to_owned(),
        Limit::Memory => "it used more memory than its limit (`limits.memory_bytes`)".to_owned(),
        Limit::Output => match note.output_bytes {
            Some(bytes) => format!("its outputs exceed their limit of {bytes} bytes (`limits.output_bytes`)"),
            None => "its outputs exceed this node's limit (`job_output_bytes_max` in its configuration)".to_owned(),
        },
    }
}

/// Result of a program: its standard output, as JSON if it parses as JSON, otherwise as text.
pub(crate) fn result(stdout: &[u8]) -> Json {
    Json::parse(stdout).unwrap_or_else(|| Json::of(&String::from_utf8_lossy(stdout)))
}
