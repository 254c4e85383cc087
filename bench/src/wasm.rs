//! Throughput of WebAssembly jobs that do nothing, submitted in batches.

use std::time::Instant;

use anyhow::{Context, ensure};
use client::load::{Connection, RequestHead};

use crate::Scale;
use crate::http::send;
use crate::report::{Report, Target};
use crate::sandboxes::batch;
use crate::server::Server;

const NAME: &str = "no-op WASM jobs in batches of 500";

const NO_OP: &str = r#"(component
    (core module $m (func (export "run") (result i32) i32.const 0))
    (core instance $i (instantiate $m))
    (func $run (result (result)) (canon lift (core func $i "run")))
    (instance (export "wasi:cli/run@0.2.0") (export "run" (func $run))))"#;

pub fn measure(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    if !report.selects(NAME) {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(scale, report))
}

async fn run(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    let mut server = Server::outlast(dir.path())?;
    server.ready(Instant::now()).await?;
    let component = upload(&server, &wat::parse_str(NO_OP)?).await?;
    let job = format!(r#"{{"run":{{"wasm":{{"component":"{component}"}}}}}}"#);
    // The first job compiles the component.
    send(&server, batch(&server, &job, 1), 1, 1).await?;
    server.drained().await?;
    let before = server.cpu_time()?;
    let jobs = scale.of(300_000);
    let begin = Instant::now();
    send(&server, batch(&server, &job, 500), jobs / 500, 8).await?;
    server.drained().await?;
    let seconds = begin.elapsed().as_secs_f64();
    let used = (server.cpu_time()? - before).as_secs_f64() * 1e6 / jobs as f64;
    let note = format!("{jobs} jobs; {used:.1} µs CPU per job");
    report.absolute(NAME, "jobs/s", jobs as f64 / seconds, Target::AtLeast(15_000.0), note);
    Ok(())
}

/// Uploads a blob and returns its id.
async fn upload(server: &Server, content: &[u8]) -> anyhow::Result<String> {
    let head = RequestHead::new("POST", &server.address, "/v1/blobs", &[("Content-Type", "application/octet-stream")]);
    let mut request = Vec::new();
    head.write(content, &mut request);
    let mut connection = Connection::open(&server.address).await?;
    let reply = connection.exchange(&request).await?;
    ensure!(reply.status == 201, "the upload of the component was refused: {}", String::from_utf8_lossy(reply.body));
    let response: serde_json::Value = serde_json::from_slice(reply.body)?;
    Ok(response["id"].as_str().context("the response has no id")?.to_owned())
}
