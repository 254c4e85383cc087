//! Server processes under measurement: `outlast` and the bare server.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use client::load::Connection;

/// Limit on the time until a server is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A server process, killed on drop.
pub struct Server {
    child: Child,
    pub address: client::Address,
}

impl Server {
    /// Starts `outlast up` with a data directory.
    pub fn outlast(data: &Path) -> anyhow::Result<Self> {
        let listen = free_port()?;
        let mut command = Command::new(outlast_binary()?);
        command.args(["up", "--listen", &listen.to_string(), "--data-dir"]).arg(data);
        Self::start(command, listen)
    }

    /// Starts `outlast up` with a data directory and a configuration file.
    pub fn outlast_with(data: &Path, config: &Path) -> anyhow::Result<Self> {
        let listen = free_port()?;
        let mut command = Command::new(outlast_binary()?);
        command.args(["up", "--listen", &listen.to_string(), "--data-dir"]).arg(data).arg("--config").arg(config);
        Self::start(command, listen)
    }

    /// Starts a control node: addresses of its API and for other nodes.
    pub fn control(data: &Path, [listen, cluster]: &[String; 2]) -> anyhow::Result<Self> {
        let mut command = Command::new(outlast_binary()?);
        command.args(["up", "--listen", listen, "--cluster-listen", cluster, "--data-dir"]).arg(data);
        Self::start(command, listen.parse()?)
    }

    /// Starts the bare server.
    pub fn bare() -> anyhow::Result<Self> {
        let listen = free_port()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--bare").env("BENCH_LISTEN", listen.to_string());
        Self::start(command, listen)
    }

    fn start(mut command: Command, listen: SocketAddr) -> anyhow::Result<Self> {
        let child =
            command.stdout(Stdio::null()).stdin(Stdio::null()).spawn().context("cannot start the server process")?;
        let address = format!("http://{listen}").parse().map_err(|error| anyhow::anyhow!("{error}"))?;
        Ok(Self { child, address })
    }

    /// Waits until `/readyz` returns 200. Returns the time since `since`.
    pub async fn ready(&mut self, since: Instant) -> anyhow::Result<Duration> {
        let head = client::load::RequestHead::new("GET", &self.address, "/readyz", &[]);
        let mut request = Vec::new();
        head.write(b"", &mut request);
        while since.elapsed() < READY_TIMEOUT {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server exited before it was ready: {status}");
            }
            if let Ok(mut connection) = Connection::open(&self.address).await
                && let Ok(reply) = connection.exchange(&request).await
                && reply.status == 200
            {
                return Ok(since.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        bail!("the server was not ready within {READY_TIMEOUT:?}")
    }

    /// Reads a gauge or counter from `/metrics`.
    pub async fn metric(&self, name: &str) -> anyhow::Result<u64> {
        let head = client::load::RequestHead::new("GET", &self.address, "/metrics", &[]);
        let mut request = Vec::new();
        head.write(b"", &mut request);
        let mut connection = Connection::open(&self.address).await?;
        let reply = connection.exchange(&request).await?;
        let text = String::from_utf8_lossy(reply.body).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).with_context(|| format!("/metrics has no {name}"))
    }

    /// Waits until no job is live.
    pub async fn drained(&self) -> anyhow::Result<()> {
        while self.metric("outlast_jobs_live").await? > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Resident memory in bytes.
    pub fn memory(&self) -> anyhow::Result<u64> {
        self.memory_of_kind("VmRSS:")
    }

    /// The part of the resident memory that is not backed by files. The rest is pages of the binary and its libraries.
    pub fn anonymous_memory(&self) -> anyhow::Result<u64> {
        self.memory_of_kind("RssAnon:")
    }

    fn memory_of_kind(&self, field: &str) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let line = line.with_context(|| format!("/proc/<pid>/status has no {field}"))?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib * 1024)
    }

    /// CPU time used so far.
    pub fn cpu_time(&self) -> anyhow::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
        Ok(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
    }

    /// Sends SIGKILL and waits for the exit.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends SIGTERM and waits for the exit.
    pub fn stop(mut self) -> anyhow::Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn free_port() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// The binary under test: `OUTLAST_BIN`, or `outlast` in the directory of this executable.
pub fn outlast_binary() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os("OUTLAST_BIN") {
        return Ok(path.into());
    }
    Ok(std::env::current_exe()?.with_file_name("outlast"))
}
