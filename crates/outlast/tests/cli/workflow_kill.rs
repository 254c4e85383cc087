//! SIGKILL of the server at every point of a workflow: it ends as without the kill.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::Server;
use crate::workflows::{await_task, await_workflow, ended};

/// Processes, echo jobs, items, a delay, epochs and a sub-workflow; `PAY` is the exit code of the last task.
const ORDER: &str = r#"
name: order
on_failure: compensate
defaults: {sandbox: none, retry: 0}
epochs: [prepare, deliver]
workflows:
  pack:
    name: pack
    inputs: {n: integer}
    tasks:
      box: {run: {echo: {value: "box ${inputs.n}", delay_ms: 10}}, compensation: {run: {echo: {value: "unpack ${inputs.n}"}}}}
    outputs: ${tasks.box.result}
tasks:
  reserve: {epoch: prepare, run: "echo reserved", compensation: "echo release"}
  items: {epoch: prepare, for_each: [1, 2, 3], concurrency: 2, run: {echo: {value: "${item}", delay_ms: 20}}, compensation: {run: {echo: {value: "undo ${item}", delay_ms: 10}}}}
  wait: {epoch: prepare, needs: reserve, delay: 50ms}
  pack: {epoch: prepare, workflow: pack, with: {n: 7}}
  charge: {epoch: deliver, run: "echo charged", compensation: "echo refund"}
  pay: {epoch: deliver, needs: charge, run: "echo paying; exit PAY"}
outputs: {items: "${tasks.items.result}", packed: "${tasks.pack.result}", reserved: "${trim(tasks.reserve.result)}"}
"#;

fn start(server: &Server, text: &str) -> String {
    server.run_with_input(&["run", "-"], text).expect(0).line().to_owned()
}

/// Final states, results and compensations of a workflow, independent of timing.
fn outcome(workflow: &Value) -> Vec<String> {
    let mut seen = vec![format!("{} {}", workflow["state"], workflow["result"])];
    let rollback = &workflow["rollback"];
    seen.push(format!(
        "{} {} {} {}",
        rollback["state"], rollback["total"], rollback["compensated"], rollback["failed"]
    ));
    for task in workflow["tasks"].as_array().unwrap() {
        seen.push(format!("{} {} {}", task["name"], task["state"], task["compensation"]["state"]));
        for item in task["items"].as_array().into_iter().flatten() {
            seen.push(format!("  {} {} {}", item["item"], item["state"], item["compensation"]["state"]));
        }
    }
    seen
}

fn survives_kills(pay: &str, state: &str) {
    let text = ORDER.replace("PAY", pay);
    let mut server = Server::start();
    let first = start(&server, &text);
    let since = Instant::now();
    let expected = ended(&server, &first);
    let duration = since.elapsed();
    assert_eq!(expected["state"], state, "{expected}");
    let expected = outcome(&expected);
    for round in 0..12u32 {
        let id = start(&server, &text);
        // Twelve moments spread over the duration of the workflow.
        let since = Instant::now();
        while since.elapsed() < duration * round / 12 {
            std::thread::yield_now();
        }
        server.kill();
        for _ in 0..round % 3 {
            // Again during the restart.
            server.start_and_kill(Duration::from_millis(u64::from(10 + round * 17 % 60)));
        }
        server.start_again();
        let seen = ended(&server, &id);
        assert_eq!(outcome(&seen), expected, "killed in round {round}: {seen}");
        let history = server.run(["workflows", "history", &id, "--output", "json"]).expect(0).json();
        compensated_in_order(&server, &history);
    }
}

/// Compensations run one at a time: each starts after the previous one has ended.
fn compensated_in_order(server: &Server, history: &Value) {
    let entries = history["items"].as_array().or(history.as_array()).expect("a list of events");
    let compensations = entries.iter().filter(|entry| entry["kind"] == "compensation");
    let jobs = compensations.filter_map(|entry| entry["job"].as_str());
    let mut spans: Vec<(String, String)> = jobs
        .map(|job| {
            let job = server.run(["jobs", "show", job, "--output", "json"]).expect(0).json();
            let ended = job["states"].as_array().unwrap().last().unwrap()["at"].as_str().unwrap().to_owned();
            (job["created_at"].as_str().unwrap().to_owned(), ended)
        })
        .collect();
    spans.sort();
    assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{spans:?}");
    let rolled_back = entries.iter().any(|entry| entry["kind"] == "rollback_ended");
    assert_eq!(spans.is_empty(), !rolled_back, "{history}");
}

// FEATURES: B11
#[test]
fn a_workflow_ends_the_same_despite_a_kill_at_any_moment() {
    survives_kills("0", "succeeded");
}

// FEATURES: B11, D5
#[test]
fn a_rollback_compensates_every_task_once_despite_a_kill_at_any_moment() {
    survives_kills("1", "failed");
}

/// A command that waits for a file, so that the server can be killed at a defined point.
fn gate(server: &Server, name: &str) -> String {
    format!("cd {} && while [ ! -e {name} ]; do sleep 0.02; done; echo {name}", server.directory.path().display())
}

fn open(server: &Server, name: &str) {
    std::fs::write(server.directory.path().join(name), "").unwrap();
}

// FEATURES: B11, B3
#[test]
fn every_state_of_a_task_survives_two_kills_in_a_row() {
    let mut server = Server::start();
    let queue = server.run(["queues", "create", "--max-running", "1", "--output", "json"]).expect(0).json();
    let queue = queue["id"].as_str().unwrap().to_owned();
    let text = format!(
        "name: points\non_failure: compensate\ndefaults: {{sandbox: none, retry: 0}}\ntasks:\n  \
         running: {{run: '{}', compensation: '{}'}}\n  queued: {{run: 'echo queued', compensation: 'echo undo'}}\n  \
         asked: {{needs: [running, queued], approval: 'go on?'}}\n  told: {{needs: asked, wait_for: word}}\n  \
         bad: {{needs: told, run: 'exit 1'}}\n",
        gate(&server, "go"),
        gate(&server, "back")
    );
    std::fs::write(server.directory.path().join("points.yaml"), text).unwrap();
    let id = server.run(["run", "points.yaml", "--queue", &queue]).expect(0).line().to_owned();
    let twice = |server: &mut Server| {
        server.kill_and_restart();
        server.kill_and_restart();
    };
    await_task(&server, &id, "running", |task| task["job_state"] == "running");
    await_task(&server, &id, "queued", |task| task["job_state"] == "scheduled");
    twice(&mut server);
    await_task(&server, &id, "running", |task| task["job_state"] == "running");
    assert_eq!(await_task(&server, &id, "queued", |_| true)["job_state"], "scheduled");
    open(&server, "go");
    let asked = await_task(&server, &id, "asked", |task| task["job_state"] == "approval_required");
    twice(&mut server);
    server.run(["approvals", "approve", asked["job"].as_str().unwrap(), "--reason", "fine"]).expect(0);
    await_task(&server, &id, "told", |task| task["state"] == "listening");
    twice(&mut server);
    server.run(["workflows", "signal", &id, "word", "1"]).expect(0);
    // The last compensation, which waits for a file.
    let compensating = |workflow: &Value| {
        workflow["state"] == "rolling_back"
            && workflow["tasks"]
                .as_array()
                .unwrap()
                .iter()
                .any(|task| task["name"] == "running" && task["compensation"]["state"] == "running")
    };
    await_workflow(&server, &id, compensating);
    twice(&mut server);
    assert!(compensating(&await_workflow(&server, &id, |_| true)));
    open(&server, "back");
    let workflow = ended(&server, &id);
    assert_eq!(
        (&workflow["state"], &workflow["rollback"]["state"]),
        (&Value::from("failed"), &Value::from("rolled_back"))
    );
    assert_eq!(workflow["rollback"]["compensated"], 2);
}
