//! What the policy would say of a job.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use clap::Args;
use model::spec::JobSpec;
use model::time::Millis;
use model::view::CheckView;
use policy::{JobFacts, Rules};

use crate::context::Context;
use crate::exit;
use crate::exit::Usage;
use crate::jobs::list::now;
use crate::jobs::show::constraints;
use crate::paint::{Paint, Tone, tame};
use crate::submit::source::{self, Source};
use crate::table::{Align, Cell, Pairs, Table};

#[derive(Args)]
pub struct Options {
    /// A file with one job, JSON or YAML; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    job: PathBuf,
    /// Ask the rules in this directory, and no server.
    #[arg(long, value_name = "DIR")]
    rules: Option<PathBuf>,
    /// With --rules: who would submit it.
    #[arg(long, value_name = "NAME", requires = "rules")]
    submitter: Option<String>,
}

pub async fn run(options: &Options, context: &Context) -> Result<u8> {
    let job = match source::open(&options.job)? {
        Source::One(job) => job,
        Source::Many(_) => return Err(Usage("the policy is asked about one job at a time".to_owned()).into()),
    };
    let said = match &options.rules {
        None => context.client.check_policy(job).await?,
        Some(directory) => {
            let spec = parse(&job).with_context(|| format!("in {}", options.job.display()))?;
            let rules = Rules::load(directory)?;
            let facts = JobFacts { spec: &spec, submitter: options.submitter.as_deref(), queue: None };
            let now = Millis(u64::try_from(now().as_millis()).unwrap_or(u64::MAX));
            server::check_view(rules.explain(&facts, now))
        }
    };
    context.printer.print(&said, page)?;
    Ok(if said.verdict == "deny" { exit::REFUSED } else { exit::DONE })
}

/// As the server would read it. Which queue it is in is no part of what is decided about.
fn parse(job: &Bytes) -> Result<JobSpec> {
    let mut spec: JobSpec = serde_json::from_slice(job).map_err(|error| Usage(format!("it is no job: {error}")))?;
    spec.validate().map_err(|error| Usage(format!("it would not be accepted: {error}")))?;
    spec.queue = None;
    Ok(spec)
}

fn page(said: &CheckView, paint: Paint) -> String {
    let tone = match said.verdict.as_str() {
        "deny" => Tone::Bad,
        "require_approval" | "throttle" => Tone::Busy,
        _ => Tone::Good,
    };
    let mut pairs = Pairs::default();
    pairs.add_cell("verdict", Cell::new(&said.verdict).tone(tone));
    pairs.add("rule", &said.rule);
    pairs.add_option("message", said.message.as_ref());
    pairs.add_option("until", said.until);
    pairs.add_option("limits", said.constraints.as_ref().map(constraints));
    pairs.add_option("policy", said.policy);
    let mut text = pairs.render(paint);
    if !said.spoke.is_empty() {
        let columns =
            [("VERDICT", Align::Left), ("RULE", Align::Left), ("REASON", Align::Left), ("LIMITS", Align::Left)];
        let mut table = Table::new(&columns);
        for spoken in &said.spoke {
            table.row([
                Cell::new(&spoken.verdict),
                Cell::new(&spoken.rule),
                Cell::new(&spoken.reason),
                Cell::option(spoken.constraints.as_ref().map(constraints)),
            ]);
        }
        text.push_str(&format!("\n{}", table.render(paint)));
    }
    if !said.trace.is_empty() {
        text.push_str(&format!("\n{}\n", paint.apply(Tone::Quiet, "TRACE")));
        said.trace.iter().for_each(|line| text.push_str(&format!("{}\n", tame(line))));
    }
    text
}

#[cfg(test)]
mod tests {
    use model::view::SpokenView;

    use super::*;

    #[test]
    fn every_rule_that_spoke_is_shown_below_the_verdict() {
        let said = CheckView {
            mode: "rules".to_owned(),
            verdict: "deny".to_owned(),
            rule: "no-sandbox".to_owned(),
            message: Some("jobs run in a sandbox here".to_owned()),
            until: None,
            constraints: None,
            policy: None,
            spoke: vec![SpokenView {
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
        assert_eq!(page(&said, Paint::NONE), expected);
    }
}
