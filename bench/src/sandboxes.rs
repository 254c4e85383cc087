//! Throughput of sandboxed processes: the spawner alone compared with a plain spawn and with bubblewrap, then as jobs.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use client::load::{Reply, RequestHead, Tally, Workload};
use spawner::protocol::{self, AttemptKey, Bounds, Event, ExitStatus, Launch};
use spawner::{ClaimedSpawner, Directories, Options, claim};

use crate::Scale;
use crate::http::send;
use crate::report::{Report, Target};
use crate::server::{Server, outlast_binary};

const ALONE: &str = "sandboxed /bin/true, spawner alone";
const BUBBLEWRAP: &str = "sandboxed /bin/true, versus bubblewrap";
const JOBS: &str = "sandboxed /bin/true as jobs, end to end";
const PROGRAM: &str = "/bin/true";
const FILTER: &str = "filter";
const PARALLEL: u64 = 2;
/// Alternating rounds: changes in machine load affect all three.
const ROUNDS: u64 = 5;

/// The `standard` profile as far as bubblewrap supports it: the same namespaces, bind mounts and seccomp filter; no
/// landlock and no resource limits.
const BUBBLEWRAP_ARGUMENTS: &str = "--unshare-all --die-with-parent --new-session --cap-drop ALL --hostname job \
     --uid 1000 --gid 1000 --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/sbin /sbin \
     --symlink usr/lib /lib --symlink usr/lib64 /lib64 --dir /run --dir /var --dir /job/inputs --dir /job/worker \
     --ro-bind-try /etc/alternatives /etc/alternatives --ro-bind-try /etc/ld.so.cache /etc/ld.so.cache \
     --ro-bind-try /etc/ld.so.conf /etc/ld.so.conf --ro-bind-try /etc/ld.so.conf.d /etc/ld.so.conf.d \
     --ro-bind-try /etc/localtime /etc/localtime --ro-bind-try /etc/mime.types /etc/mime.types \
     --ro-bind-try /etc/resolv.conf /etc/resolv.conf --ro-bind-try /etc/ssl/certs /etc/ssl/certs \
     --proc /proc --dev /dev --tmpfs /tmp --dir /tmp/outputs --chdir /job /bin/true";

pub fn measure(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    if ![ALONE, BUBBLEWRAP, JOBS].iter().any(|name| report.selects(name)) {
        return Ok(());
    }
    let temporary = tempfile::tempdir_in(".")?;
    // The spawner has a different current directory.
    let dir = std::path::absolute(temporary.path())?;
    std::fs::write(dir.join(FILTER), spawner::seccomp_filter_bytes())?;
    let count = scale.of(1_500);
    let mut alone = StandaloneSpawner::start(&dir)?;
    let (mut plain, mut ours, mut theirs) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for _ in 0..ROUNDS {
        plain += in_parallel(count, |_| spawn(Command::new(PROGRAM).stdout(Stdio::null())))?;
        ours += alone.run(count)?;
        theirs += in_parallel(count / 4, |number| bubblewrap(&dir, number))?;
    }
    let per_second = |count: u64, spent: Duration| (ROUNDS * count) as f64 / spent.as_secs_f64();
    let rate = per_second(count, ours);
    let note = format!("2 in parallel, output captured; {ROUNDS} alternating rounds of {count}");
    report.ratio(ALONE, "per s", rate, ("posix_spawn", per_second(count, plain)), Target::AtLeast(0.3), note);
    let reference = ("bubblewrap", per_second(count / 4, theirs));
    report.ratio(BUBBLEWRAP, "per s", rate, reference, Target::AtLeast(3.0), "");
    drop(alone);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(as_jobs(scale, rate, report))
}

fn in_parallel(count: u64, run: impl Fn(u64) -> anyhow::Result<()> + Sync) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..PARALLEL)
            .map(|thread| scope.spawn(move || (thread..count).step_by(PARALLEL as usize).try_for_each(run)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|_| bail!("a benchmark thread panicked")))
    })?;
    Ok(begin.elapsed())
}

fn spawn(command: &mut Command) -> anyhow::Result<()> {
    let status = command.stdin(Stdio::null()).status().context("cannot start the program")?;
    ensure!(status.success(), "the program failed: {status}");
    Ok(())
}

fn bubblewrap(dir: &Path, number: u64) -> anyhow::Result<()> {
    let log = File::create(dir.join(format!("bubblewrap-{number}")))?;
    let filter = File::open(dir.join(FILTER))?;
    // bwrap reads the inherited descriptor. Concurrently spawned processes inherit it too, which is harmless.
    rustix::io::fcntl_setfd(&filter, rustix::io::FdFlags::empty())?;
    let mut command = Command::new("bwrap");
    command.args(["--seccomp", &filter.as_raw_fd().to_string()]);
    command.args(BUBBLEWRAP_ARGUMENTS.split_whitespace()).stdout(log.try_clone()?).stderr(log);
    spawn(&mut command)
}

/// A spawner process used without a server.
struct StandaloneSpawner {
    dir: PathBuf,
    claimed: ClaimedSpawner,
    next: u64,
}

impl StandaloneSpawner {
    fn start(dir: &Path) -> anyhow::Result<Self> {
        let options = Options {
            directories: Directories {
                base: dir.join("base"),
                scratch: dir.join("scratch"),
                workers: dir.join("workers"),
            },
            node: format!("bench-{}", std::process::id()),
            unclaimed_timeout: Duration::from_secs(1),
            unclaimed_idle_timeout: Duration::from_secs(1),
            first_user: 2_200_000,
            quit: false,
        };
        let claimed = claim(&options, &outlast_binary()?, &dir.join("socket"), &dir.join("log"))?;
        rustix::io::ioctl_fionbio(claimed.channel.socket(), false)?;
        Ok(Self { dir: dir.to_owned(), claimed, next: 1 })
    }

    fn start_one(&mut self) -> anyhow::Result<()> {
        let key = AttemptKey { job: self.next, attempt: 1 };
        self.next += 1;
        let bounds = Bounds {
            processes: Some(1024),
            log_head_bytes: 8 << 20,
            log_tail_bytes: 8 << 20,
            tmp_bytes: Some(1 << 30),
            ..Bounds::default()
        };
        let launch = Launch { command: vec![PROGRAM.to_owned()], bounds, ..Launch::default() };
        let log = OwnedFd::from(File::create(self.dir.join(format!("log-{}", key.job)))?);
        let input = OwnedFd::from(File::open("/dev/null")?);
        let command = protocol::Command::Start { key, launch: Box::new(launch) };
        Ok(self.claimed.channel.send(&command, &[log.as_fd(), input.as_fd()])?)
    }

    fn run(&mut self, count: u64) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        let (mut started, mut ended) = (0, 0);
        while ended < count {
            while started < count && started - ended < PARALLEL {
                self.start_one()?;
                started += 1;
            }
            let (event, _) = self.claimed.channel.receive::<Event>()?.context("the spawner closed its socket")?;
            if let Event::Ended { key, exit } = event {
                ensure!(exit.status == ExitStatus::Exited { code: 0 }, "an attempt failed: {exit:?}");
                self.claimed.channel.send(&protocol::Command::Forget { key }, &[])?;
                ended += 1;
            }
        }
        Ok(begin.elapsed())
    }
}

impl Drop for StandaloneSpawner {
    fn drop(&mut self) {
        let _ = self.claimed.channel.send(&protocol::Command::Quit, &[]);
        if let Some(child) = &mut self.claimed.child {
            let _ = child.wait();
        }
    }
}

/// Identical batches of one job.
struct SameBatch {
    head: RequestHead,
    body: Vec<u8>,
    size: u64,
}

impl Workload for SameBatch {
    fn request(&self, _: u64, body: &mut Vec<u8>) -> &RequestHead {
        body.extend_from_slice(&self.body);
        &self.head
    }

    fn jobs(&self, _: u64) -> u64 {
        self.size
    }

    fn judge(&self, _: u64, reply: &Reply<'_>) -> Tally {
        let accepted = if reply.status == 200 { self.size } else { 0 };
        Tally { accepted, failed: self.size - accepted }
    }
}

/// Identical batches of `size` times `job`.
pub fn batch(server: &Server, job: &str, size: u64) -> impl Workload + use<> {
    let body = format!("{{\"jobs\":[{}]}}", vec![job; size as usize].join(",")).into_bytes();
    let head = RequestHead::new("POST", &server.address, "/v1/jobs", &[("Content-Type", "application/json")]);
    SameBatch { head, body, size }
}

async fn as_jobs(scale: Scale, alone: f64, report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    let mut server = Server::outlast(dir.path())?;
    server.ready(Instant::now()).await?;
    let job = format!(r#"{{"run":{{"process":{{"command":["{PROGRAM}"]}}}}}}"#);
    let jobs = scale.of(6_000);
    let begin = Instant::now();
    send(&server, batch(&server, &job, 500.min(jobs)), (jobs / 500).max(1), 2).await?;
    server.drained().await?;
    let seconds = begin.elapsed().as_secs_f64();
    let used = server.cpu_time()?.as_secs_f64() * 1e6 / jobs as f64;
    let note = format!("{jobs} jobs in batches, default process slots; {used:.0} µs CPU of the server per job");
    report.ratio(JOBS, "jobs/s", jobs as f64 / seconds, ("spawner alone", alone), Target::AtLeast(0.8), note);
    Ok(())
}
