//! WebAssembly executor: runs a component inside the server, with its files and its output.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use model::job::{End, Outcome, Usage};
use model::message::AttemptRef;
use model::spec::{Task, WasmRun};
use model::time::Millis;
use parking_lot::Mutex;
use spawner::log::Writer;
use wasm::{Executor, GuestExit, Limits, Metering, PrepareError, RunOutcome, Sink, Stream};

use crate::logs;
use crate::process::{Env, Note, RESULT_BYTES_MAX, collect_artifacts, result, store_log};
use crate::workspace::{Workspace, failure};

/// Memory limit of a guest without a limit of its own.
const MEMORY_BYTES_DEFAULT: u64 = 256 << 20;

/// Stores a guest's output. The log file is created with the first byte: most short-lived guests print nothing.
pub(crate) struct Output {
    path: PathBuf,
    log_bytes: u64,
    now: fn() -> Millis,
    state: Mutex<OutputState>,
}

#[derive(Default)]
struct OutputState {
    writer: Option<Writer>,
    failed: Option<std::io::Error>,
    stdout: Vec<u8>,
}

impl Output {
    pub fn new(path: PathBuf, log_bytes: u64, now: fn() -> Millis) -> Self {
        Self { path, log_bytes, now, state: Mutex::default() }
    }

    fn append(&self, state: &mut OutputState, stream: Stream, bytes: &[u8]) -> std::io::Result<()> {
        let writer = match &mut state.writer {
            Some(writer) => writer,
            none => {
                let half = self.log_bytes / 2;
                none.insert(Writer::new(logs::create(&self.path)?.into(), half, half))
            }
        };
        let stream = match stream {
            Stream::Stdout => logs::Stream::Stdout,
            Stream::Stderr => logs::Stream::Stderr,
        };
        writer.write(stream, bytes, (self.now)().0)
    }
}

impl Sink for Output {
    fn write(&self, stream: Stream, bytes: &[u8]) {
        let mut state = self.state.lock();
        if stream == Stream::Stdout {
            let room = RESULT_BYTES_MAX - state.stdout.len();
            state.stdout.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        if state.failed.is_none()
            && let Err(error) = self.append(&mut state, stream, bytes)
        {
            state.failed = Some(error);
        }
    }
}

/// Run that is ready to start.
pub(crate) struct PreparedRun {
    pub program: Arc<wasm::Program>,
    pub task: wasm::RunSpec,
    pub output: Arc<Output>,
}

pub(crate) fn metering(task: &Task) -> Metering {
    if task.limits.fuel.is_some() { Metering::Fuel } else { Metering::Off }
}

/// Builds the arguments, files, limits and output of a guest.
pub(crate) fn prepare(
    env: &Env,
    attempt_ref: AttemptRef,
    task: &Task,
    run: &WasmRun,
    program: Arc<wasm::Program>,
    workspace: &Workspace,
    now: fn() -> Millis,
) -> PreparedRun {
    let output = Arc::new(Output::new(logs::path(&env.logs, attempt_ref), env.defaults.log_bytes, now));
    let directory = |name: &str| workspace.path.as_ref().map(|path| path.join(name));
    let limits = Limits {
        memory_bytes: task.limits.memory_bytes.unwrap_or(MEMORY_BYTES_DEFAULT),
        fuel: task.limits.fuel,
        wall: None,
        // The log limits itself, and stores the end as well as the beginning.
        output_bytes: u64::MAX,
        file_bytes: task.limits.output_bytes.unwrap_or(env.defaults.output_bytes),
    };
    let task = wasm::RunSpec {
        args: ["job".to_owned()].into_iter().chain(run.args.iter().cloned()).collect(),
        env: run.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        stdin: Bytes::copy_from_slice(run.stdin.as_bytes()),
        inputs: directory("inputs"),
        outputs: directory("outputs"),
        limits,
        sink: output.clone(),
    };
    PreparedRun { program, task, output }
}

/// Outcome of a guest without log and artifacts, computed on any thread. `None` if there is something to store.
pub(crate) fn immediate_outcome(ended: &RunOutcome, note: &Note, output: &Output) -> Option<Outcome> {
    let state = output.state.lock();
    (state.writer.is_none() && state.failed.is_none() && note.outputs.is_empty())
        .then(|| outcome_of(ended, &state.stdout))
}

/// Outcome of a guest: stores its log and artifacts.
pub(crate) async fn finish(
    env: &Env,
    attempt_ref: AttemptRef,
    note: &Note,
    ended: &RunOutcome,
    output: &Output,
) -> Outcome {
    let (failed, stdout) = {
        let mut state = output.state.lock();
        state.writer = None;
        (state.failed.take(), std::mem::take(&mut state.stdout))
    };
    let mut outcome = outcome_of(ended, &stdout);
    let stored = match failed {
        Some(error) => Err(error.to_string()),
        None => store_log(&env.blobs, env.logs.clone(), attempt_ref).await.map(|(log, _)| log),
    };
    match stored {
        Ok(log) => outcome.log = log,
        Err(error) => {
            let lost = failure(End::Infrastructure, format!("its output could not be stored: {error}"));
            return Outcome { usage: outcome.usage, ..lost };
        }
    }
    if outcome.end == End::Succeeded && !note.outputs.is_empty() {
        return collect_artifacts(env, attempt_ref, note, outcome).await;
    }
    outcome
}

fn outcome_of(ended: &RunOutcome, stdout: &[u8]) -> Outcome {
    let usage = Usage { cpu: Millis(ended.cpu.as_millis() as u64), memory_peak_bytes: ended.memory_peak_bytes };
    let base = Outcome { usage: Some(usage), ..Outcome::of(End::Error) };
    let with_message = |end: End, message: String| Outcome { end, message: Some(message), ..base.clone() };
    match &ended.exit {
        GuestExit::Succeeded => {
            Outcome { end: End::Succeeded, exit_code: Some(0), result: Some(result(stdout)), ..base }
        }
        GuestExit::ExitCode(code) => Outcome {
            exit_code: Some(i32::from(*code)),
            ..with_message(End::Error, format!("it exited with code {code}"))
        },
        GuestExit::Trapped(text) => with_message(End::Error, format!("it trapped: {text}")),
        GuestExit::OutOfFuel => with_message(End::Error, "it used up its fuel (`limits.fuel`)".to_owned()),
        GuestExit::OutOfMemory(text) => {
            with_message(End::Error, format!("it needed more memory than its limit (`limits.memory_bytes`): {text}"))
        }
        GuestExit::Stopped | GuestExit::TimedOut => Outcome { end: End::Stopped, ..base },
        GuestExit::HostFailed(text) => Outcome { usage: base.usage, ..Outcome::of_node_failure(text.clone()) },
    }
}

/// Compiles a component that is not compiled yet.
pub(crate) async fn load(
    executor: &Executor,
    env: &Env,
    run: &WasmRun,
    metering: Metering,
) -> Result<Arc<wasm::Program>, Outcome> {
    let blobs = env.blobs.clone();
    let id = run.component;
    let content = async move {
        let pinned = blobs.materialise(id).await.map_err(std::io::Error::other)?;
        Ok(Bytes::from(tokio::fs::read(pinned.path()).await?))
    };
    executor.prepare(id, metering, content).await.map_err(|refused| match refused {
        PrepareError::Host { .. } => failure(End::Infrastructure, refused.to_string()),
        // Most often the component was never uploaded.
        _ => failure(End::Fatal, refused.to_string()),
    })
}
