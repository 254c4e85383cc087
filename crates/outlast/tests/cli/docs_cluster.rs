//! Runs the examples of docs/cluster.md, with a directory for each machine and other ports.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout};
use std::time::{Duration, Instant};

use crate::docs::{Example, blocks, matches, page, root, run};
use crate::stack::free_ports;
use crate::support::{outlast, run_alone};

const PAGE: &str = "docs/cluster.md";

/// A node in the foreground of a machine's terminal, stopped on drop.
struct Terminal {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Terminal {
    fn run(directory: &Path, command: &str) -> Self {
        let arguments = command.strip_prefix("outlast ").unwrap().split(' ');
        let mut process = outlast().args(arguments).current_dir(directory).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    fn expect(&mut self, example: &Example) {
        for pattern in &example.output {
            let line = self.lines.next().and_then(Result::ok);
            assert!(line.as_ref().is_some_and(|line| matches(pattern, line)), "{pattern}\n{line:?}");
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = std::process::Command::new("kill").args(["-INT", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }
}

/// The page with the ports of this test.
fn text([api, cluster]: [u16; 2]) -> String {
    let page = page(PAGE).replace("10.0.0.1:7071", &format!("127.0.0.1:{cluster}"));
    page.replace("127.0.0.1:7070", &format!("127.0.0.1:{api}"))
        .replace("127.0.0.1:7071", &format!("127.0.0.1:{cluster}"))
}

fn section<'a>(page: &'a str, title: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("\n## {title}\n")).unwrap();
    rest.split("\n## ").next().unwrap()
}

#[test]
fn the_stack_of_the_page_works_as_written() {
    let ports = free_ports();
    let page = text(ports);
    let section = section(&page, "Try it on one machine");
    let directory = tempfile::tempdir().unwrap();
    let yaml = section.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    std::fs::write(directory.path().join("stack.yaml"), yaml).unwrap();
    let blocks = blocks(section);
    assert_eq!(blocks.len(), 3);
    // Stops the stack if an example fails.
    let stopped = std::panic::catch_unwind(|| {
        blocks.iter().for_each(|block| run(&format!("http://127.0.0.1:{}", ports[0]), directory.path(), block));
    });
    if let Err(panic) = stopped {
        let file = directory.path().join("stack.yaml");
        run_alone(["stack", "down", "--stop-jobs", "--file", file.to_str().unwrap()]);
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn the_three_machines_of_the_page_work_as_written() {
    let ports = free_ports();
    let [api, _] = ports;
    let url = format!("http://127.0.0.1:{api}");
    let page = text(ports);
    let blocks = blocks(section(&page, "Three machines"));
    let [up, token, second, third, use_them, without] = blocks.as_slice() else { panic!("{} blocks", blocks.len()) };
    let machines = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let mut control = Terminal::run(machines[0].path(), &format!("{} --listen 127.0.0.1:{api}", up[0].command));
    control.expect(&up[0]);

    run(&url, machines[0].path(), token);
    let printed = run_alone(["nodes", "join-token", "--reusable", "--server", &url]).expect(0);
    let printed = printed.stdout.split_whitespace().find(|word| word.starts_with("outlast1-")).unwrap().to_owned();
    let join = |machine: &tempfile::TempDir, example: &Example| {
        // Without the default port of the machine.
        let command = format!("{} --listen 127.0.0.1:0", example.command.replace("outlast1-…", &printed));
        let mut terminal = Terminal::run(machine.path(), &command);
        terminal.expect(example);
        assert!(machine.path().join("outlast-runner-data").is_dir());
        terminal
    };
    let _others = [join(&machines[1], &second[0]), join(&machines[2], &third[0])];
    let deadline = Instant::now() + Duration::from_secs(30);
    while run_alone(["nodes", "--server", &url]).stdout.matches(" ready ").count() < 3 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(50));
    }
    run(&url, machines[0].path(), use_them);
    run(&url, machines[0].path(), without);
    let sessions = crate::docs::blocks(section(&page, "Sessions"));
    assert_eq!(sessions.len(), 1);
    run(&url, machines[0].path(), &sessions[0]);
}

#[test]
fn the_units_start_nodes_and_leave_their_jobs_running() {
    for (name, command) in [("outlast", "up"), ("outlast-runner", "join")] {
        let unit = std::fs::read_to_string(root().join(format!("examples/systemd/{name}.service"))).unwrap();
        let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).unwrap();
        assert_eq!([value("KillMode"), value("KillSignal"), value("Restart")], ["process", "SIGTERM", "always"]);
        assert_eq!(value("OOMPolicy"), "continue", "a job that runs out of memory does not stop the node");
        let mut words = value("ExecStart").split(' ');
        assert_eq!((words.next(), words.next()), (Some("/usr/local/bin/outlast"), Some(command)));
        // The options exist.
        run_alone([command].into_iter().chain(words).chain(["--help"])).expect(0);
        assert!(value("ExecStart").ends_with(&format!("/var/lib/{}", value("StateDirectory"))));
    }
}

#[test]
fn the_settings_of_the_page_are_valid() {
    let page = page(PAGE);
    let written = |file: &str| {
        let line = page.lines().find(|line| line.contains(&format!("> /etc/outlast/{file}"))).unwrap();
        let (_, rest) = line.split_once('\'').unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(file);
        std::fs::write(&path, rest.split('\'').next().unwrap()).unwrap();
        (directory, path)
    };
    let (_directory, path) = written("outlast.yaml");
    assert_eq!(server::Options::from_file(&path).unwrap().cluster.listen.port(), 7071);
    let (_directory, path) = written("runner.yaml");
    assert_eq!(server::RunnerNodeOptions::from_file(&path).unwrap().control, ["10.0.0.1:7071"]);
}
