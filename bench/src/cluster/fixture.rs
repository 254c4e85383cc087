//! A control node with five runner nodes, on the loopback interface or each on a host of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use api::{CordonNode, CreateJoinToken, JobView, NodeView};
use client::Client;
use client::jobs::SubmitOptions;
use hosts::{Host, Network};
use model::id::{JobId, NodeId};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::server::{Server, free_port, outlast_binary};

pub const NODES: usize = 5;
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(1);

/// A runner node with its processes.
pub struct Runner {
    data: PathBuf,
    server: Child,
    /// Its own, if it is not on the loopback interface.
    host: Option<Host>,
}

impl Runner {
    fn start(data: PathBuf, host: Option<Host>, token: Option<&str>, control: &str) -> anyhow::Result<Self> {
        let mut command = Command::new(outlast_binary()?);
        command.arg("join").arg("--data-dir").arg(&data).arg(control).stdin(Stdio::null()).stdout(Stdio::null());
        if let Some(token) = token {
            command.args(["--token", token]);
        }
        let server = match &host {
            Some(host) => host.run(|| command.spawn()),
            None => command.spawn(),
        };
        Ok(Self { data, server: server.context("cannot start a runner node")?, host })
    }

    pub fn host(&self) -> anyhow::Result<&Host> {
        self.host.as_ref().context("this runner node has no host of its own")
    }

    /// Its server, its spawner, and whatever runs under it.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let mut pids = spawners(&self.data)?;
        pids.push(Pid::from_child(&self.server));
        for pid in pids {
            // A process may have ended meanwhile.
            let _ = kill_process(pid, signal);
        }
        Ok(())
    }

    pub fn kill(&mut self) -> anyhow::Result<()> {
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

pub struct Cluster {
    server: Server,
    client: Client,
    runners: Vec<Runner>,
    addresses: [String; 2],
    dir: TempDir,
    /// Removed after its nodes.
    _network: Option<Network>,
}

impl Cluster {
    /// All nodes on the loopback interface.
    pub async fn start() -> anyhow::Result<Self> {
        let addresses = [free_port()?.to_string(), free_port()?.to_string()];
        Self::start_on(addresses, None).await
    }

    /// Each node on a host of its own. Moves this thread to that of the control node, and must be called on a runtime
    /// without other threads.
    pub async fn start_apart() -> anyhow::Result<Self> {
        let mut network = Network::new();
        let host = network.add_host();
        host.enter();
        let addresses = ["127.0.0.1:7070".to_owned(), format!("{}:7071", host.address())];
        Self::start_on(addresses, Some(network)).await
    }

    async fn start_on(addresses: [String; 2], network: Option<Network>) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir_in(".")?;
        let (server, client) = start_control(dir.path(), &addresses).await?;
        let mut cluster = Self { server, client, runners: Vec::new(), addresses, dir, _network: network };
        let request = CreateJoinToken { reusable: true, ..CreateJoinToken::default() };
        let token = cluster.client.create_join_token(&request).await?.token;
        for number in 0..NODES {
            let data = std::path::absolute(cluster.dir.path())?.join(format!("node-{number}"));
            let host = cluster._network.as_mut().map(Network::add_host);
            cluster.runners.push(Runner::start(data, host, Some(&token), &cluster.addresses[1])?);
        }
        cluster.wait_for_nodes().await?;
        Ok(cluster)
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    pub fn directory(&self) -> &Path {
        self.dir.path()
    }

    pub fn runner(&mut self, index: usize) -> &mut Runner {
        &mut self.runners[index]
    }

    /// Starts a runner node again that was killed.
    pub fn start_runner(&mut self, index: usize) -> anyhow::Result<()> {
        let runner = &mut self.runners[index];
        let (data, host) = (runner.data.clone(), runner.host.take());
        *runner = Runner::start(data, host, None, &self.addresses[1])?;
        Ok(())
    }

    /// Kills the control node and starts it again.
    pub async fn kill_control(&mut self) -> anyhow::Result<()> {
        self.server.kill()?;
        (self.server, self.client) = start_control(self.dir.path(), &self.addresses).await?;
        Ok(())
    }

    pub async fn submit(&self, job: &str) -> anyhow::Result<JobId> {
        Ok(self.client.submit_raw(job.as_bytes().to_vec().into(), &SubmitOptions::default()).await?.id)
    }

    /// Waits until all runner nodes are ready and probed.
    pub async fn wait_for_nodes(&self) -> anyhow::Result<()> {
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
    pub async fn control_takes_work(&self, takes_work: bool) -> anyhow::Result<()> {
        for node in self.client.nodes().await?.items {
            if node.role == "control" {
                self.take_work(node.id, takes_work).await?;
            }
        }
        Ok(())
    }

    pub async fn take_work(&self, node: NodeId, takes_work: bool) -> anyhow::Result<()> {
        match takes_work {
            true => self.client.uncordon_node(node).await?,
            false => self.client.cordon_node(node, &CordonNode::default()).await?,
        };
        Ok(())
    }

    /// The node with this runner: its id is in its data directory.
    pub fn runner_of(&self, runner: &str) -> anyhow::Result<usize> {
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

    pub async fn when(&self, job: JobId, wanted: impl Fn(&JobView) -> bool) -> anyhow::Result<JobView> {
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
}

async fn start_control(dir: &Path, addresses: &[String; 2]) -> anyhow::Result<(Server, Client)> {
    let mut server = Server::control(&dir.join("control"), addresses)?;
    server.ready(Instant::now()).await?;
    let client = Client::new(&format!("http://{}", addresses[0]))?;
    Ok((server, client))
}
