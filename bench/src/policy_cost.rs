//! Cost of a policy: one decision, and jobs end to end with the sample rules compared with no policy.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use model::json::Json;
use model::spec::{EchoRun, JobSpec, ProcessRun, Run};
use model::time::Millis;
use policy::{JobFacts, Rules};

use crate::Scale;
use crate::http::{Batches, send};
use crate::report::{Report, Target};
use crate::server::Server;

const DECISION: &str = "one policy decision, sample rules, uncached p99";
const END_TO_END: &str = "echo jobs with the sample policy rules";

pub fn measure(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    if report.selects(DECISION) {
        decision(scale, report)?;
    }
    if report.selects(END_TO_END) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(end_to_end(scale, report))?;
    }
    Ok(())
}

/// The rules in `examples/policy`.
fn samples() -> anyhow::Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let samples = manifest.parent().context("the bench crate has no parent directory")?.join("examples/policy");
    anyhow::ensure!(samples.is_dir(), "there are no sample rules in {}", samples.display());
    Ok(samples)
}

fn decision(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let rules = Rules::load(&samples()?)?;
    let process = ProcessRun { command: vec!["true".to_owned()], ..ProcessRun::default() };
    let echo = EchoRun { value: Json::of(&"x".repeat(100)), ..EchoRun::default() };
    let mut specs = [JobSpec::new(Run::Process(process)), JobSpec::new(Run::Echo(echo))];
    let decisions = scale.of(50_000);
    let mut latencies: Vec<f64> = Vec::with_capacity(decisions as usize);
    for number in 0..decisions {
        let spec = &mut specs[(number % 2) as usize];
        spec.labels.insert("build".to_owned(), number.to_string());
        let facts = JobFacts { spec, submitter: Some("bench"), queue: None };
        let begin = Instant::now();
        let decision = rules.decide(&facts, Millis(1_800_000_000_000 + number));
        latencies.push(begin.elapsed().as_secs_f64() * 1e6);
        anyhow::ensure!(decision.rule != "policy_error", "{:?}", decision.message);
    }
    latencies.sort_by(f64::total_cmp);
    let quantile = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
    let note = format!("p50 {:.1} µs; {decisions} decisions, no cache", quantile(0.5));
    report.absolute(DECISION, "µs", quantile(0.99), Target::AtMost(100.0), note);
    Ok(())
}

async fn end_to_end(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    let config = dir.path().join("outlast.yaml");
    std::fs::write(&config, format!("policy: {{rules: {}}}\n", samples()?.display()))?;
    let mut with_policy = Server::outlast_with(&dir.path().join("with-policy"), &config)?;
    let mut without_policy = Server::outlast(&dir.path().join("without-policy"))?;
    with_policy.ready(Instant::now()).await?;
    without_policy.ready(Instant::now()).await?;
    // Alternating rounds: changes in machine load affect both.
    let (parts, jobs) = (6, scale.of(100_000));
    let (mut with, mut without) = (0.0, 0.0);
    for part in 0..=parts {
        for (server, seconds) in [(&with_policy, &mut with), (&without_policy, &mut without)] {
            let begin = Instant::now();
            send(server, Batches::new(server, 100, false, 0), jobs / 100, 16).await?;
            server.drained().await?;
            // The first part is a warm-up.
            *seconds += if part == 0 { 0.0 } else { begin.elapsed().as_secs_f64() };
        }
    }
    let mut decided = 0;
    for verdict in ["allow", "allow_with_constraints"] {
        decided += with_policy.metric(&format!("outlast_policy_decisions_total{{verdict=\"{verdict}\"}}")).await?;
    }
    anyhow::ensure!(decided >= jobs * parts, "{decided} decisions for {} jobs", jobs * parts);
    let all = (jobs * parts) as f64;
    let note = format!("in batches of 100; {decided} decisions stored and in the audit log");
    report.ratio(END_TO_END, "jobs/s", all / with, ("without a policy", all / without), Target::AtLeast(0.7), note);
    Ok(())
}
