//! Invalid requests: each is refused with a stable error code, creates nothing, and leaves the server working.

use model::limits;
use serde_json::{Value, json};

use crate::http::Request;
use crate::support::{Server, echo, endless, from_now, text, with};

fn raw_job(body: impl Into<Vec<u8>>) -> Request {
    Request::post("/v1/jobs").header("content-type", "application/json").body(body)
}

#[tokio::test]
async fn a_body_that_is_not_valid_json_is_refused() {
    let server = Server::start().await;
    for body in [
        "",
        "{",
        "[]",
        "null",
        "nonsense",
        r#"{"run":{"echo":{}}} and more"#,
        r#"{"run":{}}"#,
        "{}",
        r#"{"run":{"echo":{}},"run":{"echo":{}}}"#,
        r#"{"jobs":"#,
        r#"{"jobs":{}}"#,
        r#"{"run":{"echo":{"value":NaN}}}"#,
        "{\"run\":{\"echo\":{\"value\":\"\u{1}\"}}}",
    ] {
        server.send(raw_job(body)).await.refused(400, "invalid_json");
    }
    server.send(raw_job([b'"', 0xff, 0xfe, b'"'])).await.refused(400, "invalid_json");
    server.send(raw_job("[".repeat(1_000_000))).await.refused(400, "invalid_json");
    server.works_with(0).await;
}

fn nested_job(levels: usize) -> (String, String) {
    let value = format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    (format!(r#"{{"run":{{"echo":{{"value":{value}}}}}}}"#), value)
}

/// The nesting limit keeps every accepted value readable: common parsers stop at 128 levels.
#[tokio::test]
async fn a_deeply_nested_value_is_returned_unchanged_and_a_deeper_one_is_refused() {
    let mut server = Server::start().await;
    let (job, value) = nested_job(124);
    let id = text(&server.send(raw_job(job)).await.expect(201)["id"]);
    server.restart().await;
    let path = format!("/v1/jobs/{id}");
    assert!(server.get(&format!("{path}?wait_ms=20000")).await.expect(200)["result"].is_array());
    assert_eq!(server.get(&format!("{path}/result")).await.text(), value);
    for levels in [126, 1_000, 100_000] {
        let problem = server.send(raw_job(nested_job(levels).0)).await.refused(400, "invalid_json");
        assert!(text(&problem["detail"]).contains("128 levels"), "{problem}");
    }
}

#[tokio::test]
async fn unknown_fields_are_refused_with_a_suggestion() {
    let server = Server::start().await;
    for (job, name, suggestion) in [
        (with(echo(1), json!({"tpoic": "x"})), "tpoic", Some("topic")),
        (with(echo(1), json!({"max_retrys": 1})), "max_retrys", Some("max_retries")),
        (json!({"run": {"echo": {"delay": 5}}}), "run.echo.delay", None),
        (json!({"run": {"ehco": {}}}), "run", Some("echo")),
        (json!({"run": {"echo": {"fail": "eror"}}}), "run.echo.fail", Some("error")),
        (with(echo(1), json!({"priority": "critcal"})), "priority", Some("critical")),
        (with(echo(1), json!({"sandbox": "nune"})), "sandbox", Some("none")),
        (with(echo(1), json!({"zzzzzzzz": 1})), "zzzzzzzz", None),
    ] {
        let problem = server.post("/v1/jobs", &job).await.refused(400, "unknown_field");
        let detail = text(&problem["detail"]);
        if let Some(suggestion) = suggestion {
            assert!(detail.contains(&format!("Did you mean `{suggestion}`?")), "{job}: {detail}");
        }
        assert!(text(&problem["field"]).starts_with(name), "{job}: {problem}");
    }
    let problem = server.post("/v1/queues", &json!({"tga": "x"})).await.refused(400, "unknown_field");
    assert!(text(&problem["detail"]).contains("Did you mean `tag`?"), "{problem}");
    let compensated = with(echo(1), json!({"compensation": {}}));
    server.post("/v1/jobs", &compensated).await.refused(400, "unsupported_field");
    server.works_with(0).await;
}

#[tokio::test]
async fn values_outside_their_limits_are_refused_with_the_field_name() {
    let server = Server::start().await;
    let year = limits::DURATION_MAX.0;
    let long = "x".repeat(limits::NAME_BYTES_MAX + 1);
    let process = |process: Value| json!({"run": {"process": process}, "sandbox": "none"});
    let blob = format!("blob:{}", "0".repeat(64));
    for (job, field, code) in [
        (with(echo(1), json!({"timeout_ms": -1})), "timeout_ms", "invalid_json"),
        (with(echo(1), json!({"timeout_ms": 1.5})), "timeout_ms", "invalid_json"),
        (with(echo(1), json!({"timeout_ms": 1e300})), "timeout_ms", "invalid_json"),
        (with(echo(1), json!({"timeout_ms": "1s"})), "timeout_ms", "invalid_json"),
        (with(echo(1), json!({"timeout_ms": year + 1})), "timeout_ms", "invalid_field"),
        (with(echo(1), json!({"timeout_ms": u64::MAX})), "timeout_ms", "invalid_field"),
        (json!({"run": {"echo": {"delay_ms": -5}}}), "run.echo.delay_ms", "invalid_json"),
        (json!({"run": {"echo": {"delay_ms": year + 1}}}), "run.echo.delay_ms", "invalid_field"),
        (with(echo(1), json!({"deadline": "tomorrow"})), "deadline", "invalid_json"),
        (with(echo(1), json!({"deadline": 5})), "deadline", "invalid_json"),
        (with(echo(1), json!({"not_before": "2026-02-30T00:00:00Z"})), "not_before", "invalid_json"),
        (with(echo(1), json!({"not_before": from_now(2 * year as i64)})), "not_before", "invalid_field"),
        (with(echo(1), json!({"max_retries": -1})), "max_retries", "invalid_json"),
        (with(echo(1), json!({"max_retries": 1001})), "max_retries", "invalid_field"),
        (with(echo(1), json!({"topic": ""})), "topic", "invalid_field"),
        (with(echo(1), json!({"topic": long})), "topic", "invalid_field"),
        (with(echo(1), json!({"tenant": "a\u{0}b"})), "tenant", "invalid_field"),
        (with(echo(1), json!({"labels": {"": "x"}})), "labels", "invalid_field"),
        (with(echo(1), json!({"labels": {"x": "x".repeat(1025)}})), "labels", "invalid_field"),
        (with(echo(1), json!({"queue": "job_0000000000000"})), "queue", "invalid_json"),
        (with(echo(1), json!({"queue": "mine"})), "queue", "invalid_json"),
        (with(echo(1), json!({"idempotency_key": ""})), "idempotency_key", "invalid_field"),
        (process(json!({"command": []})), "run.process.command", "invalid_field"),
        (process(json!({"command": [""]})), "run.process.command", "invalid_field"),
        (process(json!({"command": ["a\u{0}"]})), "run.process.command", "invalid_field"),
        (process(json!({"command": ["a"], "env": {"A=B": "c"}})), "run.process.env", "invalid_field"),
        (process(json!({})), "run.process.command", "invalid_field"),
        (process(json!({"function": "f"})), "run.process.function", "invalid_field"),
        (process(json!({"command": ["a"], "worker": "w_1"})), "run.process.worker", "invalid_json"),
        (process(json!({"command": ["a", "x".repeat(128 * 1024)]})), "run.process.command", "invalid_field"),
        (with(process(json!({"command": ["a"]})), json!({"inputs": {"a": "b"}})), "inputs.a", "invalid_json"),
        (with(process(json!({"command": ["a"]})), json!({"inputs": {"../a": blob}})), "inputs", "invalid_field"),
        (with(process(json!({"command": ["a"]})), json!({"outputs": ["/etc/*"]})), "outputs", "invalid_field"),
        (with(process(json!({"command": ["a"]})), json!({"limits": {"pids": 0}})), "limits.pids", "invalid_field"),
        (with(process(json!({"command": ["a"]})), json!({"limits": {"fuel": 1}})), "limits.fuel", "invalid_field"),
        (with(echo(1), json!({"outputs": ["*"]})), "outputs", "invalid_field"),
        (json!({"run": {"wasm": {"component": blob}}, "sandbox": "none"}), "sandbox", "invalid_field"),
        (json!({"run": {"wasm": {"component": "blob:1"}}}), "run.wasm.component", "invalid_json"),
    ] {
        let problem = server.post("/v1/jobs", &job).await.refused(400, code);
        assert_eq!(problem["field"], field, "{job}: {problem}");
        // A batch reports the same error for the job.
        let batch = server.post("/v1/jobs", &json!({"jobs": [job]})).await.expect(200);
        assert_eq!(batch["results"][0]["error"], problem);
    }
    for (queue, field) in [
        (json!({"max_running": 0}), "max_running"),
        (json!({"max_retries": 1001}), "max_retries"),
        (json!({"tag": long}), "tag"),
        (json!({"tenant": ""}), "tenant"),
    ] {
        let problem = server.post("/v1/queues", &queue).await.refused(400, "invalid_field");
        assert_eq!(problem["field"], field, "{queue}: {problem}");
    }
    server.works_with(0).await;
    assert_eq!(server.listed("/v1/queues", 10).await.len(), 0);
}

#[tokio::test]
async fn an_unknown_queue_is_refused() {
    let server = Server::with_shards(4).await;
    let token = format!("qt_000{}", "0".repeat(32));
    for queue in ["q_0000000000000", &token] {
        server.post("/v1/jobs", &with(echo(1), json!({"queue": queue}))).await.refused(404, "unknown_queue");
        server.post(&format!("/v1/queues/{queue}/jobs"), &echo(1)).await.refused(404, "unknown_queue");
        server.get(&format!("/v1/queues/{queue}")).await.refused(404, "unknown_queue");
        for action in ["drain", "cancel"] {
            server.act(&format!("/v1/queues/{queue}/{action}")).await.refused(404, "unknown_queue");
        }
        server.delete(&format!("/v1/queues/{queue}")).await.refused(404, "unknown_queue");
    }
    server.works_with(0).await;
}

#[tokio::test]
async fn ids_of_another_kind_are_refused() {
    let server = Server::start().await;
    for id in ["q_0000000000000", "job_1", "job_", "1", "job_000000000000O", "job_00000000000000", "JOB_0000000000000"]
    {
        for path in ["", "/result", "/history", "/logs"] {
            server.get(&format!("/v1/jobs/{id}{path}")).await.refused(400, "invalid_id");
        }
        server.act(&format!("/v1/jobs/{id}/cancel")).await.refused(400, "invalid_id");
        server.delete(&format!("/v1/jobs/{id}")).await.refused(400, "invalid_id");
    }
    for id in ["job_0000000000000", "q_1", "qt_123", "mine", "qt_+00000000000000000000000000000000000"] {
        server.get(&format!("/v1/queues/{id}")).await.refused(400, "invalid_id");
        server.act(&format!("/v1/queues/{id}/drain")).await.refused(400, "invalid_id");
        server.get(&format!("/v1/jobs?queue={id}")).await.refused(400, "invalid_id");
    }
    // Invalid UTF-8.
    server.get("/v1/jobs/%ff%fe").await.refused(400, "invalid_id");
    server.get("/v1/queues/%ff%fe").await.refused(400, "invalid_id");
}

#[tokio::test]
async fn a_job_body_of_the_maximum_size_is_accepted_and_a_larger_one_refused() {
    let server = Server::start().await;
    let overhead = echo("").to_string().len();
    let fits = echo("x".repeat(limits::JOB_BODY_BYTES_MAX - overhead)).to_string();
    assert_eq!(fits.len(), limits::JOB_BODY_BYTES_MAX);
    let id = text(&server.send(raw_job(fits.clone())).await.expect(201)["id"]);
    server.ended(&id).await;
    let large = fits.replacen("\"x", "\"xx", 1);
    let problem = server.send(raw_job(large.clone())).await.refused(413, "body_too_large");
    assert!(text(&problem["detail"]).contains(&limits::JOB_BODY_BYTES_MAX.to_string()), "{problem}");
    // In a batch the job size limit applies to each job separately.
    let batch = format!(r#"{{"jobs":[{large},{}]}}"#, echo(1));
    let answer = server.send(raw_job(batch)).await.expect(200);
    assert_eq!(answer["results"][0]["error"]["code"], "body_too_large");
    server.ended(&text(&answer["results"][1]["id"])).await;
    server.works_with(2).await;
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_refused_as_a_whole() {
    let server = Server::start().await;
    let mut body = format!(r#"{{"jobs":[{}]}}"#, echo(1)).into_bytes();
    body.resize(limits::BATCH_BODY_BYTES_MAX + 1, b' ');
    server.send(raw_job(body.clone())).await.refused(413, "body_too_large");
    server.works_with(0).await;
    body.pop();
    server.send(raw_job(body)).await.expect(200);
    server.works_with(1).await;
}

#[tokio::test]
async fn a_batch_of_too_many_jobs_is_refused_as_a_whole() {
    let server = Server::start().await;
    let jobs = vec![echo(1); limits::BATCH_JOBS_MAX + 1];
    let problem = server.post("/v1/jobs", &json!({"jobs": jobs})).await.refused(413, "too_many_jobs_in_batch");
    assert!(text(&problem["detail"]).contains("10001"), "{problem}");
    let lines = format!("{}\n", echo(1)).repeat(limits::BATCH_JOBS_MAX + 1);
    let request = Request::post("/v1/jobs").header("content-type", "application/x-ndjson").body(lines);
    server.send(request).await.refused(413, "too_many_jobs_in_batch");
    server.works_with(0).await;
}

#[tokio::test]
async fn a_body_without_a_json_content_type_is_refused() {
    let server = Server::start().await;
    let id = server.submit(&endless()).await;
    let queue = text(&server.create_queue(&json!({})).await["id"]);
    let job = echo(1).to_string();
    let submits = ["/v1/jobs".to_owned(), format!("/v1/queues/{queue}/jobs"), "/v1/queues".to_owned()];
    let actions = [format!("/v1/jobs/{id}/cancel"), format!("/v1/queues/{queue}/cancel")];
    let others = [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
        "text/plain; application/json",
        "",
    ];
    for path in &submits {
        server.send(Request::post(path).body(job.clone())).await.refused(415, "unsupported_media_type");
        for other in others {
            let request = Request::post(path).header("content-type", other).body(job.clone());
            let problem = server.send(request).await.refused(415, "unsupported_media_type");
            assert!(text(&problem["detail"]).contains("application/json"), "{problem}");
        }
    }
    // Actions refuse form posts too: a page of another site can send them (CSRF).
    for path in &actions {
        for other in &others[..3] {
            let request = Request::post(path).header("content-type", other);
            server.send(request).await.refused(415, "unsupported_media_type");
        }
    }
    let ndjson = Request::post("/v1/queues").header("content-type", "application/x-ndjson").body("{}");
    server.send(ndjson).await.refused(415, "unsupported_media_type");
    for accepted in ["application/json;charset=utf-8", "Application/JSON"] {
        let request = Request::post("/v1/jobs").header("content-type", accepted).body(job.clone());
        server.send(request).await.expect(201);
    }
    server.works_with(3).await;
    assert_ne!(server.job(&id).await["state"], "cancelled");
}

#[tokio::test]
async fn foreign_origins_and_hosts_are_refused() {
    let server = Server::start().await;
    let port = server.address.port();
    let own_host = format!("localhost:{port}");
    let submit = || Request::post("/v1/jobs").json(&echo(1));
    for origin in ["http://evil.example", "null", "https://localhost.evil.example", "http://localhost:1", ""] {
        server.send(submit().header("origin", origin)).await.refused(403, "foreign_origin");
        let read = Request::get("/v1/jobs").header("origin", origin);
        server.send(read).await.refused(403, "foreign_origin");
        let socket = Request::get("/v1/ws").header("origin", origin).header("upgrade", "websocket");
        server.send(socket).await.refused(403, "foreign_origin");
    }
    for host in ["evil.example", &format!("evil.example:{port}"), "127.0.0.1.evil.example", "10.0.0.1", ""] {
        server.send(submit().header("host", host)).await.refused(403, "foreign_host");
        server.send(Request::get("/metrics").header("host", host)).await.refused(403, "foreign_host");
    }
    server.works_with(0).await;
    let own = submit().header("host", &own_host).header("origin", &format!("http://{own_host}"));
    server.send(own).await.expect(201);
    let named = Server::with(|options| options.hosts = vec!["build.example".to_owned()]).await;
    named.send(submit().header("host", "build.example")).await.expect(201);
}

#[tokio::test]
async fn unknown_routes_methods_and_parameters_are_refused() {
    let server = Server::start().await;
    for path in ["/v2/jobs", "/v1", "/v1/jobs/", "/v1/job", "/v1/jobs/a/b/c", "/../etc/passwd", "/v1/workflow"] {
        let problem = server.get(path).await.refused(404, "unknown_route");
        assert!(text(&problem["detail"]).contains("/docs"), "{problem}");
    }
    for (method, path) in [("PUT", "/v1/jobs"), ("DELETE", "/v1/jobs"), ("PATCH", "/v1/queues"), ("POST", "/healthz")] {
        let reply = server.send(Request::new(method, path)).await;
        reply.refused(405, "method_not_allowed");
    }
    for query in ["stat=failed", "state=done", "state=failed,", "state=Failed", "limit=0", "limit=1001", "limit=x"] {
        let problem = server.get(&format!("/v1/jobs?{query}")).await.refused(400, "invalid_parameter");
        assert_eq!(problem["field"], query.split('=').next().unwrap());
    }
    // A parameter of another route is refused like an unknown one.
    let id = server.submit(&echo(1)).await;
    for path in ["/v1/jobs/running?state=failed", "/v1/queues?tenant=x", "/metrics?limit=1"] {
        server.get(path).await.refused(400, "invalid_parameter");
    }
    server.post(&format!("/v1/jobs/{id}/cancel?force=true"), &json!({})).await.refused(400, "invalid_parameter");
    let batch = json!({"jobs": [echo(1)]});
    let problem = server.post("/v1/jobs?wait_ms=10", &batch).await.refused(400, "invalid_parameter");
    assert_eq!(problem["field"], "wait_ms");
    let problem = server.get("/v1/jobs?state=done").await.refused(400, "invalid_parameter");
    assert!(text(&problem["detail"]).contains("succeeded"), "the valid states are not named: {problem}");
    for cursor in ["x", "c", "cxyz", "job_0000000000000", "e1-0"] {
        server.get(&format!("/v1/jobs?cursor={cursor}")).await.refused(400, "invalid_cursor");
    }
    server.get("/v1/queues?cursor=x").await.refused(400, "invalid_cursor");
    assert!(server.get("/v1/jobs?topic=%ff").await.status < 500);
    server.get("/v1/ws").await.refused(426, "upgrade_required");
    server.works_with(1).await;
}

#[tokio::test]
async fn invalid_wait_times_are_refused() {
    let server = Server::start().await;
    let id = server.submit(&endless()).await;
    for wait in ["300001", "-1", "x", "1.5", "99999999999999999999"] {
        let path = format!("/v1/jobs/{id}?wait_ms={wait}");
        assert_eq!(server.get(&path).await.refused(400, "invalid_parameter")["field"], "wait_ms");
        let path = format!("/v1/jobs?wait_ms={wait}");
        server.post(&path, &echo(1)).await.refused(400, "invalid_parameter");
    }
    server.works_with(1).await;
}

#[tokio::test]
async fn an_idempotency_key_header_on_a_batch_is_refused() {
    let server = Server::start().await;
    let batch = Request::post("/v1/jobs").header("idempotency-key", "k").json(&json!({"jobs": [echo(1)]}));
    let problem = server.send(batch).await.refused(400, "invalid_field");
    assert_eq!(problem["field"], "Idempotency-Key");
    server.works_with(0).await;
}

#[tokio::test]
async fn a_truncated_request_creates_no_job() {
    use tokio::io::AsyncWriteExt;
    let server = Server::start().await;
    let body = echo(1).to_string();
    let head = format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        server.address,
        body.len() + 1
    );
    for cut in [10, head.len() / 2, head.len()] {
        let mut connection = tokio::net::TcpStream::connect(server.address).await.unwrap();
        connection.write_all(&head.as_bytes()[..cut]).await.unwrap();
        connection.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut connection, &mut rest).await;
        assert!(!rest.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&rest));
    }
    server.works_with(0).await;
}
