//! A control node and runner nodes in one process, over real sockets.

mod impostor;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use model::time::Millis;
use runner::StopMode;
use serde_json::{Value, json};
use server::{Error, RunnerNode, RunnerNodeOptions};
use tempfile::TempDir;
use transport::{Authority, Identity, PendingKey};

use crate::http::within;
use crate::subscription::{Subscription, Transport};
use crate::support::{Server, echo, endless, options, shell, text, with};
use impostor::Impostor;

/// A control node that other nodes can join.
async fn control() -> Server {
    Server::with(|options| options.cluster.listen = ([127, 0, 0, 1], 0).into()).await
}

/// A token and the address for it.
async fn token(server: &Server, request: Value) -> (String, String) {
    let created = server.post("/v1/join-tokens", &request).await.expect(201);
    (text(&created["token"]), text(&created["address"]))
}

/// A runner node. It can be stopped and started again on the same directory.
struct Runner {
    node: Option<RunnerNode>,
    options: RunnerNodeOptions,
    directory: TempDir,
}

impl Runner {
    fn new(name: &str, token: &str, address: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let defaults = options(directory.path(), |_| {});
        let mut options = RunnerNodeOptions {
            data_dir: directory.path().to_owned(),
            control: vec![address.to_owned()],
            token: Some(token.to_owned()),
            name: Some(name.to_owned()),
            listen: Some(([127, 0, 0, 1], 0).into()),
            allow_unsandboxed: true,
            stop_grace_ms: defaults.stop_grace_ms,
            unclaimed_ms: defaults.unclaimed_ms,
            spawner_program: defaults.spawner_program,
            ..RunnerNodeOptions::default()
        };
        options.runner.labels.insert("node".to_owned(), name.to_owned());
        Self { node: None, options, directory }
    }

    async fn try_start(&mut self) -> Result<(), Error> {
        let start = async {
            loop {
                match RunnerNode::start(self.options.clone(), Arc::new(|_| {})).await {
                    // Tasks of the previous node are still ending: it was in the same process.
                    Err(Error::Blobs(blobs::Error::InUse { .. })) => tokio::time::sleep(Duration::from_millis(5)).await,
                    started => return started,
                }
            }
        };
        self.node = Some(within("the start of a runner node", start).await?);
        Ok(())
    }

    async fn join(server: &Server, name: &str) -> Self {
        let (token, address) = token(server, json!({})).await;
        let mut runner = Self::new(name, &token, &address);
        runner.try_start().await.unwrap();
        runner
    }

    fn path(&self) -> String {
        format!("/v1/nodes/{}", self.node.as_ref().unwrap().node())
    }

    async fn stop(&mut self, mode: StopMode) {
        let node = self.node.take().unwrap();
        within("the end of a runner node", node.stop(mode)).await;
    }
}

/// A job for one node.
fn on(name: &str, job: Value) -> Value {
    with(job, json!({"labels": {"placement.node": name}}))
}

fn in_state(state: &'static str) -> impl Fn(&Value) -> bool {
    move |node| node["state"] == json!(state)
}

// FEATURES: A4, C9
#[tokio::test]
async fn jobs_run_on_a_node_that_has_joined_and_their_output_comes_back() {
    let server = control().await;
    let runner = Runner::join(&server, "one").await;
    let node = server.seen(&runner.path(), |node| node["cores"].as_u64().is_some_and(|cores| cores > 0)).await;
    assert_eq!((&node["name"], &node["role"], &node["state"]), (&json!("one"), &json!("runner"), &json!("ready")));
    assert_eq!(node["labels"], json!({"node": "one"}));
    let job = with(on("one", shell("echo hello; echo content > outputs/file")), json!({"outputs": ["*"]}));
    let ended = server.run(&job).await;
    assert_eq!((&ended["state"], &ended["result"]), (&json!("succeeded"), &json!("hello\n")), "{ended}");
    assert!(text(&ended["runner"]).ends_with(&text(&node["id"])["node_".len()..]), "{ended}");
    let blob = text(&ended["artifacts"][0]["blob"]);
    let file = server.get(&format!("/v1/blobs/{blob}")).await;
    assert_eq!(file.text(), "content\n");
    let log = server.get(&format!("/v1/jobs/{}/logs", text(&ended["id"]))).await;
    assert_eq!(log.text(), "hello\n");
    let listed = server.get("/v1/nodes").await.expect(200);
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn the_output_of_a_job_on_another_node_is_read_while_it_runs() {
    let server = control().await;
    let runner = Runner::join(&server, "one").await;
    let job = server.submit(&on("one", shell("echo begun; sleep 600"))).await;
    let path = format!("/v1/jobs/{job}/logs");
    let mut shown = String::new();
    while shown != "begun\n" {
        shown = server.get(&path).await.text();
    }
    let tail = server.get(&format!("{path}?tail=1")).await.text();
    assert_eq!(tail, "begun\n");
    server.seen(&format!("/v1/jobs/{job}"), |job| job["memory_peak_bytes"].is_u64()).await;
    server.act(&format!("/v1/jobs/{job}/cancel")).await.expect(200);
    assert_eq!(server.ended(&job).await["state"], json!("cancelled"));
    drop(runner);
}

// FEATURES: B5, B6
#[tokio::test]
async fn jobs_of_a_node_that_leaves_run_elsewhere_without_a_retry() {
    let server = control().await;
    let mut one = Runner::join(&server, "one").await;
    let own = text(&server.get("/v1/nodes").await.expect(200)["items"][0]["id"]);
    server.act(&format!("/v1/nodes/{own}/cordon")).await.expect(200);
    let job = server.submit(&shell("sleep 600")).await;
    server.job_in(&job, "running").await;
    let two = Runner::join(&server, "two").await;
    let path = one.path();
    one.stop(StopMode::StopProcesses).await;
    let moved = server.job_when(&job, |job| job["attempt"] == json!(2) && job["state"] == json!("running")).await;
    assert_eq!(moved["retries"], json!(0), "{moved}");
    let gone = server.seen(&path, in_state("lost")).await;
    let events: Vec<String> = gone["timeline"].as_array().unwrap().iter().map(|entry| text(&entry["event"])).collect();
    assert!(events.contains(&"leaving".to_owned()) && events.contains(&"lost".to_owned()), "{events:?}");
    drop(two);
}

// FEATURES: B9
#[tokio::test]
async fn tokens_and_nodes_survive_a_restart_of_the_control_node() {
    let mut server = control().await;
    let (token, address) = token(&server, json!({"reusable": true, "note": "farm"})).await;
    let mut one = Runner::new("one", &token, &address);
    one.try_start().await.unwrap();
    let address: std::net::SocketAddr = address.parse().unwrap();
    server.change_options(|options| options.cluster.listen = address);
    server.stop().await;
    server.start_again().await;
    server.seen(&one.path(), in_state("ready")).await;
    let mut two = Runner::new("two", &token, &address.to_string());
    two.try_start().await.unwrap();
    let ended = server.run(&on("two", echo("from two"))).await;
    assert_eq!(ended["result"], json!("from two"));
    let tokens = server.get("/v1/join-tokens").await.expect(200);
    let listed = &tokens["items"][0];
    assert_eq!((&listed["used"], &listed["note"], &listed["state"]), (&json!(2), &json!("farm"), &json!("usable")));
    assert!(!tokens.to_string().contains(&token), "the secret is not shown again");
}

#[tokio::test]
async fn a_node_without_a_valid_token_does_not_join() {
    let server = control().await;
    let (single, address) = token(&server, json!({})).await;
    let refused = |token: String| {
        let mut runner = Runner::new("one", &token, &address);
        async move { runner.try_start().await.unwrap_err().to_string() }
    };
    Runner::new("one", &single, &address).try_start().await.unwrap();
    assert!(refused(single.clone()).await.contains("is used"));
    assert!(refused(format!("{single}x")).await.contains("mistyped"));
    let (revoked, _) = token(&server, json!({"reusable": true})).await;
    let tokens = server.get("/v1/join-tokens").await.expect(200);
    let id = text(&tokens["items"][1]["id"]);
    server.delete(&format!("/v1/join-tokens/{id}")).await.expect(204);
    assert!(refused(revoked).await.contains("revoked"));
    let other = control().await;
    let (foreign, _) = token(&other, json!({})).await;
    let text = refused(foreign).await;
    assert!(text.contains("not the cluster the token is for"), "{text}");
    server.delete("/v1/join-tokens/0000000000000001").await.refused(404, "unknown_token");
    server.post("/v1/join-tokens", &json!({"expires_in_ms": 0})).await.refused(400, "invalid_field");
}

#[tokio::test]
async fn a_removed_node_is_refused_and_a_control_node_cannot_be_removed() {
    let server = control().await;
    let runner = Runner::join(&server, "one").await;
    let job = server.submit(&on("one", endless())).await;
    server.job_in(&job, "running").await;
    server.delete(&runner.path()).await.expect(204);
    server.get(&runner.path()).await.refused(404, "unknown_node");
    server.job_when(&job, |job| job["state"] != json!("running")).await;
    let own = text(&server.get("/v1/nodes").await.expect(200)["items"][0]["id"]);
    server.delete(&format!("/v1/nodes/{own}")).await.refused(409, "node_not_removable");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy(&entry.path(), &target),
            kind if kind.is_file() => drop(std::fs::copy(entry.path(), target).unwrap()),
            // Sockets.
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_copied_data_directory_does_not_disturb_its_original() {
    let server = control().await;
    let mut runner = Runner::join(&server, "one").await;
    runner.stop(StopMode::StopProcesses).await;
    let copied = tempfile::tempdir().unwrap();
    copy(runner.directory.path(), copied.path());
    runner.try_start().await.unwrap();
    server.seen(&runner.path(), in_state("ready")).await;
    let running = server.submit(&on("one", shell("sleep 600"))).await;
    server.job_in(&running, "running").await;
    let mut copy = Runner { node: None, options: runner.options.clone(), directory: copied };
    copy.options.data_dir = copy.directory.path().to_owned();
    // It starts, since it knows the cluster, and is refused by the control node.
    copy.try_start().await.unwrap();
    for number in 0..20 {
        assert_eq!(server.run(&on("one", echo(number))).await["result"], json!(number));
    }
    let job = server.job(&running).await;
    assert_eq!((&job["state"], &job["attempt"]), (&json!("running"), &json!(1)), "its processes are not touched");
    let node = server.get(&runner.path()).await.expect(200);
    assert_eq!(node["state"], json!("ready"));
}

// FEATURES: C2
#[tokio::test]
async fn jobs_of_an_abandoned_node_run_elsewhere_without_a_retry_and_a_new_start_is_a_new_session() {
    let server = control().await;
    let mut one = Runner::join(&server, "one").await;
    let own = text(&server.get("/v1/session").await.expect(200)["node"]);
    server.act(&format!("/v1/nodes/{own}/cordon")).await.expect(200);
    let job = server.submit(&shell("sleep 600")).await;
    server.job_in(&job, "running").await;
    let two = Runner::join(&server, "two").await;
    let path = one.path();
    assert_eq!(server.get(&format!("{path}/session")).await.expect(200)["state"], json!("ready"));
    let session = server.act(&format!("{path}/session/abandon")).await.expect(200);
    assert_eq!((&session["state"], &session["number"]), (&json!("abandoned"), &json!(1)));
    let moved = server.job_when(&job, |job| job["attempt"] == json!(2) && job["state"] == json!("running")).await;
    assert_eq!(moved["retries"], json!(0), "{moved}");
    let node = server.seen(&path, |node| node["in_flight"] == json!(0)).await;
    assert_eq!((&node["state"], &node["healthy"]), (&json!("abandoned"), &json!(false)));
    server.get("/readyz").await.expect(200);
    server.act(&format!("{path}/session/pause")).await.refused(409, "session_state");
    one.stop(StopMode::StopProcesses).await;
    one.try_start().await.unwrap();
    let node = server.seen(&path, in_state("ready")).await;
    assert_eq!((&node["session"]["number"], &node["healthy"]), (&json!(2), &json!(true)));
    assert_eq!(server.run(&on("one", echo("back"))).await["result"], json!("back"));
    drop(two);
}

// FEATURES: C2
#[tokio::test]
async fn a_session_that_begins_while_the_node_is_away_is_ready_when_it_connects() {
    let server = control().await;
    let mut one = Runner::join(&server, "one").await;
    let path = one.path();
    server.act(&format!("{path}/session/sunset")).await.expect(200);
    one.stop(StopMode::StopProcesses).await;
    server.seen(&path, in_state("lost")).await;
    let node = server.act(&format!("{path}/uncordon")).await.expect(200);
    assert_eq!((&node["session"]["state"], &node["session"]["number"]), (&json!("created"), &json!(2)));
    one.try_start().await.unwrap();
    let node = server.seen(&path, in_state("ready")).await;
    assert_eq!((&node["session"]["state"], &node["session"]["number"]), (&json!("ready"), &json!(2)));
    assert_eq!(server.run(&on("one", echo("back"))).await["result"], json!("back"));
}

// FEATURES: C13
#[tokio::test]
async fn changes_of_nodes_are_pushed_and_can_be_read_again() {
    let server = control().await;
    for transport in Transport::BOTH {
        let mut events = Subscription::open(&server, transport, "kind=node").await;
        let mut one = Runner::join(&server, "one").await;
        let (path, node) = (one.path(), text(&server.get(&one.path()).await.expect(200)["id"]));
        let is = |state: &'static str| move |event: &Value| event["state"] == json!(state);
        let mut seen = events.until(is("connected")).await;
        server.act(&format!("{path}/cordon")).await.expect(200);
        server.act(&format!("{path}/session/pause")).await.expect(200);
        server.act(&format!("{path}/uncordon")).await.expect(200);
        one.stop(StopMode::StopProcesses).await;
        seen.extend(events.until(is("lost")).await);
        one.try_start().await.unwrap();
        seen.extend(events.until(is("returned")).await);
        server.delete(&path).await.expect(204);
        seen.extend(events.until(is("removed")).await);
        assert!(seen.iter().all(|event| event["node"] == json!(node) && event["kind"] == json!("node")), "{seen:?}");
        let events: Vec<String> = seen.iter().map(|event| text(&event["state"])).collect();
        let expected = [
            "joined",
            "session",
            "connected",
            "cordoned",
            "session",
            "uncordoned",
            "session",
            "leaving",
            "disconnected",
            "lost",
            "connected",
            "returned",
            "removed",
        ];
        assert_eq!(events, expected);
        let sessions: Vec<&Value> =
            seen.iter().map(|event| &event["session"]).filter(|state| !state.is_null()).collect();
        assert_eq!(sessions, [&json!("ready"), &json!("paused"), &json!("ready")]);
        // They are kept like all other changes.
        let since = text(&seen[2]["cursor"]);
        let mut again = Subscription::open(&server, transport, &format!("node={node}&since={since}")).await;
        let again = again.until(is("removed")).await;
        assert!(again.iter().map(|event| &event["state"]).eq(events[3..].iter()), "{again:?}");
    }
}

// FEATURES: A5
#[tokio::test]
async fn a_node_that_dies_while_the_control_node_is_down_is_lost_after_its_restart() {
    let mut server = control().await;
    let mut one = Runner::join(&server, "one").await;
    let path = one.path();
    let address = text(&server.post("/v1/join-tokens", &json!({})).await.expect(201)["address"]).parse().unwrap();
    server.change_options(|options| {
        options.cluster.listen = address;
        options.cluster.reconnect_grace_ms = 200;
    });
    server.stop().await;
    one.stop(StopMode::StopProcesses).await;
    server.start_again().await;
    let node = server.seen(&path, in_state("lost")).await;
    let events: Vec<String> = node["timeline"].as_array().unwrap().iter().map(|entry| text(&entry["event"])).collect();
    assert_eq!(events, ["awaited", "lost"]);
    assert_eq!(node["healthy"], json!(false));
}

// FEATURES: C13
#[tokio::test]
async fn nodes_are_counted_by_state_and_their_attempts_by_node() {
    let server = control().await;
    let runner = Runner::join(&server, "one").await;
    let job = server.submit(&on("one", shell("sleep 600"))).await;
    server.job_in(&job, "running").await;
    let node = server.seen(&runner.path(), |node| node["in_use"]["process"] == json!(1)).await;
    assert_eq!(node["in_flight"], json!(1));
    let text = server.get("/metrics").await.text();
    let attempts = format!("outlast_node_attempts{{node={}}} 1\n", node["id"]);
    for sample in ["outlast_nodes{state=\"ready\"} 2\n", "outlast_nodes{state=\"lost\"} 0\n", &attempts] {
        assert!(text.contains(sample), "{sample} is missing in {text}");
    }
    server.seen(&runner.path(), |node| node["load"]["cpu_percent"].is_u64()).await;
}

/// Replaces the certificate of a stopped node by one that has expired.
fn expire_certificate(server: &Server, runner: &Runner) {
    let authority = Authority::open_or_create(&server.directory().join("cluster")).unwrap();
    let identity = Identity::open(&runner.directory.path().join("cluster")).unwrap().unwrap();
    let key = PendingKey::generate().unwrap();
    let long_ago = Millis(identity.validity().until.0 - 100 * 24 * 3_600_000);
    let certificate = authority.issue(key.signing_request(), identity.node(), long_ago).unwrap();
    identity.renew(key, certificate).unwrap();
}

// FEATURES: B9
#[tokio::test]
async fn a_node_with_an_expired_certificate_says_what_to_do() {
    let server = control().await;
    let mut runner = Runner::join(&server, "one").await;
    let path = runner.path();
    let id = text(&server.get(&path).await.expect(200)["id"]);
    runner.stop(StopMode::StopProcesses).await;
    expire_certificate(&server, &runner);
    runner.options.token = None;
    let refused = runner.try_start().await.unwrap_err().to_string();
    assert!(refused.contains("expired at") && refused.contains(&format!("outlast nodes rm {id}")), "{refused}");
    let (token, _) = token(&server, json!({})).await;
    runner.options.token = Some(token);
    let refused = runner.try_start().await.unwrap_err().to_string();
    assert!(refused.contains(&format!("outlast nodes rm {id}")), "{refused}");
    server.delete(&path).await.expect(204);
    runner.try_start().await.unwrap();
    server.seen(&path, in_state("ready")).await;
    assert_eq!(server.run(&on("one", echo("again"))).await["result"], json!("again"));
}

// FEATURES: D16
#[tokio::test]
async fn a_node_that_lies_changes_nothing_but_its_own_attempts() {
    let server = control().await;
    let (token, address) = token(&server, json!({})).await;
    let job = server.submit(&endless()).await;
    server.job_in(&job, "running").await;
    let mut impostor = Impostor::join(&token, &address).await;
    impostor.register();
    impostor.claims_success_of(&job, 1);
    impostor.claims_success_of(&job, 2);
    impostor.speaks_for_another_runner(&job);
    impostor.sends_garbage();
    impostor.sends_an_endless_report();
    // Everything sent before is processed: its registration is on record.
    server.seen("/v1/nodes", |nodes| nodes["items"].as_array().is_some_and(|nodes| nodes.len() == 2)).await;
    assert_eq!(server.run(&echo("undisturbed")).await["result"], json!("undisturbed"));
    assert_eq!(server.job(&job).await["state"], json!("running"));
    assert_eq!(server.metric("outlast_anomalies_total").await, 0);
}
