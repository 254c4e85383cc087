//! A control node with five runner nodes: how soon work of a dead or hung node runs elsewhere, and what the network costs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use api::{CordonNode, CreateJoinToken, JobView, NodeView};
use client::Client;
use client::jobs::SubmitOptions;
use model::id::{JobId, NodeId};
use model::state::State;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::Scale;
use crate::http::{Batches, send};
use crate::report::{Report, Target};
use crate::sandboxes::batch;
use crate::server::{Server, free_port, outlast_binary};

const DEATH: &str = "kill -9 of a node to its job running elsewhere";
const HANG: &str = "SIGSTOP of a node to its job running elsewhere";
const CONTROL: &str = "kill -9 of the control node to accepting jobs";
const ECHO: &str = "echo jobs through a runner node";
const PROCESSES: &str = "sandboxed /bin/true on a runner node";

const NODES: usize = 5;
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(1);

pub fn measure(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    if ![DEATH, HANG, CONTROL, ECHO, PROCESSES].iter().any(|name| report.selects(name)) {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut cluster = Cluster::start().await?;
        if report.selects(ECHO) || report.selects(PROCESSES) {
            cluster.throughput(scale, report).await?;
        }
        cluster.control_takes_work(false).await?;
        let rounds = scale.of(20).max(2);
        if report.selects(DEATH) {
            let slowest = cluster.failures(rounds, Signal::KILL).await?;
            let note = format!("5 nodes, server and spawner killed, slowest of {rounds}");
            report.absolute(DEATH, "s", slowest.as_secs_f64(), Target::AtMost(1.0), note);
        }
        if report.selects(HANG) {
            let slowest = cluster.failures(rounds, Signal::STOP).await?;
            let note = format!("5 nodes, server and spawner stopped, slowest of {rounds}");
            report.absolute(HANG, "s", slowest.as_secs_f64(), Target::AtMost(4.0), note);
        }
        if report.selects(CONTROL) {
            cluster.restart_control(scale, report).await?;
        }
        Ok(())
    })
}

/// A runner node with its processes.
struct Runner {
    data: PathBuf,
    server: Child,
}

impl Runner {
    fn start(data: PathBuf, token: Option<&str>, control: &str) -> anyhow::Result<Self> {
        let mut command = Command::new(outlast_binary()?);
        command.arg("join").arg("--data-dir").arg(&data).arg(control).stdin(Stdio::null()).stdout(Stdio::null());
        if let Some(token) = token {
            command.args(["--token", token]);
        }
        let server = command.spawn().context("cannot start a runner node")?;
        Ok(Self { data, server })
    }

    /// Its server, its spawner, and whatever runs under it.
    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let mut pids = spawners(&self.data)?;
        pids.push(Pid::from_child(&self.server));
        for pid in pids {
            // A process may have ended meanwhile.
            let _ = kill_process(pid, signal);
        }
        Ok(())
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::KILL)?;
        self.server.wait()?;
        Ok(())
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Processes of the spawner of a data directory.
fn spawners(data: &Path) -> anyhow::Result<Vec<Pid>> {
    let base = fs::canonicalize(data)?.join("sandbox").to_string_lossy().into_owned();
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else { continue };
        let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        if line.split(|byte| *byte == 0).any(|argument| argument == base.as_bytes()) {
            pids.push(pid);
        }
    }
    Ok(pids)
}

struct Cluster {
    server: Server,
    client: Client,
    runners: Vec<Runner>,
    ports: [String; 2],
    dir: TempDir,
}

impl Cluster {
    async fn start() -> anyhow::Result<Self> {
        let dir = tempfile::tempdir_in(".")?;
        let ports = [free_port()?.to_string(), free_port()?.to_string()];
        let (server, client) = start_control(dir.path(), &ports).await?;
        let mut cluster = Self { server, client, runners: Vec::new(), ports, dir };
        let request = CreateJoinToken { reusable: true, ..CreateJoinToken::default() };
        let token = cluster.client.create_join_token(&request).await?.token;
        for number in 0..NODES {
            let data = std::path::absolute(cluster.dir.path())?.join(format!("node-{number}"));
            cluster.runners.push(Runner::start(data, Some(&token), &cluster.ports[1])?);
        }
        cluster.wait_for_nodes().await?;
        Ok(cluster)
    }

    /// Waits until all runner nodes are ready and probed.
    async fn wait_for_nodes(&self) -> anyhow::Result<()> {
        let begin = Instant::now();
        loop {
            let nodes = self.client.nodes().await?.items;
            let is_ready = |node: &&NodeView| {
                node.role == "runner" && node.state == "ready" && node.probes.as_deref() == Some("alive")
            };
            if nodes.iter().filter(is_ready).count() == NODES {
                return Ok(());
            }
            anyhow::ensure!(begin.elapsed() < TIMEOUT, "the runner nodes were not ready in time: {nodes:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Whether the control node itself runs jobs.
    async fn control_takes_work(&self, takes_work: bool) -> anyhow::Result<()> {
        for node in self.client.nodes().await?.items {
            if node.role == "control" {
                self.take_work(node.id, takes_work).await?;
            }
        }
        Ok(())
    }

    async fn take_work(&self, node: NodeId, takes_work: bool) -> anyhow::Result<()> {
        match takes_work {
            true => self.client.uncordon_node(node).await?,
            false => self.client.cordon_node(node, &CordonNode::default()).await?,
        };
        Ok(())
    }

    /// The slowest time from a signal to a node until its job runs elsewhere.
    async fn failures(&mut self, rounds: u64, signal: Signal) -> anyhow::Result<Duration> {
        let mut slowest = Duration::ZERO;
        for _ in 0..rounds {
            slowest = slowest.max(self.failure(signal).await?);
        }
        Ok(slowest)
    }

    async fn failure(&mut self, signal: Signal) -> anyhow::Result<Duration> {
        let job = br#"{"run":{"process":{"command":["sleep","3600"]}}}"#;
        let job = self.client.submit_raw(job.to_vec().into(), &SubmitOptions::default()).await?.id;
        let running = self.when(job, |job| job.state == State::Running).await?;
        let runner = running.runner.context("a running job has a runner")?;
        let index = self.runner_of(&runner)?;
        let begin = Instant::now();
        self.runners[index].signal(signal)?;
        self.when(job, |job| job.state == State::Running && job.attempt.0 == 2).await?;
        let spent = begin.elapsed();
        self.client.cancel(job).await?;
        if signal == Signal::STOP {
            self.runners[index].signal(Signal::CONT)?;
        } else {
            self.runners[index].kill()?;
            let data = self.runners[index].data.clone();
            self.runners[index] = Runner::start(data, None, &self.ports[1])?;
        }
        self.when(job, |job| job.state.is_terminal()).await?;
        self.wait_for_nodes().await?;
        Ok(spent)
    }

    /// The node with this runner: its id is in its data directory.
    fn runner_of(&self, runner: &str) -> anyhow::Result<usize> {
        for (index, candidate) in self.runners.iter().enumerate() {
            let text = fs::read_to_string(candidate.data.join("format"))?;
            let number =
                text.lines().find_map(|line| line.strip_prefix("node ")).context("a data directory has a node")?;
            let node = NodeId(number.trim().parse()?).to_string();
            if runner.trim_start_matches("runner_") == node.trim_start_matches("node_") {
                return Ok(index);
            }
        }
        bail!("no runner node is {runner}")
    }

    async fn when(&self, job: JobId, wanted: impl Fn(&JobView) -> bool) -> anyhow::Result<JobView> {
        let begin = Instant::now();
        loop {
            let view = self.client.job(job).await?;
            if wanted(&view) {
                return Ok(view);
            }
            anyhow::ensure!(begin.elapsed() < TIMEOUT, "the job did not get there in time: {view:?}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// The same jobs in this process and through one runner node.
    async fn throughput(&mut self, scale: Scale, report: &mut Report) -> anyhow::Result<()> {
        let nodes = self.client.nodes().await?.items;
        let others: Vec<NodeId> = nodes.iter().filter(|node| node.role == "runner").map(|node| node.id).collect();
        for node in &others {
            self.take_work(*node, false).await?;
        }
        let (echo_jobs, process_jobs) = (scale.of(1_000_000), scale.of(6_000));
        let own = (self.echo(echo_jobs).await?, self.processes(process_jobs).await?);
        self.control_takes_work(false).await?;
        self.take_work(others[0], true).await?;
        let through = (self.echo(echo_jobs).await?, self.processes(process_jobs).await?);
        for node in &others[1..] {
            self.take_work(*node, true).await?;
        }
        let note = format!("{echo_jobs} jobs in batches of 500");
        report.ratio(ECHO, "jobs/s", through.0, ("in this process", own.0), Target::AtLeast(0.5), note);
        let note = format!("{process_jobs} jobs in batches");
        report.ratio(PROCESSES, "jobs/s", through.1, ("in this process", own.1), Target::AtLeast(0.8), note);
        Ok(())
    }

    async fn echo(&self, jobs: u64) -> anyhow::Result<f64> {
        let begin = Instant::now();
        send(&self.server, Batches::new(&self.server, 500, false, 0), jobs / 500, 8).await?;
        self.server.drained().await?;
        Ok(jobs as f64 / begin.elapsed().as_secs_f64())
    }

    async fn processes(&self, jobs: u64) -> anyhow::Result<f64> {
        let job = r#"{"run":{"process":{"command":["/bin/true"]}}}"#;
        let begin = Instant::now();
        send(&self.server, batch(&self.server, job, 500.min(jobs)), (jobs / 500).max(1), 2).await?;
        self.server.drained().await?;
        Ok(jobs as f64 / begin.elapsed().as_secs_f64())
    }

    async fn restart_control(mut self, scale: Scale, report: &mut Report) -> anyhow::Result<()> {
        let live = scale.of(100_000);
        send(&self.server, Batches::new(&self.server, 500, false, 3_600_000), live / 500, 8).await?;
        self.server.kill()?;
        let begin = Instant::now();
        (self.server, self.client) = start_control(self.dir.path(), &self.ports).await?;
        let job = br#"{"run":{"echo":{"value":1}}}"#;
        self.client.submit_raw(job.to_vec().into(), &SubmitOptions::default()).await?;
        let accepted = begin.elapsed();
        self.wait_for_nodes().await?;
        let note = format!(
            "{live} live jobs, 5 runner nodes, all connected again after {:.2} s",
            begin.elapsed().as_secs_f64()
        );
        report.absolute(CONTROL, "s", accepted.as_secs_f64(), Target::AtMost(3.0), note);
        Ok(())
    }
}

async fn start_control(dir: &Path, ports: &[String; 2]) -> anyhow::Result<(Server, Client)> {
    let mut server = Server::control(&dir.join("control"), ports)?;
    server.ready(Instant::now()).await?;
    let client = Client::new(&format!("http://{}", ports[0]))?;
    Ok((server, client))
}
