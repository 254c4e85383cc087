//! Every kind of task, and its JSON.

use serde_json::{Value, json};

use super::{ended, of, run, says, start, states, task, task_in, when};
use crate::http::Request;
use crate::support::{Server, shell, text, with};

// FEATURES: B1
#[tokio::test]
async fn each_item_of_a_for_each_task_runs_as_its_own_job() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let definition = json!({
            "name": "each",
            "tasks": {
                "double": {"for_each": "${range(0, 120)}", "concurrency": 7, "run": {"echo": {"value": "${item * 2}"}}},
                "sum": {"run": {"echo": {"value": "${length(tasks.double.result)}"}}},
            },
            "outputs": {"last": "${tasks.double.result[119]}", "count": "${tasks.sum.result}"},
        });
        let workflow = run(&server, &definition).await;
        assert_eq!(workflow["result"], json!({"last": 238, "count": 120}), "{workflow}");
        assert_eq!(workflow["items"]["succeeded"], 120);
        let double = task(&workflow, "double");
        assert_eq!((&double["items_total"], &double["items_left_out"]), (&json!(120), &json!(20)));
        assert_eq!(double["items"].as_array().unwrap().len(), 100);
        assert_eq!((&double["items"][5]["item"], &double["items"][5]["state"]), (&json!(5), &json!("succeeded")));
        let id = text(&workflow["id"]);
        let item = server.get(&format!("/v1/workflows/{id}/tasks/double?item=119")).await.expect(200);
        assert_eq!((&item["result"], &item["attempts"]), (&json!(238), &json!(1)));
        let whole = server.get(&format!("/v1/workflows/{id}/tasks/double")).await.expect(200);
        assert_eq!(whole["result"].as_array().unwrap().len(), 120);
        server.get(&format!("/v1/workflows/{id}/tasks/double?item=120")).await.refused(404, "unknown_task");
        server.get(&format!("/v1/workflows/{id}/tasks/none")).await.refused(404, "unknown_task");
    }
}

// FEATURES: B1
#[tokio::test]
async fn all_tasks_and_items_are_listed_page_by_page() {
    let server = Server::start().await;
    let definition = of(json!({
        "a": {"for_each": [1, 2, 3], "run": {"echo": {"value": "${item}"}}},
        "b": says(1),
        "c": {"needs": ["a", "b"], "wait_for": "go"},
        "d": {"needs": "c", "run": "true"},
    }));
    let id = start(&server, &definition).await;
    task_in(&server, &id, "c", "listening").await;
    let path = format!("/v1/workflows/{id}/tasks");
    let whole = server.get(&path).await.expect(200);
    let names = |page: &Value| -> Vec<(String, Option<u64>)> {
        let items = page["items"].as_array().unwrap();
        items.iter().map(|task| (text(&task["name"]), task["item"].as_u64())).collect()
    };
    let expected = [("a", None), ("a", Some(0)), ("a", Some(1)), ("a", Some(2)), ("b", None), ("c", None), ("d", None)];
    let expected: Vec<_> = expected.into_iter().map(|(name, item)| (name.to_owned(), item)).collect();
    assert_eq!(names(&whole), expected);
    assert_eq!(whole["items"][6]["state"], "waiting");
    for limit in [1, 2, 3] {
        let mut seen = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = server.get(&format!("{path}?limit={limit}{cursor}")).await.expect(200);
            seen.extend(names(&page));
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(seen, expected, "{limit} at a time");
    }
    let waiting = server.get(&format!("{path}?state=waiting,listening")).await.expect(200);
    assert_eq!(names(&waiting), [("c".to_owned(), None), ("d".to_owned(), None)]);
    server.get(&format!("{path}?state=done")).await.refused(400, "invalid_parameter");
    server.get(&format!("{path}?cursor=x")).await.refused(400, "invalid_cursor");
}

// FEATURES: B1, D11
#[tokio::test]
async fn epochs_delays_switches_and_merged_tasks_are_shown() {
    let server = Server::start().await;
    let definition = json!({
        "name": "kinds",
        "epochs": ["first", "second"],
        "tasks": {
            "pause": {"epoch": "first", "delay": "20ms"},
            "same": {"epoch": "first", "merge": "x", "run": {"echo": {"value": 1, "delay_ms": 30}}},
            "same-again": {"epoch": "first", "merge": "x", "run": {"echo": {"value": 1, "delay_ms": 30}}},
            "choose": {"epoch": "second", "switch": [{"when": "${tasks.same.result > 1}", "then": "many"}, {"then": ["few"]}]},
            "few": {"epoch": "second", "run": {"echo": {"value": "few"}}},
            "many": {"epoch": "second", "run": {"echo": {"value": "many"}}},
        },
    });
    let workflow = run(&server, &definition).await;
    let expected = json!({"pause": "succeeded", "same": "succeeded", "same-again": "succeeded",
        "choose": "succeeded", "few": "succeeded", "many": "skipped"});
    assert_eq!(states(&workflow), expected);
    assert_eq!(workflow["epoch"], "second");
    assert_eq!(task(&workflow, "choose")["chosen"], json!(["few"]));
    assert_eq!(task(&workflow, "many")["reason"]["code"], "not_chosen");
    let kinds: Vec<String> =
        ["pause", "same", "choose"].iter().map(|name| text(&task(&workflow, name)["kind"])).collect();
    assert_eq!(kinds, ["delay", "job", "switch"]);
    let merged = workflow["tasks"].as_array().unwrap().iter().find(|task| !task["merged_into"].is_null()).unwrap();
    assert!(text(&merged["name"]).starts_with("same"), "{merged}");
    assert_eq!(workflow["usage"]["jobs"], 2, "the merged tasks ran once: {workflow}");
    let path = format!("/v1/workflows/{}/tasks/{}", text(&workflow["id"]), text(&merged["name"]));
    assert_eq!(server.get(&path).await.expect(200)["result"], 1);
    assert!(text(&task(&workflow, "few")["began_at"]) >= text(&task(&workflow, "pause")["ended_at"]));
}

// FEATURES: B1
#[tokio::test]
async fn parent_and_child_workflows_refer_to_each_other() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let inner = json!({"name": "inner", "inputs": {"n": "integer"},
            "tasks": {"work": {"run": {"echo": {"value": "${inputs.n + 1}"}}}}, "outputs": "${tasks.work.result}"});
        let definition = json!({"name": "outer", "workflows": {"inner": inner},
            "tasks": {"part": {"workflow": "inner", "with": {"n": 41}}}, "outputs": "${tasks.part.result}"});
        let workflow = run(&server, &definition).await;
        assert_eq!(workflow["result"], 42, "{workflow}");
        let part = task(&workflow, "part");
        assert_eq!(part["kind"], "workflow");
        let child = text(&part["child"]);
        let shown = ended(&server, &child).await;
        assert_eq!((&shown["name"], &shown["result"]), (&json!("inner"), &json!(42)));
        let parent = json!({"workflow": workflow["id"], "task": "part", "item": null});
        assert_eq!(shown["parent"], parent);
        assert_eq!(server.listed("/v1/workflows", 10).await, [text(&workflow["id"])]);
        assert_eq!(server.listed("/v1/workflows?children=true", 10).await.len(), 2);
        server.act(&format!("/v1/workflows/{child}/rerun")).await.refused(409, "part_of_workflow");
        server.delete(&format!("/v1/workflows/{child}")).await.refused(409, "part_of_workflow");
    }
}

// FEATURES: D2
#[tokio::test]
async fn an_approval_task_waits_for_an_approval() {
    let server = Server::start().await;
    let definition = of(
        json!({"ask": {"approval": "Deploy ${workflow.name}?"}, "go": {"needs": "ask", "run": {"echo": {"value": "gone"}}}}),
    );
    let id = start(&server, &definition).await;
    let waiting = when(&server, &id, |workflow| task(workflow, "ask")["job_state"] == "approval_required").await;
    let ask = task(&waiting, "ask");
    assert_eq!((&ask["kind"], &ask["state"]), (&json!("approval"), &json!("running")));
    let job = text(&ask["job"]);
    let listed = server.get("/v1/approvals").await.expect(200);
    assert_eq!((&listed["items"][0]["id"], &listed["items"][0]["message"]), (&json!(job), &json!("Deploy example?")));
    let origin = &listed["items"][0]["origin"];
    assert_eq!((&origin["workflow"], &origin["task"]), (&json!(id), &json!("ask")));
    let approve = Request::post(format!("/v1/approvals/{job}/approve")).header("outlast-actor", "ann");
    server.send(approve.json(&json!({"comment": "fine"}))).await.expect(200);
    assert_eq!(ended(&server, &id).await["state"], "succeeded");
    let task = server.get(&format!("/v1/workflows/{id}/tasks/ask")).await.expect(200);
    assert_eq!((&task["result"]["approved_by"], &task["result"]["comment"]), (&json!("ann"), &json!("fine")), "{task}");
}

// FEATURES: D2
#[tokio::test]
async fn an_approval_of_a_cancelled_task_is_refused() {
    let server = Server::start().await;
    let id = start(&server, &of(json!({"ask": {"approval": "well?"}}))).await;
    let waiting = when(&server, &id, |workflow| task(workflow, "ask")["job_state"] == "approval_required").await;
    let job = text(&task(&waiting, "ask")["job"]);
    server.act(&format!("/v1/workflows/{id}/cancel")).await.expect(200);
    assert_eq!(ended(&server, &id).await["state"], "cancelled");
    server.act(&format!("/v1/approvals/{job}/approve")).await.refused(409, "wrong_state");
    assert_eq!(server.get(&format!("/v1/workflows/{id}")).await.expect(200)["state"], "cancelled");
}

// FEATURES: B1
#[tokio::test]
async fn a_process_knows_its_workflow_task_and_item_and_reports_progress() {
    let server = Server::start().await;
    let script = "echo \"$OUTLAST_WORKFLOW $OUTLAST_TASK $OUTLAST_ITEM $OUTLAST_IDEMPOTENCY_KEY\"; cat go";
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    let script = script.replace("cat go", &format!("while [ ! -e {} ]; do sleep 0.02; done", go.display()));
    let work = with(json!({"for_each": ["x"]}), shell(&script));
    let id = start(&server, &of(json!({"work": work}))).await;
    let running = when(&server, &id, |workflow| task(workflow, "work")["items"][0]["job_state"] == "running").await;
    let job = text(&task(&running, "work")["items"][0]["job"]);
    let report = async |body: Value| server.post(&format!("/v1/jobs/{job}/progress"), &body).await;
    assert_eq!(report(json!({"percent": 40, "message": "nearly"})).await.status, 204);
    let item = server.get(&format!("/v1/workflows/{id}/tasks/work?item=0")).await.expect(200);
    assert_eq!((&item["progress"]["percent"], &item["progress"]["message"]), (&json!(40), &json!("nearly")));
    report(json!({"percent": 101})).await.refused(400, "invalid_field");
    report(json!({"percent": 1, "message": "x".repeat(2049)})).await.refused(400, "invalid_field");
    report(json!({})).await.refused(400, "invalid_json");
    std::fs::write(go, "").unwrap();
    ended(&server, &id).await;
    report(json!({"percent": 50})).await.refused(409, "no_progress");
    let result = text(&server.job(&job).await["result"]);
    let fields: Vec<&str> = result.split_whitespace().collect();
    assert_eq!(fields[..3], [id.as_str(), "work", "0"]);
    assert_eq!(fields[3].len(), 32);
    let plain = server.submit(&crate::support::endless()).await;
    server.post(&format!("/v1/jobs/{plain}/progress"), &json!({"percent": 1})).await.refused(409, "no_progress");
}

// FEATURES: B1
#[tokio::test]
async fn dependents_of_a_failed_task_do_not_run_unless_it_may_fail() {
    let server = Server::start().await;
    let failing = json!({"run": {"echo": {"fail": "error"}}, "retry": 1});
    let definition = of(json!({"bad": failing, "later": {"needs": "bad", "run": "true"}, "aside": says(1)}));
    let workflow = run(&server, &definition).await;
    assert_eq!(workflow["state"], "failed");
    assert_eq!(states(&workflow), json!({"aside": "succeeded", "bad": "failed", "later": "cancelled"}));
    assert_eq!(task(&workflow, "later")["reason"]["code"], "upstream_failed");
    assert!(!workflow["reason"]["code"].is_null(), "{workflow}");
    let id = text(&workflow["id"]);
    let bad = server.get(&format!("/v1/workflows/{id}/tasks/bad")).await.expect(200);
    assert_eq!((&bad["attempts"], &bad["job_state"]), (&json!(2), &json!("failed")));
    let job = text(&bad["job"]);
    server.act(&format!("/v1/jobs/{job}/retry")).await.refused(409, "job_of_workflow");
    let tolerant = with(json!({"run": {"echo": {"fail": "error"}}, "retry": 0}), json!({"on_failure": "continue"}));
    let definition = of(json!({"bad": tolerant, "later": {"needs": "bad", "run": {"echo": {"value": 1}}}}));
    let workflow = run(&server, &definition).await;
    assert_eq!((&workflow["state"], &task(&workflow, "later")["state"]), (&json!("succeeded"), &json!("succeeded")));
}

#[tokio::test]
async fn only_the_first_thousand_tasks_are_shown_at_once() {
    let server = Server::start().await;
    let tasks: serde_json::Map<String, Value> =
        (0..1_001).map(|number| (format!("t{number:04}"), json!({"when": "${false}", "run": "true"}))).collect();
    let workflow = run(&server, &of(Value::Object(tasks))).await;
    assert_eq!((&workflow["tasks_total"], &workflow["tasks_left_out"]), (&json!(1_001), &json!(1)));
    assert_eq!(workflow["tasks"].as_array().unwrap().len(), 1_000);
    let id = text(&workflow["id"]);
    let listed = server.get(&format!("/v1/workflows/{id}/tasks?limit=1000")).await.expect(200);
    let next = text(&listed["next_cursor"]);
    let last = server.get(&format!("/v1/workflows/{id}/tasks?limit=1000&cursor={next}")).await.expect(200);
    assert_eq!(last["items"].as_array().unwrap().len(), 1);
}
