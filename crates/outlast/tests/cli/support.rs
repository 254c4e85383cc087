//! A server process per test, and helpers to run the command against it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Exit code and output of a command.
#[derive(Debug)]
pub struct Output {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    /// Panics with the output unless the exit code is `code`.
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }

    pub fn line(&self) -> &str {
        self.stdout.trim_end()
    }
}

/// The command, without settings of the environment.
pub fn outlast() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outlast"));
    for name in
        ["OUTLAST_SERVER", "OUTLAST_TOKEN", "OUTLAST_ACTOR", "OUTLAST_RETRY_FOR", "OUTLAST_CONNECT_WAIT", "NO_COLOR"]
    {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the command without a server.
pub fn run_alone<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    finish(outlast().args(arguments).spawn().unwrap())
}

pub fn finish(child: Child) -> Output {
    let output = child.wait_with_output().unwrap();
    Output {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A running server, stopped on drop.
pub struct Server {
    process: Child,
    pub url: String,
    pub directory: TempDir,
    data: PathBuf,
    /// Additional settings as YAML.
    settings: String,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with additional arguments of `up`.
    pub fn start_with(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        Self::up(directory, data, arguments, "")
    }

    /// Starts a server with additional settings as YAML.
    pub fn start_with_settings(settings: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        Self::up(directory, data, &[], settings)
    }

    /// Starts a server with additional settings and a directory that `prepare` fills; its `data` is the data directory.
    pub fn start_prepared(settings: &str, prepare: impl FnOnce(&Path)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        prepare(directory.path());
        let data = directory.path().join("data");
        Self::up(directory, data, &[], settings)
    }

    /// Starts a server with this data directory.
    pub fn start_at(data: &Path) -> Self {
        Self::up(tempfile::tempdir().unwrap(), data.to_owned(), &[], "")
    }

    fn up(directory: TempDir, data: PathBuf, arguments: &[&str], settings: &str) -> Self {
        let settings = settings.to_owned();
        let (process, url) = up(&data, "127.0.0.1:0", directory.path(), arguments, &settings);
        Self { process, url, directory, data, settings }
    }

    /// Waits until the server has exited on its own, and returns its log.
    pub fn wait_for_end(&mut self) -> String {
        let deadline = Instant::now() + TIMEOUT;
        while self.process.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the server does not exit");
            std::thread::sleep(Duration::from_millis(10));
        }
        std::fs::read_to_string(self.directory.path().join("server.log")).unwrap()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// SIGKILL and a restart with the same data and address.
    pub fn kill_and_restart(&mut self) {
        self.kill();
        self.start_again();
    }

    /// SIGTERM, which leaves the processes running, and a restart on the same address.
    pub fn restart(&mut self) {
        self.stop();
        self.start_again();
    }

    pub fn start_again(&mut self) {
        let address = self.url.trim_start_matches("http://").to_owned();
        let (process, _) = up(&self.data, &address, self.directory.path(), &[], &self.settings);
        self.process = process;
    }

    /// Restarts the server and kills it after `moment`, possibly before it is ready.
    pub fn start_and_kill(&mut self, moment: Duration) {
        let address = self.url.trim_start_matches("http://").to_owned();
        let mut process = spawn(&self.data, &address, self.directory.path(), &[], &self.settings);
        let since = Instant::now();
        while since.elapsed() < moment {
            std::thread::yield_now();
        }
        process.kill().unwrap();
        process.wait().unwrap();
    }

    pub fn stop(&mut self) -> Option<i32> {
        self.stop_with("-TERM")
    }

    /// SIGINT: stops the server and its processes, like Ctrl-C.
    pub fn interrupt(&mut self) -> Option<i32> {
        self.stop_with("-INT")
    }

    fn stop_with(&mut self, signal: &str) -> Option<i32> {
        let pid = self.process.id().to_string();
        Command::new("kill").args([signal, &pid]).status().unwrap();
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the server does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = outlast();
        command.env("OUTLAST_SERVER", &self.url).current_dir(self.directory.path()).args(arguments);
        command
    }

    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        finish(self.command(arguments).spawn().unwrap())
    }

    /// Runs the command with standard input.
    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        drop(stdin);
        finish(child)
    }

    /// Polls until the job is in one of `states`.
    pub fn wait_for_state(&self, id: &str, states: &[&str]) -> Value {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let job = self.run(["jobs", "show", id, "--output", "json"]).expect(0).json();
            if states.contains(&job["state"].as_str().unwrap()) {
                return job;
            }
            assert!(Instant::now() < deadline, "{job}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Unless stopped already. Only SIGINT also stops its processes.
        if let Ok(None) = self.process.try_wait() {
            let _ = Command::new("kill").args(["-INT", &self.process.id().to_string()]).status();
            let deadline = Instant::now() + Duration::from_secs(10);
            while Instant::now() < deadline && matches!(self.process.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts a server and reads its URL from the banner. Jobs may run without a sandbox.
fn up(data: &Path, listen: &str, directory: &Path, arguments: &[&str], settings: &str) -> (Child, String) {
    let mut process = spawn(data, listen, directory, arguments, settings);
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let url = lines.by_ref().map_while(Result::ok).find_map(|line| line.trim().strip_prefix("API").map(str::to_owned));
    let Some(url) = url else {
        let mut log = String::new();
        File::open(directory.join("server.log")).unwrap().read_to_string(&mut log).unwrap();
        panic!("the server did not start: {log}");
    };
    (process, url.trim().to_owned())
}

fn spawn(data: &Path, listen: &str, directory: &Path, arguments: &[&str], settings: &str) -> Child {
    let config = directory.join("server.yaml");
    std::fs::write(&config, format!("allow_unsandboxed: true\n{settings}")).unwrap();
    let stderr = File::create(directory.join("server.log")).unwrap();
    outlast()
        .arg("up")
        .arg("--data-dir")
        .arg(data)
        .args(["--listen", listen])
        .arg("--config")
        .arg(config)
        .args(arguments)
        .stderr(stderr)
        .spawn()
        .unwrap()
}
