//! A real kernel in a process of its own, a clock that stands still, and questions to ask.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kernel::{CheckFacts, Client, Clock, Options, Outcome, OutputFacts};
use model::id::JobId;
use model::spec::{EchoRun, JobSpec, Run};
use model::time::Millis;
use model::verdict::Phase;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long a test waits for what must happen, on the slowest machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// A limit that a kernel which works never meets.
pub const PATIENT: Duration = Duration::from_secs(60);
/// A limit for a kernel that never answers.
pub const BRIEF: Duration = Duration::from_millis(200);

pub struct Kernel {
    child: Child,
    commands: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    pub address: String,
}

impl Kernel {
    pub async fn start() -> Self {
        Self::start_with(&["--listen", "127.0.0.1:0"]).await
    }

    pub async fn start_with(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_example-kernel"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut kernel = Self { child, commands, lines, address: String::new() };
        let line = kernel.line().await;
        kernel.address = line.strip_prefix("listening on ").unwrap().to_owned();
        kernel
    }

    /// From its next answer on.
    pub async fn behave(&mut self, word: &str) {
        self.commands.write_all(format!("{word}\n").as_bytes()).await.unwrap();
        assert_eq!(self.line().await, format!("now {word}"));
    }

    pub async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    async fn line(&mut self) -> String {
        let line = tokio::time::timeout(DEADLINE, self.lines.next_line()).await;
        line.expect("the kernel says something").unwrap().expect("the kernel lives")
    }
}

/// Time that passes only when a test says so.
#[derive(Debug)]
pub struct StillClock(AtomicU64);

impl StillClock {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(1_800_000_000_000)))
    }

    pub fn pass(&self, time: Millis) {
        self.0.fetch_add(time.0, Ordering::SeqCst);
    }
}

impl Clock for StillClock {
    fn now(&self) -> Millis {
        Millis(self.0.load(Ordering::SeqCst))
    }
}

pub fn options(address: &str) -> Options {
    Options { timeout: PATIENT, ..Options::new(address) }
}

pub fn client(address: &str) -> Client {
    Client::connect_lazy(options(address)).unwrap()
}

/// A client that a test can tell the time, with a limit for each call.
pub fn timed_client(address: &str, timeout: Duration) -> (Client, Arc<StillClock>) {
    let clock = StillClock::new();
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

/// Waits until something is so.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < DEADLINE, "waited in vain until {what}");
        tokio::task::yield_now().await;
    }
}
