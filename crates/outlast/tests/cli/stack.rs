//! `outlast stack`: several nodes on one machine.

use std::fs::{self, File};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Output, finish, outlast};
use crate::terminal::{read_all, terminal};

const TIMEOUT: Duration = Duration::from_secs(60);
const FILE: &str = "\
name: demo
directory: state
control: {listen: 127.0.0.1:PORT0, cluster_listen: 127.0.0.1:PORT1, config: control.yaml}
nodes:
- {name: build-1, labels: {zone: a}, config: node.yaml}
- {name: build-2, count: 2, process_slots: 1}
";

/// Two ports that are free, below those that the system gives to outgoing connections.
pub fn free_ports() -> [u16; 2] {
    let is_free =
        |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok() && UdpSocket::bind(("127.0.0.1", *port)).is_ok();
    // Tests run in processes of their own.
    let first = 10_000 + (std::process::id() % 10_000) as u16 * 2;
    let mut free = (first..32_000).chain(10_000..first).filter(is_free);
    [free.next().unwrap(), free.next().unwrap()]
}

/// A stack in a directory of its own, stopped on drop.
struct Stack {
    directory: TempDir,
    url: String,
}

impl Stack {
    fn new() -> Self {
        Self::with(FILE)
    }

    fn with(file: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let [api, cluster] = free_ports();
        let file = file.replace("PORT0", &api.to_string()).replace("PORT1", &cluster.to_string());
        fs::write(directory.path().join("stack.yaml"), file).unwrap();
        fs::write(directory.path().join("control.yaml"), "allow_unsandboxed: true\n").unwrap();
        fs::write(directory.path().join("node.yaml"), "allow_unsandboxed: true\n").unwrap();
        Self { directory, url: format!("http://127.0.0.1:{api}") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = outlast();
        command.current_dir(self.directory.path()).env("OUTLAST_SERVER", &self.url).args(line.split(' '));
        command
    }

    fn run(&self, line: &str) -> Output {
        finish(self.command(line).spawn().unwrap())
    }

    fn status(&self) -> Value {
        self.run("stack status --output json").expect(0).json()
    }

    fn service(&self, name: &str) -> Value {
        let status = self.status();
        let services = status["services"].as_array().unwrap();
        services.iter().find(|service| service["service"] == name).unwrap_or_else(|| panic!("{status}")).clone()
    }

    fn pid(&self, name: &str) -> i64 {
        self.service(name)["pid"].as_i64().unwrap_or_else(|| panic!("{name} does not run"))
    }

    fn pids(&self) -> Vec<i64> {
        ["control", "build-1", "build-2-1", "build-2-2"].map(|name| self.pid(name)).to_vec()
    }

    /// A job on build-1 without retries that runs until [`Self::release`].
    fn submit(&self) -> String {
        let script =
            format!("echo before; until [ -e {} ]; do sleep 0.05; done; echo after", self.path("go").display());
        let job = serde_json::json!({
            "run": {"process": {"command": ["sh", "-c", script]}}, "sandbox": "none", "max_retries": 0,
            "labels": {"placement.zone": "a"},
        });
        fs::write(self.path("job.json"), job.to_string()).unwrap();
        let id = self.run("submit --file job.json").expect(0).line().to_owned();
        self.await_job(&id, "running");
        id
    }

    fn release(&self) {
        File::create(self.path("go")).unwrap();
    }

    fn await_job(&self, id: &str, state: &str) -> Value {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let job = self.run(&format!("jobs show {id} --output json")).expect(0).json();
            if job["state"] == state {
                return job;
            }
            assert!(Instant::now() < deadline, "{job}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The job has succeeded with its only attempt.
    fn await_first_attempt(&self, id: &str) {
        let job = self.await_job(id, "succeeded");
        assert_eq!((&job["attempt"], &job["retries"]), (&Value::from(1), &Value::from(0)), "{job}");
        assert_eq!(job["result"], "before\nafter\n", "{job}");
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let _ = self.run("stack down --stop-jobs");
    }
}

fn is_running(pid: i64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn signal(pid: i64, name: &str) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

// FEATURES: B8
#[test]
fn up_starts_what_does_not_run_and_status_shows_it() {
    let stack = Stack::new();
    assert!(stack.status()["services"].as_array().unwrap().iter().all(|service| service["state"] == "stopped"));
    let ran = stack.run("stack up").expect(0);
    assert!(ran.stdout.ends_with(&format!("demo is ready: {}\n", stack.url)), "{}", ran.stdout);
    let status = stack.status();
    let services = status["services"].as_array().unwrap();
    let names: Vec<&str> = services.iter().map(|service| service["service"].as_str().unwrap()).collect();
    assert_eq!(names, ["control", "build-1", "build-2-1", "build-2-2"]);
    for service in services {
        assert_eq!((&service["state"], &service["node_state"]), (&"running".into(), &"ready".into()), "{service}");
        assert!(service["version"].is_string() && service["uptime_ms"].is_u64(), "{service}");
    }
    let nodes = stack.run("nodes --output json").expect(0).json();
    let node =
        |name: &str| nodes["items"].as_array().unwrap().iter().find(|node| node["name"] == name).unwrap().clone();
    assert_eq!(node("build-1")["labels"]["zone"], "a");
    assert_eq!(node("build-2-1")["capacity"]["process"], 1);
    let table = stack.run("stack").expect(0).stdout;
    assert!(table.starts_with("SERVICE ") && table.lines().count() == 5, "{table}");

    // Again: only what is missing.
    let before = stack.pids();
    signal(before[2], "-KILL");
    let ran = stack.run("stack up").expect(0);
    assert!(ran.stdout.contains("build-1 already running, pid "), "{}", ran.stdout);
    let after = stack.pids();
    assert_ne!(after[2], before[2]);
    assert_eq!([after[0], after[1], after[3]], [before[0], before[1], before[3]]);
    // The token of each node was for that node only.
    let tokens = stack.run("nodes join-tokens --output json").expect(0).json();
    assert!(tokens["items"].as_array().unwrap().iter().all(|token| token["state"] == "used"), "{tokens}");
}

// FEATURES: B8
#[test]
fn a_job_goes_on_while_its_node_the_control_node_and_the_whole_stack_restart() {
    let stack = Stack::new();
    stack.run("stack up").expect(0);
    let job = stack.submit();
    let before = stack.pids();
    let ran = stack.run("stack restart build-1").expect(0);
    assert!(ran.stdout.contains("build-1 restarted in ") && ran.stdout.contains("1 job running"), "{}", ran.stdout);
    let after = stack.pids();
    assert_ne!(after[1], before[1]);
    assert_eq!([after[0], after[2], after[3]], [before[0], before[2], before[3]], "the rest is untouched");

    stack.run("stack restart control").expect(0);
    assert_ne!(stack.pid("control"), before[0]);
    assert_eq!(stack.pid("build-1"), after[1]);

    let ran = stack.run("stack rolling").expect(0);
    let order: Vec<&str> = ran.stdout.lines().filter_map(|line| line.strip_suffix(" stopping")).collect();
    assert_eq!(order, ["build-1", "build-2-1", "build-2-2", "control"], "{}", ran.stdout);
    assert!(ran.stdout.ends_with("4 services were restarted, and their jobs went on\n"), "{}", ran.stdout);
    let rolled = stack.pids();
    assert!(rolled.iter().zip(&after).all(|(rolled, after)| rolled != after));

    stack.run("stack restart").expect(0);
    assert!(stack.pids().iter().zip(&rolled).all(|(now, rolled)| now != rolled));
    stack.release();
    stack.await_first_attempt(&job);
}

// FEATURES: B7
#[test]
fn down_keeps_all_state_and_only_clean_removes_it() {
    let stack = Stack::new();
    stack.run("stack up").expect(0);
    let job = stack.submit();
    let nodes = |stack: &Stack| -> Vec<Value> {
        let status = stack.status();
        status["services"].as_array().unwrap().iter().map(|service| service["node"].clone()).collect()
    };
    let (pids, known) = (stack.pids(), nodes(&stack));
    let ran = stack.run("stack clean --yes").expect(1);
    assert!(ran.stderr.contains("control is running"), "{}", ran.stderr);

    let ran = stack.run("stack down").expect(0);
    assert!(ran.stdout.contains("1 job goes on"), "{}", ran.stdout);
    assert!(!pids.into_iter().any(is_running));
    assert_eq!(stack.service("build-1")["detached_jobs"], 1);
    let ran = stack.run("stack clean --yes").expect(1);
    assert!(ran.stderr.contains("--stop-jobs"), "{}", ran.stderr);
    stack.run("stack down").expect(0);

    stack.run("stack up").expect(0);
    assert_eq!(nodes(&stack), known, "the same nodes, without another join");
    stack.release();
    stack.await_first_attempt(&job);

    stack.run("stack down --stop-jobs").expect(0);
    assert_eq!(stack.run("stack clean").expect(2).stdout, "", "nobody was asked");
    assert!(stack.path("state/control/data").exists());
    stack.run("stack clean --yes").expect(0);
    assert!(!stack.path("state").exists() && stack.path("stack.yaml").exists());
    stack.run("stack clean --yes").expect(0);
    stack.run("stack up").expect(0);
    stack.run(&format!("jobs show {job}")).expect(3);
}

#[test]
fn down_can_stop_jobs_which_start_again_without_using_a_retry() {
    let stack = Stack::new();
    stack.run("stack up").expect(0);
    let job = stack.submit();
    let ran = stack.run("stack down --stop-jobs").expect(0);
    assert!(ran.stdout.ends_with("All data is kept\n"), "{}", ran.stdout);
    stack.release();
    stack.run("stack up").expect(0);
    let job = stack.await_job(&job, "succeeded");
    assert_eq!((&job["attempt"], &job["retries"]), (&Value::from(2), &Value::from(0)), "{job}");
}

/// From now on the process of this node ends right after its start.
fn damage(stack: &Stack, service: &str) {
    fs::write(stack.path(&format!("state/{service}/data/cluster/identity")), "damaged").unwrap();
}

// FEATURES: B8
#[test]
fn rolling_stops_at_a_node_that_does_not_come_back() {
    let stack = Stack::new();
    stack.run("stack up").expect(0);
    let before = stack.pids();
    damage(&stack, "build-2-1");
    let ran = stack.run("stack rolling --timeout 30s").expect(1);
    assert!(ran.stderr.contains("build-2-1 has ended: exit code 1"), "{}", ran.stderr);
    assert!(ran.stderr.contains("state/build-2-1/log:\n  error: "), "the end of its log: {}", ran.stderr);
    let summary = "The rolling restart has stopped at build-2-1. Restarted before it: build-1. \
                   Left as they are: build-2-2, control\n";
    assert!(ran.stderr.ends_with(summary), "{}", ran.stderr);
    assert_ne!(stack.pid("build-1"), before[1]);
    assert_eq!([stack.pid("control"), stack.pid("build-2-2")], [before[0], before[3]]);
    // A stack with a node missing is not rolled.
    let ran = stack.run("stack rolling").expect(1);
    assert!(
        ran.stderr.contains("nothing was restarted") && ran.stderr.contains("build-2-1 has ended"),
        "{}",
        ran.stderr
    );
    assert_eq!(stack.pid("control"), before[0]);
}

#[test]
fn a_node_that_was_removed_ends_and_the_command_says_why() {
    let stack = Stack::new();
    stack.run("stack up").expect(0);
    let node = stack.service("build-1")["node"].as_str().unwrap().to_owned();
    stack.run(&format!("nodes rm {node}")).expect(0);
    let ran = stack.run("stack restart build-1 --timeout 30s").expect(1);
    assert!(ran.stderr.contains("build-1 has ended: exit code 2"), "{}", ran.stderr);
    assert!(ran.stderr.contains("was removed from the cluster"), "its log says why: {}", ran.stderr);
}

#[test]
fn problems_at_the_start_are_explained() {
    let stack = Stack::with(&FILE.replace(", config: node.yaml", ""));
    let port: u16 = stack.url.rsplit_once(':').unwrap().1.parse().unwrap();
    let taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let ran = stack.run("stack up").expect(1);
    assert!(
        ran.stderr.contains("is in use by another program") && ran.stderr.contains("control.listen"),
        "{}",
        ran.stderr
    );
    drop(taken);
    fs::write(stack.path("control.yaml"), "policy: {rules: no-such-directory}\n").unwrap();
    let ran = stack.run("stack up").expect(1);
    assert!(ran.stderr.contains("control has ended: exit code 2"), "{}", ran.stderr);
    assert!(ran.stderr.contains("no-such-directory"), "the end of its log: {}", ran.stderr);
    fs::write(stack.path("control.yaml"), "polcy: {}\n").unwrap();
    let ran = stack.run("stack up").expect(2);
    assert!(ran.stderr.contains("control.yaml") && ran.stderr.contains("line 1 column 1"), "{}", ran.stderr);
    fs::remove_file(stack.path("control.yaml")).unwrap();
    let ran = stack.run("stack up").expect(2);
    assert!(
        ran.stderr.contains("stack.yaml:3:") && ran.stderr.contains("control.config: there is no file"),
        "{}",
        ran.stderr
    );
    stack.run("stack restart build-9").expect(2);
    stack.run("stack -f other.yaml up").expect(3);
    fs::write(stack.path("other.yaml"), "nodes: [{name: a, lables: {}}]\n").unwrap();
    let ran = stack.run("stack up -f other.yaml").expect(2);
    assert!(ran.stderr.contains("other.yaml:1:19: unknown field `lables`"), "{}", ran.stderr);
    fs::write(stack.path("other.yaml"), "directory: .\n").unwrap();
    let ran = stack.run("stack up -f other.yaml").expect(2);
    assert!(ran.stderr.contains("is not the directory of a stack"), "{}", ran.stderr);
    fs::write(stack.path("other.yaml"), "{}\n").unwrap();
    stack.run("stack restart build-9 -f other.yaml").expect(3);
    stack.run("stack rolling -f other.yaml").expect(1);
}

#[test]
fn a_recorded_pid_that_belongs_to_another_process_is_not_signalled() {
    let stack = Stack::with("directory: state\ncontrol: {listen: 127.0.0.1:PORT0, cluster_listen: 127.0.0.1:PORT1}\n");
    stack.run("stack up").expect(0);
    stack.run("stack down").expect(0);
    let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
    let record = stack.path("state/control/process");
    let text = fs::read_to_string(&record).unwrap();
    let rest = text.split_once('\n').unwrap().1;
    fs::write(&record, format!("pid {}\n{rest}", other.id())).unwrap();
    stack.run("stack down --stop-jobs").expect(0);
    assert!(other.try_wait().unwrap().is_none());
    stack.run("stack up").expect(0);
    assert_ne!(stack.pid("control"), i64::from(other.id()));
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_changed_file_is_noticed_and_services_that_left_it_are_stopped() {
    let stack = Stack::new();
    stack.run("stack up").expect(0);
    let text = fs::read_to_string(stack.path("stack.yaml")).unwrap();
    let text = text.replace("zone: a", "zone: b").replace("count: 2", "count: 1");
    fs::write(stack.path("stack.yaml"), text).unwrap();
    let ran = stack.run("stack up").expect(0);
    assert!(ran.stderr.contains("outlast stack restart build-1\n"), "{}", ran.stderr);
    assert_eq!(stack.service("build-2-2")["in_file"], false);
    let pid = stack.pid("build-2-2");
    stack.run("stack restart build-1").expect(0);
    assert_eq!(stack.run("stack up").expect(0).stderr, "");
    let ran = stack.run("stack down").expect(0);
    assert!(ran.stdout.contains("build-2-2 stopped") && !is_running(pid), "{}", ran.stdout);
}

#[test]
fn progress_is_redrawn_on_a_terminal() {
    let stack = Stack::new();
    let (controller, terminal_end) = terminal();
    let mut command = stack.command("stack up");
    let mut child = command.env("TERM", "xterm").env("NO_COLOR", "1").stdout(terminal_end).spawn().unwrap();
    drop(command);
    let drawn = read_all(controller);
    assert_eq!(child.wait().unwrap().code(), Some(0), "{drawn}");
    let (frames, last) = drawn.rsplit_once("\x1b[J").unwrap();
    assert_eq!(last, format!("demo is ready: {}\r\n", stack.url));
    let frame = frames.rsplit("\x1b[J").next().unwrap();
    assert!(frame.starts_with("\x1b[4A\r✓ control    started in "), "{frame:?}");
    assert_eq!(frame.matches('✓').count(), 4, "{frame:?}");
}

#[test]
fn paths_are_relative_to_the_file() {
    let stack = Stack::with("directory: state\ncontrol: {listen: 127.0.0.1:PORT0, cluster_listen: 127.0.0.1:PORT1}\n");
    let file = stack.path("stack.yaml");
    let elsewhere = tempfile::tempdir().unwrap();
    let run = |file: &Path, line: &str| {
        let mut command = outlast();
        command.current_dir(elsewhere.path()).args(["stack", "--file"]).arg(file).args(line.split(' '));
        finish(command.spawn().unwrap())
    };
    run(&file, "up").expect(0);
    assert!(stack.path("state/control/data").exists());
    // The same stack by another path.
    let link = elsewhere.path().join("link");
    std::os::unix::fs::symlink(stack.directory.path(), &link).unwrap();
    let ran = run(&link.join("stack.yaml"), "up").expect(0);
    assert!(ran.stdout.starts_with("control already running"), "{}", ran.stdout);
}
