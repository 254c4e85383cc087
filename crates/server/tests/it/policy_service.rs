//! Faults of a policy service under load: no job runs that it has not allowed, and no accepted job is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ::policy_service::FailMode;
use serde_json::{Value, json};
use server::PolicyServiceOptions;
use tokio::task::JoinSet;

use crate::policy_service_process::{Port, ServiceProcess};
use crate::support::{Api, Server, echo, endless, is_terminal, states, text, with};

/// Call timeout. Half of the shortest delay before a job is checked again: a fault that ends once it is detected hits
/// each job once.
const TIMEOUT_MS: u64 = 500;
/// Time limit of recovery: the breaker stays open for 30 s, and then jobs may wait as long for their next check.
const RECOVERY: Duration = Duration::from_secs(120);
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Few enough that a short fault does not open the breaker. Each submits its next job when the last one is decided.
const SUBMITTERS: usize = 2;

async fn server_with_service(port: &Port, mode: FailMode) -> Server {
    let address = port.address.to_string();
    let service = PolicyServiceOptions { address, timeout_ms: TIMEOUT_MS, ..PolicyServiceOptions::default() };
    Server::with(|options| {
        options.shards = 2;
        options.policy.service = Some(service);
        options.policy.fail_mode = Some(mode);
    })
    .await
}

/// Expected verdict of the example policy service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Allowed,
    Forbidden,
    NeedsApproval,
}

impl Kind {
    fn of_number(number: usize) -> Self {
        match number % 8 {
            0 => Self::Forbidden,
            1 => Self::NeedsApproval,
            _ => Self::Allowed,
        }
    }

    fn job(self) -> Value {
        match self {
            Self::Allowed => echo(1),
            Self::Forbidden => with(echo(1), json!({"topic": "forbidden"})),
            Self::NeedsApproval => with(echo(1), json!({"labels": {"needs_approval": "yes"}})),
        }
    }
}

/// Accepted jobs by id.
type Accepted = BTreeMap<String, Kind>;

async fn submit_batch(api: &Api, numbers: std::ops::Range<usize>) -> Accepted {
    let kinds: Vec<Kind> = numbers.map(Kind::of_number).collect();
    let jobs: Vec<Value> = kinds.iter().map(|kind| kind.job()).collect();
    let answer = api.post("/v1/jobs", &json!({"jobs": jobs})).await.expect(200);
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.len(), kinds.len());
    results.iter().map(|result| text(&result["id"])).zip(kinds).collect()
}

/// Polls the status of the policy service until the condition holds.
async fn service_status(api: &Api, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
    let since = Instant::now();
    loop {
        let policy = api.get("/v1/policy").await.expect(200);
        assert_eq!(policy["mode"], "kernel");
        if condition(&policy["kernel"]["input"]) {
            return policy["kernel"]["input"].clone();
        }
        assert!(since.elapsed() < RECOVERY, "timed out waiting for {what}: {policy}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn breaker_is(api: &Api, state: &str) -> Value {
    service_status(api, state, |status| status["state"] == state).await
}

fn count(status: &Value, name: &str) -> u64 {
    status[name].as_u64().unwrap_or_else(|| panic!("no {name} in {status}"))
}

/// The job in a terminal state or waiting for approval.
async fn settled(api: &Api, id: &str, kind: Kind) -> Value {
    let wait_ms = match kind {
        Kind::Allowed | Kind::Forbidden => 10_000,
        Kind::NeedsApproval => 0,
    };
    let since = Instant::now();
    loop {
        let job = api.get(&format!("/v1/jobs/{id}?wait_ms={wait_ms}")).await.expect(200);
        if is_terminal(&job) || job["state"] == "approval_required" {
            return job;
        }
        assert!(since.elapsed() < RECOVERY, "{id} is not decided: {job}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn history(api: &Api, id: &str) -> Value {
    api.get(&format!("/v1/jobs/{id}/history")).await.expect(200)
}

/// Rules of all decisions about a job, in order.
fn rules(history: &Value) -> Vec<String> {
    history["decisions"].as_array().unwrap().iter().map(|decision| text(&decision["rule"])).collect()
}

/// Asserts that exactly the accepted jobs exist, each in its expected state. Returns how many were denied because of an
/// invalid answer.
async fn check_all(api: &Api, accepted: &Accepted) -> u64 {
    let mut listed = api.listed("/v1/jobs", 1000).await;
    listed.sort_unstable();
    assert!(listed.iter().eq(accepted.keys()), "{} of {} jobs are listed", listed.len(), accepted.len());
    let mut invalid = 0;
    for (id, kind) in accepted {
        settled(api, id, *kind).await;
        invalid += u64::from(check_job(*kind, &history(api, id).await));
    }
    invalid
}

/// Asserts that a job is in the state of its last decision, and was dispatched only if allowed. Returns whether the
/// answer was invalid.
fn check_job(kind: Kind, history: &Value) -> bool {
    let rules = rules(history);
    let attempts = history["attempts"].as_array().unwrap();
    let (state, rule) = (text(&history["state"]), rules.last().unwrap_or_else(|| panic!("undecided: {history}")));
    let expected = match (kind, rule.as_str()) {
        (_, "policy_error") => "denied",
        (Kind::Allowed, "allow-the-rest") => "succeeded",
        (Kind::Forbidden, "forbidden-topic") => "denied",
        (Kind::NeedsApproval, "approval-label") => "approval_required",
        (_, _) => panic!("{kind:?} under an unexpected rule: {history}"),
    };
    assert_eq!(state, expected, "{history}");
    if state == "succeeded" {
        let allowed = &history["decisions"][rules.len() - 1];
        assert_eq!(allowed["verdict"], "allow", "{history}");
        assert!(allowed["policy"].is_string(), "{history}");
        assert!(!attempts.is_empty(), "{history}");
    } else {
        assert!(attempts.is_empty() && history["attempts_dropped"] == 0, "{history}");
    }
    rule == "policy_error"
}

/// Concurrent submitters of a number of jobs.
struct Load {
    submitters: JoinSet<Accepted>,
    decided: Arc<AtomicUsize>,
}

impl Load {
    fn start(api: Api, jobs: usize) -> Self {
        let (next, decided) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut submitters = JoinSet::new();
        for _ in 0..SUBMITTERS {
            let (next, decided) = (next.clone(), decided.clone());
            submitters.spawn(async move {
                let mut accepted = Accepted::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= jobs {
                        return accepted;
                    }
                    let kind = Kind::of_number(number);
                    let id = api.submit(&kind.job()).await;
                    settled(&api, &id, kind).await;
                    accepted.insert(id, kind);
                    decided.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self { submitters, decided }
    }

    async fn has_decided(&self, jobs: usize) {
        let since = Instant::now();
        while self.decided.load(Ordering::Relaxed) < jobs {
            assert!(
                since.elapsed() < RECOVERY,
                "only {} jobs of {jobs} are decided",
                self.decided.load(Ordering::Relaxed)
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn end(self) -> Accepted {
        self.submitters.join_all().await.into_iter().flatten().collect()
    }
}

/// Fault of a policy service.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Killed,
    Hung,
    Failing,
    /// Answers with an unknown decision.
    Garbled,
    /// Answers are larger than the limit.
    Bloated,
    /// Another server has its port.
    Replaced,
}

impl Fault {
    const ALL: [Self; 6] = [Self::Killed, Self::Hung, Self::Garbled, Self::Replaced, Self::Failing, Self::Bloated];

    /// Injects the fault until the server detects it. Returns a working service.
    async fn inject(self, port: &Port, mut service: ServiceProcess, api: &Api) -> ServiceProcess {
        let before = service_status(api, "its status", |_| true).await;
        let grows = |name: &'static str, by: u64| {
            let least = count(&before, name) + by;
            service_status(api, name, move |status| count(status, name) >= least)
        };
        let (behaviour, counter, times) = match self {
            Self::Killed => {
                service.kill().await;
                grows("failures", 1).await;
                return port.start_service().await;
            }
            Self::Replaced => {
                service.kill().await;
                let other = port.start_other_server().await;
                grows("failures", 1).await;
                other.stop().await;
                return port.start_service().await;
            }
            Self::Hung => ("hang", "timeouts", 1),
            Self::Failing => ("fail", "failures", 1),
            Self::Garbled => ("garble", "denied_nonsense", 20),
            Self::Bloated => ("bloat", "failures", 1),
        };
        service.command(behaviour).await;
        grows(counter, times).await;
        service.command("work").await;
        service
    }
}

mod fail_closed {
    use super::*;

    // FEATURES: D1, D9
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn short_faults_under_load_lose_no_job_and_let_none_run_unchecked() {
        const JOBS: usize = 2_100;
        let port = Port::reserve();
        let mut service = port.start_service().await;
        let server = server_with_service(&port, FailMode::Closed).await;
        let load = Load::start(server.api(), JOBS);
        let part = JOBS / (Fault::ALL.len() + 1);
        for (number, fault) in (1..).zip(Fault::ALL) {
            load.has_decided(number * part).await;
            service = fault.inject(&port, service, &server).await;
        }
        let accepted = load.end().await;
        assert_eq!(accepted.len(), JOBS);
        let denied = check_all(&server, &accepted).await;
        let status = breaker_is(&server, "closed").await;
        assert_eq!(denied, count(&status, "denied_nonsense"), "every invalid answer is a denial: {status}");
        assert!(count(&status, "failures") >= 5, "each of the other faults was detected: {status}");
        approve_some(&server, &accepted).await;
    }

    /// Approved jobs run.
    async fn approve_some(api: &Api, accepted: &Accepted) {
        let waiting = api.get("/v1/approvals?limit=10").await.expect(200);
        let waiting = waiting["items"].as_array().unwrap();
        assert_eq!(waiting.len(), 10);
        for item in waiting {
            let id = text(&item["id"]);
            assert_eq!(accepted[&id], Kind::NeedsApproval);
            api.act(&format!("/v1/approvals/{id}/approve")).await.expect(200);
            assert_eq!(api.ended(&id).await["state"], "succeeded");
            assert_eq!(rules(&history(api, &id).await), ["approval-label"; 2], "it is checked again");
        }
    }

    /// Waits for the 30 s of the open breaker.
    // FEATURES: D1, D9
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_open_breaker_holds_all_jobs_across_a_restart_until_its_probes_succeed() {
        const BATCH: usize = 100;
        let port = Port::reserve();
        let service = port.start_service().await;
        let mut server = server_with_service(&port, FailMode::Closed).await;
        let mut accepted = Accepted::new();
        for batch in 0..10 {
            accepted.extend(submit_batch(&server, batch * BATCH..(batch + 1) * BATCH).await);
        }
        // Many of these jobs are not decided yet.
        service.kill().await;
        let mut held = Accepted::new();
        for batch in 10..20 {
            held.extend(submit_batch(&server, batch * BATCH..(batch + 1) * BATCH).await);
        }
        let open = breaker_is(&server, "open").await;
        assert!(open["opened_at"].is_string() && open["open_until"].is_string(), "{open}");
        assert_nothing_ran(&server, &held).await;
        assert_no_calls(&server, &mut held).await;

        server.restart().await;
        breaker_is(&server, "open").await;
        assert_nothing_ran(&server, &held).await;

        let _service = port.start_service().await;
        breaker_is(&server, "half_open").await;
        while service_status(&server, "its status", |_| true).await["state"] != "closed" {
            let probe = server.submit(&Kind::Allowed.job()).await;
            settled(&server, &probe, Kind::Allowed).await;
            held.insert(probe, Kind::Allowed);
        }
        accepted.extend(held);
        assert_eq!(check_all(&server, &accepted).await, 0);
        let status = breaker_is(&server, "closed").await;
        let transitions = &status["transitions"];
        assert_eq!(transitions["closed"], 1, "{status}");
        assert_eq!(transitions["opened"], transitions["half_opened"], "{status}");
    }

    async fn assert_nothing_ran(api: &Api, jobs: &Accepted) {
        for id in jobs.keys().step_by(10) {
            let job = api.job(id).await;
            assert_eq!((&job["state"], &job["attempt"]), (&json!("pending"), &json!(0)), "{job}");
        }
    }

    async fn assert_no_calls(api: &Api, accepted: &mut Accepted) {
        let before = breaker_is(api, "open").await;
        let id = api.submit(&Kind::Allowed.job()).await;
        let job = api.job_when(&id, |job| job["reason"] == "policy_unavailable").await;
        assert!(text(&job["message"]).contains("circuit breaker of the policy service is open"), "{job}");
        accepted.insert(id, Kind::Allowed);
        let after = breaker_is(api, "open").await;
        assert_eq!((&after["opened_at"], &after["calls"]), (&before["opened_at"], &before["calls"]));
        assert!(count(&after, "open_rejections") > count(&before, "open_rejections"));
    }

    // FEATURES: D1, D2, D9, D11
    #[tokio::test]
    async fn a_restart_without_the_policy_service_starts_no_job() {
        let port = Port::reserve();
        let service = port.start_service().await;
        let mut server = server_with_service(&port, FailMode::Closed).await;
        let approved = server.submit(&Kind::NeedsApproval.job()).await;
        settled(&server, &approved, Kind::NeedsApproval).await;
        service.kill().await;
        server.act(&format!("/v1/approvals/{approved}/approve")).await.expect(200);
        let plain = server.submit(&Kind::Allowed.job()).await;
        let waits = |job: &Value| job["state"] == "pending" && job["reason"] == "policy_unavailable";
        server.job_when(&plain, waits).await;
        server.job_when(&approved, waits).await;
        server.restart().await;
        // Both were checked again, without an answer.
        service_status(&server, "two failures", |status| count(status, "failures") >= 2).await;
        for id in [&plain, &approved] {
            let job = server.job_when(id, waits).await;
            assert_eq!(job["attempt"], 0, "an approval alone does not start it: {job}");
        }
        let _service = port.start_service().await;
        for (id, rules_before) in [(&plain, &["allow-the-rest"][..]), (&approved, &["approval-label"; 2])] {
            let job = settled(&server, id, Kind::Allowed).await;
            assert_eq!((&job["state"], &job["attempt"]), (&json!("succeeded"), &json!(1)));
            assert_eq!(rules(&history(&server, id).await), rules_before);
        }
    }
}

mod fail_open {
    use super::*;

    // FEATURES: D9
    #[tokio::test]
    async fn jobs_run_without_the_policy_service_and_record_it() {
        const JOBS: usize = 40;
        let port = Port::reserve();
        let server = server_with_service(&port, FailMode::Open).await;
        let accepted = submit_batch(&server, 0..JOBS).await;
        for id in accepted.keys() {
            assert_eq!(server.ended(id).await["state"], "succeeded");
            let history = history(&server, id).await;
            assert_eq!(rules(&history), ["fail_open"], "{history}");
            let decision = &history["decisions"][0];
            assert_eq!(decision["verdict"], "allow");
            let message = text(&decision["message"]);
            assert!(message.contains("failed") || message.contains("circuit"), "{message}");
        }
        let policy = server.get("/v1/policy").await.expect(200);
        assert_eq!((&policy["fail_mode"], &policy["failed_open"]), (&json!("open"), &json!(JOBS)), "{policy}");
        assert_eq!(policy["kernel"]["input"]["state"], "open");
    }

    // FEATURES: D9
    #[tokio::test]
    async fn fail_open_applies_only_to_an_unavailable_service() {
        let port = Port::reserve();
        let mut service = port.start_service().await;
        let server = server_with_service(&port, FailMode::Open).await;
        for (behaviour, state, rule) in [
            ("garble", "denied", "policy_error"),
            ("refuse", "denied", "policy_error"),
            ("hang", "succeeded", "fail_open"),
            ("work", "succeeded", "allow-the-rest"),
        ] {
            service.command(behaviour).await;
            let job = server.run(&Kind::Allowed.job()).await;
            assert_eq!(job["state"], state, "{behaviour}: {job}");
            assert_eq!(rules(&history(&server, &text(&job["id"])).await), [rule]);
        }
        let job = server.run(&Kind::Forbidden.job()).await;
        assert_eq!((&job["state"], &job["attempt"]), (&json!("denied"), &json!(0)));
        assert_eq!(server.get("/v1/policy").await.expect(200)["failed_open"], 1);
    }
}

mod new_rules {
    use super::*;

    /// A running job, and allowed jobs that wait for it.
    async fn waiting_behind_one(server: &Server) -> (String, Vec<String>) {
        let queue = text(&server.create_queue(&json!({"max_running": 1})).await["id"]);
        let first = server.submit(&with(endless(), json!({"queue": queue}))).await;
        server.job_in(&first, "running").await;
        let mut waiting = Vec::new();
        for _ in 0..10 {
            let id = server.submit(&with(Kind::Allowed.job(), json!({"queue": queue}))).await;
            server.job_in(&id, "scheduled").await;
            waiting.push(id);
        }
        (first, waiting)
    }

    async fn version(server: &Server) -> Value {
        server.get("/v1/policy").await.expect(200)["version"].clone()
    }

    // FEATURES: D1
    #[tokio::test]
    async fn waiting_jobs_are_checked_again_before_they_start() {
        let port = Port::reserve();
        let service = port.start_service_with_version("old").await;
        let server = server_with_service(&port, FailMode::Closed).await;
        let (first, waiting) = waiting_behind_one(&server).await;
        let old = version(&server).await;
        service.kill().await;
        let _service = port.start_service_with_version("new").await;
        // The first answer of the new service has another policy version.
        let first_check = server.submit(&Kind::Forbidden.job()).await;
        assert_eq!(settled(&server, &first_check, Kind::Forbidden).await["state"], "denied");
        let new = version(&server).await;
        assert!(old.is_string() && new.is_string() && old != new, "{old} {new}");
        server.act(&format!("/v1/jobs/{first}/cancel")).await.expect(200);
        for id in &waiting {
            let job = settled(&server, id, Kind::Allowed).await;
            let expected = ["pending", "scheduled", "pending", "scheduled", "dispatched", "running", "succeeded"];
            assert_eq!(states(&job), expected);
            let history = history(&server, id).await;
            let policies: Vec<&Value> =
                history["decisions"].as_array().unwrap().iter().map(|decision| &decision["policy"]).collect();
            assert_eq!(policies, [&old, &new], "{history}");
        }
    }

    // FEATURES: D1
    #[tokio::test]
    async fn waiting_jobs_do_not_start_if_the_new_rules_deny_them() {
        let port = Port::reserve();
        let service = port.start_service_with_version("old").await;
        let server = server_with_service(&port, FailMode::Closed).await;
        let (first, waiting) = waiting_behind_one(&server).await;
        service.kill().await;
        let mut service = port.start_service_with_version("new").await;
        service.command("garble").await;
        let first_check = server.submit(&Kind::Allowed.job()).await;
        assert_eq!(settled(&server, &first_check, Kind::Allowed).await["state"], "denied");
        server.act(&format!("/v1/jobs/{first}/cancel")).await.expect(200);
        for id in &waiting {
            let job = settled(&server, id, Kind::Allowed).await;
            assert_eq!((&job["state"], &job["attempt"]), (&json!("denied"), &json!(0)), "{job}");
            assert_eq!(rules(&history(&server, id).await), ["allow-the-rest", "policy_error"]);
        }
        assert_eq!(server.job(&first).await["state"], "cancelled");
    }
}

/// A throttled job is checked again after the requested delay, not before.
#[tokio::test]
async fn a_throttled_job_waits_for_the_requested_time() {
    let port = Port::reserve();
    let _service = port.start_service().await;
    let server = server_with_service(&port, FailMode::Closed).await;
    let id = server.submit(&with(echo(1), json!({"labels": {"slow_down": "yes"}}))).await;
    let since = Instant::now();
    let decisions = loop {
        let history = history(&server, &id).await;
        let decisions = history["decisions"].as_array().unwrap().clone();
        if decisions.len() >= 2 {
            break decisions;
        }
        assert!(since.elapsed() < RECOVERY, "{history}");
        tokio::time::sleep(POLL_INTERVAL).await;
    };
    let at = |number: usize| {
        let at: model::time::Timestamp = serde_json::from_value(decisions[number]["at"].clone()).unwrap();
        at.0.0
    };
    assert!(at(1) >= at(0) + 900, "checked again too soon: {decisions:?}");
}
