//! Job lists.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use api::{JobView, Page};
use clap::Args;
use client::jobs::{Filter, JobList};
use model::spec::Run;
use model::state::State;

use crate::context::Context;
use crate::paint::{Paint, Tone};
use crate::table::{Align, Cell, Table, shorten};
use crate::{duration, exit, ids};

const PAGE_JOBS: usize = 500;
const RUN_WIDTH: usize = 48;
/// Hash digits that distinguish components.
const COMPONENT_DIGITS: usize = 12;

#[derive(Args, Clone)]
#[group(skip)]
pub struct Options {
    /// Only jobs in this state.
    #[arg(long, value_name = "STATE")]
    state: Option<State>,
    /// Only jobs of this queue, by id or token.
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Only jobs of this topic.
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only jobs of this tenant.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Maximum number of jobs.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// List all jobs.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Continue after the cursor of an earlier list.
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

pub async fn run(list: JobList, options: &Options, context: &Context) -> Result<u8> {
    let page = fetch(list, options, context).await?;
    context.printer.print(&page, |page: &Page<JobView>, paint| table(&page.items, now(), paint))?;
    if context.printer.is_human_readable() && has_more(list, options, page.next_cursor, context).await? {
        eprintln!("{}", Paint::for_stderr().apply(Tone::Quiet, "more jobs exist; use --limit N or --all to list them"));
    }
    Ok(exit::DONE)
}

/// Whether jobs follow the cursor. A cursor alone does not say that more jobs exist.
async fn has_more(list: JobList, options: &Options, cursor: Option<String>, context: &Context) -> Result<bool> {
    if cursor.is_none() {
        return Ok(false);
    }
    let one_more = Options { cursor, limit: 1, all: false, ..options.clone() };
    Ok(!fetch(list, &one_more, context).await?.items.is_empty())
}

/// Pages may be short or empty, so that several may be needed.
async fn fetch(list: JobList, options: &Options, context: &Context) -> Result<Page<JobView>> {
    let limit = if options.all { usize::MAX } else { options.limit };
    let mut filter = Filter {
        state: options.state,
        queue: options.queue.as_deref().map(ids::queue).transpose()?,
        topic: options.topic.clone(),
        tenant: options.tenant.clone(),
        limit: None,
        cursor: options.cursor.clone(),
    };
    let mut items = Vec::new();
    loop {
        filter.limit = Some((limit - items.len()).min(PAGE_JOBS));
        let page = match filter.queue {
            Some(queue) => context.client.queue_jobs(queue, list, &filter).await?,
            None => context.client.jobs(list, &filter).await?,
        };
        items.extend(page.items);
        filter.cursor = page.next_cursor;
        if items.len() >= limit || filter.cursor.is_none() {
            return Ok(Page { items, next_cursor: filter.cursor });
        }
    }
}

fn table(jobs: &[JobView], now: Duration, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("STATE", Align::Left),
        ("TOPIC", Align::Left),
        ("ATTEMPT", Align::Right),
        ("EXIT", Align::Right),
        ("AGE", Align::Right),
        ("TOOK", Align::Right),
        ("RUN", Align::Left),
    ]);
    for job in jobs {
        let age = now.saturating_sub(Duration::from_millis(job.created_at.0.0));
        table.row([
            Cell::new(job.id),
            Cell::new(job.state).tone(Tone::of_state(job.state)),
            Cell::new(&job.topic),
            Cell::new(job.attempt),
            Cell::option(job.exit_code),
            Cell::new(duration::show(age)),
            Cell::option(took(job).map(duration::show)),
            Cell::new(shorten(&describe_run(&job.run), RUN_WIDTH)),
        ]);
    }
    table.render(paint)
}

/// Time from creation to the end of a terminal job.
pub fn took(job: &JobView) -> Option<Duration> {
    let last = job.states.last().filter(|_| job.state.is_terminal())?;
    Some(Duration::from_millis(last.at.0.0.saturating_sub(job.created_at.0.0)))
}

/// Command or function of a job in one line, quoted for a shell.
pub fn describe_run(run: &Run) -> String {
    match run {
        Run::Process(process) => {
            let function = process.function.as_ref().map(|function| format!("{function}:"));
            let words = function.into_iter().chain(process.command.iter().map(|word| quote(word)));
            words.collect::<Vec<_>>().join(" ")
        }
        Run::Echo(echo) => format!("echo: {}", echo.value.as_str()),
        Run::Wasm(wasm) => {
            let component: String = wasm.component.hex().chars().take(COMPONENT_DIGITS).collect();
            let words = std::iter::once(format!("wasm {component}:")).chain(wasm.args.iter().map(|word| quote(word)));
            words.collect::<Vec<_>>().join(" ")
        }
    }
}

fn quote(word: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "-_=./:@%+,".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

pub fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::blob::BlobId;
    use model::spec::{ProcessRun, WasmRun};

    use super::*;
    use crate::jobs::example;

    #[test]
    fn a_list_is_one_line_per_job() {
        let job = example::job();
        let now = Duration::from_millis(job.created_at.0.0) + Duration::from_secs(90);
        let text = table(&[job], now, Paint::NONE);
        let expected = "\
ID                 STATE      TOPIC    ATTEMPT  EXIT    AGE  TOOK  RUN
job_0000000000001  succeeded  default        1     0  1m30s  1.5s  sh -c 'echo hi'
";
        assert_eq!(text, expected);
    }

    #[test]
    fn commands_are_quoted_as_for_a_shell() {
        let words = ["printf", "a b", "it's", ""].map(str::to_owned).to_vec();
        let run = Run::Process(ProcessRun { command: words, ..ProcessRun::default() });
        assert_eq!(describe_run(&run), r"printf 'a b' 'it'\''s' ''");
    }

    #[test]
    fn a_function_and_a_component_are_named_before_their_arguments() {
        let function =
            ProcessRun { command: vec!["-v".to_owned()], function: Some("render".to_owned()), ..ProcessRun::default() };
        assert_eq!(describe_run(&Run::Process(function)), "render: -v");
        let component = BlobId([0xab; 32]);
        let wasm = WasmRun { component, args: vec!["a b".to_owned()], env: BTreeMap::new(), stdin: String::new() };
        assert_eq!(describe_run(&Run::Wasm(wasm)), "wasm abababababab: 'a b'");
    }
}
