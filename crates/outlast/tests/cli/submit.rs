//! Submission of single jobs and batches, and --wait.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::support::{Server, finish, run_alone};

#[test]
fn submit_with_wait_streams_output_and_returns_the_exit_code() {
    let server = Server::start();
    let ran = server
        .run(["submit", "--wait", "--retries", "0", "--", "sh", "-c", "echo out; echo err >&2; exit 3"])
        .expect(3);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("out\n", "err\n"));
    let ran = server.run(["submit", "--wait", "--env", "GREETING=hello", "--", "sh", "-c", "echo $GREETING"]).expect(0);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("hello\n", ""));
    let ran = server.run(["submit", "--wait", "--", "sh", "-c", "kill -9 $$"]).expect(137);
    assert_eq!(ran.stdout, "");
    let ran = server.run(["submit", "--wait", "--retries", "1", "--", "sh", "-c", "echo again; exit 4"]).expect(4);
    assert_eq!(ran.stdout, "again\nagain\n");
}

#[test]
fn submit_with_wait_prints_the_result_of_an_echo_job() {
    let server = Server::start();
    let ran = server.run(["submit", "--wait", "--echo", r#"{"b": 1, "a": [2.50]}"#]).expect(0);
    assert_eq!(ran.stdout, "{\"b\": 1, \"a\": [2.50]}\n");
    let ran = server.run(["submit", "--wait", "--output", "json", "--echo", "7"]).expect(0);
    assert_eq!((&ran.json()["state"], &ran.json()["result"]), (&"succeeded".into(), &7.into()));
}

#[test]
fn a_failure_without_an_exit_code_is_explained() {
    let server = Server::start();
    let job = r#"{"run":{"echo":{"value":1,"fail":"fatal"}}}"#;
    let ran = server.run_with_input(&["submit", "--wait", "--file", "-"], job).expect(1);
    assert!(ran.stderr.starts_with("error: job_"), "{}", ran.stderr);
    let ran = server.run(["submit", "--wait", "--retries", "0", "--timeout", "200ms", "--", "sleep", "30"]);
    assert!(ran.stderr.contains("timed out"), "{ran:?}");
    assert_ne!(ran.code, Some(0));
}

#[test]
fn submit_prints_only_the_id() {
    let server = Server::start();
    let ran = server.run(["submit", "--topic", "t", "--label", "a=b", "--key", "k", "--", "true"]).expect(0);
    let again = server.run(["submit", "--topic", "t", "--label", "a=b", "--key", "k", "--", "true"]).expect(0);
    assert!(ran.line().starts_with("job_"), "{ran:?}");
    assert_eq!(ran.stdout, again.stdout);
    let job = server.wait_for_state(ran.line(), &["succeeded"]);
    assert_eq!((&job["topic"], &job["labels"]["a"]), (&"t".into(), &"b".into()));
    let other = server.run(["submit", "--topic", "other", "--key", "k", "--", "true"]).expect(1);
    assert!(other.stderr.contains("idempotency_conflict"), "{}", other.stderr);
}

#[test]
fn a_delayed_job_is_not_started() {
    let server = Server::start();
    let id = server.run(["submit", "--delay", "1h", "--echo", "1"]).expect(0).line().to_owned();
    let job = server.run(["jobs", "show", &id, "--output", "json"]).expect(0).json();
    assert!(!job["not_before"].is_null(), "{job}");
    server.run(["jobs", "cancel", &id]).expect(0);
    server.wait_for_state(&id, &["cancelled"]);
}

#[test]
fn files_of_every_format_are_submitted() {
    let server = Server::start();
    let write = |name: &str, text: &str| {
        fs::write(server.directory.path().join(name), text).unwrap();
        name.to_owned()
    };
    let file = write("one.json", r#"{"run": {"echo": {"value": "from json"}}}"#);
    assert_eq!(server.run(["submit", "--wait", "--file", &file]).expect(0).stdout, "\"from json\"\n");
    let file = write("one.yaml", "run:\n  echo:\n    value: {from: yaml}\n");
    assert_eq!(server.run(["submit", "--wait", "--file", &file]).expect(0).stdout, "{\"from\":\"yaml\"}\n");
    let file = write("many.yaml", "jobs:\n  - run: {echo: {value: 1}}\n  - run: {echo: {value: 2}}\n");
    let ran = server.run(["submit", "--file", &file]).expect(0);
    assert_eq!(ran.stdout.lines().filter(|line| line.starts_with("job_")).count(), 2);
    server.run(["submit", "--wait", "--file", &file]).expect(122);
    let file = write("broken.json", "{\"run\": ");
    server.run(["submit", "--file", &file]).expect(2);
}

#[test]
fn a_stream_of_jobs_reports_the_refused_lines() {
    let server = Server::start();
    let good = "{\"run\":{\"echo\":{\"value\":1}}}\n";
    let mut input = good.repeat(1500);
    input.push_str("\nnot json\n{\"run\":{\"process\":{\"command\":[]}}}\n");
    input.push_str(good);
    let ran = server.run_with_input(&["submit", "--file", "-"], &input).expect(1);
    assert_eq!(ran.stdout.lines().count(), 1501);
    let refused: Vec<_> = ran.stderr.lines().filter(|line| line.starts_with("line ")).collect();
    assert!(refused[0].starts_with("line 1502: "), "{refused:?}");
    assert!(refused[1].starts_with("line 1503: ") && refused[1].contains("command"), "{refused:?}");
    assert!(ran.stderr.contains("1501 accepted, 2 refused"), "{}", ran.stderr);
    let ran = server.run_with_input(&["submit", "--output", "json", "--file", "-"], &input).expect(1);
    assert_eq!((&ran.json()["accepted"], &ran.json()["refused"]), (&1501.into(), &2.into()));
}

#[test]
fn limits_of_a_job_are_set_and_shown() {
    let server = Server::start();
    let arguments = ["submit", "--sandbox", "none", "--memory", "512M", "--cpu", "1m", "--artifact", "*.txt", "true"];
    let id = server.run(arguments).expect(0).line().to_owned();
    let job = server.wait_for_state(&id, &["succeeded"]);
    assert_eq!(job["limits"], serde_json::json!({"memory_bytes": 512 << 20, "cpu_ms": 60_000}));
    assert_eq!((&job["outputs"][0], &job["sandbox"]), (&"*.txt".into(), &"none".into()));
    let page = server.run(["jobs", "show", &id]).expect(0).stdout;
    assert!(page.contains("cpu 1m00s, memory 512.0 MiB"), "{page}");
}

#[test]
fn conflicting_options_are_invalid_usage() {
    let blob = format!("blob:{}", "0".repeat(64));
    for arguments in [
        &["--echo", "1", "--memory", "5M"][..],
        &["--echo", "1", "true"],
        &["--function", "f"],
        &["--wasm", &blob, "--pids", "3"],
        &["--wasm", &blob, "--open-files", "3"],
        &["--fuel", "3", "true"],
        &["--wasm", "blob:12"],
        &["--input", "a=blob:12", "true"],
        &["--input", "a", "true"],
        &["--memory", "much", "true"],
        &["--file", "x.json", "--sandbox", "none"],
        &["--file", "x.json", "true"],
        &[],
    ] {
        run_alone(std::iter::once(&"submit").chain(arguments)).expect(2);
    }
}

#[test]
fn an_interrupted_wait_leaves_the_job_running_with_a_hint() {
    let server = Server::start();
    let mut child = server.command(["submit", "--wait", "--", "sh", "-c", "echo started; sleep 60"]).spawn().unwrap();
    let mut first = [0; 8];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let ran = finish(child).expect(130);
    assert!(ran.stderr.contains("outlast jobs cancel job_"), "{}", ran.stderr);
    let running = server.run(["jobs", "running", "--output", "json"]).expect(0).json();
    let id = running["items"][0]["id"].as_str().unwrap().to_owned();
    server.run(["jobs", "cancel", &id]).expect(0);
    server.wait_for_state(&id, &["cancelled"]);
}

#[test]
fn a_wait_survives_a_server_restart() {
    let mut server = Server::start();
    let script = "echo try >> tries; n=$(wc -l < tries); echo attempt; while [ ! -e go ]; do sleep 0.05; done; exit 7";
    let directory = server.directory.path().to_owned();
    let script = format!("cd {} && {script}", directory.display());
    let mut child = server
        .command(["submit", "--wait", "--retries", "0", "--sandbox", "none", "--", "sh", "-c", &script])
        .spawn()
        .unwrap();
    let mut first = [0; 8];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    server.restart();
    fs::write(directory.join("go"), "").unwrap();
    // The server may retry or abandon the attempt; the wait must return the final outcome of the job.
    let ran = finish(child);
    let job = &server.run(["jobs", "history", "--output", "json"]).expect(0).json()["items"][0];
    match job["exit_code"].as_i64() {
        Some(code) => assert_eq!(ran.code.map(i64::from), Some(code), "{ran:?} {job}"),
        None => assert_ne!(ran.code, Some(0), "{ran:?} {job}"),
    }
    assert_ne!(ran.code, Some(124), "{ran:?}");
}

#[test]
fn a_command_needs_no_separator_and_keeps_its_own_options() {
    let server = Server::start();
    let print = ["printf", "%s,", "--wait", "-x", "--", "--output", "json"];
    let ran = server.run(["submit", "--wait"].iter().chain(&print)).expect(0);
    assert_eq!(ran.stdout, "--wait,-x,--,--output,json,");
    let ran = server.run(["submit", "--wait", "--"].iter().chain(&print)).expect(0);
    assert_eq!(ran.stdout, "--wait,-x,--,--output,json,");
    let ran = server.run(["submit", "--bogus", "echo", "hi"]).expect(2);
    assert!(ran.stderr.contains("--bogus"), "{}", ran.stderr);
    server.run(["submit", "--echo", "1", "echo", "hi"]).expect(2);
    let help = server.run(["submit", "--help"]).expect(0).stdout;
    assert!(help.contains("outlast submit [OPTIONS] [--] COMMAND [ARGUMENT]...\n"), "{help}");
}

#[test]
fn a_process_reads_its_standard_input() {
    let server = Server::start();
    fs::write(server.directory.path().join("lines"), "b\na\n").unwrap();
    assert_eq!(server.run(["submit", "--wait", "--stdin", "lines", "sort"]).expect(0).stdout, "a\nb\n");
    let ran = server.run_with_input(&["submit", "--wait", "--stdin", "-", "--", "cat"], "grüße").expect(0);
    assert_eq!(ran.stdout, "grüße");
    fs::write(server.directory.path().join("bytes"), b"ab\xff").unwrap();
    let ran = server.run(["submit", "--stdin", "bytes", "cat"]).expect(2);
    assert!(ran.stderr.contains("bytes is not UTF-8 text"), "{}", ran.stderr);
    server.run(["submit", "--stdin", "missing", "cat"]).expect(3);
    server.run(["submit", "--stdin", "lines", "--echo", "1"]).expect(2);
    server.run(["submit", "--stdin", "lines", "--file", "lines"]).expect(2);
}

/// A wait whose reader closes the pipe after two lines, like `head -2`.
fn wait_with_closed_pipe(script: &str) {
    let server = Server::start();
    let mut child = server.command(["submit", "--wait", "sh", "-c", script]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.by_ref().take(2).map(Result::unwrap).collect::<Vec<_>>(), ["y", "y"]);
    drop(lines);
    let ran = finish(child).expect(141);
    let id = ran.stderr.split(' ').next().unwrap();
    assert!(ran.stderr.starts_with("job_") && ran.stderr.contains(" continues. "), "{}", ran.stderr);
    server.run(["jobs", "cancel", id]).expect(0);
    server.wait_for_state(id, &["cancelled"]);
}

#[test]
fn a_wait_ends_when_its_output_is_closed() {
    wait_with_closed_pipe("while :; do echo y; sleep 0.05; done");
}

#[test]
fn a_wait_ends_when_its_output_is_closed_even_if_the_job_is_silent() {
    wait_with_closed_pipe("echo y; echo y; sleep 60");
}

#[test]
fn a_refused_job_is_reported_with_the_field() {
    let server = Server::start();
    let ran = server.run(["submit", "--topic", "", "true"]).expect(1);
    assert!(ran.stderr.starts_with("error: topic: "), "{}", ran.stderr);
}
