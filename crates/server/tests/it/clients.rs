//! Clients generated from the OpenAPI document work with a real server.
//!
//! The tests install generators from PyPI, so they run only with `cargo xtask test --all`.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::Server;

const PYTHON_CLIENT: [&str; 1] = ["openapi-python-client==0.29.1"];
/// The generator with its Java archive, and the libraries of the clients it generates.
const GENERATOR: [&str; 5] = [
    "openapi-generator-cli==7.26.0",
    "pydantic==2.*",
    "python-dateutil==2.*",
    "typing-extensions==4.*",
    "urllib3==2.*",
];

/// A directory with a Python environment and the OpenAPI document.
struct Workshop {
    directory: TempDir,
}

impl Workshop {
    /// None if the packages cannot be installed: the test is skipped.
    fn new(test: &str, packages: &[&str]) -> Option<Self> {
        let workshop = Self { directory: tempfile::tempdir().unwrap() };
        std::fs::write(workshop.path("openapi.json"), api::openapi::CHECKED_IN).unwrap();
        let made = run(Command::new("python3").args(["-m", "venv"]).arg(workshop.path("venv")));
        let mut pip = workshop.tool("pip");
        let installed = made.and_then(|()| run(pip.args(["install", "--quiet"]).args(packages)));
        match installed {
            Ok(()) => Some(workshop),
            Err(error) => {
                skip(test, &error);
                None
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A program of the Python environment, which may use others of it.
    fn tool(&self, name: &str) -> Command {
        let programs = self.path("venv/bin");
        let mut command = Command::new(programs.join(name));
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
        command.current_dir(self.directory.path()).env("PATH", path);
        command
    }

    /// Runs a script with the generated client in `client` against a real server.
    async fn use_client(&self, script: &str) {
        let server = Server::start().await;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients").join(script);
        let mut python = self.tool("python");
        python.arg(script).arg(format!("http://{}", server.address)).env("PYTHONPATH", self.path("client"));
        tokio::task::spawn_blocking(move || run(&mut python)).await.unwrap().unwrap();
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = || [output.stdout.as_slice(), &output.stderr].map(String::from_utf8_lossy).concat();
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {}\n{}", output.status, text())) }
}

/// Reports a skipped test on stderr and in the file `OUTLAST_SKIP_LOG`.
fn skip(test: &str, reason: &str) {
    assert!(std::env::var_os("OUTLAST_TEST_NO_SKIP").is_none(), "{test} cannot run: {reason}");
    eprintln!("skipped: {test}: {reason}");
    if let Some(log) = std::env::var_os("OUTLAST_SKIP_LOG") {
        let first_line = reason.lines().next().unwrap_or_default();
        let mut log = OpenOptions::new().append(true).create(true).open(log).unwrap();
        writeln!(log, "{test}: {first_line}").unwrap();
    }
}

#[tokio::test]
#[ignore = "installs a generator; runs with `cargo xtask test --all`"]
async fn a_client_of_openapi_python_client_submits_and_reads_a_job() {
    let Some(workshop) = Workshop::new("openapi-python-client", &PYTHON_CLIENT) else { return };
    let mut generate = workshop.tool("openapi-python-client");
    run(generate.args(["generate", "--path", "openapi.json", "--output-path", "client"])).unwrap();
    workshop.use_client("python_client.py").await;
}

#[tokio::test]
#[ignore = "installs a generator; runs with `cargo xtask test --all`"]
async fn a_client_of_openapi_generator_submits_and_reads_a_job() {
    let Some(workshop) = Workshop::new("openapi-generator", &GENERATOR) else { return };
    if let Err(error) = run(Command::new("java").arg("-version")) {
        return skip("openapi-generator", &error);
    }
    let mut generate = workshop.tool("openapi-generator-cli");
    run(generate.args(["generate", "-i", "openapi.json", "-g", "python", "-o", "client"])).unwrap();
    workshop.use_client("generator_client.py").await;
}
