//! Tenant limits apply across all shards and restarts, and only to their tenant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use server::TenantOptions;
use tokio::task::JoinSet;

use crate::http::{DEADLINE, Reply};
use crate::support::{Api, Server, echo, endless, text, with};

const MAX_RUNNING: u32 = 3;
const MAX_LIVE: u32 = 40;

async fn server_with(red: TenantOptions) -> Server {
    Server::with(|options| {
        options.shards = 2;
        options.tenants.insert("red".to_owned(), red);
    })
    .await
}

fn red(job: Value) -> Value {
    with(job, json!({"tenant": "red"}))
}

fn blue(job: Value) -> Value {
    with(job, json!({"tenant": "blue"}))
}

/// An echo job of this duration.
fn slow(delay_ms: u64) -> Value {
    json!({"run": {"echo": {"delay_ms": delay_ms}}})
}

/// Submits concurrently, each job over its own connection.
async fn submit_together(api: Api, job: &Value, times: usize) -> Vec<Reply> {
    let mut submits = JoinSet::new();
    for _ in 0..times {
        let job = job.clone();
        submits.spawn(async move { api.post("/v1/jobs", &job).await });
    }
    submits.join_all().await
}

/// Ids of the accepted jobs. All others must have been refused with this code.
fn accepted(replies: &[Reply], refusal: &str) -> Vec<String> {
    let (created, refused): (Vec<&Reply>, Vec<&Reply>) = replies.iter().partition(|reply| reply.status == 201);
    for reply in refused {
        reply.refused(429, refusal);
        assert!(reply.header("retry-after").is_some());
    }
    created.iter().map(|reply| text(&reply.expect(201)["id"])).collect()
}

/// Submits endless jobs up to the tenant's limit. Returns their ids.
async fn fill(api: Api, job: &Value) -> BTreeSet<String> {
    let since = Instant::now();
    let mut ids = BTreeSet::new();
    while ids.len() < MAX_LIVE as usize {
        ids.extend(accepted(&submit_together(api, job, 100).await, "tenant_full"));
        assert!(ids.len() <= MAX_LIVE as usize, "{} were accepted", ids.len());
        assert!(since.elapsed() < DEADLINE, "only {} jobs were accepted", ids.len());
    }
    ids
}

async fn limits_of(api: &Api, tenant: &str) -> Value {
    let tenants = api.get("/v1/tenants").await.expect(200);
    let found = tenants["items"].as_array().unwrap().iter().find(|item| item["tenant"] == tenant);
    found.unwrap_or_else(|| panic!("no {tenant} in {tenants}")).clone()
}

/// Running jobs of the tenant with their attempts. The shards are read one after the other, so not all of the list need
/// have run at the same time.
async fn running(api: &Api) -> BTreeSet<(String, u64)> {
    let page = api.get("/v1/jobs/running?tenant=red&limit=1000").await.expect(200);
    let items = page["items"].as_array().unwrap();
    items.iter().map(|job| (text(&job["id"]), job["attempt"].as_u64().unwrap())).collect()
}

/// Polls until stopped. Jobs in two consecutive lists ran at the same time between the two. Returns the highest number
/// of these.
async fn watch_running(api: Api, stop: Arc<AtomicBool>) -> usize {
    let mut highest = 0;
    let mut before = running(&api).await;
    while !stop.load(Ordering::Relaxed) {
        let now = running(&api).await;
        let concurrent: Vec<_> = before.intersection(&now).collect();
        assert!(concurrent.len() <= MAX_RUNNING as usize, "{concurrent:?} run at the same time");
        highest = highest.max(concurrent.len());
        before = now;
    }
    highest
}

/// Highest number of concurrent attempts by the jobs' histories. A shard records the start of its step as the end of an
/// attempt, so no interval is longer than the real one: overlapping intervals did overlap.
async fn max_concurrent(api: &Api, jobs: &[String]) -> i32 {
    // An end sorts before a start in the same millisecond: the second attempt needs the slot of the first.
    let mut changes: BTreeMap<(String, i32), i32> = BTreeMap::new();
    for id in jobs {
        let history = api.get(&format!("/v1/jobs/{id}/history")).await.expect(200);
        for attempt in history["attempts"].as_array().unwrap() {
            let (Some(start), Some(end)) = (attempt["started_at"].as_str(), attempt["ended_at"].as_str()) else {
                continue;
            };
            if start < end {
                *changes.entry((start.to_owned(), 1)).or_default() += 1;
                *changes.entry((end.to_owned(), -1)).or_default() -= 1;
            }
        }
    }
    let running = changes.values().scan(0, |running, change| {
        *running += change;
        Some(*running)
    });
    running.max().unwrap_or(0)
}

mod running_jobs {
    use super::*;

    // FEATURES: D13
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn max_running_holds_across_all_shards() {
        let limits = TenantOptions { max_running: Some(MAX_RUNNING), ..TenantOptions::default() };
        let server = server_with(limits).await;
        let stop = Arc::new(AtomicBool::new(false));
        let watcher = tokio::spawn(watch_running(server.api(), stop.clone()));
        let jobs = accepted(&submit_together(server.api(), &red(slow(100)), 120).await, "none is refused");
        assert_eq!(jobs.len(), 120);
        let others = accepted(&submit_together(server.api(), &blue(slow(100)), 60).await, "none is refused");
        let mut queues = BTreeSet::new();
        for id in &jobs {
            let job = server.ended(id).await;
            assert_eq!(job["state"], "succeeded");
            queues.insert(text(&job["queue"]));
        }
        assert_eq!(queues.len(), 2, "both shards have jobs");
        stop.store(true, Ordering::Relaxed);
        assert!(watcher.await.unwrap() >= 1, "the watcher has seen running jobs");
        assert_eq!(max_concurrent(&server, &jobs).await, MAX_RUNNING as i32);
        for id in &others {
            assert_eq!(server.ended(id).await["state"], "succeeded");
        }
        assert!(max_concurrent(&server, &others).await > MAX_RUNNING as i32, "the limit is not for others");
    }

    // FEATURES: D13
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn max_running_holds_across_restarts() {
        let limits = TenantOptions { max_running: Some(MAX_RUNNING), ..TenantOptions::default() };
        let mut server = server_with(limits).await;
        let jobs = accepted(&submit_together(server.api(), &red(slow(150)), 40).await, "none is refused");
        assert_eq!(jobs.len(), 40);
        for _ in 0..3 {
            server.seen("/v1/jobs/running?tenant=red", |page| !page["items"].as_array().unwrap().is_empty()).await;
            server.restart().await;
        }
        for id in &jobs {
            assert_eq!(server.ended(id).await["state"], "succeeded");
        }
        assert_eq!(max_concurrent(&server, &jobs).await, MAX_RUNNING as i32);
    }
}

mod live_jobs {
    use super::*;

    // FEATURES: D13
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn exactly_max_live_jobs_are_accepted_also_after_a_restart() {
        let limits =
            TenantOptions { max_running: Some(MAX_RUNNING), max_live: Some(MAX_LIVE), ..TenantOptions::default() };
        let mut server = server_with(limits).await;
        let mut live = fill(server.api(), &red(endless())).await;
        for restarted in [false, true] {
            if restarted {
                server.restart().await;
            }
            let refused = submit_together(server.api(), &red(endless()), 20).await;
            assert_eq!(accepted(&refused, "tenant_full"), Vec::<String>::new());
            let shown = limits_of(&server, "red").await;
            let limits = json!({"max_running": MAX_RUNNING, "max_live": MAX_LIVE, "submits_per_second": null});
            assert_eq!((&shown["live"], &shown["limits"]), (&json!(MAX_LIVE), &limits));
            let others = accepted(&submit_together(server.api(), &blue(echo(1)), 60).await, "none is refused");
            assert_eq!(others.len(), 60, "the limit is not for others");
            for id in &others {
                assert_eq!(server.ended(id).await["state"], "succeeded");
            }
            // Each ended job makes room for one more.
            let ended: Vec<String> = live.iter().step_by(8).cloned().collect();
            for id in &ended {
                server.act(&format!("/v1/jobs/{id}/cancel")).await.expect(200);
                assert_eq!(server.ended(id).await["state"], "cancelled");
                live.remove(id);
            }
            let since = Instant::now();
            while live.len() < MAX_LIVE as usize {
                live.extend(accepted(&submit_together(server.api(), &red(endless()), 20).await, "tenant_full"));
                assert!(since.elapsed() < DEADLINE, "ended jobs still count towards the limit");
            }
            assert_eq!(live.len(), MAX_LIVE as usize);
        }
        let listed = server.listed("/v1/jobs?tenant=red&state=pending,scheduled,dispatched,running", 1000).await;
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), live);
    }

    /// Number of accepted jobs of a batch. All others must exceed the limit.
    async fn accepted_of_batch(api: &Api, batch: &[Value]) -> u32 {
        let answer = api.post("/v1/jobs", &json!({"jobs": batch})).await.expect(200);
        let results = answer["results"].as_array().unwrap();
        assert_eq!(results.len(), batch.len());
        let (created, refused): (Vec<&Value>, Vec<&Value>) =
            results.iter().partition(|result| result["id"].is_string());
        for result in refused {
            assert_eq!(result["error"]["code"], "tenant_full", "{result}");
        }
        created.len() as u32
    }

    // FEATURES: D13
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_batch_is_accepted_up_to_the_limit() {
        let server = server_with(TenantOptions { max_live: Some(MAX_LIVE), ..TenantOptions::default() }).await;
        let batch: Vec<Value> = (0..30).map(|_| red(endless())).collect();
        let since = Instant::now();
        let mut total = 0;
        while total < MAX_LIVE {
            total += accepted_of_batch(&server, &batch).await;
            assert!(since.elapsed() < DEADLINE, "only {total} jobs were accepted");
        }
        assert_eq!(total, MAX_LIVE);
        assert_eq!(accepted_of_batch(&server, &batch).await, 0);
    }
}

mod submission_rate {
    use super::*;

    // FEATURES: D13
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn submits_above_the_rate_limit_are_refused() {
        const PER_SECOND: u32 = 20;
        const JOBS: usize = 70;
        let server =
            server_with(TenantOptions { submits_per_second: Some(PER_SECOND), ..TenantOptions::default() }).await;
        let since = Instant::now();
        let (mut ids, mut submitted) = (Vec::new(), 0);
        while ids.len() < JOBS {
            let replies = submit_together(server.api(), &red(echo(1)), 15).await;
            submitted += replies.len();
            ids.extend(accepted(&replies, "tenant_too_fast"));
            let others = accepted(&submit_together(server.api(), &blue(echo(1)), 15).await, "none is refused");
            assert_eq!(others.len(), 15, "the limit is not for others");
            assert!(since.elapsed() < 2 * DEADLINE, "{} of {submitted} were accepted", ids.len());
        }
        assert!(submitted > ids.len(), "no submit was refused");
        let mut times = Vec::new();
        for id in &ids {
            let time: model::time::Timestamp =
                serde_json::from_value(server.job(id).await["created_at"].clone()).unwrap();
            times.push(time.0.0);
        }
        times.sort_unstable();
        // Another shard may use the tokens of one second in the next.
        let burst = 2 * PER_SECOND as usize;
        for (first, last) in times.iter().zip(&times[burst..]) {
            assert!(last - first >= Duration::from_secs(1).as_millis() as u64, "{times:?}");
        }
    }
}
