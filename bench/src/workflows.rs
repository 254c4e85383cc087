//! Workflows: throughput of chains and of a wide fan-out, rehydration, memory of waiting tasks, timers due at once.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};
use client::load::{Connection, Reply, RequestHead, Tally, Workload};
use serde_json::{Value, json};

use crate::Scale;
use crate::http::{Batches, Single, send};
use crate::report::{Report, Target};
use crate::server::Server;

const CHAIN: &str = "workflows of three echo tasks, 256 clients";
const FAN_OUT: &str = "one fan-out of 100,000 tasks";
const REHYDRATION: &str = "rehydration, 10,000 live workflows of 10 tasks";
const MEMORY: &str = "memory of a waiting echo task";
const TIMERS: &str = "firing of 100,000 timers due at once";
/// Repetitions of a short measurement.
const ROUNDS: u64 = 7;
const JSON: [(&str, &str); 1] = [("Content-Type", "application/json")];

/// Requests that start the same small workflow.
struct Starts {
    head: RequestHead,
    body: Vec<u8>,
}

impl Starts {
    fn new(server: &Server, definition: &Value) -> Self {
        let head = RequestHead::new("POST", &server.address, "/v1/workflows", &JSON);
        Self { head, body: json!({ "definition": definition }).to_string().into_bytes() }
    }
}

impl Workload for Starts {
    fn request(&self, _: u64, body: &mut Vec<u8>) -> &RequestHead {
        body.extend_from_slice(&self.body);
        &self.head
    }

    fn jobs(&self, _: u64) -> u64 {
        1
    }

    fn judge(&self, _: u64, reply: &Reply<'_>) -> Tally {
        let accepted = u64::from(reply.status == 201);
        Tally { accepted, failed: 1 - accepted }
    }
}

pub fn measure(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        if report.selects(CHAIN) {
            chains(scale, report).await?;
        }
        if report.selects(FAN_OUT) {
            fan_out(scale, report).await?;
        }
        if report.selects(REHYDRATION) {
            rehydration(scale, report).await?;
        }
        if report.selects(MEMORY) {
            waiting_task_memory(scale, report).await?;
        }
        if report.selects(TIMERS) {
            timers(scale, report).await?;
        }
        Ok(())
    })
}

/// Waits until `count` workflows have started and all have ended.
async fn all_ended(server: &Server, count: u64) -> anyhow::Result<()> {
    while server.metric("outlast_workflows_started_total").await? < count
        || server.metric("outlast_workflows_live").await? > 0
    {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// Waits until a workflow has ended, and returns its view.
async fn ended(server: &Server, id: &str) -> anyhow::Result<Value> {
    loop {
        let view = call(server, "GET", &format!("/v1/workflows/{id}?tasks=false"), b"").await?;
        if !view["ended_at"].is_null() {
            return Ok(view);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn call(server: &Server, method: &str, path: &str, body: &[u8]) -> anyhow::Result<Value> {
    let head = RequestHead::new(method, &server.address, path, &JSON);
    let mut request = Vec::new();
    head.write(body, &mut request);
    let mut connection = Connection::open(&server.address).await?;
    let reply = connection.exchange(&request).await?;
    ensure!(reply.status < 300, "status {}: {}", reply.status, String::from_utf8_lossy(reply.body));
    Ok(serde_json::from_slice(reply.body)?)
}

async fn start(server: &Server, definition: &Value) -> anyhow::Result<Value> {
    let body = json!({ "definition": definition }).to_string();
    call(server, "POST", "/v1/workflows", body.as_bytes()).await
}

fn value() -> String {
    "x".repeat(100)
}

async fn chains(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    let mut server = Server::outlast(dir.path())?;
    server.ready(Instant::now()).await?;
    let jobs = scale.of(150_000);
    let begin = Instant::now();
    send(&server, Single::new(&server), jobs, 256).await?;
    server.drained().await?;
    let single = jobs as f64 / begin.elapsed().as_secs_f64();
    let step = |needs: &str| match needs {
        "" => json!({ "run": { "echo": { "value": value() } } }),
        needs => json!({ "needs": needs, "run": { "echo": { "value": value() } } }),
    };
    let definition = json!({ "name": "chain", "tasks": { "a": step(""), "b": step("a"), "c": step("b") } });
    let workflows = scale.of(50_000);
    let before = server.cpu_time()?;
    let begin = Instant::now();
    let outcome = send(&server, Starts::new(&server, &definition), workflows, 256).await?;
    all_ended(&server, workflows).await?;
    let rate = workflows as f64 / begin.elapsed().as_secs_f64();
    let note = format!(
        "accepted in {:.1} s, p50 {:.1} ms p99 {:.1} ms; {:.1} µs CPU per workflow",
        outcome.elapsed.as_secs_f64(),
        outcome.latencies.quantile(0.5).as_secs_f64() * 1e3,
        outcome.latencies.quantile(0.99).as_secs_f64() * 1e3,
        (server.cpu_time()? - before).as_secs_f64() * 1e6 / workflows as f64
    );
    report.ratio(CHAIN, "/s", rate, ("single echo jobs", single), Target::AtLeast(0.3), note);
    Ok(())
}

async fn fan_out(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    let mut server = Server::outlast(dir.path())?;
    server.ready(Instant::now()).await?;
    let tasks = scale.of(100_000);
    let definition = json!({ "name": "wide", "tasks": {
        "all": { "for_each": format!("${{range({tasks})}}"), "run": { "echo": { "value": value() } } },
    } });
    let (mut wide, mut batches, mut used) = (Vec::new(), Vec::new(), Duration::ZERO);
    // A round takes about a second, so the result is the median of several alternating rounds.
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        send(&server, Batches::new(&server, 500, false, 0), tasks / 500, 8).await?;
        server.drained().await?;
        batches.push(begin.elapsed().as_secs_f64());
        let before = server.cpu_time()?;
        let begin = Instant::now();
        let id = start(&server, &definition).await?["id"].as_str().context("the response has no id")?.to_owned();
        let view = ended(&server, &id).await?;
        wide.push(begin.elapsed().as_secs_f64());
        used += server.cpu_time()? - before;
        ensure!(view["state"] == "succeeded" && view["items"]["succeeded"] == tasks, "{view}");
    }
    let rate = |mut seconds: Vec<f64>| {
        seconds.sort_unstable_by(f64::total_cmp);
        tasks as f64 / seconds[seconds.len() / 2]
    };
    let used = used.as_secs_f64() * 1e6 / (tasks * ROUNDS) as f64;
    let note = format!("median of {ROUNDS} alternating rounds; {used:.1} µs CPU per task");
    let reference = ("single jobs in batches", rate(batches));
    report.ratio(FAN_OUT, "tasks/s", rate(wide), reference, Target::AtLeast(0.7), note);
    Ok(())
}

async fn rehydration(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    let mut server = Server::outlast(dir.path())?;
    server.ready(Instant::now()).await?;
    let mut tasks = serde_json::Map::new();
    for number in 0..10 {
        let delay = if number == 5 { 3_600_000 } else { 0 };
        let mut task = json!({ "run": { "echo": { "value": value(), "delay_ms": delay } } });
        if number > 0 {
            task["needs"] = json!(format!("t{}", number - 1));
        }
        tasks.insert(format!("t{number}"), task);
    }
    let workflows = scale.of(10_000);
    let definition = json!({ "name": "ten", "tasks": tasks });
    send(&server, Starts::new(&server, &definition), workflows, 64).await?;
    // Wait until every workflow has reached its task of one hour.
    while server.metric("outlast_attempts_total").await? < workflows * 6 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.kill()?;
    let begin = Instant::now();
    let mut server = Server::outlast(dir.path())?;
    let ready = server.ready(begin).await?;
    let live = server.metric("outlast_workflows_live").await?;
    ensure!(live == workflows, "{live} of {workflows} workflows were rehydrated");
    let note = "after kill -9; each with five tasks ended, one running, four waiting";
    report.absolute(REHYDRATION, "s", ready.as_secs_f64(), Target::AtMost(2.0), note);
    Ok(())
}

async fn waiting_task_memory(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    let mut server = Server::outlast(dir.path())?;
    server.ready(Instant::now()).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = server.memory()?;
    // As many as fit into one definition.
    let count = scale.of(20_000) - 1;
    let workflows = 20;
    for number in 0..workflows {
        let mut tasks = serde_json::Map::new();
        tasks.insert("first".to_owned(), json!({ "delay": "1h" }));
        for task in 0..count {
            let run = json!({ "echo": { "value": value() } });
            tasks.insert(format!("t{task}"), json!({ "needs": "first", "run": run }));
        }
        start(&server, &json!({ "name": format!("many-{number}"), "tasks": tasks })).await?;
    }
    // The overlay holds a second copy of the tasks until they are written to the tables.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let each = server.memory()?.saturating_sub(before) as f64 / (workflows * count) as f64;
    let note = format!("{workflows} workflows of {} tasks with a value of 100 bytes each", count + 1);
    report.absolute(MEMORY, "bytes", each, Target::AtMost(1_000.0), note);
    Ok(())
}

async fn timers(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    let mut server = Server::outlast(dir.path())?;
    server.ready(Instant::now()).await?;
    let count = scale.of(100_000);
    let due = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis() as u64 + 6_000;
    let until = model::time::Timestamp(model::time::Millis(due)).to_string();
    let definition = json!({ "name": "timers", "tasks": {
        "all": { "for_each": format!("${{range({count})}}"), "delay": { "until": until } },
    } });
    let id = start(&server, &definition).await?["id"].as_str().context("the response has no id")?.to_owned();
    ended(&server, &id).await?;
    let (mut first, mut last, mut seen) = (u64::MAX, 0, 0);
    let mut cursor = String::new();
    loop {
        let page = call(&server, "GET", &format!("/v1/workflows/{id}/tasks?limit=1000{cursor}"), b"").await?;
        for task in page["items"].as_array().context("the page has no items")? {
            if task["item"].is_null() {
                continue;
            }
            let ended: model::time::Timestamp = serde_json::from_value(task["ended_at"].clone())?;
            first = first.min(ended.0.0);
            last = last.max(ended.0.0);
            seen += 1;
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    ensure!(seen == count, "{seen} of {count} timers fired");
    ensure!(first >= due, "a timer fired {} ms early", due - first);
    let note = format!("first timer {} ms late, none early", first - due);
    report.absolute(TIMERS, "s", (last - due) as f64 / 1e3, Target::AtMost(2.0), note);
    Ok(())
}
