//! Fixture: an executor with a temporary cache, and helpers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::blob::BlobId;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::Notify;
use wasm::{Executor, Limits, Metering, Options, PrepareError, Program, Run, RunOutcome, RunSpec, Sink, Stop, Stream};

/// Exceeded only if a test hangs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Recorded output of a guest.
#[derive(Default)]
pub struct RecordedOutput {
    stdout: Mutex<Vec<u8>>,
    stderr: Mutex<Vec<u8>>,
    changed: Notify,
}

impl Sink for RecordedOutput {
    fn write(&self, stream: Stream, bytes: &[u8]) {
        let printed = match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        };
        printed.lock().extend_from_slice(bytes);
        self.changed.notify_one();
    }
}

impl RecordedOutput {
    pub fn stdout(&self) -> String {
        String::from_utf8(self.stdout.lock().clone()).unwrap()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8(self.stderr.lock().clone()).unwrap()
    }

    /// Waits for this many bytes on stdout. A guest that has printed a byte is running.
    pub async fn wait_for_bytes(&self, bytes: usize) {
        let waiting = async {
            while self.stdout.lock().len() < bytes {
                self.changed.notified().await;
            }
        };
        tokio::time::timeout(TIMEOUT, waiting).await.expect("the guest prints before the timeout");
    }
}

pub struct Fixture {
    pub executor: Executor,
    pub directory: TempDir,
}

impl Fixture {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Options)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options = Options::new(directory.path().join("cache"));
        options.slots = 8;
        options.memory_bytes_max = 64 << 20;
        change(&mut options);
        Self { executor: Executor::new(options).unwrap(), directory }
    }

    pub fn cache(&self) -> PathBuf {
        self.directory.path().join("cache")
    }

    pub fn make_directory(&self, name: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    }

    pub async fn prepare(&self, component: &Bytes, metering: Metering) -> Result<Arc<Program>, PrepareError> {
        let content = component.clone();
        self.executor.prepare(BlobId::of(component), metering, async { Ok(content) }).await
    }

    /// Prepares and runs a component with these limits and empty input.
    pub async fn run(&self, component: &Bytes, limits: Limits) -> RunOutcome {
        self.run_spec(component, RunSpec { limits, ..spec() }).await
    }

    pub async fn run_spec(&self, component: &Bytes, spec: RunSpec) -> RunOutcome {
        let metering = if spec.limits.fuel.is_some() { Metering::Fuel } else { Metering::Off };
        let program = self.prepare(component, metering).await.unwrap();
        self.begin(program, spec, Stop::new()).await
    }

    /// Starts a run and returns a future of its outcome.
    pub fn begin(&self, program: Arc<Program>, spec: RunSpec, stop: Stop) -> impl Future<Output = RunOutcome> + use<> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.executor.run(Run::new(program, spec, stop, |outcome| drop(sender.send(outcome)))).unwrap();
        async { tokio::time::timeout(TIMEOUT, receiver).await.expect("the run ends before the timeout").unwrap() }
    }
}

/// Spec with empty input.
pub fn spec() -> RunSpec {
    recording_spec().0
}

/// Spec with empty input, and its recorded output.
pub fn recording_spec() -> (RunSpec, Arc<RecordedOutput>) {
    let printed = Arc::new(RecordedOutput::default());
    let spec = RunSpec {
        args: Vec::new(),
        env: Vec::new(),
        stdin: Bytes::new(),
        inputs: None,
        outputs: None,
        limits: Limits::default(),
        sink: printed.clone(),
    };
    (spec, printed)
}
