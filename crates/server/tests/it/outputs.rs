//! Output policy: quarantined results are withheld, held results are withheld until the content scan.

use serde_json::{Value, json};

use crate::governance::governed;
use crate::http::Request;
use crate::support::{Server, shell, states, text, with};

/// Assembled at run time, so that source code scanners do not report it.
fn secret() -> String {
    format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8")
}

/// Shell word that expands to the secret and does not contain it.
fn split_secret() -> String {
    secret().replacen("ghp", "gh''p", 1)
}

fn scanning(options: &mut server::Options) {
    options.topics.entry("open".to_owned()).or_default().output.scan = true;
    options.topics.entry("held".to_owned()).or_default().output.hold_until_scanned = true;
}

fn leak(topic: &str) -> Value {
    with(shell(&format!("echo token {}", split_secret())), json!({"topic": topic}))
}

/// Asserts that no endpoint shows the job's output.
async fn assert_withheld(server: &Server, id: &str) {
    let job = server.job(id).await;
    assert_eq!((&job["result"], &job["artifacts"]), (&Value::Null, &json!([])));
    for path in [
        format!("/v1/jobs/{id}"),
        format!("/v1/jobs/{id}?wait_ms=1"),
        format!("/v1/jobs/{id}/history"),
        format!("/v1/jobs/{id}/why"),
        format!("/v1/dlq/{id}"),
        "/v1/jobs".to_owned(),
        "/v1/jobs/completed".to_owned(),
    ] {
        let shown = server.get(&path).await.text();
        assert!(!shown.contains(&secret()) && !shown.contains("blob:"), "{path}: {shown}");
    }
    for path in ["logs", "logs?follow=true", "logs?attempt=1&stream=stderr", "logs?tail=5"] {
        server.get(&format!("/v1/jobs/{id}/{path}")).await.refused(409, "quarantined");
    }
    let events = Request::get(format!("/v1/jobs/{id}/logs")).header("accept", "text/event-stream");
    server.send(events).await.refused(409, "quarantined");
    server.get(&format!("/v1/jobs/{id}/result")).await.refused(409, "quarantined");
}

// FEATURES: D3
#[tokio::test]
async fn a_leaked_secret_is_quarantined_until_an_operator_releases_it() {
    let server = Server::with(scanning).await;
    let id = server.submit(&leak("open")).await;
    let job = server.job_in(&id, "quarantined").await;
    assert_eq!(job["reason"], "output_quarantined");
    assert_withheld(&server, &id).await;
    let history = server.get(&format!("/v1/jobs/{id}/history")).await.expect(200);
    let decision = &history["output_decisions"][0];
    assert_eq!((&decision["phase"], &decision["verdict"]), (&json!("content"), &json!("quarantine")));
    assert!(decision["findings"].as_array().is_some_and(|found| !found.is_empty()), "{decision}");
    let release = Request::post(format!("/v1/jobs/{id}/release")).header("outlast-actor", "ada");
    assert_eq!(server.send(release).await.expect(200)["state"], "succeeded");
    assert!(text(&server.job(&id).await["result"]).contains(&secret()));
    assert!(server.get(&format!("/v1/jobs/{id}/logs")).await.text().contains(&secret()));
    let audit = server.get(&format!("/v1/audit?job={id}&action=released")).await.expect(200);
    assert_eq!(audit["items"][0]["by"], "ada");
    server.act(&format!("/v1/jobs/{id}/release")).await.refused(409, "wrong_state");
}

// FEATURES: D3
#[tokio::test]
async fn a_secret_in_an_artifact_is_found() {
    let server = Server::with(scanning).await;
    let script = format!("echo clean; echo {} > outputs/notes.txt", split_secret());
    let id = server.submit(&with(shell(&script), json!({"topic": "held", "outputs": ["*.txt"]}))).await;
    server.job_in(&id, "quarantined").await;
    assert_withheld(&server, &id).await;
    let history = server.get(&format!("/v1/jobs/{id}/history")).await.expect(200);
    assert!(history["output_decisions"].to_string().contains("notes.txt"), "{history}");
}

// FEATURES: D3
#[tokio::test]
async fn a_retried_job_that_leaks_again_is_quarantined_again() {
    let server = Server::with(scanning).await;
    let id = server.submit(&with(leak("held"), json!({"max_retries": 1}))).await;
    server.job_in(&id, "quarantined").await;
    server.act(&format!("/v1/dlq/{id}/retry")).await.expect(200);
    server.job_when(&id, |job| job["attempt"] == 2 && job["state"] == "quarantined").await;
    assert_withheld(&server, &id).await;
}

// FEATURES: D3
#[tokio::test]
async fn a_held_result_is_withheld_until_the_content_scan() {
    let server = Server::with(scanning).await;
    let gate = server.directory().join("gate");
    let script = format!("echo all is well; while [ ! -e '{}' ]; do sleep 0.02; done", gate.display());
    let id = server.submit(&with(shell(&script), json!({"topic": "held"}))).await;
    server.job_in(&id, "running").await;
    server.get(&format!("/v1/jobs/{id}/logs")).await.refused(409, "quarantined");
    server.get(&format!("/v1/jobs/{id}/result")).await.refused(409, "not_terminal");
    let (api, path) = (server.api(), format!("/v1/jobs/{id}/logs?follow=true"));
    let follower = tokio::spawn(async move { api.get(&path).await.text() });
    std::fs::write(gate, "").unwrap();
    let job = server.ended(&id).await;
    assert_eq!(job["state"], "succeeded");
    assert!(states(&job).contains(&"scanning".to_owned()), "{job}");
    assert_eq!(follower.await.unwrap(), "all is well\n", "a follower gets the output after the scan");
    assert_eq!(server.get(&format!("/v1/jobs/{id}/logs")).await.text(), "all is well\n");
}

const REDACTING: &str = r#"
package outlast.output

redact contains {"rule": "secrets", "reason": "secrets were found", "keep_original": true} if {
	some finding in input.findings
	finding.kind == "secret"
}
"#;

// FEATURES: D3
#[tokio::test]
async fn redacted_parts_are_absent_from_result_logs_and_artifacts() {
    let (server, _rules) = governed(REDACTING, |options| {
        scanning(options);
        options.show_originals = true;
    })
    .await;
    let script = format!("echo token {0}; echo {0} > outputs/notes.txt", split_secret());
    let job = with(shell(&script), json!({"topic": "held", "outputs": ["*.txt"]}));
    let job = server.run(&job).await;
    let id = text(&job["id"]);
    assert_eq!((&job["state"], &job["reason"]), (&json!("succeeded"), &json!("output_redacted")));
    assert!(!job.to_string().contains(&secret()) && text(&job["result"]).starts_with("token "), "{job}");
    assert!(!server.get(&format!("/v1/jobs/{id}/logs")).await.text().contains(&secret()));
    let blob = text(&job["artifacts"][0]["blob"]);
    assert!(!server.get(&format!("/v1/blobs/{blob}")).await.text().contains(&secret()));

    let request = Request::get(format!("/v1/jobs/{id}/result?original=true")).header("outlast-actor", "ada");
    let original = server.send(request).await.expect(200);
    assert!(text(&original["result"]).contains(&secret()), "{original}");
    assert_ne!(original["artifacts"][0]["blob"], json!(blob));
    let audit = server.get(&format!("/v1/audit?job={id}&action=original_read")).await.expect(200);
    assert_eq!(audit["items"][0]["by"], "ada");
}

#[tokio::test]
async fn originals_are_shown_only_if_the_server_is_configured_to() {
    let server = Server::with(scanning).await;
    let id = text(&server.run(&with(shell("true"), json!({"topic": "open"}))).await["id"]);
    server.get(&format!("/v1/jobs/{id}/result?original=true")).await.refused(403, "originals_not_shown");
    let open = Server::with(|options| options.show_originals = true).await;
    let id = text(&open.run(&shell("true")).await["id"]);
    open.get(&format!("/v1/jobs/{id}/result?original=true")).await.refused(404, "no_original");
    open.get("/v1/jobs/job_0000000000000/result?original=true").await.refused(404, "unknown_job");
}
