//! A policy service in its own process, a manual clock, and requests.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use model::id::JobId;
use model::spec::{EchoRun, JobSpec, Run};
use model::time::Millis;
use model::verdict::Phase;
use policy_service::{CheckFacts, Client, Clock, Options, Outcome, OutputFacts};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Time limit of a wait, for the slowest machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// Call timeout that a working service never reaches.
pub const LONG_TIMEOUT: Duration = Duration::from_secs(60);
/// Call timeout for a service that never answers.
pub const SHORT_TIMEOUT: Duration = Duration::from_millis(200);

pub struct ServiceProcess {
    child: Child,
    commands: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    pub address: String,
}

impl ServiceProcess {
    pub async fn start() -> Self {
        Self::start_with(&["--listen", "127.0.0.1:0"]).await
    }

    pub async fn start_with(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_example-policy-service"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut service = Self { child, commands, lines, address: String::new() };
        let line = service.line().await;
        service.address = line.strip_prefix("listening on ").unwrap().to_owned();
        service
    }

    /// Takes effect with its next answer.
    pub async fn command(&mut self, command: &str) {
        self.commands.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        assert_eq!(self.line().await, format!("now {command}"));
    }

    pub async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    async fn line(&mut self) -> String {
        let line = tokio::time::timeout(DEADLINE, self.lines.next_line()).await;
        line.expect("output of the policy service in time").unwrap().expect("the policy service is running")
    }
}

/// Clock that only advances on request.
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(1_800_000_000_000)))
    }

    pub fn advance(&self, time: Millis) {
        self.0.fetch_add(time.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Millis {
        Millis(self.0.load(Ordering::SeqCst))
    }
}

pub fn options(address: &str) -> Options {
    Options { timeout: LONG_TIMEOUT, ..Options::new(address) }
}

pub fn client(address: &str) -> Client {
    Client::connect_lazy(options(address)).unwrap()
}

/// A client with a manual clock and a call timeout.
pub fn timed_client(address: &str, timeout: Duration) -> (Client, Arc<ManualClock>) {
    let clock = ManualClock::new();
    let options = Options { timeout, clock: clock.clone(), ..Options::new(address) };
    (Client::connect_lazy(options).unwrap(), clock)
}

pub fn spec(topic: &str, label: Option<&str>) -> JobSpec {
    let mut spec = JobSpec::new(Run::Echo(EchoRun::default()));
    spec.topic = topic.to_owned();
    spec.labels.extend(label.map(|label| (label.to_owned(), "yes".to_owned())));
    spec
}

pub fn job() -> CheckFacts {
    CheckFacts::of(JobId(77), &spec("reports", None), Some("ann"), Millis(5))
}

pub fn result() -> OutputFacts {
    OutputFacts {
        job: JobId(77),
        tenant: "default".to_owned(),
        submitter: None,
        topic: "reports".to_owned(),
        labels: BTreeMap::new(),
        phase: Phase::Metadata,
        outcome: Outcome::default(),
        findings: Vec::new(),
        now: Millis(5),
    }
}

/// Waits until a condition holds.
pub async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < DEADLINE, "timed out waiting until {what}");
        tokio::task::yield_now().await;
    }
}
