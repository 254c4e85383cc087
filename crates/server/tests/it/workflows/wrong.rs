//! Invalid definitions, inputs and sizes are refused, and the error names the location.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{ended, of, run, says};
use crate::http::Request;
use crate::support::{Server, text};

async fn refused(server: &Server, body: &Value, code: &str) -> Value {
    server.post("/v1/workflows", body).await.refused(400, code)
}

// FEATURES: B1
#[tokio::test]
async fn every_error_in_a_definition_is_reported_with_line_and_field() {
    let server = Server::start().await;
    let yaml =
        "name: x\ntasks:\n  build:\n    run: make\n    needs: [tset]\n  test:\n    run: make\n    nedes: build\n";
    let problem = refused(&server, &json!({"yaml": yaml}), "invalid_definition").await;
    let diagnostics = problem["diagnostics"].as_array().unwrap();
    assert_eq!(diagnostics.len(), 2, "{problem}");
    let first = &diagnostics[0];
    assert_eq!((&first["code"], &first["line"]), (&json!("unknown_task"), &json!(5)), "{problem}");
    assert!(text(&first["field"]).starts_with("tasks.build.needs"), "{problem}");
    assert!(text(&first["suggestion"]).contains("test"), "{problem}");
    assert_eq!((&diagnostics[1]["code"], &diagnostics[1]["line"]), (&json!("unknown_field"), &json!(8)));
    assert!(text(&problem["detail"]).starts_with("line 5: "), "{problem}");
    assert_eq!(problem["field"], first["field"]);

    let cycle = of(json!({"a": {"needs": "b", "run": "x"}, "b": {"needs": "a", "run": "x"}}));
    let problem = refused(&server, &json!({"definition": cycle}), "invalid_definition").await;
    assert_eq!(problem["diagnostics"][0]["code"], "cycle");
    assert!(text(&problem["detail"]).contains('→'), "{problem}");
    let raw = "name: x\ntasks:\n  a: {run: x}\n  a: {run: y}\n";
    let twice = Request::post("/v1/workflows").header("content-type", "application/yaml").body(raw);
    let problem = server.send(twice).await.refused(400, "invalid_definition");
    assert_eq!(problem["diagnostics"][0]["code"], "duplicate_name", "{problem}");
    for invalid in [json!(5), json!([]), json!({}), json!({"name": "x"}), json!("text")] {
        refused(&server, &json!({"definition": invalid}), "invalid_definition").await;
    }
    assert!(server.listed("/v1/workflows", 10).await.is_empty());
}

// FEATURES: B1
#[tokio::test]
async fn inputs_must_match_their_declaration() {
    let server = Server::start().await;
    let definition = json!({"name": "x", "inputs": {"count": "integer", "name": {"type": "string", "default": "n"}},
        "tasks": {"a": says(1)}});
    let with = |inputs: Value| json!({"definition": definition, "inputs": inputs});
    for (inputs, field) in [
        (json!({}), "count"),
        (json!({"count": "5"}), "count"),
        (json!({"count": 5, "nmae": "x"}), "nmae"),
        (json!({"count": 5, "name": 7}), "name"),
    ] {
        let problem = refused(&server, &with(inputs.clone()), "invalid_inputs").await;
        assert!(text(&problem["diagnostics"][0]["field"]).contains(field), "{inputs}: {problem}");
    }
    server.post("/v1/workflows", &with(json!({"count": 5}))).await.expect(201);
    refused(&server, &json!({"definition": definition, "inputs": [1]}), "invalid_json").await;
}

#[tokio::test]
async fn an_invalid_body_is_refused_and_the_field_is_named() {
    let server = Server::start().await;
    let definition = of(json!({"a": says(1)}));
    for (body, code, field) in [
        (json!({}), "invalid_field", "definition"),
        (json!({"definition": definition, "yaml": "name: x"}), "invalid_field", "yaml"),
        (json!({"definition": definition, "input": {}}), "unknown_field", "input"),
        (json!({"definition": definition, "tenant": ""}), "invalid_field", "tenant"),
        (json!({"definition": definition, "tenant": "x".repeat(129)}), "invalid_field", "tenant"),
        (json!({"definition": definition, "labels": {"": "x"}}), "invalid_field", "labels"),
        (json!({"definition": definition, "labels": {"a": 1}}), "invalid_json", "labels.a"),
        (json!({"definition": definition, "queue": "x"}), "invalid_json", "queue"),
        (json!({"definition": definition, "idempotency_key": ""}), "invalid_field", "idempotency_key"),
    ] {
        let problem = server.post("/v1/workflows", &body).await.refused(400, code);
        assert_eq!(problem["field"], field, "{problem}");
    }
    server.send(Request::post("/v1/workflows").body("{}")).await.refused(415, "unsupported_media_type");
    let broken = Request::post("/v1/workflows").header("content-type", "application/json").body("{");
    server.send(broken).await.refused(400, "invalid_json");
    assert!(server.listed("/v1/workflows", 10).await.is_empty());
}

#[tokio::test]
async fn tasks_without_a_sandbox_need_allow_unsandboxed() {
    let server = Server::with(|options| options.allow_unsandboxed = false).await;
    let definition = of(json!({"a": {"run": "true", "sandbox": "none"}}));
    let problem = server.post("/v1/workflows", &json!({"definition": definition})).await;
    let problem = problem.refused(403, "sandbox_not_allowed");
    assert_eq!(problem["field"], "tasks.a.sandbox");
    // A sandbox given by an expression is checked when the task starts.
    let definition = json!({"name": "x", "inputs": {"s": "string"},
        "tasks": {"a": {"run": "touch /tmp/x", "sandbox": "${inputs.s}", "retry": 0}}});
    let body = json!({"definition": definition, "inputs": {"s": "none"}});
    let id = text(&server.post("/v1/workflows", &body).await.expect(201)["id"]);
    let workflow = ended(&server, &id).await;
    assert_eq!(workflow["state"], "failed");
    let job = server.job(&text(&super::task(&workflow, "a")["job"])).await;
    assert!(text(&job["message"]).contains("allow_unsandboxed"), "{job}");
}

/// A definition of a chain of skipped tasks.
fn chain(tasks: usize) -> String {
    let mut yaml = String::from("name: long\ntasks:\n");
    for number in 0..tasks {
        let needs = if number == 0 { String::new() } else { format!(", needs: t{}", number - 1) };
        writeln!(yaml, "  t{number}: {{when: \"${{false}}\", delay: 1s{needs}}}").unwrap();
    }
    yaml
}

// FEATURES: B1
#[tokio::test]
async fn the_largest_definition_is_accepted_and_a_larger_one_is_not() {
    let server = Server::start().await;
    let max = workflow::limits::TASKS_MAX;
    let send = |yaml: String| Request::post("/v1/workflows").header("content-type", "application/yaml").body(yaml);
    let started = server.send(send(chain(max))).await.expect(201);
    assert_eq!(started["tasks_total"], max);
    let problem = server.send(send(chain(max + 1))).await.refused(400, "invalid_definition");
    assert_eq!(problem["diagnostics"][0]["code"], "too_large", "{problem}");
    let id = text(&started["id"]);
    let shown = server.get(&format!("/v1/workflows/{id}")).await.expect(200);
    assert_eq!(shown["tasks_left_out"], max - 1_000);
    let cancelled = server.act(&format!("/v1/workflows/{id}/cancel")).await;
    assert!([200, 409].contains(&cancelled.status), "{}", cancelled.text());
    ended(&server, &id).await;
}

#[tokio::test]
async fn the_sizes_of_bodies_and_inputs_are_limited() {
    let server = Server::start().await;
    let definition = json!({"name": "x", "inputs": {"s": "string"}, "tasks": {"a": says(1)}});
    let given = |bytes: usize| json!({"definition": definition, "inputs": {"s": "x".repeat(bytes)}});
    // The whole inputs object has exactly the largest size.
    let max = 1024 * 1024 - r#"{"s":""}"#.len();
    server.post("/v1/workflows", &given(max)).await.expect(201);
    server.post("/v1/workflows", &given(max + 1)).await.refused(413, "body_too_large");
    let huge = vec![b' '; 66 * 1024 * 1024];
    for kind in ["application/json", "application/yaml"] {
        let body = Request::post("/v1/workflows").header("content-type", kind).body(huge.clone());
        server.send(body).await.refused(413, "body_too_large");
    }
    assert_eq!(run(&server, &of(json!({"a": says(1)}))).await["state"], "succeeded");
}
