//! The WebAssembly executor: a component inside the server, with its files and its output.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use model::job::{End, Outcome, Usage};
use model::message::Ticket;
use model::spec::{Task, WasmRun};
use model::time::Millis;
use parking_lot::Mutex;
use spawner::log::Writer;
use wasm::{Ended, Executor, Limits, Metering, Refused, Sink, Stream, Verdict};

use crate::logs;
use crate::place::{Place, failure};
use crate::process::{Env, Note, RESULT_BYTES_MAX, collect, keep_log, result};

/// The memory of a guest that does not say how much it needs.
const MEMORY_BYTES_DEFAULT: u64 = 256 << 20;

/// Keeps what a guest prints. The file is made with the first byte: most guests that are many print nothing.
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

/// A run that only has to be started.
pub(crate) struct Prepared {
    pub program: Arc<wasm::Program>,
    pub task: wasm::Task,
    pub output: Arc<Output>,
}

pub(crate) fn metering(task: &Task) -> Metering {
    if task.limits.fuel.is_some() { Metering::Fuel } else { Metering::Off }
}

/// What a guest is given.
pub(crate) fn prepare(
    env: &Env,
    ticket: Ticket,
    task: &Task,
    run: &WasmRun,
    program: Arc<wasm::Program>,
    place: &Place,
    now: fn() -> Millis,
) -> Prepared {
    let output = Arc::new(Output::new(logs::path(&env.logs, ticket), env.defaults.log_bytes, now));
    let directory = |name: &str| place.path.as_ref().map(|path| path.join(name));
    let limits = Limits {
        memory_bytes: task.limits.memory_bytes.unwrap_or(MEMORY_BYTES_DEFAULT),
        fuel: task.limits.fuel,
        wall: None,
        // The log has its own bound, and keeps the end as well as the beginning.
        output_bytes: u64::MAX,
        file_bytes: task.limits.output_bytes.unwrap_or(env.defaults.output_bytes),
    };
    let task = wasm::Task {
        args: ["job".to_owned()].into_iter().chain(run.args.iter().cloned()).collect(),
        env: run.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        stdin: Bytes::copy_from_slice(run.stdin.as_bytes()),
        inputs: directory("inputs"),
        outputs: directory("outputs"),
        limits,
        sink: output.clone(),
    };
    Prepared { program, task, output }
}

/// The result of a guest that left nothing to be kept: quick, for any thread. `None` when there is more to do.
pub(crate) fn quick_outcome(ended: &Ended, note: &Note, output: &Output) -> Option<Outcome> {
    let state = output.state.lock();
    (state.writer.is_none() && state.failed.is_none() && note.outputs.is_empty()).then(|| judge(ended, &state.stdout))
}

/// The result of any guest.
pub(crate) async fn finish(env: &Env, ticket: Ticket, note: &Note, ended: &Ended, output: &Output) -> Outcome {
    let (failed, stdout) = {
        let mut state = output.state.lock();
        state.writer = None;
        (state.failed.take(), std::mem::take(&mut state.stdout))
    };
    let mut outcome = judge(ended, &stdout);
    let kept = match failed {
        Some(error) => Err(error.to_string()),
        None => keep_log(&env.blobs, env.logs.clone(), ticket).await.map(|(log, _)| log),
    };
    match kept {
        Ok(log) => outcome.log = log,
        Err(error) => {
            let lost = failure(End::Infrastructure, format!("its output cannot be kept: {error}"));
            return Outcome { usage: outcome.usage, ..lost };
        }
    }
    if outcome.end == End::Succeeded && !note.outputs.is_empty() {
        return collect(env, ticket, note, outcome).await;
    }
    outcome
}

fn judge(ended: &Ended, stdout: &[u8]) -> Outcome {
    let usage = Usage { cpu: Millis(ended.cpu.as_millis() as u64), memory_peak_bytes: ended.memory_peak_bytes };
    let base = Outcome { usage: Some(usage), ..Outcome::of(End::Error) };
    let saying = |end: End, message: String| Outcome { end, message: Some(message), ..base.clone() };
    match &ended.verdict {
        Verdict::Succeeded => Outcome { end: End::Succeeded, exit_code: Some(0), result: Some(result(stdout)), ..base },
        Verdict::ExitCode(code) => {
            Outcome { exit_code: Some(i32::from(*code)), ..saying(End::Error, format!("it exited with code {code}")) }
        }
        Verdict::Trapped(text) => saying(End::Error, format!("it trapped: {text}")),
        Verdict::OutOfFuel => saying(End::Error, "it used up its fuel (`limits.fuel`)".to_owned()),
        Verdict::OutOfMemory(text) => {
            saying(End::Error, format!("it needed more memory than its limit (`limits.memory_bytes`): {text}"))
        }
        Verdict::Stopped | Verdict::TimedOut => Outcome { end: End::Stopped, ..base },
        Verdict::HostFailed(text) => saying(End::Infrastructure, text.clone()),
    }
}

/// Makes a component ready that was not ready yet.
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
        Refused::Host { .. } => failure(End::Infrastructure, refused.to_string()),
        // Most often it was never uploaded.
        _ => failure(End::Fatal, refused.to_string()),
    })
}
