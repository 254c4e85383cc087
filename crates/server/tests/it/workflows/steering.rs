//! Operations on workflows: cancel, pause, resume, rerun, delete, and when each is refused.

use serde_json::{Value, json};

use super::{ended, endless, of, run, says, start, states, task, task_in, when};
use crate::http::Request;
use crate::support::{Server, text};

// FEATURES: B1
#[tokio::test]
async fn a_cancelled_workflow_stops_its_tasks_and_refuses_pause_and_resume() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let id = start(&server, &of(json!({"a": endless(), "b": {"needs": "a", "run": "true"}}))).await;
        let running = when(&server, &id, |workflow| task(workflow, "a")["job_state"] == "running").await;
        let job = text(&task(&running, "a")["job"]);
        let cancel = Request::post(format!("/v1/workflows/{id}/cancel")).header("outlast-actor", "ann");
        server.send(cancel.clone()).await.expect(200);
        let workflow = ended(&server, &id).await;
        assert_eq!(
            (&workflow["state"], &workflow["reason"]["code"]),
            (&json!("cancelled"), &json!("cancel_requested"))
        );
        assert_eq!(states(&workflow), json!({"a": "cancelled", "b": "cancelled"}));
        assert_eq!(server.job(&job).await["state"], "cancelled");
        let path = format!("/v1/workflows/{id}");
        server.act(&format!("{path}/pause")).await.refused(409, "workflow_state");
        server.act(&format!("{path}/resume")).await.refused(409, "workflow_state");
        let done = text(&run(&server, &of(json!({"a": says(1)}))).await["id"]);
        let problem = server.act(&format!("/v1/workflows/{done}/cancel")).await.refused(409, "workflow_state");
        assert!(text(&problem["detail"]).contains("succeeded"), "{problem}");
    }
}

// FEATURES: B1
#[tokio::test]
async fn a_paused_workflow_starts_no_task_until_it_is_resumed() {
    let server = Server::start().await;
    let definition = of(json!({"a": {"wait_for": "go"}, "b": {"needs": "a", "run": {"echo": {"value": 1}}}}));
    let id = start(&server, &definition).await;
    task_in(&server, &id, "a", "listening").await;
    let path = format!("/v1/workflows/{id}");
    for _ in 0..2 {
        assert_eq!(server.act(&format!("{path}/pause")).await.expect(200)["state"], "paused");
    }
    server.act(&format!("{path}/signals/go")).await.expect(200);
    let paused = task_in(&server, &id, "a", "succeeded").await;
    assert_eq!((&paused["state"], &task(&paused, "b")["state"]), (&json!("paused"), &json!("waiting")));
    for _ in 0..2 {
        server.act(&format!("{path}/resume")).await;
    }
    assert_eq!(ended(&server, &id).await["state"], "succeeded");
}

// FEATURES: B1
#[tokio::test]
async fn a_workflow_is_rerun_from_its_failed_tasks_or_from_a_given_task() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("mark");
    let command = json!(["sh", "-c", format!("test -e {}", mark.display())]);
    let definition = of(json!({
        "a": says(1),
        "b": {"needs": "a", "run": {"process": {"command": command}}, "sandbox": "none", "retry": 0},
        "c": {"needs": "b", "run": {"echo": {"value": 3}}},
    }));
    let failed = run(&server, &definition).await;
    assert_eq!(failed["state"], "failed");
    let id = text(&failed["id"]);
    let rerun = async |body: Value| server.post(&format!("/v1/workflows/{id}/rerun"), &body).await;
    rerun(json!({"from": "nowhere"})).await.refused(404, "unknown_task");
    rerun(json!({"form": "b"})).await.refused(400, "unknown_field");
    std::fs::write(&mark, "").unwrap();
    assert_eq!(rerun(json!({})).await.expect(200)["run"], 2);
    let again = ended(&server, &id).await;
    assert_eq!(again["state"], "succeeded");
    assert_eq!(task(&again, "a")["job"], task(&failed, "a")["job"], "succeeded tasks are not rerun");
    assert_ne!(task(&again, "b")["job"], task(&failed, "b")["job"]);
    rerun(json!({})).await.refused(409, "nothing_to_rerun");
    assert_eq!(rerun(json!({"from": "a"})).await.expect(200)["run"], 3);
    let whole = ended(&server, &id).await;
    assert_ne!(task(&whole, "a")["job"], task(&again, "a")["job"]);
}

// FEATURES: B1
#[tokio::test]
async fn one_of_two_concurrent_reruns_is_refused() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let id = text(&run(&server, &of(json!({"a": {"delay": "300ms"}}))).await["id"]);
        let api = server.api();
        let path = format!("/v1/workflows/{id}/rerun");
        let rerun = || {
            let path = path.clone();
            tokio::spawn(async move { api.post(&path, &json!({"from": "a"})).await })
        };
        let (one, other) = (rerun(), rerun());
        let mut replies = [one.await.unwrap(), other.await.unwrap()];
        replies.sort_by_key(|reply| reply.status);
        assert_eq!(replies[0].expect(200)["run"], 2);
        replies[1].refused(409, "workflow_state");
        assert_eq!(ended(&server, &id).await["run"], 2);
    }
}

#[tokio::test]
async fn a_terminal_workflow_can_be_deleted_with_all_its_records() {
    for shards in [1, 4] {
        let mut server = Server::with_shards(shards).await;
        let id = start(&server, &of(json!({"a": {"for_each": [1, 2], "wait_for": "go"}}))).await;
        task_in(&server, &id, "a", "running").await;
        let path = format!("/v1/workflows/{id}");
        server.delete(&path).await.refused(409, "workflow_state");
        server.act(&format!("{path}/cancel")).await.expect(200);
        ended(&server, &id).await;
        assert_eq!(server.delete(&path).await.status, 204);
        server.delete(&path).await.refused(404, "unknown_workflow");
        for rest in ["", "/tasks", "/history", "/definition", "/graph", "/tasks/a"] {
            server.get(&format!("{path}{rest}")).await.refused(404, "unknown_workflow");
        }
        for verb in ["cancel", "pause", "resume", "rerun", "signals/go"] {
            server.act(&format!("{path}/{verb}")).await.refused(404, "unknown_workflow");
        }
        server.restart().await;
        server.get(&path).await.refused(404, "unknown_workflow");
        assert!(server.listed("/v1/workflows?children=true", 10).await.is_empty());
    }
}

#[tokio::test]
async fn an_invalid_workflow_id_is_refused() {
    let server = Server::start().await;
    for id in ["wf_", "job_0000000000001", "x", "wf_00000000000000"] {
        server.get(&format!("/v1/workflows/{id}")).await.refused(400, "invalid_id");
        server.act(&format!("/v1/workflows/{id}/cancel")).await.refused(400, "invalid_id");
    }
    server.get("/v1/workflows/wf_0000000000001").await.refused(404, "unknown_workflow");
    server.get("/v1/workflows/wf_0000000000001?x=1").await.refused(400, "invalid_parameter");
    let form = Request::post("/v1/workflows/wf_0000000000001/cancel");
    let form = form.header("content-type", "application/x-www-form-urlencoded").body("a=b");
    server.send(form).await.refused(415, "unsupported_media_type");
}
