//! Test fixture: a real node on a free port with its own data directory.

use std::fs;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use runner::StopMode;
use serde_json::{Value, json};
use server::{Node, Options};
use tempfile::TempDir;

use crate::http::{DEADLINE, Reply, Request, within};

/// A running node. It can be stopped and started again on the same directory.
pub struct Server {
    node: Option<Node>,
    options: Options,
    api: Api,
    directory: TempDir,
}

impl Server {
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with_shards(shards: u16) -> Self {
        Self::with(|options| options.shards = shards).await
    }

    pub async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = options(directory.path(), change);
        let node = Node::start(options.clone()).await.unwrap();
        let api = Api { address: node.address().listen };
        Self { node: Some(node), options, api, directory }
    }

    /// A copy of the API client, for use in a spawned task.
    pub fn api(&self) -> Api {
        self.api
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Changes the options of the next start.
    pub fn change_options(&mut self, change: impl FnOnce(&mut Options)) {
        change(&mut self.options);
    }

    pub async fn stop(&mut self) {
        let node = self.node.take().expect("the node runs");
        within("the end of the node", node.stop(StopMode::StopProcesses)).await.unwrap();
    }

    /// Starts the node again after a stop.
    pub async fn start_again(&mut self) {
        assert!(self.node.is_none(), "the node runs already");
        let node = Node::start(self.options.clone()).await.unwrap();
        self.api = Api { address: node.address().listen };
        self.node = Some(node);
    }

    pub async fn restart(&mut self) {
        self.stop().await;
        self.start_again().await;
    }
}

impl Deref for Server {
    type Target = Api;

    fn deref(&self) -> &Api {
        &self.api
    }
}

/// Options for tests: short retry delays, and jobs without a sandbox allowed.
pub fn options(directory: &Path, change: impl FnOnce(&mut Options)) -> Options {
    let mut options = Options {
        data_dir: directory.to_owned(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        retry_first_ms: 1,
        retry_longest_ms: 5,
        stop_grace_ms: 200,
        allow_unsandboxed: true,
        // Processes left behind by a test must stop soon.
        unclaimed_ms: 5_000,
        spawner_program: Some(spawner_program()),
        ..Options::default()
    };
    change(&mut options);
    options
}

/// The spawner binary next to the test binaries.
fn spawner_program() -> PathBuf {
    let test_binary = std::env::current_exe().unwrap();
    let program = test_binary.parent().unwrap().parent().unwrap().join("outlast-spawner");
    assert!(program.exists(), "the spawner is missing, build it first: cargo build -p spawner --bin outlast-spawner");
    program
}

/// HTTP client of a node's API.
#[derive(Debug, Clone, Copy)]
pub struct Api {
    pub address: SocketAddr,
}

impl Api {
    pub async fn send(&self, request: Request) -> Reply {
        request.send(self.address).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(Request::get(path)).await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.send(Request::delete(path)).await
    }

    /// An action: a POST without a body.
    pub async fn act(&self, path: &str) -> Reply {
        self.send(Request::post(path)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(Request::post(path).json(body)).await
    }

    /// Submits a job that must be accepted, and returns its id.
    pub async fn submit(&self, job: &Value) -> String {
        text(&self.post("/v1/jobs", job).await.expect(201)["id"])
    }

    pub async fn job(&self, id: &str) -> Value {
        self.get(&format!("/v1/jobs/{id}")).await.expect(200)
    }

    /// Submits a job and waits until it is terminal.
    pub async fn run(&self, job: &Value) -> Value {
        self.ended(&self.submit(job).await).await
    }

    /// Waits until the job is terminal.
    pub async fn ended(&self, id: &str) -> Value {
        let job = self.get(&format!("/v1/jobs/{id}?wait_ms=25000")).await.expect(200);
        assert!(is_terminal(&job), "{job}");
        job
    }

    /// Polls the job until it satisfies `wanted`.
    pub async fn job_when(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.seen(&format!("/v1/jobs/{id}"), wanted).await
    }

    pub async fn job_in(&self, id: &str, state: &str) -> Value {
        self.job_when(id, |job| job["state"] == state).await
    }

    /// Polls a path until its response satisfies `wanted`.
    pub async fn seen(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let since = Instant::now();
        loop {
            let shown = self.get(path).await.expect(200);
            if wanted(&shown) {
                return shown;
            }
            assert!(since.elapsed() < DEADLINE, "timed out polling {path}, last response: {shown}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn create_queue(&self, spec: &Value) -> Value {
        self.post("/v1/queues", spec).await.expect(201)
    }

    /// The ids of all pages of a list, `limit` per page.
    pub async fn listed(&self, path: &str, limit: usize) -> Vec<String> {
        let mut ids = Vec::new();
        let mut cursor = String::new();
        loop {
            let sign = if path.contains('?') { '&' } else { '?' };
            let page = self.get(&format!("{path}{sign}limit={limit}{cursor}")).await.expect(200);
            let items = page["items"].as_array().unwrap();
            assert!(items.len() <= limit);
            ids.extend(items.iter().map(|item| text(&item["id"])));
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return ids,
            }
        }
    }

    /// A value from `/metrics`. It may lag behind responses.
    pub async fn metric(&self, name: &str) -> u64 {
        let metrics = self.get("/metrics").await.text();
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("metric {name} is missing in {metrics}")).parse().unwrap()
    }

    pub async fn metric_when(&self, name: &str, value: u64) {
        let since = Instant::now();
        while self.metric(name).await != value {
            assert!(since.elapsed() < DEADLINE, "timed out waiting for {name} to become {value}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Asserts that the server is ready and has exactly this number of jobs.
    pub async fn works_with(&self, jobs_accepted: usize) {
        assert_eq!(self.listed("/v1/jobs", 1000).await.len(), jobs_accepted);
        self.get("/readyz").await.expect(200);
    }
}

#[track_caller]
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a string")).to_owned()
}

pub fn is_terminal(job: &Value) -> bool {
    let state: model::state::State = text(&job["state"]).parse().unwrap();
    state.is_terminal()
}

/// The states of a job, in order.
pub fn states(job: &Value) -> Vec<String> {
    job["states"].as_array().unwrap().iter().map(|entry| text(&entry["state"])).collect()
}

pub fn echo(value: impl Into<Value>) -> Value {
    json!({"run": {"echo": {"value": value.into()}}})
}

/// An echo job that runs longer than any test waits.
pub fn endless() -> Value {
    json!({"run": {"echo": {"delay_ms": 600_000}}})
}

pub fn process(command: &[&str]) -> Value {
    json!({"run": {"process": {"command": command}}, "sandbox": "none"})
}

pub fn shell(script: &str) -> Value {
    process(&["sh", "-c", script])
}

/// `base` with some fields replaced or added.
pub fn with(mut base: Value, fields: Value) -> Value {
    let Value::Object(fields) = fields else { panic!("{fields} is not an object") };
    base.as_object_mut().unwrap().extend(fields);
    base
}

/// The time `ms` milliseconds from now.
pub fn from_now(ms: i64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let at = model::time::Millis((i64::try_from(now).unwrap() + ms).try_into().unwrap());
    text(&serde_json::to_value(model::time::Timestamp(at)).unwrap())
}

/// Live processes of a job, found by their environment variable.
pub fn processes_of(job: &str) -> Vec<i32> {
    let variable_of_job = format!("OUTLAST_JOB_ID={job}");
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let belongs_to_job = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == variable_of_job.as_bytes())
    };
    pids.filter(belongs_to_job).collect()
}

/// Polls a condition; panics with `what` after the deadline.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < DEADLINE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
