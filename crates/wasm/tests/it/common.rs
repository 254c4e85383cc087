//! An executor of its own for every test, and the words to use it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::blob::BlobId;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::Notify;
use wasm::{Ended, Executor, Limits, Metering, Options, Program, Refused, Run, Sink, Stop, Stream, Task};

/// No test takes this long, unless something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a guest printed.
#[derive(Default)]
pub struct Printed {
    stdout: Mutex<Vec<u8>>,
    stderr: Mutex<Vec<u8>>,
    changed: Notify,
}

impl Sink for Printed {
    fn write(&self, stream: Stream, bytes: &[u8]) {
        let printed = match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        };
        printed.lock().extend_from_slice(bytes);
        self.changed.notify_one();
    }
}

impl Printed {
    pub fn stdout(&self) -> String {
        String::from_utf8(self.stdout.lock().clone()).unwrap()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8(self.stderr.lock().clone()).unwrap()
    }

    /// Returns when so many bytes have come: a guest that prints one has begun.
    pub async fn has_come(&self, bytes: usize) {
        let waiting = async {
            while self.stdout.lock().len() < bytes {
                self.changed.notified().await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("the guest prints");
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

    pub async fn prepare(&self, component: &Bytes, metering: Metering) -> Result<Arc<Program>, Refused> {
        let content = component.clone();
        self.executor.prepare(BlobId::of(component), metering, async { Ok(content) }).await
    }

    /// Prepares and runs a component with nothing but limits.
    pub async fn run(&self, component: &Bytes, limits: Limits) -> Ended {
        self.run_task(component, Task { limits, ..task() }).await
    }

    pub async fn run_task(&self, component: &Bytes, task: Task) -> Ended {
        let metering = if task.limits.fuel.is_some() { Metering::Fuel } else { Metering::Off };
        let program = self.prepare(component, metering).await.unwrap();
        self.begin(program, task, Stop::new()).await
    }

    /// Begins a run; its end can be waited for.
    pub fn begin(&self, program: Arc<Program>, task: Task, stop: Stop) -> impl Future<Output = Ended> + use<> {
        let (tell, told) = tokio::sync::oneshot::channel();
        self.executor.run(Run::new(program, task, stop, |ended| drop(tell.send(ended)))).unwrap();
        async { tokio::time::timeout(PATIENCE, told).await.expect("the run has ended").unwrap() }
    }
}

/// A task with nothing to it.
pub fn task() -> Task {
    printing().0
}

/// A task with nothing to it but its output.
pub fn printing() -> (Task, Arc<Printed>) {
    let printed = Arc::new(Printed::default());
    let task = Task {
        args: Vec::new(),
        env: Vec::new(),
        stdin: Bytes::new(),
        inputs: None,
        outputs: None,
        limits: Limits::default(),
        sink: printed.clone(),
    };
    (task, printed)
}
