//! Clean restart on the same directory with live and terminal workflows.

use serde_json::{Value, json};

use super::{ended, of, run, says, start, states, task, task_in, when};
use crate::support::{Server, echo, text};

// FEATURES: B2, B3, B7
#[tokio::test]
async fn terminal_workflows_are_unchanged_by_a_restart() {
    for shards in [1, 4] {
        let mut server = Server::with_shards(shards).await;
        let ids = [
            text(
                &run(
                    &server,
                    &of(json!({"a": says(1), "b": {"for_each": [1, 2], "run": {"echo": {"value": "${item}"}}}})),
                )
                .await["id"],
            ),
            text(&run(&server, &of(json!({"a": {"run": {"echo": {"fail": "fatal"}}}}))).await["id"]),
        ];
        let everything = async |server: &Server| -> Vec<Value> {
            let mut all = Vec::new();
            for id in &ids {
                for rest in ["", "/tasks", "/history", "/definition"] {
                    all.push(server.get(&format!("/v1/workflows/{id}{rest}")).await.expect(200));
                }
            }
            all.push(server.get("/v1/workflows").await.expect(200));
            all
        };
        let before = everything(&server).await;
        server.restart().await;
        assert_eq!(everything(&server).await, before);
    }
}

// FEATURES: B2, B3, D11
#[tokio::test]
async fn live_workflows_continue_and_no_task_runs_twice() {
    for shards in [1, 4] {
        let mut server = Server::with_shards(shards).await;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("done");
        let append =
            |line: &str| json!({"process": {"command": ["sh", "-c", format!("echo {line} >> {}", file.display())]}});
        let definition = of(json!({
            "a": {"run": append("a"), "sandbox": "none"},
            "b": {"needs": "a", "delay": "300ms"},
            "c": {"needs": "b", "wait_for": "go"},
            "d": {"needs": "c", "approval": "well?"},
            "e": {"needs": "d", "run": append("e"), "sandbox": "none"},
        }));
        let id = start(&server, &definition).await;
        task_in(&server, &id, "a", "succeeded").await;
        server.restart().await;
        task_in(&server, &id, "c", "listening").await;
        server.restart().await;
        server.act(&format!("/v1/workflows/{id}/signals/go")).await.expect(200);
        let waiting = when(&server, &id, |workflow| task(workflow, "d")["job_state"] == "approval_required").await;
        let job = text(&task(&waiting, "d")["job"]);
        server.restart().await;
        server.act(&format!("/v1/approvals/{job}/approve")).await.expect(200);
        let workflow = ended(&server, &id).await;
        assert_eq!(workflow["state"], "succeeded", "{workflow}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "a\ne\n");
        assert_eq!((&workflow["usage"]["jobs"], &workflow["run"]), (&json!(3), &json!(1)));
    }
}

// FEATURES: B3
#[tokio::test]
async fn a_large_workflow_continues_after_a_restart() {
    let mut server = Server::start().await;
    let definition = of(json!({
        "a": {"for_each": "${range(0, 2000)}", "run": {"echo": {"value": "${item}"}}},
        "b": {"needs": "a", "wait_for": "go"},
        "c": {"needs": "b", "run": {"echo": {"value": "${length(tasks.a.result)}"}}},
    }));
    let id = start(&server, &definition).await;
    let before = when(&server, &id, |workflow| workflow["counts"]["listening"] == 1).await;
    server.restart().await;
    let after = server.get(&format!("/v1/workflows/{id}")).await.expect(200);
    assert_eq!(states(&after), json!({"a": "succeeded", "b": "listening", "c": "waiting"}));
    assert_eq!(
        (&after["counts"], &after["items"], &after["usage"]),
        (&before["counts"], &before["items"], &before["usage"])
    );
    server.act(&format!("/v1/workflows/{id}/signals/go")).await.expect(200);
    let workflow = ended(&server, &id).await;
    let c = server.get(&format!("/v1/workflows/{id}/tasks/c")).await.expect(200);
    assert_eq!((&workflow["state"], &c["result"]), (&json!("succeeded"), &json!(2000)));
}

// FEATURES: B3
#[tokio::test]
async fn ids_continue_after_those_of_terminal_workflows() {
    let mut server = Server::start().await;
    let mut last = String::new();
    for _ in 0..3 {
        let id = text(&run(&server, &of(json!({"a": {"delay": "1ms"}}))).await["id"]);
        assert!(id > last, "{id} after {last}");
        last = id;
        server.restart().await;
    }
    let job = server.submit(&echo(1)).await;
    assert!(job.trim_start_matches("job_") > last.trim_start_matches("wf_"), "{job} after {last}");
}

// FEATURES: B3
#[tokio::test]
async fn a_child_workflow_continues_and_its_end_reaches_the_parent() {
    for shards in [1, 4] {
        let mut server = Server::with_shards(shards).await;
        let inner = json!({"name": "inner", "tasks": {"hear": {"wait_for": "go"}}, "outputs": "${tasks.hear.result}"});
        let definition = json!({"name": "outer", "workflows": {"inner": inner},
            "tasks": {"part": {"workflow": "inner"}}, "outputs": "${tasks.part.result}"});
        let id = start(&server, &definition).await;
        let running = when(&server, &id, |workflow| !task(workflow, "part")["child"].is_null()).await;
        let child = text(&task(&running, "part")["child"]);
        server.restart().await;
        server.post(&format!("/v1/workflows/{child}/signals/go"), &json!("heard")).await.expect(200);
        let workflow = ended(&server, &id).await;
        assert_eq!((&workflow["result"], states(&workflow)), (&json!("heard"), json!({"part": "succeeded"})));
    }
}
