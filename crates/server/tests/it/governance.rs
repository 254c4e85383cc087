//! Policy on submission: approval, denial, throttling, constraints, and rules that change while jobs wait.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::Request;
use crate::support::{Server, echo, shell, states, text, until, with};

pub const GATES: &str = r#"
package outlast.job

require_approval contains {"rule": "protected", "reason": "an operator must look at it"} if input.topic == "deploy"

deny contains {"rule": "no-mining", "reason": "mining is not what these machines are for"} if input.topic == "mining"

deny contains {"rule": "no-sandbox", "reason": "jobs run in a sandbox here"} if {
	input.job.sandbox == "none"
	input.tenant == "guests"
}

throttle contains {"rule": "slow-down", "reason": "not now", "for_ms": 100} if input.topic == "slow"

constrain contains {"rule": "short", "reason": "no time", "max_runtime_ms": 200, "max_retries": 0} if input.topic == "short"
"#;

/// Rules that allow every job.
const ALLOW_ALL: &str = r#"
package outlast.job

allow contains {"rule": "fine", "reason": "all is well"} if input.topic
"#;

/// A server with these rules, and the writable directory of the rules.
pub async fn governed(rules: &str, change: impl FnOnce(&mut server::Options)) -> (Server, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    write_rules(directory.path(), rules);
    let path = directory.path().to_owned();
    let server = Server::with(|options| {
        options.policy.rules = Some(path);
        change(options);
    })
    .await;
    (server, directory)
}

/// Replaces the rules atomically by a rename, as editors do.
fn write_rules(directory: &Path, rules: &str) {
    let new = directory.join("new");
    fs::write(&new, rules).unwrap();
    fs::rename(new, directory.join("rules.rego")).unwrap();
}

fn topic(name: &str) -> Value {
    with(echo("done"), json!({"topic": name}))
}

/// Approves or rejects a job as the actor `by`.
async fn answer(server: &Server, id: &str, verb: &str, by: &str, body: &Value) -> crate::http::Reply {
    let request = Request::post(format!("/v1/approvals/{id}/{verb}")).header("outlast-actor", by);
    server.send(request.json(body)).await
}

// FEATURES: D2
#[tokio::test]
async fn a_job_runs_only_after_an_approval_that_matches_its_hash_and_rule() {
    let (server, _rules) = governed(GATES, |options| options.shards = 4).await;
    let submit = Request::post("/v1/jobs").header("outlast-actor", "ada").json(&topic("deploy"));
    let id = text(&server.send(submit).await.expect(201)["id"]);
    server.job_in(&id, "approval_required").await;
    let page = server.get("/v1/approvals").await.expect(200);
    let entry = &page["items"][0];
    assert_eq!((&entry["id"], &entry["rule"], &entry["submitter"]), (&json!(id), &json!("protected"), &json!("ada")));
    let hash = text(&entry["hash"]);
    let detail = server.get(&format!("/v1/approvals/{id}")).await.expect(200);
    assert_eq!(detail["decisions"][0]["verdict"], "require_approval");
    assert_eq!(detail["job"]["state"], "approval_required");

    let other = json!({"hash": "0".repeat(32)});
    answer(&server, &id, "approve", "bob", &other).await.refused(409, "other_content");
    let other = json!({"rule": "another", "hash": hash});
    answer(&server, &id, "approve", "bob", &other).await.refused(409, "other_rule");
    assert_eq!(server.job(&id).await["state"], "approval_required");

    let good = json!({"comment": "looked at it", "hash": hash, "rule": "protected"});
    answer(&server, &id, "approve", "bob", &good).await.expect(200);
    let job = server.ended(&id).await;
    assert_eq!((&job["state"], &job["result"]), (&json!("succeeded"), &json!("done")));
    assert_eq!((&job["approval"]["by"], &job["approval"]["comment"]), (&json!("bob"), &json!("looked at it")));
    assert_eq!(job["submitter"], "ada");
    let history = server.get(&format!("/v1/jobs/{id}/history")).await.expect(200);
    assert_eq!((&history["approval"]["by"], &history["approval"]["approved"]), (&json!("bob"), &json!(true)));
    answer(&server, &id, "reject", "eve", &json!({})).await.refused(409, "already_decided");
    assert_eq!(server.get("/v1/approvals").await.expect(200)["items"], json!([]));
    let audit = server.get(&format!("/v1/audit?job={id}&action=approved")).await.expect(200);
    assert_eq!((&audit["items"][0]["by"], &audit["items"][0]["message"]), (&json!("bob"), &json!("looked at it")));
}

// FEATURES: D2
#[tokio::test]
async fn a_rejected_job_never_runs() {
    let (server, _rules) = governed(GATES, |_| {}).await;
    let id = server.submit(&topic("deploy")).await;
    server.job_in(&id, "approval_required").await;
    answer(&server, &id, "reject", "bob", &json!({"comment": "not today"})).await.expect(200);
    let job = server.ended(&id).await;
    assert_eq!((&job["state"], &job["reason"]), (&json!("denied"), &json!("approval_rejected")));
    assert_eq!(job["approval"]["approved"], false);
    assert!(!states(&job).contains(&"dispatched".to_owned()), "{job}");
    server.act(&format!("/v1/approvals/{id}/approve")).await.refused(409, "already_decided");
}

#[tokio::test]
async fn an_approval_without_an_answer_expires() {
    let (server, _rules) = governed(GATES, |options| options.approval_expiry_ms = 50).await;
    let id = server.submit(&topic("deploy")).await;
    let job = server.ended(&id).await;
    assert_eq!(job["reason"], "approval_expired");
    server.act(&format!("/v1/approvals/{id}/approve")).await.refused(409, "approval_expired");
}

// FEATURES: D1
#[tokio::test]
async fn a_denied_job_names_the_rule_and_never_runs() {
    let (server, _rules) = governed(GATES, |_| {}).await;
    let job = server.run(&topic("mining")).await;
    let id = text(&job["id"]);
    assert_eq!((&job["state"], &job["reason"]), (&json!("denied"), &json!("safety_denied")));
    let history = server.get(&format!("/v1/jobs/{id}/history")).await.expect(200);
    let decision = &history["decisions"][0];
    assert_eq!((&decision["verdict"], &decision["rule"]), (&json!("deny"), &json!("no-mining")));
    assert!(decision["policy"].is_string() && history["attempts"] == json!([]), "{history}");
    let why = server.get(&format!("/v1/jobs/{id}/why")).await.expect(200);
    assert!(why["explanation"].to_string().contains("no-mining"), "{why}");
    let dead_letter = server.get(&format!("/v1/dlq/{id}")).await.expect(200);
    assert_eq!(dead_letter["reason"], "safety_denied");
    let unsandboxed = with(shell("true"), json!({"tenant": "guests"}));
    assert_eq!(server.run(&unsandboxed).await["state"], "denied");
    assert_eq!(server.run(&shell("true")).await["state"], "succeeded");
}

// FEATURES: D1
#[tokio::test]
async fn a_throttled_job_is_checked_again_under_the_current_rules() {
    let (server, rules) = governed(GATES, |_| {}).await;
    let id = server.submit(&topic("slow")).await;
    let job = server.job_when(&id, |job| job["reason"] == "throttled").await;
    assert_eq!((&job["state"], &job["retries"]), (&json!("pending"), &json!(0)));
    assert!(job["eligible_at"].is_string(), "{job}");
    write_rules(rules.path(), ALLOW_ALL);
    assert_eq!(server.ended(&id).await["state"], "succeeded");
}

// FEATURES: D1
#[tokio::test]
async fn policy_constraints_are_enforced_on_a_process() {
    let (server, _rules) = governed(GATES, |_| {}).await;
    let job = with(shell("exec sleep 600"), json!({"topic": "short", "max_retries": 5}));
    let job = server.run(&job).await;
    assert_eq!(job["state"], "timed_out", "{job}");
    assert_eq!((&job["constraints"]["max_runtime_ms"], &job["constraints"]["max_retries"]), (&json!(200), &json!(0)));
    let failing = server.run(&with(shell("exit 3"), json!({"topic": "short", "max_retries": 5}))).await;
    assert_eq!((&failing["state"], &failing["attempt"]), (&json!("failed"), &json!(1)));
}

#[tokio::test]
async fn invalid_rules_leave_the_old_ones_in_force() {
    let (server, rules) = governed(GATES, |_| {}).await;
    let before = server.get("/v1/policy").await.expect(200);
    assert_eq!((&before["mode"], &before["fail_mode"]), (&json!("rules"), &json!("closed")));
    assert_eq!((&before["rules"]["error"], &before["kernel"]), (&Value::Null, &Value::Null));
    write_rules(rules.path(), "package outlast.job\n\ndeny contains {");
    let broken = server.seen("/v1/policy", |policy| policy["rules"]["error"].is_string()).await;
    assert_eq!(broken["version"], before["version"]);
    assert_eq!(server.run(&topic("mining")).await["state"], "denied");
    write_rules(rules.path(), ALLOW_ALL);
    let fixed = server.seen("/v1/policy", |policy| policy["version"] != before["version"]).await;
    assert_eq!(fixed["rules"]["error"], Value::Null);
    assert_eq!(server.run(&topic("mining")).await["state"], "succeeded");
}

#[tokio::test]
async fn the_policy_can_be_checked_without_submitting_a_job() {
    let (server, _rules) = governed(GATES, |_| {}).await;
    let decision = server.post("/v1/policy/check", &topic("mining")).await.expect(200);
    assert_eq!(
        (&decision["verdict"], &decision["rule"], &decision["mode"]),
        (&json!("deny"), &json!("no-mining"), &json!("rules"))
    );
    assert_eq!(decision["spoke"].as_array().unwrap().len(), 1);
    let decision = server.post("/v1/policy/check", &topic("short")).await.expect(200);
    assert_eq!(
        (&decision["verdict"], &decision["constraints"]["max_retries"]),
        (&json!("allow_with_constraints"), &json!(0))
    );
    server.post("/v1/policy/check", &json!({"run": 5})).await.refused(400, "invalid_json");
    server.post("/v1/policy/check", &with(echo(1), json!({"tenant": ""}))).await.refused(400, "invalid_field");
    server.works_with(0).await;
    let open = Server::start().await;
    let decision = open.post("/v1/policy/check", &echo(1)).await.expect(200);
    assert_eq!((&decision["mode"], &decision["verdict"]), (&json!("none"), &json!("allow")));
    assert_eq!(open.get("/v1/policy").await.expect(200)["mode"], "none");
}

#[tokio::test]
async fn invalid_approval_requests_are_refused() {
    let (server, _rules) = governed(GATES, |_| {}).await;
    server.get("/v1/approvals/job_0000000000000").await.refused(404, "unknown_job");
    server.act("/v1/approvals/job_0000000000000/approve").await.refused(404, "unknown_job");
    server.act("/v1/approvals/nonsense/approve").await.refused(400, "invalid_id");
    let finished = text(&server.run(&echo(1)).await["id"]);
    server.get(&format!("/v1/approvals/{finished}")).await.refused(409, "wrong_state");
    let id = server.submit(&topic("deploy")).await;
    server.job_in(&id, "approval_required").await;
    for (body, code) in [
        (json!({"hash": "xyz"}), "invalid_field"),
        (json!({"comment": "x".repeat(2049)}), "invalid_field"),
        (json!({"rule": "x".repeat(2049)}), "invalid_field"),
        (json!({"reason": "x"}), "unknown_field"),
        (json!(5), "invalid_json"),
    ] {
        answer(&server, &id, "approve", "bob", &body).await.refused(400, code);
    }
    answer(&server, &id, "approve", &"x".repeat(129), &json!({})).await.refused(400, "invalid_field");
    answer(&server, &id, "approve", "", &json!({})).await.refused(400, "invalid_field");
    let long = json!({"comment": "x".repeat(20_000)});
    answer(&server, &id, "approve", "bob", &long).await.refused(413, "body_too_large");
    let form = Request::post(format!("/v1/approvals/{id}/approve"))
        .header("content-type", "application/x-www-form-urlencoded")
        .body("comment=x");
    server.send(form).await.refused(415, "unsupported_media_type");
    let untyped = Request::post(format!("/v1/approvals/{id}/approve")).body("{}");
    server.send(untyped).await.refused(415, "unsupported_media_type");
    server.get("/v1/approvals?cursor=x").await.refused(400, "invalid_cursor");
    let at_the_limit = json!({"comment": "x".repeat(2048)});
    answer(&server, &id, "approve", &"x".repeat(128), &at_the_limit).await.expect(200);
}

#[tokio::test]
async fn oversized_labels_and_invalid_tenants_are_refused_before_the_policy_check() {
    let (server, _rules) = governed(GATES, |_| {}).await;
    for (fields, field) in [
        (json!({"labels": {"a": "x".repeat(1 << 20)}}), "labels"),
        (json!({"labels": {"x".repeat(1 << 20): "a"}}), "labels"),
        (json!({"tenant": ""}), "tenant"),
        (json!({"tenant": "a\u{7}"}), "tenant"),
        (json!({"requires": ["x".repeat(1 << 20)]}), "requires"),
    ] {
        let refused = server.post("/v1/jobs", &with(echo(1), fields.clone())).await.refused(400, "invalid_field");
        assert_eq!(refused["field"], field);
        server.post("/v1/policy/check", &with(echo(1), fields)).await.refused(400, "invalid_field");
    }
    server.works_with(0).await;
}

// FEATURES: D13
#[tokio::test]
async fn tenants_are_listed_with_their_live_jobs_and_limits() {
    let server = Server::with(|options| {
        options.shards = 4;
        let guests = options.tenants.entry("guests".to_owned()).or_default();
        guests.max_running = Some(1);
        guests.max_live = Some(1000);
    })
    .await;
    let first = server.get("/v1/tenants").await.expect(200);
    assert_eq!(first["items"].as_array().unwrap().len(), 1);
    assert_eq!((&first["items"][0]["tenant"], &first["items"][0]["live"]), (&json!("guests"), &json!(0)));
    assert_eq!(first["items"][0]["limits"]["max_running"], 1);
    for tenant in ["guests", "guests", "other"] {
        server.submit(&with(crate::support::endless(), json!({"tenant": tenant}))).await;
    }
    let shown = server.get("/v1/tenants").await.expect(200);
    let live: Vec<_> = shown["items"].as_array().unwrap().iter().map(|tenant| tenant["live"].clone()).collect();
    assert_eq!(live, [2, 1]);
    let page = server.get("/v1/tenants?limit=1").await.expect(200);
    let next = text(&page["next_cursor"]);
    let rest = server.get(&format!("/v1/tenants?limit=1&cursor={next}")).await.expect(200);
    assert_eq!((&rest["items"][0]["tenant"], &rest["next_cursor"]), (&json!("other"), &Value::Null));
}

// FEATURES: D7
#[tokio::test]
async fn a_job_without_a_candidate_runner_names_the_missing_capability_and_ends_as_a_dead_letter() {
    let server = Server::with(|options| {
        options.topics.entry("patient".to_owned()).or_default();
        options.topics.entry("impatient".to_owned()).or_default().dispatch_tries_max = 1;
    })
    .await;
    let job = |topic: &str| with(echo(1), json!({"topic": topic, "requires": ["gpu"]}));
    let id = server.submit(&job("patient")).await;
    let waiting = server.job_when(&id, |job| job["reason"] == "no_workers").await;
    assert_eq!((&waiting["state"], &waiting["requires"]), (&json!("scheduled"), &json!(["gpu"])));
    let why = server.get(&format!("/v1/jobs/{id}/why")).await.expect(200);
    assert_eq!((&why["waits_for"]["kind"], &why["runner_counts"]["lack_capability"]), (&json!("runner"), &json!(1)));
    assert_eq!(why["runners"][0]["verdict"], "lack_capability");
    assert!(text(&why["runners"][0]["message"]).contains("gpu"), "{why}");
    let ended = server.run(&job("impatient")).await;
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("failed"), &json!("no_workers")));
    assert_eq!(server.listed("/v1/dlq?reason=no_workers", 9).await, [text(&ended["id"])]);
    let unmapped = server.submit(&echo(1)).await;
    server.job_when(&unmapped, |job| job["reason"] == "no_pool_mapping").await;
}

#[tokio::test]
async fn a_server_with_invalid_rules_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rules.rego"), "package outlast.job\n\ndeny contains {").unwrap();
    let data = tempfile::tempdir().unwrap();
    let options = crate::support::options(data.path(), |options| {
        options.policy.rules = Some(directory.path().to_owned());
    });
    let refused = server::Node::start(options).await.err().map(|error| error.to_string());
    until("the error lacks the file name", || refused.as_ref().is_some_and(|error| error.contains("rules.rego"))).await;
}
