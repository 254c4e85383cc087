//! Workflows and schedules from the command line.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Output, Server, finish, run_alone};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Polls until the workflow satisfies `wanted`.
pub fn await_workflow(server: &Server, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + TIMEOUT;
    loop {
        let workflow = server.run(["workflows", "show", id, "--output", "json"]).expect(0).json();
        if wanted(&workflow) {
            return workflow;
        }
        assert!(Instant::now() < until, "{workflow}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn ended(server: &Server, id: &str) -> Value {
    await_workflow(server, id, |workflow| !workflow["ended_at"].is_null())
}

fn find_task<'a>(workflow: &'a Value, name: &str) -> &'a Value {
    let tasks = workflow["tasks"].as_array().unwrap();
    tasks.iter().find(|task| task["name"] == name).unwrap_or_else(|| panic!("no task {name}: {workflow}"))
}

pub fn await_task(server: &Server, id: &str, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    find_task(&await_workflow(server, id, |workflow| wanted(find_task(workflow, name))), name).clone()
}

fn write(server: &Server, name: &str, text: &str) -> String {
    fs::write(server.directory.path().join(name), text).unwrap();
    name.to_owned()
}

fn start(server: &Server, text: &str) -> String {
    let file = write(server, "flow.yaml", text);
    server.run(["run", &file]).expect(0).line().to_owned()
}

/// The second task ends once the file `go` exists.
fn gated(server: &Server) -> String {
    let directory = server.directory.path().display();
    format!(
        "name: gated\ndefaults: {{sandbox: none}}\ntasks:\n  first: {{run: echo one}}\n  \
         second: {{needs: first, run: 'cd {directory} && while [ ! -e go ]; do sleep 0.05; done; echo two'}}\n  \
         third: {{needs: second, run: echo three}}\noutputs: {{said: '${{trim(tasks.third.result)}}'}}\n"
    )
}

const SLEEPS: &str = "name: sleeps\ntasks:\n  long: {delay: 1h}\n  after: {needs: long, run: 'true'}\n";

#[test]
fn run_prints_only_the_id_with_a_hint() {
    let server = Server::start();
    let file = write(&server, "flow.yaml", "name: x\ntasks:\n  a: {run: 'true'}\n");
    let ran = server.run(["run", &file, "--key", "k", "--label", "a=b"]).expect(0);
    assert!(ran.line().starts_with("wf_") && !ran.line().contains(' '), "{}", ran.stdout);
    assert!(ran.stderr.contains(&format!("outlast workflows show {} --watch", ran.line())), "{}", ran.stderr);
    let again = server.run(["run", &file, "--key", "k", "--label", "a=b", "--detach"]).expect(0);
    assert_eq!(again.stdout, ran.stdout);
    assert_eq!(ended(&server, ran.line())["labels"]["a"], "b");
}

// FEATURES: B1
#[test]
fn run_with_wait_prints_one_line_per_change_and_the_result() {
    let server = Server::start();
    let text = "name: small\ninputs: {who: string}\ntasks:\n  greet: {run: {echo: {value: 'hello, ${inputs.who}'}}}\n  \
                never: {when: '${false}', run: 'true'}\noutputs: {greeting: '${tasks.greet.result}'}\n";
    let file = write(&server, "flow.yaml", text);
    let ran = server.run(["run", &file, "--wait", "--input", "who=ada"]).expect(0);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines[0].starts_with("+0ms  small started wf_"), "{}", ran.stdout);
    for wanted in ["greet succeeded in ", "never skipped: condition false", "small succeeded in "] {
        assert!(lines.iter().any(|line| line.contains(wanted)), "{wanted}: {}", ran.stdout);
    }
    assert!(ran.stdout.ends_with("{\n  \"greeting\": \"hello, ada\"\n}\n"), "{}", ran.stdout);
    assert!(!ran.stdout.contains('\x1b'), "no control codes in a pipe: {}", ran.stdout);
}

#[test]
fn the_exit_code_of_run_with_wait_follows_the_workflow() {
    let server = Server::start();
    let failing = write(&server, "failing.yaml", "name: x\ntasks:\n  a: {retry: 0, run: exit 7}\n");
    let ran = server.run(["run", &failing, "--wait"]).expect(1);
    assert!(ran.stdout.contains("a failed in ") && ran.stdout.contains("x failed in "), "{}", ran.stdout);
    let asked = server.run(["run", &failing, "--wait", "--output", "json"]).expect(1).json();
    assert_eq!(asked["state"], "failed");
    let sleeping = write(&server, "sleeping.yaml", SLEEPS);
    let mut child = server.command(["run", &sleeping, "--wait"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let id = first.split(' ').find(|word| word.starts_with("wf_")).unwrap();
    server.run(["workflows", "cancel", id]).expect(0);
    finish(child).expect(1);
}

#[test]
fn own_failures_are_offset_by_120_with_wait() {
    let server = Server::start();
    let good = write(&server, "good.yaml", "name: x\ninputs: {n: integer}\ntasks:\n  a: {run: 'true'}\n");
    let bad = write(&server, "bad.yaml", "name: x\ntasks:\n  a: {needs: [b], run: 'true'}\n");
    for (line, code) in [
        (format!("run {bad}"), 2),
        (format!("run {good}"), 2),
        (format!("run {good} --input n=many"), 2),
        (format!("run {good} --input n=1 --input m=1"), 2),
        ("run".to_owned(), 2),
        ("run missing.yaml".to_owned(), 3),
        (format!("run {good} --input n=1 --inputs missing.json"), 3),
        (format!("run {good} --input n=1 --queue q_0000000000001"), 3),
        (format!("run {good} --input n=1 --server http://127.0.0.1:1"), 4),
    ] {
        let ran = server.run(line.split(' ')).expect(code);
        assert!(!ran.stderr.is_empty() && ran.stdout.is_empty(), "{line}: {ran:?}");
        server.run(format!("{line} --wait").split(' ')).expect(120 + code);
    }
    server.run(["run", &good, "--wait", "--detach"]).expect(122);
}

#[test]
fn problems_have_file_line_column_field_and_suggestion() {
    let server = Server::start();
    let text =
        "name: x\ntasks:\n  build:\n    run: 'true'\n  test:\n    needs: [biuld]\n    run: 'true'\n    retyr: 3\n";
    let file = write(&server, "flow.yaml", text);
    for command in [&["run", &file][..], &["workflows", "validate", &file]] {
        let ran = server.run(command).expect(2);
        assert!(ran.stderr.starts_with("error: flow.yaml has 2 problems\n"), "{}", ran.stderr);
        assert!(ran.stderr.contains("flow.yaml:6:13: tasks.test.needs[0]: "), "{}", ran.stderr);
        assert!(ran.stderr.contains("flow.yaml:8:5: tasks.test.retyr: "), "{}", ran.stderr);
        assert!(ran.stderr.contains("  help: did you mean `build`?"), "{}", ran.stderr);
    }
    let asked = server.run(["workflows", "validate", &file, "--output", "json"]).expect(2).json();
    assert_eq!((&asked["valid"], asked["diagnostics"].as_array().unwrap().len()), (&false.into(), 2));
    assert_eq!(asked["diagnostics"][0]["line"], 6);
    let good = write(&server, "good.yaml", "name: x\ntasks:\n  a: {run: 'true'}\n  b: {run: 'true'}\n");
    assert_eq!(run_alone(["workflows", "validate", &path(&server, &good)]).expect(0).stdout, "valid: 2 tasks\n");
}

fn path(server: &Server, name: &str) -> String {
    server.directory.path().join(name).display().to_string()
}

#[test]
fn child_workflows_are_embedded_from_files_and_drawn_with_their_tasks() {
    let server = Server::start();
    let leaf = "name: leaf\ninputs: {n: integer}\ntasks:\n  double: {run: {echo: {value: '${inputs.n * 2}'}}}\n\
                outputs: '${tasks.double.result}'\n";
    let file = write(&server, "leaf.yaml", leaf);
    assert_eq!(file, "leaf.yaml");
    let top = "name: top\ntasks:\n  part: {workflow: ./leaf.yaml, with: {n: 21}}\noutputs: '${tasks.part.result}'\n";
    let file = write(&server, "top.yaml", top);
    let ran = server.run(["run", &file, "--wait"]).expect(0);
    assert!(ran.stdout.contains("  part/double succeeded") && ran.stdout.ends_with("\n42\n"), "{}", ran.stdout);
    let list = server.run(["workflows", "list", "--output", "json"]).expect(0).json();
    let id = list["items"][0]["id"].as_str().unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "sub-workflows are not listed: {list}");
    let all = server.run(["workflows", "list", "--children"]).expect(0).stdout;
    assert_eq!(all.lines().count(), 3, "{all}");
    let page = server.run(["workflows", "show", id]).expect(0).stdout;
    assert!(page.contains("\n   └─ ✓ double "), "{page}");
}

#[test]
fn an_interrupted_wait_leaves_the_workflow_running() {
    let server = Server::start();
    let file = write(&server, "flow.yaml", SLEEPS);
    let mut child = server.command(["run", &file, "--wait"]).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let ran = finish(child).expect(130);
    let id = first.split_whitespace().find(|word| word.starts_with("wf_")).unwrap();
    let expected = format!("{id} continues. Watch it with `outlast workflows show --watch {id}`");
    assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
    let workflow = server.run(["workflows", "show", id, "--output", "json"]).expect(0).json();
    assert_eq!(workflow["state"], "running");
}

#[test]
fn a_wait_ends_when_its_output_is_closed() {
    let server = Server::start();
    let file = write(&server, "flow.yaml", SLEEPS);
    let mut child = server.command(["run", &file, "--wait"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap();
    drop(stdout);
    let ran = finish(child).expect(141);
    assert!(ran.stderr.contains(" continues. Watch it with `outlast workflows show --watch wf_"), "{}", ran.stderr);
}

// FEATURES: A14
#[test]
fn a_wait_survives_a_server_restart_and_reports_the_outage() {
    let mut server = Server::start();
    let text = gated(&server);
    let file = write(&server, "flow.yaml", &text);
    let mut child = server.command(["run", &file, "--wait"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut output = String::new();
    while !output.contains("second running") {
        assert_ne!(stdout.read_line(&mut output).unwrap(), 0, "{output}");
    }
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    server.kill();
    let mut outage = String::new();
    stderr.read_line(&mut outage).unwrap();
    assert!(outage.starts_with("the server is unreachable"), "{outage}");
    server.start_again();
    fs::write(server.directory.path().join("go"), "").unwrap();
    std::io::Read::read_to_string(&mut stdout, &mut output).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{output}");
    assert_eq!(output.matches("first succeeded").count(), 1, "nothing is reported twice: {output}");
    assert!(output.contains("third succeeded") && output.ends_with("{\n  \"said\": \"three\"\n}\n"), "{output}");
}

#[test]
fn a_workflow_is_paused_resumed_cancelled_and_deleted() {
    let server = Server::start();
    let text = gated(&server);
    let id = start(&server, &text);
    await_task(&server, &id, "second", |task| task["state"] == "running");
    assert_eq!(server.run(["workflows", "pause", &id]).expect(0).stdout, format!("{id} paused\n"));
    assert!(server.run(["workflows", "show", &id]).expect(0).stdout.contains("outlast workflows resume"));
    fs::write(server.directory.path().join("go"), "").unwrap();
    await_task(&server, &id, "second", |task| task["state"] == "succeeded");
    let third =
        find_task(&server.run(["workflows", "show", &id, "--output", "json"]).expect(0).json(), "third").clone();
    assert_eq!(third["state"], "waiting");
    server.run(["workflows", "rm", &id]).expect(1);
    server.run(["workflows", "resume", &id]).expect(0);
    assert_eq!(ended(&server, &id)["state"], "succeeded");
    server.run(["workflows", "cancel", &id]).expect(1);
    assert_eq!(server.run(["workflows", "rm", &id]).expect(0).stdout, format!("{id} deleted\n"));
    server.run(["workflows", "show", &id]).expect(3);
}

#[test]
fn a_cancelled_workflow_can_be_rolled_back() {
    let server = Server::start();
    let text =
        "name: x\ntasks:\n  book: {run: echo booked, compensation: echo unbooked}\n  wait: {needs: book, delay: 1h}\n";
    let id = start(&server, text);
    await_task(&server, &id, "wait", |task| task["state"] == "sleeping");
    server.run(["workflows", "cancel", &id, "--compensate"]).expect(0);
    let workflow = ended(&server, &id);
    assert_eq!((&workflow["state"], &workflow["rollback"]["compensated"]), (&"cancelled".into(), &1.into()));
    let page = server.run(["workflows", "show", &id]).expect(0).stdout;
    assert!(page.contains("rolled back: 1 of 1 tasks compensated") && page.contains("  compensated"), "{page}");
}

#[test]
fn a_signal_completes_a_waiting_task() {
    let server = Server::start();
    let text = "name: x\ntasks:\n  go: {wait_for: start}\noutputs: '${tasks.go.result}'\n";
    let id = start(&server, text);
    await_task(&server, &id, "go", |task| task["state"] == "listening");
    server.run(["workflows", "signal", &id, "start", "not json"]).expect(2);
    let signalled = server.run(["workflows", "signal", &id, "start", r#"{"by": "ada"}"#]).expect(0).stdout;
    assert_eq!(signalled, format!("signal start sent to {id}\n"));
    assert_eq!(ended(&server, &id)["result"]["by"], "ada");
    server.run(["workflows", "signal", &id, "start"]).expect(1);
    let id = start(&server, text);
    let file = write(&server, "payload.json", "[1, 2]");
    server.run(["workflows", "signal", &id, "start", "--file", &file]).expect(0);
    assert_eq!(ended(&server, &id)["result"], json!([1, 2]));
}

#[test]
fn a_failed_workflow_is_rerun_from_the_failed_task() {
    let server = Server::start();
    let directory = server.directory.path().display();
    let text = format!(
        "name: x\ndefaults: {{sandbox: none, retry: 0}}\ntasks:\n  once: {{run: 'echo x >> {directory}/runs'}}\n  \
         flaky: {{needs: once, run: 'test -e {directory}/fixed'}}\n"
    );
    let id = start(&server, &text);
    assert_eq!(ended(&server, &id)["state"], "failed");
    let history = server.run(["workflows", "history", &id]).expect(0).stdout;
    assert!(history.contains("flaky") && history.contains("failed"), "{history}");
    let tasks = server.run(["workflows", "tasks", &id, "--state", "failed"]).expect(0).stdout;
    assert_eq!(tasks.lines().count(), 2, "{tasks}");
    assert!(tasks.lines().nth(1).unwrap().starts_with("flaky  job"), "{tasks}");
    fs::write(server.directory.path().join("fixed"), "").unwrap();
    server.run(["workflows", "rerun", &id, "--from", "nothing"]).expect(3);
    server.run(["workflows", "rerun", &id]).expect(0);
    let workflow = ended(&server, &id);
    assert_eq!((&workflow["state"], &workflow["run"]), (&"succeeded".into(), &2.into()));
    server.run(["workflows", "rerun", &id]).expect(1);
    server.run(["workflows", "rerun", &id, "--from", "once"]).expect(0);
    assert_eq!(ended(&server, &id)["run"], 3);
    assert_eq!(fs::read_to_string(server.directory.path().join("runs")).unwrap(), "x\nx\n");
    let task = server.run(["workflows", "tasks", &id, "once", "--output", "json"]).expect(0).json();
    assert_eq!((&task["state"], &task["attempts"]), (&"succeeded".into(), &1.into()));
}

#[test]
fn a_watched_workflow_is_shown_until_it_ends() {
    let server = Server::start();
    let text = gated(&server);
    let id = start(&server, &text);
    let mut child = server.command(["workflows", "show", &id, "--watch"]).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut output = String::new();
    while !output.contains("second running") {
        assert_ne!(stdout.read_line(&mut output).unwrap(), 0, "{output}");
    }
    fs::write(server.directory.path().join("go"), "").unwrap();
    std::io::Read::read_to_string(&mut stdout, &mut output).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(output.contains("gated succeeded in "), "{output}");
}

#[test]
fn definitions_are_drawn_and_described() {
    let server = Server::start();
    let id = start(&server, SLEEPS);
    for what in ["flow.yaml", &id] {
        let mermaid = server.run(["workflows", "graph", what]).expect(0).stdout;
        assert!(mermaid.starts_with("flowchart") && mermaid.contains("long"), "{mermaid}");
        server.run(["workflows", "graph", what, "-o", "drawn.svg"]).expect(0);
        let svg = fs::read_to_string(server.directory.path().join("drawn.svg")).unwrap();
        assert!(svg.contains("<svg") && svg.contains("after"), "{svg}");
    }
    server.run(["workflows", "graph", "flow.yaml", "-o", "drawn.png"]).expect(2);
    server.run(["workflows", "graph", "missing.yaml"]).expect(3);
    let schema: Value = run_alone(["workflows", "schema"]).expect(0).json();
    assert!(schema["$schema"].is_string() && schema["$defs"]["task"].is_object(), "{schema}");
}

#[test]
fn missing_resources_are_3() {
    let server = Server::start();
    for line in [
        "workflows show wf_0000000000001",
        "workflows show nonsense",
        "workflows show wf_0000000000001 --watch",
        "workflows cancel wf_0000000000001",
        "workflows history wf_0000000000001",
        "workflows tasks wf_0000000000001",
        "workflows signal wf_0000000000001 x",
        "workflows rerun wf_0000000000001",
        "workflows rm wf_0000000000001",
        "workflows graph wf_0000000000001",
        "workflows validate missing.yaml",
        "schedules show missing",
        "schedules trigger missing",
        "schedules pause missing",
        "schedules rm missing",
        "schedules create missing.yaml",
    ] {
        let ran = server.run(line.split(' ')).expect(3);
        assert!(ran.stderr.starts_with("error: "), "{line}: {}", ran.stderr);
    }
}

#[test]
fn a_schedule_is_paused_and_resumed_and_its_name_is_unique() {
    let server = Server::start();
    let text = "name: hourly\ncron: '@hourly'\nworkflow:\n  name: tick\n  tasks:\n    a: {run: 'true'}\n";
    let file = write(&server, "hourly.yaml", text);
    server.run(["schedules", "create", &file]).expect(0);
    let taken = server.run(["schedules", "create", &file]).expect(1);
    assert!(taken.stderr.contains("schedule_name_taken"), "{}", taken.stderr);
    assert_eq!(server.run(["schedules", "pause", "hourly"]).expect(0).stdout, "hourly paused\n");
    let shown = server.run(["schedules", "show", "hourly", "--output", "json"]).expect(0).json();
    assert_eq!(
        (&shown["paused"], &shown["next_slot"], &shown["workflow"]),
        (&true.into(), &Value::Null, &"tick".into())
    );
    assert_eq!(server.run(["schedules", "resume", "hourly"]).expect(0).stdout, "hourly active\n");
    let page = server.run(["schedules", "show", "hourly"]).expect(0).stdout;
    assert!(page.contains("cron") && page.contains("@hourly") && page.contains("next"), "{page}");
    let bad = write(&server, "bad.yaml", &text.replace("@hourly", "99 * * * *"));
    let refused: Output = server.run(["schedules", "create", &bad]).expect(2);
    assert!(refused.stderr.contains("bad.yaml:2:7: cron: "), "{}", refused.stderr);
}
