//! Processes: exit status, output, and clean-up of the whole process tree.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::http::{Request, within};
use crate::support::{Api, Server, process, processes_of, shell, text, until, with};

/// Content of a file, once a process has written a whole line to it.
async fn line_in(file: &Path) -> String {
    let read = || fs::read_to_string(file).unwrap_or_default();
    until("the file has no complete line", || read().ends_with('\n')).await;
    read().trim().to_owned()
}

pub async fn logs(api: &Api, job: &Value, query: &str) -> String {
    let reply = api.get(&format!("/v1/jobs/{}/logs?{query}", text(&job["id"]))).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(reply.header("content-type").is_some_and(|kind| kind.starts_with("text/plain")));
    reply.text()
}

#[tokio::test]
async fn exit_code_and_signal_of_a_process_are_recorded() {
    let server = Server::start().await;
    let job = server.run(&process(&["true"])).await;
    assert_eq!((&job["state"], &job["exit_code"], &job["signal"]), (&json!("succeeded"), &json!(0), &json!(null)));
    let job = server.run(&with(shell("exit 7"), json!({"max_retries": 1}))).await;
    assert_eq!((&job["state"], &job["exit_code"], &job["attempt"]), (&json!("failed"), &json!(7), &json!(2)));
    assert!(text(&job["message"]).contains("code 7"), "{job}");
    let job = server.run(&with(shell("kill -KILL $$"), json!({"max_retries": 0}))).await;
    assert_eq!((&job["state"], &job["exit_code"], &job["signal"]), (&json!("failed"), &json!(null), &json!(9)));
    assert!(text(&job["message"]).contains("signal 9"), "{job}");
}

#[tokio::test]
async fn the_standard_output_of_a_process_is_its_result() {
    let server = Server::start().await;
    assert_eq!(server.run(&process(&["echo", r#"{"answer": [4, 2]}"#])).await["result"], json!({"answer": [4, 2]}));
    assert_eq!(server.run(&process(&["echo", "plain text"])).await["result"], "plain text\n");
    assert_eq!(server.run(&process(&["printf", "\\377"])).await["result"], "\u{fffd}");
    assert_eq!(server.run(&process(&["true"])).await["result"], "");
}

#[tokio::test]
async fn stdout_and_stderr_are_stored_separately() {
    let server = Server::start().await;
    let job = server.run(&shell("echo out1; echo err1 >&2; echo out2; echo err2 >&2")).await;
    assert_eq!(logs(&server, &job, "").await, "out1\nout2\n");
    assert_eq!(logs(&server, &job, "stream=stdout").await, "out1\nout2\n");
    assert_eq!(logs(&server, &job, "stream=stderr").await, "err1\nerr2\n");
    let path = format!("/v1/jobs/{}/logs", text(&job["id"]));
    for query in ["stream=both", "tail=-1", "follow=maybe", "attempt=x"] {
        server.get(&format!("{path}?{query}")).await.refused(400, "invalid_parameter");
    }
}

#[tokio::test]
async fn the_last_lines_of_the_output_can_be_requested() {
    let server = Server::start().await;
    let job = server.run(&shell("seq 1 1000")).await;
    assert_eq!(logs(&server, &job, "tail=3").await, "998\n999\n1000\n");
    assert_eq!(logs(&server, &job, "tail=0").await, "");
    assert_eq!(logs(&server, &job, "tail=5000").await.lines().count(), 1000);
    assert_eq!(logs(&server, &job, "tail=2&follow=true").await, "999\n1000\n");
}

#[tokio::test]
async fn a_follower_gets_output_as_it_is_written_until_the_end() {
    let server = Server::start().await;
    let go = server.directory().join("go");
    let script = format!("echo one; until [ -e {} ]; do sleep 0.01; done; echo two; echo no >&2", go.display());
    let id = server.submit(&shell(&script)).await;
    let mut answer = Request::get(format!("/v1/jobs/{id}/logs?follow=true")).open(server.address).await;
    let mut seen = Vec::new();
    while seen != b"one\n" {
        seen.extend(within("the first line", answer.next()).await.expect("the stream is still open"));
    }
    server.job_in(&id, "running").await;
    fs::write(&go, "").unwrap();
    while let Some(piece) = within("the end", answer.next()).await {
        seen.extend(piece);
    }
    assert_eq!(String::from_utf8(seen).unwrap(), "one\ntwo\n");
    assert_eq!(server.ended(&id).await["state"], "succeeded");
    let after = server.get(&format!("/v1/jobs/{id}/logs?follow=true&stream=stderr")).await;
    assert_eq!(after.text(), "no\n");
}

#[tokio::test]
async fn a_job_without_output_has_an_empty_log() {
    let server = Server::start().await;
    let echo = server.run(&crate::support::echo(1)).await;
    assert_eq!(logs(&server, &echo, "").await, "");
    assert_eq!(logs(&server, &echo, "follow=true").await, "");
    let waiting = with(process(&["true"]), json!({"not_before": crate::support::from_now(600_000)}));
    let waiting = server.submit(&waiting).await;
    assert_eq!(server.get(&format!("/v1/jobs/{waiting}/logs")).await.text(), "");
}

#[tokio::test]
async fn each_attempt_has_its_own_output() {
    let server = Server::start().await;
    let job = server.run(&with(shell("echo attempt $OUTLAST_ATTEMPT; exit 1"), json!({"max_retries": 1}))).await;
    assert_eq!(logs(&server, &job, "attempt=1").await, "attempt 1\n");
    assert_eq!(logs(&server, &job, "attempt=2").await, "attempt 2\n");
    assert_eq!(logs(&server, &job, "").await, "attempt 2\n");
    assert_eq!(logs(&server, &job, "follow=true").await, "attempt 1\nattempt 2\n");
    assert_eq!(logs(&server, &job, "follow=true&tail=9").await, "attempt 2\n");
    let path = format!("/v1/jobs/{}/logs?attempt=3", text(&job["id"]));
    server.get(&path).await.refused(404, "no_logs");
}

#[tokio::test]
async fn excess_output_is_truncated_in_the_middle() {
    let server = Server::with(|options| options.log_bytes_max = 512 << 10).await;
    let job = server
        .run(&shell("echo first; yes 'a line in the middle' | head -c 8000000; echo; echo last; echo fine >&2"))
        .await;
    assert_eq!(job["state"], "succeeded");
    let output = logs(&server, &job, "").await;
    assert!(output.len() < 2 << 20, "{} bytes are stored", output.len());
    assert!(output.starts_with("first\na line in the middle\n") && output.ends_with("\nlast\n"));
    assert!(output.contains("bytes of stdout were dropped]"));
    assert_eq!(logs(&server, &job, "stream=stderr").await, "fine\n");
}

#[tokio::test]
async fn a_process_gets_only_the_environment_and_input_of_its_job() {
    let server = Server::start().await;
    let run = json!({"process": {"command": ["sh", "-c", "cat; echo $GREETING; env; pwd"],
                                 "env": {"GREETING": "hello", "OUTLAST_ATTEMPT": "9"}, "stdin": "from outside\n"}});
    let job = server.run(&json!({"run": run, "sandbox": "none"})).await;
    let output = logs(&server, &job, "").await;
    assert!(output.starts_with("from outside\nhello\n"), "{output}");
    let has = |line: &str| output.lines().any(|other| other == line);
    assert!(has("OUTLAST_ATTEMPT=1"), "a job cannot override the variables of its attempt: {output}");
    assert!(has(&format!("OUTLAST_JOB_ID={}", text(&job["id"]))), "{output}");
    assert!(!output.contains("CARGO"), "the server's environment is not inherited: {output}");
    let workdir = output.lines().last().unwrap();
    assert!(Path::new(workdir).starts_with(server.directory().join("scratch")), "{workdir}");
    until("the working directory still exists", || !Path::new(workdir).exists()).await;
}

#[tokio::test]
async fn a_missing_executable_fails_the_job_without_retries() {
    let server = Server::start().await;
    let job = server.run(&process(&["no-such-program-here", "x"])).await;
    assert_eq!((&job["state"], &job["reason"], &job["attempt"]), (&json!("failed"), &json!("fatal"), &json!(1)));
    let message = text(&job["message"]);
    assert!(message.contains("cannot be started: No such file"), "{message}");
}

#[tokio::test]
async fn a_process_without_a_sandbox_needs_allow_unsandboxed() {
    let server = Server::with(|options| options.allow_unsandboxed = false).await;
    let free = with(process(&["true"]), json!({"sandbox": "none"}));
    let problem = server.post("/v1/jobs", &free).await.refused(403, "sandbox_not_allowed");
    assert_eq!(problem["field"], "sandbox");
    assert!(text(&problem["detail"]).contains("allow_unsandboxed"), "{problem}");
    let batch = server.post("/v1/jobs", &json!({"jobs": [free]})).await.expect(200);
    assert_eq!(batch["results"][0]["error"], problem);
    server.works_with(0).await;
    // Echo jobs have no sandbox, so the field is accepted.
    server.run(&with(crate::support::echo(1), json!({"sandbox": "none"}))).await;
    for sandbox in [json!(null), json!("strict"), json!("standard")] {
        server.post("/v1/jobs", &with(process(&["true"]), json!({"sandbox": sandbox}))).await.expect(201);
    }
}

/// A shell, its child, and a grandchild outside its process group and session.
fn process_tree(directory: &Path) -> (Value, std::path::PathBuf) {
    let pid = directory.join("grandchild");
    let script = format!("setsid sh -c 'echo $$ > {}; exec sleep 600' & sleep 600 & wait", pid.display());
    (shell(&script), pid)
}

#[tokio::test]
async fn cancel_ends_the_whole_process_tree() {
    let server = Server::start().await;
    let (job, grandchild) = process_tree(server.directory());
    let id = server.submit(&job).await;
    let grandchild: i32 = line_in(&grandchild).await.parse().unwrap();
    until("not all processes are running", || processes_of(&id).len() >= 3).await;
    assert!(processes_of(&id).contains(&grandchild));
    server.act(&format!("/v1/jobs/{id}/cancel")).await.expect(200);
    assert_eq!(server.ended(&id).await["state"], "cancelled");
    until("something of the job still runs", || processes_of(&id).is_empty()).await;
}

#[tokio::test]
async fn background_processes_end_with_their_attempt() {
    let server = Server::start().await;
    let script = "setsid sleep 600 & setsid sleep 600 > /dev/null 2>&1 & sleep 600 & echo gone; exit 3";
    let job = server.run(&with(shell(script), json!({"max_retries": 1}))).await;
    assert_eq!((&job["state"], &job["exit_code"], &job["attempt"]), (&json!("failed"), &json!(3), &json!(2)));
    let id = text(&job["id"]);
    until("something of the job still runs", || processes_of(&id).is_empty()).await;
}

#[tokio::test]
async fn a_process_that_ignores_sigterm_is_killed() {
    let server = Server::with(|options| options.stop_grace_ms = 100).await;
    let id = server.submit(&shell("trap '' TERM; echo ready; while :; do sleep 0.01; done")).await;
    server.seen(&format!("/v1/jobs/{id}"), |_| !processes_of(&id).is_empty()).await;
    server.act(&format!("/v1/jobs/{id}/cancel")).await.expect(200);
    let job = server.ended(&id).await;
    assert_eq!((&job["state"], &job["reason"]), (&json!("cancelled"), &json!("cancel_requested")));
    until("the process is still running", || processes_of(&id).is_empty()).await;
}

// FEATURES: B7
#[tokio::test]
async fn a_server_stop_ends_processes_and_their_jobs_run_again_without_using_a_retry() {
    for shards in [1, 4] {
        let mut server = Server::with_shards(shards).await;
        let (job, grandchild) = process_tree(server.directory());
        let id = server.submit(&with(job, json!({"max_retries": 0}))).await;
        line_in(&grandchild).await;
        server.stop().await;
        assert_eq!(processes_of(&id), [0; 0], "no process outlives the server");
        fs::remove_file(&grandchild).unwrap();
        server.start_again().await;
        line_in(&grandchild).await;
        let job = server.job_in(&id, "running").await;
        assert_eq!((&job["attempt"], &job["retries"]), (&json!(2), &json!(0)));
        let history = server.get(&format!("/v1/jobs/{id}/history")).await.expect(200);
        assert_eq!(history["attempts"][0]["end"], "stopped");
        server.act(&format!("/v1/jobs/{id}/cancel")).await.expect(200);
        server.ended(&id).await;
    }
}

#[tokio::test]
async fn concurrent_processes_do_not_exceed_the_slots() {
    let server = Server::with(|options| options.process_slots = 2).await;
    let go = server.directory().join("go");
    let script = format!("until [ -e {} ]; do sleep 0.01; done", go.display());
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(server.submit(&shell(&script)).await);
    }
    server.seen("/v1/jobs?state=running", |page| page["items"].as_array().unwrap().len() == 2).await;
    // Echo jobs need no process slot.
    assert_eq!(server.run(&crate::support::echo(1)).await["state"], "succeeded");
    assert_eq!(server.listed("/v1/jobs?state=scheduled", 10).await.len(), 3);
    fs::write(go, "").unwrap();
    for id in ids {
        assert_eq!(server.ended(&id).await["state"], "succeeded");
    }
}

#[tokio::test]
async fn an_escaped_process_does_not_delay_the_end_of_its_attempt() {
    let server = Server::start().await;
    // The process leaves its group, session and environment, and keeps stdout open.
    let job = server.run(&shell("env -i setsid sleep 10 & sleep 0.3; echo said; exit 0")).await;
    assert_eq!((&job["state"], &job["exit_code"]), (&json!("succeeded"), &json!(0)));
    assert_eq!(logs(&server, &job, "").await, "said\n");
}

#[tokio::test]
async fn logs_of_deleted_jobs_are_removed_at_start() {
    let mut server = Server::start().await;
    let kept = server.run(&shell("echo kept")).await;
    server.stop().await;
    // State after a crash between the deletion of a job's record and of its log.
    let gone = server.directory().join("logs/001/job_0000000000007.1.log");
    fs::create_dir_all(gone.parent().unwrap()).unwrap();
    fs::write(&gone, "").unwrap();
    server.start_again().await;
    until("the log of the deleted job still exists", || !gone.exists()).await;
    assert_eq!(logs(&server, &kept, "").await, "kept\n");
}
