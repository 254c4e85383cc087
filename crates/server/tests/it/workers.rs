//! Workers over HTTP: register, list, describe, run, delete.

use serde_json::{Value, json};

use crate::http::Request;
use crate::support::{Api, Server, text, with};

const SCRIPT: &str = "#!/bin/sh\necho \"$GREETING $1\"; cat worker/data.txt; echo made > outputs/made.txt\n";

async fn upload(api: &Api, content: &str) -> Value {
    let request = Request::post("/v1/blobs").header("content-type", "application/octet-stream").body(content);
    let blob = api.send(request).await.expect(201);
    json!({"blob": blob["id"], "bytes": blob["bytes"]})
}

async fn manifest(api: &Api) -> Value {
    json!({
        "name": "tools", "version": "1", "env": {"GREETING": "hello"},
        "files": {
            "bin/run": with(upload(api, SCRIPT).await, json!({"executable": true})),
            "data.txt": upload(api, "data\n").await,
            "run": {"link": "bin/run"},
        },
        "functions": [{"name": "greet", "version": "1", "command": ["bin/run"]}],
    })
}

fn job(worker: &str, function: &str) -> Value {
    json!({"run": {"process": {"worker": worker, "function": function, "command": ["world"]}},
           "outputs": ["*.txt"], "max_retries": 0})
}

// FEATURES: C10
#[tokio::test]
async fn a_function_of_a_registered_worker_runs_as_a_job() {
    let mut server = Server::start().await;
    let manifest = manifest(&server).await;
    let reply = server.post("/v1/workers", &manifest).await;
    let id = text(&reply.expect(201)["id"]);
    assert_eq!(reply.header("location"), Some(format!("/v1/workers/{id}").as_str()));
    // The same manifest gives the same worker, which survives a restart.
    assert_eq!(server.post("/v1/workers", &manifest).await.expect(201)["id"], id.as_str());
    server.restart().await;
    for function in ["greet", "greet@1"] {
        let ended = server.run(&job(&id, function)).await;
        assert_eq!(ended["result"], "hello world\ndata\n", "{ended}");
        let artifact = &ended["artifacts"][0];
        assert_eq!((&artifact["path"], &artifact["bytes"]), (&json!("made.txt"), &json!(5)), "{ended}");
        assert_eq!(server.get(&format!("/v1/blobs/{}", text(&artifact["blob"]))).await.body, b"made\n");
    }
}

// FEATURES: C10
#[tokio::test]
async fn workers_are_listed_and_described_globally_and_by_queue() {
    let server = Server::start().await;
    assert_eq!(server.get("/v1/workers").await.expect(200), json!({"items": [], "next_cursor": null}));
    let manifest = manifest(&server).await;
    let id = text(&server.post("/v1/workers", &manifest).await.expect(201)["id"]);
    for version in ["2", "3"] {
        let other = with(manifest.clone(), json!({"version": version}));
        server.post("/v1/workers", &other).await.expect(201);
    }
    let page = server.get("/v1/workers").await.expect(200);
    let first = &page["items"][0];
    assert_eq!((&first["id"], &first["name"], &first["files"]), (&json!(id), &json!("tools"), &json!(3)));
    assert_eq!(first["bytes"], SCRIPT.len() + 5);
    assert_eq!(first["functions"], manifest["functions"]);
    for list in ["/v1/workers", "/v1/workers/all"] {
        assert_eq!(server.listed(list, 1).await.len(), 3, "{list}");
        server.get(&format!("{list}?cursor=w_0")).await.refused(400, "invalid_cursor");
        server.get(&format!("{list}?name=x")).await.refused(400, "invalid_parameter");
    }
    let detail = server.get(&format!("/v1/workers/{id}")).await.expect(200);
    assert_eq!((&detail["files"], &detail["env"]), (&manifest["files"], &manifest["env"]));
    assert_eq!(server.get("/v1/workers/all").await.expect(200)["items"][0], detail);
    let queue = text(&server.create_queue(&json!({"tag": "q"})).await["id"]);
    assert_eq!(server.get(&format!("/v1/queues/{queue}/workers")).await.expect(200), page);
    server.get("/v1/queues/q_0000000000001/workers").await.refused(404, "unknown_queue");
}

// FEATURES: C10
#[tokio::test]
async fn an_unknown_worker_or_function_is_refused_at_submission() {
    let server = Server::start().await;
    let unknown = format!("w_{:032}", 0);
    let problem = server.post("/v1/jobs", &job(&unknown, "greet")).await.refused(409, "worker_not_found");
    assert_eq!(problem["field"], "run.process.worker");
    let id = text(&server.post("/v1/workers", &manifest(&server).await).await.expect(201)["id"]);
    for function in ["bow", "greet@2"] {
        let problem = server.post("/v1/jobs", &job(&id, function)).await.refused(400, "invalid_field");
        assert_eq!(problem["field"], "run.process.function");
        assert!(text(&problem["detail"]).contains("its functions are: greet"), "{problem}");
    }
    let batch = json!({"jobs": [job(&unknown, "greet"), job(&id, "greet"), job(&id, "bow")]});
    let results = server.post("/v1/jobs", &batch).await.expect(200)["results"].clone();
    let code = |index: usize| results[index]["error"]["code"].clone();
    assert_eq!((code(0), code(1), code(2)), (json!("worker_not_found"), json!(null), json!("invalid_field")));
    assert_eq!(server.ended(&text(&results[1]["id"])).await["state"], "succeeded");
    server.works_with(1).await;
}

// FEATURES: C10
#[tokio::test]
async fn a_deleted_worker_is_unknown() {
    let server = Server::start().await;
    let id = text(&server.post("/v1/workers", &manifest(&server).await).await.expect(201)["id"]);
    server.run(&job(&id, "greet")).await;
    let path = format!("/v1/workers/{id}");
    let form = Request::delete(path.clone()).header("content-type", "application/x-www-form-urlencoded");
    server.send(form).await.refused(415, "unsupported_media_type");
    assert_eq!(server.delete(&path).await.status, 204);
    for refused in [server.delete(&path).await, server.get(&path).await] {
        refused.refused(404, "worker_not_found");
    }
    server.post("/v1/jobs", &job(&id, "greet")).await.refused(409, "worker_not_found");
    for path in ["/v1/workers/x", "/v1/workers/w_12"] {
        server.get(path).await.refused(400, "invalid_id");
        server.delete(path).await.refused(400, "invalid_id");
    }
}

// FEATURES: C10
#[tokio::test]
async fn an_invalid_manifest_is_refused() {
    let server = Server::start().await;
    let good = manifest(&server).await;
    let absent = format!("blob:{:064}", 1);
    let missing_blob = with(good.clone(), json!({"files": {"run": {"blob": absent, "bytes": 1}}, "functions": []}));
    let problem = server.post("/v1/workers", &missing_blob).await.refused(409, "blobs_missing");
    assert_eq!(problem["blobs"], json!([absent]));
    let data = good["files"]["data.txt"].clone();
    for (files, code) in [
        (json!({"../x": data}), "bad_path"),
        (json!({"/etc/x": data}), "bad_path"),
        (json!({"x": {"link": "../../etc/passwd"}}), "bad_path"),
        (json!({"bin/run": data}), "bad_manifest"),
        (json!({}), "bad_manifest"),
        (json!({"bin/run": with(data.clone(), json!({"bytes": 4, "executable": true}))}), "bad_manifest"),
        (json!({"x": {"executable": true}}), "invalid_json"),
    ] {
        let manifest = with(good.clone(), json!({"files": files}));
        server.post("/v1/workers", &manifest).await.refused(400, code);
    }
    server.post("/v1/workers", &json!({"name": "x"})).await.refused(400, "invalid_json");
    server.send(Request::post("/v1/workers").body("{}")).await.refused(415, "unsupported_media_type");
    assert_eq!(server.get("/v1/workers").await.expect(200)["items"], json!([]));
}
