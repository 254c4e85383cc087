//! A node: a server process on a host, with its data directory, configuration and log.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hosts::Host;
use rustix::process::Signal;

use super::{process, wait_for};

/// The command.
pub fn outlast() -> Command {
    without_settings(env!("CARGO_BIN_EXE_outlast"))
}

/// A program without settings of the caller's environment.
fn without_settings(program: &str) -> Command {
    let mut command = Command::new(program);
    for name in ["OUTLAST_SERVER", "OUTLAST_TOKEN", "OUTLAST_ACTOR", "OUTLAST_JOIN_TOKEN", "NO_COLOR"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit code and output of a command.
#[derive(Debug)]
pub struct Output {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    pub fn of(child: Child) -> Self {
        let output = child.wait_with_output().unwrap();
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Panics with the output unless the exit code is `code`.
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }
}

/// A node and its processes. Dropping it kills them.
pub struct Node {
    name: String,
    host: Host,
    directory: PathBuf,
    arguments: Vec<String>,
    server: Option<Child>,
}

impl Node {
    /// A node that is not started yet, with its files in `directory` and additional settings as YAML.
    pub fn new(name: &str, host: Host, directory: PathBuf, settings: &str, arguments: &[&str]) -> Self {
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("settings.yaml"), format!("allow_unsandboxed: true\n{settings}")).unwrap();
        let mut node = Self { name: name.to_owned(), host, directory, arguments: Vec::new(), server: None };
        node.set_arguments(arguments);
        node
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Arguments of the next start, besides the data directory and the configuration.
    pub fn set_arguments(&mut self, arguments: &[&str]) {
        self.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    }

    pub fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Starts the server process. Its output is appended to the log.
    pub fn start(&mut self) {
        self.spawn(outlast());
    }

    /// The same, with a process table of its own. The other nodes share that of the machine: they find each other's
    /// processes.
    pub fn start_on_machine_of_its_own(&mut self) {
        let mut command = without_settings("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--", env!("CARGO_BIN_EXE_outlast")]);
        self.spawn(command);
    }

    fn spawn(&mut self, mut command: Command) {
        assert!(self.server.is_none(), "{} is running", self.name);
        let log = File::options().create(true).append(true).open(self.log_file()).unwrap();
        command
            .args(&self.arguments)
            .arg("--data-dir")
            .arg(self.data())
            .arg("--config")
            .arg(self.directory.join("settings.yaml"))
            .env("OUTLAST_LOG", "info")
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.server = Some(self.host.run(|| command.spawn().unwrap()));
    }

    /// Runs a command on the host until its end.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        let mut command = outlast();
        command.args(arguments);
        Output::of(self.host.run(|| command.spawn().unwrap()))
    }

    fn log_file(&self) -> PathBuf {
        self.directory.join("node.log")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// The spawner, once it runs.
    pub fn spawner(&self) -> u32 {
        wait_for(&format!("the spawner of {} runs", self.name), || process::spawner(&self.data()))
    }

    /// SIGKILL of the server process only.
    pub fn kill_server(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// SIGKILL of the server process and of the spawner, as by the death of the machine.
    pub fn kill(&mut self) {
        process::send(self.spawner(), Signal::KILL);
        self.kill_server();
    }

    /// SIGSTOP of the server process and of the spawner.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGINT, as by Ctrl-C, or SIGTERM, as for an upgrade. Returns the exit code.
    pub fn end_with(&mut self, signal: Signal) -> Option<i32> {
        let mut server = self.server.take().unwrap();
        process::send(server.id(), signal);
        let ended = wait_for(&format!("{} ends", self.name), || server.try_wait().unwrap());
        ended.code()
    }

    fn signal(&self, signal: Signal) {
        process::send(self.spawner(), signal);
        process::send(self.server.as_ref().unwrap().id(), signal);
    }

    /// Whether the server process has not ended.
    pub fn is_up(&mut self) -> bool {
        self.server.as_mut().is_some_and(|server| server.try_wait().unwrap().is_none())
    }

    /// Kills what is left.
    fn end(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
        process::kill_spawner(&self.data());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("=== log of {}:\n{}", self.name, self.log());
        }
        self.end();
    }
}

/// Copies a directory with its permissions.
pub fn copy_directory(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").arg("-p").arg(from).arg(to).status().unwrap().success());
}
