//! A policy kernel that is killed, hung and garbled while jobs are submitted: nothing runs that it has not allowed, and
//! nothing that was accepted is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ::kernel::FailMode;
use serde_json::{Value, json};
use server::KernelOptions;
use tokio::task::JoinSet;

use crate::common::{Api, Server, echo, endless, is_terminal, states, text, with};
use crate::kernel_process::{Kernel, Port};

/// How long one question may take. Half of what a job waits at least before it is asked about again: a fault that ends
/// as soon as it is felt is met by each job once.
const TIMEOUT_MS: u64 = 500;
/// An open breaker lets nothing through for half a minute, and then jobs wait for their next question for as long.
const RECOVERY: Duration = Duration::from_secs(120);
/// Between two looks at something.
const PAUSE: Duration = Duration::from_millis(5);
/// Few enough that a short fault does not open the breaker: each submits its next job when the last one is decided.
const SUBMITTERS: usize = 2;

async fn server_asking(port: &Port, mode: FailMode) -> Server {
    let address = port.address.to_string();
    let kernel = KernelOptions { address, timeout_ms: TIMEOUT_MS, ..KernelOptions::default() };
    Server::with(|options| {
        options.shards = 2;
        options.policy.kernel = Some(kernel);
        options.policy.fail_mode = Some(mode);
    })
    .await
}

/// What the kernel is to say of a job.
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

/// Jobs that the server has accepted, by their ids.
type Accepted = BTreeMap<String, Kind>;

async fn submit_batch(api: &Api, numbers: std::ops::Range<usize>) -> Accepted {
    let kinds: Vec<Kind> = numbers.map(Kind::of_number).collect();
    let jobs: Vec<Value> = kinds.iter().map(|kind| kind.job()).collect();
    let answer = api.post("/v1/jobs", &json!({"jobs": jobs})).await.expect(200);
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.len(), kinds.len());
    results.iter().map(|result| text(&result["id"])).zip(kinds).collect()
}

/// How the kernel is doing, once it is as wanted.
async fn kernel_seen(api: &Api, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let since = Instant::now();
    loop {
        let policy = api.get("/v1/policy").await.expect(200);
        assert_eq!(policy["mode"], "kernel");
        if wanted(&policy["kernel"]["input"]) {
            return policy["kernel"]["input"].clone();
        }
        assert!(since.elapsed() < RECOVERY, "{what} does not come: {policy}");
        tokio::time::sleep(PAUSE).await;
    }
}

async fn breaker_is(api: &Api, state: &str) -> Value {
    kernel_seen(api, state, |gate| gate["state"] == state).await
}

fn count(gate: &Value, name: &str) -> u64 {
    gate[name].as_u64().unwrap_or_else(|| panic!("no {name} in {gate}"))
}

/// The job once the kernel's word has had its effect: it has ended, or it waits for somebody's.
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
        assert!(since.elapsed() < RECOVERY, "{id} stays as it is: {job}");
        tokio::time::sleep(PAUSE).await;
    }
}

async fn history(api: &Api, id: &str) -> Value {
    api.get(&format!("/v1/jobs/{id}/history")).await.expect(200)
}

/// The rules that have spoken of a job, in order.
fn rules(history: &Value) -> Vec<String> {
    history["decisions"].as_array().unwrap().iter().map(|decision| text(&decision["rule"])).collect()
}

/// All jobs that were accepted are there and no others, each as it must be. How many of them were denied because an
/// answer made no sense.
async fn judge_all(api: &Api, accepted: &Accepted) -> u64 {
    let mut listed = api.listed("/v1/jobs", 1000).await;
    listed.sort_unstable();
    assert!(listed.iter().eq(accepted.keys()), "{} of {} jobs are there", listed.len(), accepted.len());
    let mut nonsense = 0;
    for (id, kind) in accepted {
        settled(api, id, *kind).await;
        nonsense += u64::from(judge(*kind, &history(api, id).await));
    }
    nonsense
}

/// A job is as the kernel's last word on it wants it, and none that was not allowed was ever given to a runner. Whether
/// that word made no sense.
fn judge(kind: Kind, history: &Value) -> bool {
    let rules = rules(history);
    let attempts = history["attempts"].as_array().unwrap();
    let (state, rule) = (text(&history["state"]), rules.last().unwrap_or_else(|| panic!("undecided: {history}")));
    let expected = match (kind, rule.as_str()) {
        (_, "policy_error") => "denied",
        (Kind::Allowed, "allow-the-rest") => "succeeded",
        (Kind::Forbidden, "forbidden-topic") => "denied",
        (Kind::NeedsApproval, "approval-label") => "approval_required",
        (_, _) => panic!("{kind:?} under a rule that is not for it: {history}"),
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

/// Submitters that go on until so many jobs are decided.
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
            assert!(since.elapsed() < RECOVERY, "{} jobs of {jobs} are decided", self.decided.load(Ordering::Relaxed));
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn end(self) -> Accepted {
        self.submitters.join_all().await.into_iter().flatten().collect()
    }
}

/// What can happen to a kernel.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    Killed,
    Hung,
    Failing,
    /// Its answers name a decision that does not exist.
    Garbled,
    /// Its answers are larger than any that is read.
    Bloated,
    /// Something else has its port.
    Replaced,
}

impl Trouble {
    const ALL: [Self; 6] = [Self::Killed, Self::Hung, Self::Garbled, Self::Replaced, Self::Failing, Self::Bloated];

    /// Lasts until it is felt; the kernel that works again.
    async fn strike(self, port: &Port, mut kernel: Kernel, api: &Api) -> Kernel {
        let before = kernel_seen(api, "its status", |_| true).await;
        let grows = |name: &'static str, by: u64| {
            let least = count(&before, name) + by;
            kernel_seen(api, name, move |gate| count(gate, name) >= least)
        };
        let (behaviour, counter, times) = match self {
            Self::Killed => {
                kernel.kill().await;
                grows("failures", 1).await;
                return port.kernel().await;
            }
            Self::Replaced => {
                kernel.kill().await;
                let babbler = port.babbler().await;
                grows("failures", 1).await;
                babbler.stop().await;
                return port.kernel().await;
            }
            Self::Hung => ("hang", "timeouts", 1),
            Self::Failing => ("fail", "failures", 1),
            Self::Garbled => ("garble", "denied_nonsense", 20),
            Self::Bloated => ("bloat", "failures", 1),
        };
        kernel.behave(behaviour).await;
        grows(counter, times).await;
        kernel.behave("work").await;
        kernel
    }
}

mod fail_closed {
    use super::*;

    // FEATURES: D1, D9
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn short_troubles_under_load_lose_nothing_and_let_nothing_through() {
        const JOBS: usize = 2_100;
        let port = Port::reserve();
        let mut kernel = port.kernel().await;
        let server = server_asking(&port, FailMode::Closed).await;
        let load = Load::start(server.api(), JOBS);
        let part = JOBS / (Trouble::ALL.len() + 1);
        for (number, trouble) in (1..).zip(Trouble::ALL) {
            load.has_decided(number * part).await;
            kernel = trouble.strike(&port, kernel, &server).await;
        }
        let accepted = load.end().await;
        assert_eq!(accepted.len(), JOBS);
        let denied = judge_all(&server, &accepted).await;
        let gate = breaker_is(&server, "closed").await;
        assert_eq!(denied, count(&gate, "denied_nonsense"), "every answer without sense is a denial: {gate}");
        assert!(count(&gate, "failures") >= 5, "each of the other troubles was felt: {gate}");
        approve_some(&server, &accepted).await;
    }

    /// With a person's word they run, and only then.
    async fn approve_some(api: &Api, accepted: &Accepted) {
        let waiting = api.get("/v1/approvals?limit=10").await.expect(200);
        let waiting = waiting["items"].as_array().unwrap();
        assert_eq!(waiting.len(), 10);
        for item in waiting {
            let id = text(&item["id"]);
            assert_eq!(accepted[&id], Kind::NeedsApproval);
            api.act(&format!("/v1/approvals/{id}/approve")).await.expect(200);
            assert_eq!(api.ended(&id).await["state"], "succeeded");
            assert_eq!(rules(&history(api, &id).await), ["approval-label"; 2], "it was asked about again");
        }
    }

    /// Waits out the half minute of the breaker.
    // FEATURES: D1, D9
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_open_breaker_keeps_everything_back_over_a_restart_until_its_probes_succeed() {
        const BATCH: usize = 100;
        let port = Port::reserve();
        let kernel = port.kernel().await;
        let mut server = server_asking(&port, FailMode::Closed).await;
        let mut accepted = Accepted::new();
        for batch in 0..10 {
            accepted.extend(submit_batch(&server, batch * BATCH..(batch + 1) * BATCH).await);
        }
        // Many of those are not decided yet.
        kernel.kill().await;
        let mut kept_back = Accepted::new();
        for batch in 10..20 {
            kept_back.extend(submit_batch(&server, batch * BATCH..(batch + 1) * BATCH).await);
        }
        let open = breaker_is(&server, "open").await;
        assert!(open["opened_at"].is_string() && open["open_until"].is_string(), "{open}");
        nothing_has_run(&server, &kept_back).await;
        is_asked_no_more(&server, &mut kept_back).await;

        server.restart().await;
        breaker_is(&server, "open").await;
        nothing_has_run(&server, &kept_back).await;

        let _kernel = port.kernel().await;
        breaker_is(&server, "half_open").await;
        while kernel_seen(&server, "its status", |_| true).await["state"] != "closed" {
            let probe = server.submit(&Kind::Allowed.job()).await;
            settled(&server, &probe, Kind::Allowed).await;
            kept_back.insert(probe, Kind::Allowed);
        }
        accepted.extend(kept_back);
        assert_eq!(judge_all(&server, &accepted).await, 0);
        let gate = breaker_is(&server, "closed").await;
        let changes = &gate["transitions"];
        assert_eq!(changes["closed"], 1, "{gate}");
        assert_eq!(changes["opened"], changes["half_opened"], "{gate}");
    }

    async fn nothing_has_run(api: &Api, jobs: &Accepted) {
        for id in jobs.keys().step_by(10) {
            let job = api.job(id).await;
            assert_eq!((&job["state"], &job["attempt"]), (&json!("pending"), &json!(0)), "{job}");
        }
    }

    async fn is_asked_no_more(api: &Api, accepted: &mut Accepted) {
        let before = breaker_is(api, "open").await;
        let id = api.submit(&Kind::Allowed.job()).await;
        let job = api.job_when(&id, |job| job["reason"] == "policy_unavailable").await;
        assert!(text(&job["message"]).contains("circuit open"), "{job}");
        accepted.insert(id, Kind::Allowed);
        let after = breaker_is(api, "open").await;
        assert_eq!((&after["opened_at"], &after["calls"]), (&before["opened_at"], &before["calls"]));
        assert!(count(&after, "open_rejections") > count(&before, "open_rejections"));
    }

    // FEATURES: D1, D2, D9, D11
    #[tokio::test]
    async fn a_restart_without_a_kernel_starts_nothing() {
        let port = Port::reserve();
        let kernel = port.kernel().await;
        let mut server = server_asking(&port, FailMode::Closed).await;
        let approved = server.submit(&Kind::NeedsApproval.job()).await;
        settled(&server, &approved, Kind::NeedsApproval).await;
        kernel.kill().await;
        server.act(&format!("/v1/approvals/{approved}/approve")).await.expect(200);
        let plain = server.submit(&Kind::Allowed.job()).await;
        let waits = |job: &Value| job["state"] == "pending" && job["reason"] == "policy_unavailable";
        server.job_when(&plain, waits).await;
        server.job_when(&approved, waits).await;
        server.restart().await;
        // Both were asked about again, in vain.
        kernel_seen(&server, "two failures", |gate| count(gate, "failures") >= 2).await;
        for id in [&plain, &approved] {
            let job = server.job_when(id, waits).await;
            assert_eq!(job["attempt"], 0, "a person's word alone does not start it either: {job}");
        }
        let _kernel = port.kernel().await;
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
    async fn jobs_run_without_a_kernel_and_say_so() {
        const JOBS: usize = 40;
        let port = Port::reserve();
        let server = server_asking(&port, FailMode::Open).await;
        let accepted = submit_batch(&server, 0..JOBS).await;
        for id in accepted.keys() {
            assert_eq!(server.ended(id).await["state"], "succeeded");
            let history = history(&server, id).await;
            assert_eq!(rules(&history), ["fail_open"], "{history}");
            let decision = &history["decisions"][0];
            assert_eq!(decision["verdict"], "allow");
            let why = text(&decision["message"]);
            assert!(why.contains("fails") || why.contains("circuit"), "{why}");
        }
        let policy = server.get("/v1/policy").await.expect(200);
        assert_eq!((&policy["fail_mode"], &policy["failed_open"]), (&json!("open"), &json!(JOBS)), "{policy}");
        assert_eq!(policy["kernel"]["input"]["state"], "open");
    }

    // FEATURES: D9
    #[tokio::test]
    async fn a_kernel_that_answers_is_not_passed_over() {
        let port = Port::reserve();
        let mut kernel = port.kernel().await;
        let server = server_asking(&port, FailMode::Open).await;
        for (behaviour, state, rule) in [
            ("garble", "denied", "policy_error"),
            ("refuse", "denied", "policy_error"),
            ("hang", "succeeded", "fail_open"),
            ("work", "succeeded", "allow-the-rest"),
        ] {
            kernel.behave(behaviour).await;
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

    /// Jobs that are allowed and wait behind one that runs, and that one.
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
    async fn those_that_wait_are_asked_about_again_before_they_start() {
        let port = Port::reserve();
        let kernel = port.kernel_with_version("old").await;
        let server = server_asking(&port, FailMode::Closed).await;
        let (first, waiting) = waiting_behind_one(&server).await;
        let old = version(&server).await;
        kernel.kill().await;
        let _kernel = port.kernel_with_version("new").await;
        // The first answer of the new kernel tells that it has other rules.
        let heard = server.submit(&Kind::Forbidden.job()).await;
        assert_eq!(settled(&server, &heard, Kind::Forbidden).await["state"], "denied");
        let new = version(&server).await;
        assert!(old.is_string() && new.is_string() && old != new, "{old} {new}");
        server.act(&format!("/v1/jobs/{first}/cancel")).await.expect(200);
        for id in &waiting {
            let job = settled(&server, id, Kind::Allowed).await;
            let passed = ["pending", "scheduled", "pending", "scheduled", "dispatched", "running", "succeeded"];
            assert_eq!(states(&job), passed);
            let history = history(&server, id).await;
            let policies: Vec<&Value> =
                history["decisions"].as_array().unwrap().iter().map(|decision| &decision["policy"]).collect();
            assert_eq!(policies, [&old, &new], "{history}");
        }
    }

    // FEATURES: D1
    #[tokio::test]
    async fn those_that_wait_do_not_start_when_the_new_rules_deny_them() {
        let port = Port::reserve();
        let kernel = port.kernel_with_version("old").await;
        let server = server_asking(&port, FailMode::Closed).await;
        let (first, waiting) = waiting_behind_one(&server).await;
        kernel.kill().await;
        let mut kernel = port.kernel_with_version("new").await;
        kernel.behave("garble").await;
        let heard = server.submit(&Kind::Allowed.job()).await;
        assert_eq!(settled(&server, &heard, Kind::Allowed).await["state"], "denied");
        server.act(&format!("/v1/jobs/{first}/cancel")).await.expect(200);
        for id in &waiting {
            let job = settled(&server, id, Kind::Allowed).await;
            assert_eq!((&job["state"], &job["attempt"]), (&json!("denied"), &json!(0)), "{job}");
            assert_eq!(rules(&history(&server, id).await), ["allow-the-rest", "policy_error"]);
        }
        assert_eq!(server.job(&first).await["state"], "cancelled");
    }
}

/// A job that the kernel slows down is asked about again when its time has come, not all the time.
#[tokio::test]
async fn a_throttled_job_waits_for_as_long_as_the_kernel_says() {
    let port = Port::reserve();
    let _kernel = port.kernel().await;
    let server = server_asking(&port, FailMode::Closed).await;
    let id = server.submit(&with(echo(1), json!({"labels": {"slow_down": "yes"}}))).await;
    let since = Instant::now();
    let decisions = loop {
        let history = history(&server, &id).await;
        let decisions = history["decisions"].as_array().unwrap().clone();
        if decisions.len() >= 2 {
            break decisions;
        }
        assert!(since.elapsed() < RECOVERY, "{history}");
        tokio::time::sleep(PAUSE).await;
    };
    let at = |number: usize| {
        let at: model::time::Timestamp = serde_json::from_value(decisions[number]["at"].clone()).unwrap();
        at.0.0
    };
    assert!(at(1) >= at(0) + 900, "asked again too soon: {decisions:?}");
}
