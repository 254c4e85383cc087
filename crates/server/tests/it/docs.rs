//! The served OpenAPI document matches the server.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::governance::{GATES, governed};
use crate::http::Request;
use crate::schema::{check, resolve};
use crate::subscription::{Subscription, Transport};
use crate::support::{Server, echo, endless, shell, text, with};
use crate::workflows;

const ROUTER: &str = include_str!("../../src/api.rs");

async fn document(server: &Server) -> Value {
    let reply = server.get("/openapi.json").await;
    assert_eq!(reply.header("content-type"), Some("application/json"));
    reply.expect(200)
}

fn schema(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

#[tokio::test]
async fn every_route_is_described_and_every_description_is_a_route() {
    let server = Server::start().await;
    let document = document(&server).await;
    let mut described = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        described.extend(methods.as_object().unwrap().keys().map(|method| format!("{method} {path}")));
    }
    let mut routed = BTreeSet::new();
    for route in ROUTER.split(".route(\"").skip(1) {
        let (path, rest) = route.split_once('"').unwrap();
        let handlers = rest.lines().next().unwrap();
        for method in ["get", "post", "delete", "put", "patch", "head"] {
            if handlers.contains(&format!(" {method}(")) || handlers.contains(&format!(".{method}(")) {
                routed.insert(format!("{method} {path}"));
            }
        }
    }
    assert!(routed.len() > 20, "{routed:?}");
    assert_eq!(described, routed);
    for route in routed {
        let (method, path) = route.split_once(' ').unwrap();
        let operation = &document["paths"][path][method];
        assert!(operation["summary"].is_string(), "{route}");
        let named: BTreeSet<String> =
            path.split('{').skip(1).map(|rest| rest.split('}').next().unwrap().into()).collect();
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let given = parameters.filter(|parameter| parameter["in"] == "path").map(|parameter| text(&parameter["name"]));
        assert_eq!(given.collect::<BTreeSet<_>>(), named, "{route}");
    }
}

#[tokio::test]
async fn every_problem_code_is_described() {
    let server = Server::start().await;
    let document = document(&server).await;
    let described: BTreeSet<&str> = document["x-error-codes"].as_object().unwrap().keys().map(String::as_str).collect();
    let codes: BTreeSet<&str> = api::ProblemKind::ALL.iter().map(|kind| kind.code()).collect();
    assert_eq!(described, codes);
    let page = server.get("/docs").await.text();
    for code in codes {
        assert!(page.contains(&format!("id={code}>")), "the link of {code} is broken");
    }
}

#[tokio::test]
async fn jobs_are_shown_as_described() {
    let server = Server::start().await;
    let document = document(&server).await;
    let full = json!({"topic": "t", "tenant": "x", "priority": "batch", "labels": {"a": "b"}, "timeout_ms": 60_000,
                      "deadline": crate::support::from_now(600_000), "not_before": crate::support::from_now(-5),
                      "max_retries": 1, "idempotency_key": "k"});
    let jobs = [
        with(echo(json!({"any": ["thing"]})), full),
        with(shell("exit 1"), json!({"max_retries": 1})),
        json!({"run": {"process": {"command": ["cat"], "env": {"A": "b"}, "stdin": "x"}}, "sandbox": "none",
               "outputs": ["*.txt"], "limits": {"pids": 100}}),
        json!({"run": {"echo": {"fail": "fatal"}}}),
    ];
    for job in jobs {
        let accepted = server.post("/v1/jobs", &job).await.expect(201);
        check(&document, &schema("Accepted"), &accepted);
        let id = text(&accepted["id"]);
        let shown = server.ended(&id).await;
        check(&document, &schema("Job"), &shown);
        let names: BTreeSet<&String> = shown.as_object().unwrap().keys().collect();
        let of_job = schema("Job");
        let properties = resolve(&document, &of_job)["properties"].as_object().unwrap().keys().collect();
        assert_eq!(names, properties, "every property is always present");
        let history = server.get(&format!("/v1/jobs/{id}/history")).await.expect(200);
        check(&document, &schema("History"), &history);
    }
    let live = server.submit(&endless()).await;
    check(&document, &schema("Job"), &server.job_in(&live, "running").await);
    let page = server.get("/v1/jobs?limit=2").await.expect(200);
    let of_page = &document["paths"]["/v1/jobs"]["get"]["responses"]["200"]["content"]["application/json"]["schema"];
    check(&document, of_page, &page);
    let batch = json!({"jobs": [echo(1), {"run": 5}]});
    check(&document, &schema("Batch"), &server.post("/v1/jobs", &batch).await.expect(200));
    for path in ["/healthz", "/readyz"] {
        check(&document, &schema("Health"), &server.get(path).await.expect(200));
    }
}

/// Checks all samples, and that together they have every property.
fn check_all(document: &Value, name: &str, samples: &[Value]) {
    let mut seen = BTreeSet::new();
    for sample in samples {
        check(document, &schema(name), sample);
        seen.extend(sample.as_object().unwrap().keys());
    }
    let schema = schema(name);
    let properties: BTreeSet<&String> = resolve(document, &schema)["properties"].as_object().unwrap().keys().collect();
    assert_eq!(seen, properties, "of {name}");
}

#[tokio::test]
async fn queues_changes_and_problems_are_shown_as_described() {
    let server = Server::start().await;
    let document = document(&server).await;
    let create = || Request::post("/v1/queues").header("idempotency-key", "k").json(&json!({"max_running": 1}));
    let queue = server.send(create()).await.expect(201);
    let (id, token) = (text(&queue["id"]), text(&queue["token"]));
    let again = server.send(create()).await.expect(200);
    let by_id = server.get(&format!("/v1/queues/{id}")).await.expect(200);
    check_all(&document, "Queue", &[queue, again, by_id]);

    let failing = json!({"run": {"echo": {"fail": "fatal"}}, "queue": token});
    let job = text(&server.run(&failing).await["id"]);
    server.act(&format!("/v1/queues/{id}/drain")).await.expect(200);
    assert_eq!(server.delete(&format!("/v1/jobs/{job}")).await.status, 204);
    let definition = workflows::of(json!({"a": workflows::says(1)}));
    let workflow = text(&workflows::run(&server, &definition).await["id"]);
    assert_eq!(server.delete(&format!("/v1/workflows/{workflow}")).await.status, 204);
    let schedule = json!({"name": "y", "cron": "@yearly", "definition": definition});
    server.post("/v1/schedules", &schedule).await.expect(201);
    assert_eq!(server.delete("/v1/schedules/y").await.status, 204);
    assert_eq!(server.delete(&format!("/v1/queues/{id}")).await.status, 204);
    let mut changes = Subscription::open(&server, Transport::Socket, "since=start").await;
    let seen = changes.until(|change| change["kind"] == "queue_removed").await;
    check_all(&document, "Change", &seen);
    let kinds: BTreeSet<String> = seen.iter().map(|change| text(&change["kind"])).collect();
    let described = document["components"]["schemas"]["ChangeKind"]["enum"].as_array().unwrap();
    assert_eq!(kinds, described.iter().map(text).collect());

    let unknown = server.get("/v1/jobs/job_0000000000000").await.refused(404, "unknown_job");
    let field = server.get("/v1/jobs?state=x").await.refused(400, "invalid_parameter");
    let job = json!({"run": {"process": {"command": ["true"]}}, "inputs": {"a": format!("blob:{:064}", 0)}});
    let missing = server.post("/v1/jobs", &job).await.refused(409, "blob_missing");
    let piece = Request::new("PUT", format!("/v1/blobs/blob:{:064}", 0)).header("content-range", "bytes 1-1/2");
    let piece = piece.header("content-type", "application/octet-stream").body("x");
    let offset = server.send(piece).await.refused(409, "wrong_offset");
    let wrong = server.post("/v1/workflows", &json!({"yaml": "name: x"})).await.refused(400, "invalid_definition");
    check_all(&document, "Diagnostic", &[wrong["diagnostics"][0].clone()]);
    check_all(&document, "Problem", &[unknown, field, missing, offset, wrong]);
}

#[tokio::test]
async fn approvals_dead_letters_policy_and_audit_are_shown_as_described() {
    let (server, _rules) = governed(GATES, |_| {}).await;
    let document = document(&server).await;
    let checked = async |name: &str, path: &str| {
        let shown = server.get(path).await.expect(200);
        check_all(&document, name, &[shown]);
    };
    let about = |topic: &str| with(echo(1), json!({"topic": topic}));
    let waiting = server.submit(&about("deploy")).await;
    server.job_in(&waiting, "approval_required").await;
    let asked = server.get("/v1/approvals").await.expect(200);
    check_all(&document, "Approval", &[asked["items"][0].clone()]);
    checked("ApprovalDetail", &format!("/v1/approvals/{waiting}")).await;
    checked("Why", &format!("/v1/jobs/{waiting}/why")).await;
    let approved = server.act(&format!("/v1/approvals/{waiting}/approve")).await.expect(200);
    check_all(&document, "ApprovalDecision", &[approved["approval"].clone()]);
    let denied = text(&server.run(&about("mining")).await["id"]);
    let letters = server.get("/v1/dlq").await.expect(200);
    check_all(&document, "DeadLetter", &[letters["items"][0].clone()]);
    checked("DeadLetterDetail", &format!("/v1/dlq/{denied}")).await;
    let history = server.get(&format!("/v1/jobs/{denied}/history")).await.expect(200);
    check_all(&document, "History", std::slice::from_ref(&history));
    check_all(&document, "Decision", &[history["decisions"][0].clone()]);
    checked("Policy", "/v1/policy").await;
    check_all(&document, "Rules", &[server.get("/v1/policy").await.expect(200)["rules"].clone()]);
    check_all(&document, "Check", &[server.post("/v1/policy/check", &about("short")).await.expect(200)]);
    let entries = server.get("/v1/audit").await.expect(200);
    check_all(&document, "AuditEntry", &[entries["items"][0].clone()]);
    let export = server.get("/v1/audit/export").await.text();
    let (first, last) = (export.lines().next().unwrap(), export.lines().next_back().unwrap());
    check_all(&document, "ExportedEntry", &[serde_json::from_str(first).unwrap()]);
    check_all(&document, "ExportedHead", &[serde_json::from_str(last).unwrap()]);
    checked("AuditReport", "/v1/audit/verify").await;
    check_all(&document, "Purged", &[server.delete("/v1/dlq?all=true").await.expect(200)]);
    server.submit(&endless()).await;
    check_all(&document, "Tenant", &[server.get("/v1/tenants").await.expect(200)["items"][0].clone()]);
}

#[tokio::test]
async fn workflows_and_schedules_are_shown_as_described() {
    let server = Server::start().await;
    let document = document(&server).await;
    let tasks = json!({
        "done": {"run": {"echo": {"value": 1}}, "compensation": {"run": {"echo": {"value": 2}}}},
        "each": {"for_each": [1], "run": {"echo": {"value": "${item}"}}},
        "ask": {"approval": "well?"},
        "fails": {"needs": ["ask", "done", "each"], "run": {"echo": {"fail": "fatal"}}},
    });
    let start = || {
        let body = json!({"definition": workflows::of(tasks.clone()), "labels": {"a": "b"}});
        Request::post("/v1/workflows").header("idempotency-key", "k").json(&body)
    };
    let started = server.send(start()).await.expect(201);
    let again = server.send(start()).await.expect(200);
    let id = text(&started["id"]);
    let path = format!("/v1/workflows/{id}");
    let waiting = workflows::when(&server, &id, |shown| workflows::task(shown, "ask")["job"].is_string()).await;
    server.act(&format!("/v1/approvals/{}/approve", text(&workflows::task(&waiting, "ask")["job"]))).await.expect(200);
    let ended = workflows::ended(&server, &id).await;
    for shown in [&started, &again, &waiting, &ended] {
        check(&document, &schema("Workflow"), shown);
    }
    check_all(&document, "Rollback", &[ended["rollback"].clone()]);
    check_all(&document, "Tally", &[ended["counts"].clone()]);
    check_all(&document, "WorkflowUsage", &[ended["usage"].clone()]);
    check_all(&document, "Reason", &[ended["reason"].clone()]);
    check_all(&document, "Compensation", &[workflows::task(&ended, "done")["compensation"].clone()]);
    let one = server.get(&format!("{path}/tasks/ask")).await.expect(200);
    check(&document, &schema("Task"), &one);
    let page = server.get(&format!("{path}/tasks")).await.expect(200);
    page["items"].as_array().unwrap().iter().for_each(|task| check(&document, &schema("Task"), task));
    let history = server.get(&format!("{path}/history")).await.expect(200);
    check(&document, &schema("WorkflowHistory"), &history);
    check_all(&document, "WorkflowEvent", &[history["items"][0].clone()]);
    let valid = server.post("/v1/workflows/validate", &json!({"definition": workflows::of(tasks.clone())})).await;
    check_all(&document, "Valid", &[valid.expect(200)]);
    let schedule = json!({"name": "y", "cron": "@yearly", "definition": workflows::of(tasks)});
    check_all(&document, "Schedule", &[server.post("/v1/schedules", &schedule).await.expect(201)]);
    let job = server.job(&text(&workflows::task(&ended, "done")["job"])).await;
    check_all(&document, "Origin", &[job["origin"].clone()]);
}

#[tokio::test]
async fn blobs_workers_and_nodes_are_shown_as_described() {
    let server = Server::start().await;
    let document = document(&server).await;
    let put = Request::post("/v1/blobs").header("content-type", "application/octet-stream").body("#!/bin/sh\n");
    let blob = server.send(put).await.expect(201);
    check_all(&document, "BlobInfo", std::slice::from_ref(&blob));
    let upload = server.get(&format!("/v1/blobs/{}/upload", text(&blob["id"]))).await.expect(200);
    check_all(&document, "Upload", &[upload]);
    let manifest = json!({"name": "tools", "version": "1", "env": {"A": "b"},
        "files": {"run": {"blob": blob["id"], "bytes": 10, "executable": true}, "go": {"link": "run"}},
        "functions": [{"name": "main", "version": "1", "command": ["./run"]}]});
    check_all(&document, "Manifest", std::slice::from_ref(&manifest));
    let worker = server.post("/v1/workers", &manifest).await.expect(201);
    let detail = server.get(&format!("/v1/workers/{}", text(&worker["id"]))).await.expect(200);
    check_all(&document, "WorkerFile", &[detail["files"]["run"].clone(), detail["files"]["go"].clone()]);
    check_all(&document, "Worker", &[worker]);
    check_all(&document, "WorkerDetail", &[detail]);
    let page = server.get("/v1/nodes").await.expect(200);
    let node = server.get(&format!("/v1/nodes/{}", text(&page["items"][0]["id"]))).await.expect(200);
    check_all(&document, "Node", &[page["items"][0].clone(), node]);
    server.get("/v1/nodes/node_0000000000000").await.refused(404, "unknown_node");
}

#[tokio::test]
async fn states_and_limits_are_described_as_they_are() {
    let server = Server::start().await;
    let document = document(&server).await;
    let states = model::state::State::ALL.map(model::state::State::as_str);
    assert_eq!(document["components"]["schemas"]["State"]["enum"], json!(states));
    let states = model::workflow::WorkflowState::ALL.map(model::workflow::WorkflowState::as_str);
    assert_eq!(document["components"]["schemas"]["WorkflowState"]["enum"], json!(states));
    let states = model::workflow::TaskState::ALL.map(model::workflow::TaskState::as_str);
    assert_eq!(document["components"]["schemas"]["TaskState"]["enum"], json!(states));
    let spec = &document["components"]["schemas"]["JobSpec"]["properties"];
    assert_eq!(spec["topic"]["maxLength"], model::limits::NAME_BYTES_MAX);
    assert_eq!(spec["max_retries"]["maximum"], model::limits::RETRIES_MAX);
    assert_eq!(spec["labels"]["maxProperties"], model::limits::LABELS_MAX);
    assert_eq!(spec["idempotency_key"]["maxLength"], model::limits::IDEMPOTENCY_KEY_BYTES_MAX);
    assert_eq!(spec["inputs"]["maxProperties"], model::limits::INPUTS_MAX);
    assert_eq!(spec["outputs"]["maxItems"], model::limits::OUTPUTS_MAX);
    assert_eq!(spec["outputs"]["items"]["maxLength"], model::limits::PATH_BYTES_MAX);
    let limits = &document["components"]["schemas"]["Limits"]["properties"];
    for (name, max) in [
        ("cpu_ms", model::limits::CPU_LIMIT_MS_MAX),
        ("memory_bytes", model::limits::MEMORY_LIMIT_BYTES_MAX),
        ("pids", model::limits::PIDS_LIMIT_MAX),
        ("output_bytes", model::limits::OUTPUT_LIMIT_BYTES_MAX),
        ("open_files", model::limits::OPEN_FILES_LIMIT_MAX),
        ("fuel", model::limits::FUEL_LIMIT_MAX),
    ] {
        assert_eq!(limits[name]["maximum"], max, "{name}");
    }
    let manifest = &document["components"]["schemas"]["Manifest"]["properties"];
    assert_eq!(manifest["name"]["maxLength"], model::limits::NAME_BYTES_MAX);
    assert_eq!(manifest["files"]["maxProperties"], ::blobs::limits::BUNDLE_FILES_MAX);
    assert_eq!(manifest["functions"]["maxItems"], ::blobs::limits::BUNDLE_FUNCTIONS_MAX);
    let list = &document["components"]["schemas"]["BlobList"]["properties"];
    assert_eq!(list["blobs"]["maxItems"], ::blobs::limits::IDS_MAX);
}

#[tokio::test]
async fn the_documentation_page_is_served() {
    let server = Server::start().await;
    let front = server.get("/").await;
    assert_eq!((front.status, front.header("location")), (307, Some("/docs")));
    let page = server.get("/docs").await;
    assert!(page.header("content-type").is_some_and(|kind| kind.starts_with("text/html")));
    let page = page.text();
    assert!(page.starts_with("<!doctype html>") && page.contains("POST /v1/jobs") && !page.contains("<script"));
}

#[tokio::test]
async fn metrics_can_be_read_line_by_line() {
    let server = Server::with_shards(4).await;
    for job in [echo(1), json!({"run": {"echo": {"fail": "fatal"}}})] {
        server.run(&job).await;
    }
    let reply = server.get("/metrics").await;
    assert_eq!(reply.header("content-type"), Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    let mut typed = BTreeSet::new();
    let mut helped = BTreeSet::new();
    let mut samples = BTreeSet::new();
    for line in reply.text().lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words.as_slice() {
            ["#", "HELP", name, help] if !help.is_empty() => assert!(helped.insert((*name).to_owned()), "{line}"),
            ["#", "TYPE", name, "counter" | "gauge" | "histogram"] => {
                assert!(typed.insert((*name).to_owned()), "{line}");
            }
            ["#", "EOF"] => {}
            [sample, value] => {
                let name = sample.split('{').next().unwrap();
                let parts = ["_bucket", "_sum", "_count", "_total"].iter().find_map(|part| name.strip_suffix(part));
                let name = parts.filter(|family| typed.contains(*family)).unwrap_or(name);
                assert!(typed.contains(name) && helped.contains(name), "{line}");
                assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
                assert!(value.parse::<f64>().is_ok(), "{line}");
                assert!(samples.insert((*sample).to_owned()), "twice: {line}");
            }
            _ => panic!("{line}"),
        }
    }
    server.metric_when("outlast_jobs_submitted_total", 2).await;
    server.metric_when("outlast_jobs_ended_total{state=\"succeeded\"}", 1).await;
    server.metric_when("outlast_jobs_ended_total{state=\"failed\"}", 1).await;
    server.metric_when("outlast_jobs_live", 0).await;
    server.metric_when("outlast_jobs_received_total{topic=\"default\"}", 2).await;
    server.metric_when("outlast_jobs_completed_total{topic=\"default\",status=\"failed\"}", 1).await;
    server.metric_when("outlast_job_duration_seconds_count", 2).await;
    server.metric_when("outlast_runners", 1).await;
}
