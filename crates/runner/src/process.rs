//! The process executor: a program under the node's spawner, from its place to its result.

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
use model::message::Ticket;
use model::spec::{ProcessRun, Run, Sandbox, Task};
use model::time::Millis;
use spawner::protocol::{Bounds, Exit, Launch, Limit, Order, Profile, Verdict};
use tokio::sync::oneshot;

use crate::leftovers::{ATTEMPT_MARK, JOB_MARK, NODE_MARK};
use crate::place::{self, Place, failure};
use crate::progress::Watch;
use crate::spawning::{Spawning, key_of};
use crate::{Defaults, Uplink, logs};

/// A process that is a task of a workflow finds the workflow's id under this name.
const WORKFLOW_MARK: &str = "OUTLAST_WORKFLOW";
/// How often it is looked how far a process says it is.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Of a process's standard output this much becomes its result.
pub(crate) const RESULT_BYTES_MAX: usize = 64 * 1024;
/// What a program without a sandbox finds in its environment besides what its job gives it.
const INHERITED: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];
/// What a program in a sandbox finds there.
const GIVEN: [(&str, &str); 4] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/tmp"),
    ("TMPDIR", "/tmp"),
    ("LANG", "C.UTF-8"),
];

/// What all attempts of a runner share.
#[derive(Clone)]
pub(crate) struct Env {
    pub node: NodeId,
    pub logs: PathBuf,
    pub scratch: PathBuf,
    pub stop_grace: Duration,
    pub defaults: Defaults,
    pub blobs: Blobs,
    pub spawning: Spawning,
    pub uplink: Arc<dyn Uplink>,
}

/// What must be known of an attempt when it ends, also by a server that did not start it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub(crate) struct Note {
    #[n(0)]
    pub outputs: Vec<String>,
    #[n(1)]
    pub output_bytes: Option<u64>,
    /// Its files stay where they are as long as it runs.
    #[n(2)]
    pub worker: Option<WorkerId>,
    /// For words about it.
    #[cbor(n(3), default)]
    pub program: String,
    /// Somebody wants to know how far it is.
    #[cbor(n(4), default)]
    pub tells_progress: bool,
}

impl Note {
    pub fn of(task: &Task) -> Self {
        let (worker, program, tells_progress) = match &task.run {
            Run::Process(process) => {
                let named = process.function.as_ref().or(process.command.first());
                (process.worker, named.cloned().unwrap_or_default(), process.env.contains_key(WORKFLOW_MARK))
            }
            Run::Wasm(_) | Run::Echo(_) => (None, String::new(), false),
        };
        let (outputs, output_bytes) = (task.outputs.clone(), task.limits.output_bytes);
        Self { outputs, output_bytes, worker, program, tells_progress }
    }

    pub fn decode(bytes: &[u8]) -> Self {
        // One that cannot be read asks for no files: the result itself is not lost for it.
        minicbor::decode(bytes).unwrap_or_default()
    }
}

/// Runs a program to its end, or until it is stopped.
pub(crate) async fn run(
    env: Arc<Env>,
    ticket: Ticket,
    task: Task,
    process: ProcessRun,
    stopped: oneshot::Receiver<()>,
) -> Outcome {
    if task.sandbox == Sandbox::None && !env.defaults.allow_unsandboxed {
        let message = "this server runs no process without a sandbox (`allow_unsandboxed` in its configuration)";
        return failure(End::Fatal, message.to_owned());
    }
    let note = Note::of(&task);
    let place = match place::make(&env.blobs, &env.scratch, ticket, &task).await {
        Ok(place) => place,
        Err(outcome) => return outcome,
    };
    match begin(&env, ticket, &task, &process, &place, &note) {
        Ok(ended) => attend(&env, ticket, &note, ended, stopped).await,
        Err(outcome) => *outcome,
    }
}

fn begin(
    env: &Env,
    ticket: Ticket,
    task: &Task,
    process: &ProcessRun,
    place: &Place,
    note: &Note,
) -> Result<oneshot::Receiver<Exit>, Box<Outcome>> {
    let no_place = |what: &str, error: std::io::Error| {
        Box::new(failure(End::Infrastructure, format!("no place to run in: {what}: {error}")))
    };
    let launch = Launch {
        command: place::command(process, place.bundle.as_ref())?,
        environment: environment(env, ticket, task, process, place),
        profile: match task.sandbox {
            Sandbox::Strict => Profile::Strict,
            Sandbox::Standard => Profile::Standard,
            Sandbox::None => Profile::None,
        },
        network: !task.without_network && env.defaults.network_topics.contains(&task.topic),
        scratch: place.path.is_some().then(|| place::name(ticket)),
        worker: place.worker.clone(),
        bounds: bounds(env, task, place.path.is_some()),
        note: minicbor::to_vec(note).unwrap_or_default(),
    };
    let log = logs::create(&logs::path(&env.logs, ticket)).map_err(|error| no_place("its output", error))?;
    let input = input(&process.stdin).map_err(|error| no_place("its input", error))?;
    Ok(env.spawning.start(key_of(ticket), launch, log, input))
}

fn input(text: &str) -> std::io::Result<OwnedFd> {
    match text.is_empty() {
        true => Ok(File::open("/dev/null")?.into()),
        false => spawner::file_with(text.as_bytes()),
    }
}

fn environment(env: &Env, ticket: Ticket, task: &Task, process: &ProcessRun, place: &Place) -> Vec<(String, String)> {
    let mut variables: std::collections::BTreeMap<String, String> = match task.sandbox {
        Sandbox::None => {
            INHERITED.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect()
        }
        Sandbox::Strict | Sandbox::Standard => {
            GIVEN.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        }
    };
    if let Some(bundle) = &place.bundle {
        variables.extend(bundle.manifest().env.clone());
    }
    variables.extend(process.env.clone());
    variables.insert(NODE_MARK.to_owned(), env.node.to_string());
    variables.insert(JOB_MARK.to_owned(), ticket.job.to_string());
    variables.insert(ATTEMPT_MARK.to_owned(), ticket.attempt.to_string());
    variables.into_iter().collect()
}

fn bounds(env: &Env, task: &Task, has_outputs: bool) -> Bounds {
    let asked = &task.limits;
    let defaults = &env.defaults;
    Bounds {
        cpu_ms: asked.cpu_ms,
        memory_bytes: asked.memory_bytes,
        processes: match task.sandbox {
            Sandbox::None => asked.pids,
            Sandbox::Strict | Sandbox::Standard => Some(at_most(asked.pids, defaults.processes)),
        },
        open_files: asked.open_files,
        output_bytes: has_outputs.then(|| at_most(asked.output_bytes, defaults.output_bytes)),
        log_head_bytes: defaults.log_bytes / 2,
        log_tail_bytes: defaults.log_bytes / 2,
        tmp_bytes: Some(defaults.tmp_bytes),
    }
}

/// What a job asks for, within what the node allows.
fn at_most(asked: Option<u64>, allowed: u64) -> u64 {
    asked.map_or(allowed, |asked| asked.min(allowed))
}

/// Waits for the end of an attempt that runs, and makes its result.
pub(crate) async fn attend(
    env: &Env,
    ticket: Ticket,
    note: &Note,
    mut ended: oneshot::Receiver<Exit>,
    mut stopped: oneshot::Receiver<()>,
) -> Outcome {
    let exit = tokio::select! {
        // What has ended has ended, also if it was asked to stop at the same moment.
        biased;
        exit = &mut ended => exit,
        () = watch_progress(env, ticket), if note.tells_progress => ended.await,
        Ok(()) = &mut stopped => {
            let grace_ms = env.stop_grace.as_millis().min(u128::from(u32::MAX)) as u32;
            env.spawning.order(Order::Stop { key: key_of(ticket), grace_ms }, Vec::new());
            ended.await
        }
    };
    match exit {
        Ok(exit) => finish(env, ticket, note, exit).await,
        Err(_) => failure(End::Infrastructure, "the node's spawner could not be reached".to_owned()),
    }
}

/// Tells how far an attempt says it is, until nobody asks any more.
async fn watch_progress(env: &Env, ticket: Ticket) {
    let mut watch = Watch::new(logs::path(&env.logs, ticket));
    loop {
        tokio::time::sleep(PROGRESS_INTERVAL).await;
        if let Some(said) = watch.look() {
            env.uplink.progress(ticket, said);
        }
    }
}

/// Turns an exit into a result: output and files become blobs.
pub(crate) async fn finish(env: &Env, ticket: Ticket, note: &Note, exit: Exit) -> Outcome {
    let mut outcome = judge(&exit, note);
    outcome.usage = match exit.verdict {
        Verdict::Exited { .. } | Verdict::Signalled { .. } | Verdict::OverLimit { .. } => {
            Some(Usage { cpu: Millis(exit.cpu_us / 1000), memory_peak_bytes: exit.memory_peak_bytes })
        }
        _ => None,
    };
    match keep_log(&env.blobs, env.logs.clone(), ticket).await {
        Ok((log, stdout)) => {
            outcome.log = log;
            if outcome.end == End::Succeeded {
                outcome.result = Some(result(&stdout));
            }
        }
        Err(error) => return Outcome { usage: outcome.usage, ..lost_output(&error) },
    }
    if let Some(errno) = exit.log_errno {
        let error = std::io::Error::from_raw_os_error(errno).to_string();
        return Outcome { usage: outcome.usage, log: outcome.log, ..lost_output(&error) };
    }
    if outcome.end == End::Succeeded && !note.outputs.is_empty() {
        collect(env, ticket, note, outcome).await
    } else {
        outcome
    }
}

fn lost_output(error: &str) -> Outcome {
    failure(End::Infrastructure, format!("its output cannot be kept: {error}"))
}

/// The attempt's output as a blob, and the beginning of its standard output.
pub(crate) async fn keep_log(
    blobs: &Blobs,
    directory: PathBuf,
    ticket: Ticket,
) -> Result<(Option<LogRef>, Vec<u8>), String> {
    let path = logs::path(&directory, ticket);
    if path.metadata().map_or(0, |found| found.len()) == 0 {
        return Ok((None, Vec::new()));
    }
    let file = path.clone();
    let read = tokio::task::spawn_blocking(move || {
        let stdout = logs::beginning(&file, RESULT_BYTES_MAX)?;
        let condensed = if logs::has_hole(&file)? { Some(logs::condense(&file)?) } else { None };
        std::io::Result::Ok((stdout, condensed))
    });
    let (stdout, condensed) =
        read.await.map_err(|error| error.to_string())?.map_err(|error: std::io::Error| error.to_string())?;
    let kept = match condensed {
        Some(content) => {
            let bytes = content.len() as u64;
            blobs.put(content).await.map(|blob| (blob, bytes))
        }
        None => blobs.put_file(&path).await,
    };
    let (blob, bytes) = kept.map_err(|error| error.to_string())?;
    Ok((Some(LogRef { blob, bytes }), stdout))
}

/// Keeps the files that the job asked for.
pub(crate) async fn collect(env: &Env, ticket: Ticket, note: &Note, outcome: Outcome) -> Outcome {
    let failed = |failure: Outcome| Outcome { usage: outcome.usage, log: outcome.log, ..failure };
    let globs = match Globs::new(&note.outputs) {
        Ok(globs) => globs,
        Err(error) => return failed(place::refuse(&error)),
    };
    let directory = env.scratch.join(place::name(ticket)).join("outputs");
    let bounds =
        OutputLimits { files: limits::ARTIFACTS_MAX, bytes: note.output_bytes.unwrap_or(env.defaults.output_bytes) };
    let outputs = match env.blobs.collect_outputs(&directory, &globs, bounds).await {
        Ok(outputs) => outputs,
        Err(error) => return failed(place::refuse(&error)),
    };
    if let Some(skipped) = outputs.skipped.first() {
        let more = outputs.skipped_count - 1;
        let others = if more == 0 { String::new() } else { format!(" (and {more} more)") };
        let message = format!("the output `{}` cannot be kept: {}{others}", skipped.path, skipped.why);
        return failed(failure(End::Fatal, message));
    }
    let artifacts: Vec<Artifact> = outputs
        .files
        .into_iter()
        .map(|file| Artifact { path: file.path, blob: file.blob, bytes: file.bytes, executable: file.executable })
        .collect();
    if Artifact::fitting(&artifacts) < artifacts.len() {
        let message = format!("{} output files are too many for one job: pack them into fewer", artifacts.len());
        return failed(failure(End::Fatal, message));
    }
    Outcome { artifacts, ..outcome }
}

fn judge(exit: &Exit, note: &Note) -> Outcome {
    let base = match exit.verdict {
        Verdict::Exited { code } => Outcome { exit_code: Some(code), ..Outcome::of(End::Succeeded) },
        Verdict::Signalled { signal } => Outcome { signal: Some(signal), ..Outcome::of(End::Error) },
        _ => Outcome::of(End::Error),
    };
    if exit.stopped {
        return Outcome { end: End::Stopped, ..base };
    }
    let saying = |end: End, message: String| Outcome { end, message: Some(message), ..base.clone() };
    match &exit.verdict {
        Verdict::Exited { code: 0 } => base,
        Verdict::Exited { code } => saying(End::Error, format!("it exited with code {code}")),
        Verdict::Signalled { signal } => saying(End::Error, format!("it was ended by signal {signal}")),
        Verdict::NoProgram { errno } => {
            let error = std::io::Error::from_raw_os_error(*errno);
            saying(End::Fatal, format!("`{}` cannot be started: {error}", note.program))
        }
        Verdict::Refused { why } => saying(End::Fatal, format!("it was not started: {why}")),
        Verdict::NoPlace { step, errno } => {
            let error = std::io::Error::from_raw_os_error(*errno);
            saying(End::Infrastructure, format!("no place to run in: {step}: {error}"))
        }
        Verdict::OverLimit { limit: Limit::Disk } => {
            saying(End::Infrastructure, "it was ended because the node's disk is almost full".to_owned())
        }
        Verdict::OverLimit { limit } => saying(End::Error, over(*limit, note)),
        Verdict::Lost { why } => saying(End::Infrastructure, why.clone()),
    }
}

fn over(limit: Limit, note: &Note) -> String {
    match limit {
        Limit::Disk => "the node's disk is almost full".to_owned(),
        Limit::Cpu => "it used more processor time than its limit (`limits.cpu_ms`)".to_owned(),
        Limit::Memory => "it used more memory than its limit (`limits.memory_bytes`)".to_owned(),
        Limit::Output => match note.output_bytes {
            Some(bytes) => format!("its outputs went over their limit of {bytes} bytes (`limits.output_bytes`)"),
            None => "its outputs went over this node's limit (`limits.output_bytes` sets another)".to_owned(),
        },
    }
}

/// A program's result is its standard output: as JSON if it is JSON, else as text.
pub(crate) fn result(stdout: &[u8]) -> Json {
    Json::parse(stdout).unwrap_or_else(|| Json::of(&String::from_utf8_lossy(stdout)))
}
