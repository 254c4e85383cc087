//! A rolling restart of a stack under load: jobs go on, and submits are refused only while the control node restarts.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use client::jobs::SubmitOptions;
use client::{Client, Options};
use model::id::JobId;
use model::state::State;

use crate::Scale;
use crate::report::{Report, Target};
use crate::server::{free_port, outlast_binary};

const JOBS: &str = "rolling restart, jobs lost or retried";
const SUBMITS: &str = "rolling restart, submits refused by others";

const SUBMITTERS: usize = 4;
/// Between two submits of one submitter.
const PAUSE: Duration = Duration::from_millis(100);
const JOB: &str = r#"{"run":{"process":{"command":["sleep","0.5"]}},"max_retries":0}"#;
const TIMEOUT: Duration = Duration::from_secs(60);

pub fn measure(_scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    if !report.selects(JOBS) && !report.selects(SUBMITS) {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let stack = Stack::start()?;
        let options = Options { resend_for: Duration::ZERO, connect_wait: Duration::ZERO, ..Options::default() };
        let client = Client::with_options(&stack.url, options)?;
        let stop = Arc::new(AtomicBool::new(false));
        let submitters: Vec<_> =
            (0..SUBMITTERS).map(|_| tokio::spawn(submit_until(client.clone(), stop.clone()))).collect();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let directory = stack.directory.path().to_owned();
        let rolled = tokio::task::spawn_blocking(move || roll(&directory)).await??;
        tokio::time::sleep(Duration::from_secs(2)).await;
        stop.store(true, Ordering::Relaxed);
        let mut load = Load::default();
        for submitter in submitters {
            load.add(submitter.await?);
        }
        let bad = not_as_they_should(&client, &load.accepted).await?;
        let outside = load.refused.iter().filter(|at| !rolled.control.contains(*at)).count();
        let note = format!(
            "control node and 5 runner nodes in {:.1} s, {} jobs of 0.5 s accepted",
            rolled.all.as_secs_f64(),
            load.accepted.len()
        );
        report.absolute(JOBS, "jobs", bad as f64, Target::AtMost(0.0), note);
        let note = format!(
            "{} refused within the control node's own restart of {:.2} s, {outside} outside",
            load.refused.len() - outside,
            (rolled.control.end - rolled.control.start).as_secs_f64()
        );
        report.absolute(SUBMITS, "submits", outside as f64, Target::AtMost(0.0), note);
        Ok(())
    })
}

/// A stack, stopped and removed on drop.
struct Stack {
    directory: tempfile::TempDir,
    url: String,
}

impl Stack {
    fn start() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir_in(".")?;
        let (api, cluster) = (free_port()?, free_port()?);
        let file = format!(
            "name: bench\ndirectory: state\ncontrol: {{listen: \"{api}\", cluster_listen: \"{cluster}\"}}\n\
             nodes: [{{name: node, count: 5}}]\n"
        );
        std::fs::write(directory.path().join("stack.yaml"), file)?;
        let stack = Self { directory, url: format!("http://{api}") };
        let status = command(stack.directory.path(), "up")?.stdout(Stdio::null()).status()?;
        anyhow::ensure!(status.success(), "the stack has not started: {status}");
        Ok(stack)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if let Ok(mut down) = command(self.directory.path(), "down") {
            let _ = down.arg("--stop-jobs").stdout(Stdio::null()).status();
        }
    }
}

fn command(directory: &Path, name: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(std::path::absolute(outlast_binary()?)?);
    command.args(["stack", name]).current_dir(directory).stdin(Stdio::null());
    Ok(command)
}

struct Rolled {
    all: Duration,
    /// The restart of the control node: from its first line of the command to its last.
    control: std::ops::Range<Instant>,
}

fn roll(directory: &Path) -> anyhow::Result<Rolled> {
    let begin = Instant::now();
    let mut child = command(directory, "rolling")?.stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().context("the command has no output")?;
    let mut control = None;
    for line in BufReader::new(output).lines() {
        if line?.starts_with("control") {
            let now = Instant::now();
            let range = control.get_or_insert(now..now);
            range.end = now;
        }
    }
    let status = child.wait()?;
    anyhow::ensure!(status.success(), "the rolling restart has failed: {status}");
    let control = control.context("the control node was not restarted")?;
    Ok(Rolled { all: begin.elapsed(), control })
}

#[derive(Default)]
struct Load {
    accepted: Vec<JobId>,
    /// When submits were refused or interrupted.
    refused: Vec<Instant>,
}

impl Load {
    fn add(&mut self, other: Self) {
        self.accepted.extend(other.accepted);
        self.refused.extend(other.refused);
    }
}

async fn submit_until(client: Client, stop: Arc<AtomicBool>) -> Load {
    let mut load = Load::default();
    while !stop.load(Ordering::Relaxed) {
        match client.submit_raw(JOB.as_bytes().into(), &SubmitOptions::default()).await {
            Ok(accepted) => load.accepted.push(accepted.id),
            Err(_) => load.refused.push(Instant::now()),
        }
        tokio::time::sleep(PAUSE).await;
    }
    load
}

/// Number of jobs that have not succeeded as their first attempt.
async fn not_as_they_should(client: &Client, jobs: &[JobId]) -> anyhow::Result<usize> {
    let (mut bad, begin) = (0, Instant::now());
    for id in jobs {
        let job = loop {
            let job = client.job(*id).await?;
            if job.state.is_terminal() || begin.elapsed() > TIMEOUT {
                break job;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        if job.state != State::Succeeded || job.retries != 0 || job.attempt.0 != 1 {
            eprintln!("{id} is {:?} after attempt {}, {} retries", job.state, job.attempt.0, job.retries);
            bad += 1;
        }
    }
    Ok(bad)
}
