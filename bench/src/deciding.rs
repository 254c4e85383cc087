//! What a policy costs: one decision, and jobs end to end with the sample rules against none.

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

const DECISION: &str = "one decision of the sample rules, uncached p99";
const END_TO_END: &str = "echo jobs with the sample rules";

pub fn measure(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    if report.wants(DECISION) {
        decision(scale, report)?;
    }
    if report.wants(END_TO_END) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(end_to_end(scale, report))?;
    }
    Ok(())
}

/// The rules that operators find as an example.
fn samples() -> anyhow::Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let samples = manifest.parent().context("a workspace")?.join("examples/policy");
    anyhow::ensure!(samples.is_dir(), "the sample rules are not where they were built: {}", samples.display());
    Ok(samples)
}

fn decision(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let rules = Rules::load(&samples()?)?;
    let process = ProcessRun { command: vec!["true".to_owned()], ..ProcessRun::default() };
    let echo = EchoRun { value: Json::of(&"x".repeat(100)), ..EchoRun::default() };
    let mut specs = [JobSpec::new(Run::Process(process)), JobSpec::new(Run::Echo(echo))];
    let decisions = scale.of(50_000);
    let mut taken: Vec<f64> = Vec::with_capacity(decisions as usize);
    for number in 0..decisions {
        let spec = &mut specs[(number % 2) as usize];
        spec.labels.insert("build".to_owned(), number.to_string());
        let facts = JobFacts { spec, submitter: Some("somebody"), queue: None };
        let begin = Instant::now();
        let decision = rules.decide(&facts, Millis(1_800_000_000_000 + number));
        taken.push(begin.elapsed().as_secs_f64() * 1e6);
        anyhow::ensure!(decision.rule != "policy_error", "{:?}", decision.message);
    }
    taken.sort_by(f64::total_cmp);
    let quantile = |part: f64| taken[((taken.len() - 1) as f64 * part) as usize];
    let note = format!("p50 {:.1} µs; nothing is remembered between {decisions} decisions", quantile(0.5));
    report.absolute(DECISION, "µs", quantile(0.99), Target::AtMost(100.0), note);
    Ok(())
}

async fn end_to_end(scale: Scale, report: &mut Report) -> anyhow::Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    let config = dir.path().join("outlast.yaml");
    std::fs::write(&config, format!("policy: {{rules: {}}}\n", samples()?.display()))?;
    let mut governed = Server::outlast_with(&dir.path().join("governed"), &config)?;
    let mut free = Server::outlast(&dir.path().join("free"))?;
    governed.ready(Instant::now()).await?;
    free.ready(Instant::now()).await?;
    // The two take turns, so that the machine's moods hit both.
    let (parts, jobs) = (6, scale.of(100_000));
    let (mut with, mut without) = (0.0, 0.0);
    for part in 0..=parts {
        for (server, seconds) in [(&governed, &mut with), (&free, &mut without)] {
            let begin = Instant::now();
            send(server, Batches::new(server, 100, false, 0), jobs / 100, 16).await?;
            server.drained().await?;
            // The first part warms up.
            *seconds += if part == 0 { 0.0 } else { begin.elapsed().as_secs_f64() };
        }
    }
    let mut decided = 0;
    for verdict in ["allow", "allow_with_constraints"] {
        decided += governed.metric(&format!("outlast_policy_decisions_total{{verdict=\"{verdict}\"}}")).await?;
    }
    anyhow::ensure!(decided >= jobs * parts, "every job is decided about: {decided}");
    let all = (jobs * parts) as f64;
    let note = format!("in batches of 100; {decided} decisions on record and in the audit log");
    report.ratio(END_TO_END, "jobs/s", all / with, ("without a policy", all / without), Target::AtLeast(0.7), note);
    Ok(())
}
