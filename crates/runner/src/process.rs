//! The process executor, without isolation: a program with the server's own rights.
//!
//! A process dies with its server, so that none runs beside its own rerun: the kernel kills the
//! direct child (parent-death signal), and [`crate::end_leftovers`] the rest before the next start.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use model::id::NodeId;
use model::job::{End, Outcome};
use model::json::Json;
use model::message::Ticket;
use model::spec::ProcessRun;
use model::time::Millis;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};

use crate::leftovers::{ATTEMPT_MARK, JOB_MARK, NODE_MARK, end_attempt};
use crate::logs::{Stream, Writer};

/// Of a process's standard output this much becomes its result.
const RESULT_BYTES_MAX: usize = 64 * 1024;
/// How many pieces of output may wait to be written before the process is made to wait.
const PIECES_WAITING_MAX: usize = 64;
/// How long the rest of the output is waited for after the end of the program.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(2);
/// What a program finds in its environment besides what its job gives it.
const INHERITED: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];

/// Where and how an attempt runs.
#[derive(Debug)]
pub(crate) struct Place {
    pub ticket: Ticket,
    pub node: NodeId,
    pub log: PathBuf,
    pub scratch: PathBuf,
    pub log_bytes_max: u64,
    pub stop_grace: Duration,
    pub now: fn() -> Millis,
}

/// Runs a program to its end, or until it is stopped.
pub(crate) async fn run(process: ProcessRun, place: Place, stopped: oneshot::Receiver<()>) -> Outcome {
    let outcome = match begin(&process, &place) {
        Ok((child, writer)) => attend(process, &place, child, writer, stopped).await,
        Err(Trouble::Program(error)) => {
            let program = process.command.first().map_or("", String::as_str);
            // Asking again for a program that is not there gives the same answer.
            let end = if error.kind() == io::ErrorKind::NotFound { End::Fatal } else { End::Error };
            failure(end, format!("`{program}` cannot be started: {error}"))
        }
        Err(Trouble::Host(error)) => failure(End::Infrastructure, format!("no place to run in: {error}")),
    };
    if let Err(error) = tokio::fs::remove_dir_all(&place.scratch).await
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(directory = %place.scratch.display(), %error, "a working directory cannot be removed");
    }
    outcome
}

enum Trouble {
    /// The program could not be started.
    Program(io::Error),
    /// The node could not make room for it.
    Host(io::Error),
}

fn begin(process: &ProcessRun, place: &Place) -> Result<(Child, Writer), Trouble> {
    std::fs::create_dir_all(&place.scratch).map_err(Trouble::Host)?;
    let writer = Writer::create(&place.log, place.log_bytes_max).map_err(Trouble::Host)?;
    let child = spawn(process, place).map_err(Trouble::Program)?;
    Ok((child, writer))
}

fn spawn(process: &ProcessRun, place: &Place) -> io::Result<Child> {
    let (program, arguments) = process.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
        .envs(&process.env)
        .env(NODE_MARK, place.node.to_string())
        .env(JOB_MARK, place.ticket.job.to_string())
        .env(ATTEMPT_MARK, place.ticket.attempt.to_string())
        .current_dir(&place.scratch)
        .stdin(if process.stdin.is_empty() { Stdio::null() } else { Stdio::piped() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Its own group, so that a stop reaches its children too.
        .process_group(0)
        .kill_on_drop(true);
    die_with_server(&mut command);
    command.spawn()
}

#[expect(
    unsafe_code,
    reason = "only code between fork and exec can set the parent-death signal; it is async-signal-safe"
)]
fn die_with_server(command: &mut Command) {
    let server = rustix::process::getpid();
    let ask = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The server may have died between the fork and the line above.
        if rustix::process::getppid() != Some(server) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    };
    // SAFETY: `ask` makes two system calls and allocates nothing.
    unsafe {
        command.pre_exec(ask);
    }
}

/// Feeds the process, keeps its output, and waits for its end.
async fn attend(
    process: ProcessRun,
    place: &Place,
    mut child: Child,
    writer: Writer,
    mut stopped: oneshot::Receiver<()>,
) -> Outcome {
    let (pieces, output) = mpsc::channel(PIECES_WAITING_MAX);
    if let Some(mut stdin) = child.stdin.take() {
        // A program may end without reading what it is given.
        tokio::spawn(async move {
            let _ = stdin.write_all(process.stdin.as_bytes()).await;
        });
    }
    let mut pumps = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        pumps.push(tokio::spawn(pump(Stream::Stdout, stdout, pieces.clone())));
    }
    if let Some(stderr) = child.stderr.take() {
        pumps.push(tokio::spawn(pump(Stream::Stderr, stderr, pieces.clone())));
    }
    drop(pieces);
    let mut kept = tokio::spawn(keep(output, writer, place.now));
    let group = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    let mut asked_to_stop = false;
    let status = tokio::select! {
        // What has ended has ended, also if it was asked to stop at the same moment.
        biased;
        status = child.wait() => {
            clear(group, place).await;
            status
        }
        Ok(()) = &mut stopped => {
            asked_to_stop = true;
            stop(&mut child, group, place).await
        }
    };
    let kept = match tokio::time::timeout(OUTPUT_PATIENCE, &mut kept).await {
        Ok(kept) => kept,
        Err(_) => {
            // Something has got away from us and holds the output open; what the program itself has said is read.
            pumps.iter().for_each(tokio::task::JoinHandle::abort);
            kept.await
        }
    };
    let stdout = match kept {
        Ok(Ok(stdout)) => stdout,
        Ok(Err(error)) => return failure(End::Infrastructure, format!("its output cannot be kept: {error}")),
        Err(error) => return failure(End::Infrastructure, format!("its output was lost: {error}")),
    };
    match status {
        Ok(status) => judge(status, asked_to_stop, &stdout),
        Err(error) => failure(End::Infrastructure, format!("its end cannot be told: {error}")),
    }
}

/// Asks the whole group to stop, then makes everything of the attempt stop.
async fn stop(child: &mut Child, group: Option<Pid>, place: &Place) -> io::Result<ExitStatus> {
    signal(group, Signal::TERM);
    let graceful = tokio::time::timeout(place.stop_grace, child.wait()).await;
    clear(group, place).await;
    match graceful {
        Ok(status) => status,
        Err(_) => child.wait().await,
    }
}

/// What an attempt leaves behind must not outlive it, run beside its rerun, or hold its output open; also what has
/// left the group.
async fn clear(group: Option<Pid>, place: &Place) {
    signal(group, Signal::KILL);
    let (node, ticket) = (place.node, place.ticket);
    // It reads the whole process table.
    let _ = tokio::task::spawn_blocking(move || end_attempt(node, ticket)).await;
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // It may have ended by itself.
        let _ = kill_process_group(group, signal);
    }
}

fn judge(status: ExitStatus, asked_to_stop: bool, stdout: &[u8]) -> Outcome {
    use std::os::unix::process::ExitStatusExt;
    let (exit_code, signal) = (status.code(), status.signal());
    let base = Outcome { exit_code, signal, ..Outcome::of(End::Succeeded) };
    if asked_to_stop {
        return Outcome { end: End::Stopped, ..base };
    }
    if status.success() {
        return Outcome { result: Some(result(stdout)), ..base };
    }
    let message = match (exit_code, signal) {
        (Some(code), _) => format!("it exited with code {code}"),
        (None, Some(signal)) => format!("it was ended by signal {signal}"),
        (None, None) => "it ended in an unknown way".to_owned(),
    };
    Outcome { end: End::Error, message: Some(message), ..base }
}

/// A program's result is its standard output: as JSON if it is JSON, else as text.
fn result(stdout: &[u8]) -> Json {
    Json::parse(stdout).unwrap_or_else(|| Json::of(&String::from_utf8_lossy(stdout)))
}

fn failure(end: End, message: String) -> Outcome {
    Outcome { message: Some(message), ..Outcome::of(end) }
}

async fn pump(stream: Stream, mut from: impl tokio::io::AsyncRead + Unpin, pieces: mpsc::Sender<(Stream, Vec<u8>)>) {
    let mut buffer = vec![0; 32 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if pieces.send((stream, buffer[..read].to_vec())).await.is_err() {
            return;
        }
    }
}

/// Writes output as it comes and returns the beginning of the standard output.
async fn keep(
    mut output: mpsc::Receiver<(Stream, Vec<u8>)>,
    mut writer: Writer,
    now: fn() -> Millis,
) -> io::Result<Vec<u8>> {
    let mut stdout = Vec::new();
    while let Some((stream, piece)) = output.recv().await {
        writer.write(stream, now(), &piece)?;
        if stream == Stream::Stdout {
            let room = RESULT_BYTES_MAX - stdout.len();
            stdout.extend_from_slice(&piece[..piece.len().min(room)]);
        }
    }
    Ok(stdout)
}
