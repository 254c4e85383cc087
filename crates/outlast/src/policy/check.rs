//! Checks a job against the policy.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use api::CheckView;
use bytes::Bytes;
use clap::Args;
use model::spec::JobSpec;
use model::time::Millis;
use policy::{JobFacts, Rules};

use crate::context::Context;
use crate::exit;
use crate::exit::Usage;
use crate::jobs::list::now;
use crate::jobs::show::constraints;
use crate::paint::{Paint, Tone, sanitize};
use crate::submit::source::{self, Source};
use crate::table::{Align, Cell, Pairs, Table};

#[derive(Args)]
pub struct Options {
    /// File with one job as JSON or YAML; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    job: PathBuf,
    /// Use the rules in this directory instead of the server's policy.
    #[arg(long, value_name = "DIR")]
    rules: Option<PathBuf>,
    /// With --rules: the submitter of the job.
    #[arg(long, value_name = "NAME", requires = "rules")]
    submitter: Option<String>,
}

pub async fn run(options: &Options, context: &Context) -> Result<u8> {
    let job = match source::open(&options.job)? {
        Source::One(job) => job,
        Source::Many(_) => return Err(Usage("`policy check` takes a single job".to_owned()).into()),
    };
    let check = match &options.rules {
        None => context.client.check_policy(job).await?,
        Some(directory) => {
            let spec = parse(&job).with_context(|| format!("in {}", options.job.display()))?;
            let rules = Rules::load(directory)?;
            let facts = JobFacts { spec: &spec, submitter: options.submitter.as_deref(), queue: None };
            let now = Millis(u64::try_from(now().as_millis()).unwrap_or(u64::MAX));
            server::check_view(rules.explain(&facts, now))
        }
    };
    context.printer.print(&check, page)?;
    Ok(if check.verdict == "deny" { exit::REFUSED } else { exit::DONE })
}

/// Parses and validates the job like the server. The queue is not part of the policy input.
fn parse(job: &Bytes) -> Result<JobSpec> {
    let mut spec: JobSpec = serde_json::from_slice(job).map_err(|error| Usage(format!("not a job: {error}")))?;
    spec.validate().map_err(|error| Usage(format!("invalid job: {error}")))?;
    spec.queue = None;
    Ok(spec)
}

fn page(check: &CheckView, paint: Paint) -> String {
    let tone = match check.verdict.as_str() {
        "deny" => Tone::Bad,
        "require_approval" | "throttle" => Tone::Busy,
        _ => Tone::Good,
    };
    let mut pairs = Pairs::default();
    pairs.add_cell("verdict", Cell::new(&check.verdict).tone(tone));
    pairs.add("rule", &check.rule);
    pairs.add_option("message", check.message.as_ref());
    pairs.add_option("until", check.until);
    pairs.add_option("limits", check.constraints.as_ref().map(constraints));
    pairs.add_option("policy", check.policy);
    let mut text = pairs.render(paint);
    if !check.spoke.is_empty() {
        let columns =
            [("VERDICT", Align::Left), ("RULE", Align::Left), ("REASON", Align::Left), ("LIMITS", Align::Left)];
        let mut table = Table::new(&columns);
        for spoken in &check.spoke {
            table.row([
                Cell::new(&spoken.verdict),
                Cell::new(&spoken.rule),
                Cell::new(&spoken.reason),
                Cell::option(spoken.constraints.as_ref().map(constraints)),
            ]);
        }
        text.push_str(&format!("\n{}", table.render(paint)));
    }
    if !check.trace.is_empty() {
        text.push_str(&format!("\n{}\n", paint.apply(Tone::Quiet, "TRACE")));
        check.trace.iter().for_each(|line| text.push_str(&format!("{}\n", sanitize(line))));
    }
    text
}

#[cfg(test)]
mod tests {
    use api::RuleVerdictView;

    use super::*;

    #[test]
    fn every_matching_rule_is_shown_below_the_verdict() {
        let check = CheckView {
            mode: "rules".to_owned(),
            verdict: "deny".to_owned(),
            rule: "no-sandbox".to_owned(),
            message: Some("jobs run in a sandbox here".to_owned()),
            until: None,
            constraints: None,
            policy: None,
            spoke: vec![RuleVerdictView {
                verdict: "deny".to_owned(),
                rule: "no-sandbox".to_owned(),
                reason: "jobs run in a sandbox here".to_owned(),
                for_ms: None,
                constraints: None,
            }],
            trace: vec!["printed".to_owned()],
        };
        let expected = "\
verdict  deny
rule     no-sandbox
message  jobs run in a sandbox here

VERDICT  RULE        REASON                      LIMITS
deny     no-sandbox  jobs run in a sandbox here  -

TRACE
printed
";
        assert_eq!(page(&check, Paint::NONE), expected);
    }
}
