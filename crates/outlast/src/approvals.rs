//! `outlast approvals`: jobs that wait for a person's word, and the word.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use client::approvals::Filter;
use model::view::{ApprovalDetailView, ApprovalView, ApprovalWord, JobView, OriginView, Page};

use crate::context::Context;
use crate::jobs::list::{now, run_as_text};
use crate::jobs::show::{approval, constraints, decisions, labels};
use crate::paint::{Paint, Tone};
use crate::table::{Align, Cell, Pairs, Table, shorten};
use crate::{duration, exit, ids};

const PAGE_APPROVALS: usize = 500;
const MESSAGE_WIDTH: usize = 60;

/// List jobs that wait for approval, look at one, approve or reject it.
#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// List jobs that wait for somebody's word, oldest first.
    List(ListOptions),
    /// Show what is asked for, and everything the policy said of the job.
    Show { id: String },
    /// Let a job go on.
    Approve(WordOptions),
    /// Deny a job.
    Reject(WordOptions),
}

#[derive(Args, Default)]
struct ListOptions {
    /// Only jobs of this topic.
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only jobs of this tenant.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// At most this many.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

#[derive(Args)]
struct WordOptions {
    id: String,
    /// Why, for the records.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// The hash that you looked at: if the job is another by now, nothing happens.
    #[arg(long, value_name = "HASH")]
    hash: Option<String>,
    /// The rule that it is for: if another asks by now, nothing happens.
    #[arg(long, value_name = "RULE")]
    rule: Option<String>,
}

impl WordOptions {
    fn word(self) -> ApprovalWord {
        ApprovalWord { comment: Some(self.reason), hash: self.hash, rule: self.rule }
    }
}

pub async fn run(options: Options, context: &Context) -> Result<u8> {
    let client = &context.client;
    match options.command.unwrap_or(Command::List(ListOptions::default())) {
        Command::List(options) => {
            let page = fetch(&options, context).await?;
            context.printer.print(&page, |page: &Page<ApprovalView>, paint| table(&page.items, now(), paint))?;
        }
        Command::Show { id } => {
            let approval = client.approval(ids::job(&id)?).await?;
            context.printer.print(&approval, page)?;
        }
        Command::Approve(options) => {
            let job = client.approve(ids::job(&options.id)?, &options.word()).await?;
            context.printer.print(&job, |job, _| decided(job, "approved"))?;
        }
        Command::Reject(options) => {
            let job = client.reject(ids::job(&options.id)?, &options.word()).await?;
            context.printer.print(&job, |job, _| decided(job, "rejected"))?;
        }
    }
    Ok(exit::DONE)
}

fn decided(job: &JobView, how: &str) -> String {
    format!("{} {how}: {}\n", job.id, job.state)
}

async fn fetch(options: &ListOptions, context: &Context) -> Result<Page<ApprovalView>> {
    let limit = options.limit.unwrap_or(usize::MAX);
    let (topic, tenant) = (options.topic.clone(), options.tenant.clone());
    let mut filter = Filter { topic, tenant, limit: None, cursor: None };
    let mut items = Vec::new();
    loop {
        filter.limit = Some((limit - items.len()).min(PAGE_APPROVALS));
        let page = context.client.approvals(&filter).await?;
        items.extend(page.items);
        filter.cursor = page.next_cursor;
        if items.len() >= limit || filter.cursor.is_none() {
            return Ok(Page { items, next_cursor: filter.cursor });
        }
    }
}

fn table(approvals: &[ApprovalView], now: Duration, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("TOPIC", Align::Left),
        ("TENANT", Align::Left),
        ("SUBMITTER", Align::Left),
        ("RULE", Align::Left),
        ("WORKFLOW", Align::Left),
        ("WAITS", Align::Right),
        ("EXPIRES IN", Align::Right),
        ("MESSAGE", Align::Left),
    ]);
    for approval in approvals {
        let waits = now.saturating_sub(Duration::from_millis(approval.asked_at.0.0));
        let left = approval.expires_at.map(|end| Duration::from_millis(end.0.0).saturating_sub(now));
        table.row([
            Cell::new(approval.id),
            Cell::new(&approval.topic),
            Cell::new(&approval.tenant),
            Cell::option(approval.submitter.as_ref()),
            Cell::new(&approval.rule),
            Cell::option(approval.origin.as_ref().map(origin)),
            Cell::new(duration::show(waits)),
            Cell::option(left.map(duration::show)),
            Cell::option(approval.message.as_ref().map(|message| shorten(message, MESSAGE_WIDTH))),
        ]);
    }
    table.render(paint)
}

fn page(detail: &ApprovalDetailView, paint: Paint) -> String {
    let ApprovalDetailView { approval: asked, job, decisions: said } = detail;
    let mut pairs = Pairs::default();
    pairs.add_cell("id", Cell::new(asked.id).tone(Tone::Strong));
    pairs.add_cell("state", Cell::new(job.state).tone(Tone::of_state(job.state)));
    pairs.add("rule", &asked.rule);
    pairs.add_option("message", asked.message.as_ref());
    pairs.add("asked", asked.asked_at);
    pairs.add_option("expires", asked.expires_at);
    pairs.add_option("decided", job.approval.as_ref().map(approval));
    pairs.add_option("workflow", asked.origin.as_ref().map(origin));
    pairs.add("run", run_as_text(&job.run));
    pairs.add("topic", &asked.topic);
    pairs.add("tenant", &asked.tenant);
    pairs.add_option("submitter", asked.submitter.as_ref());
    pairs.add_option("sandbox", job.sandbox.map(model::spec::Sandbox::as_str));
    let limits = said.iter().rev().find_map(|decision| decision.constraints.as_ref());
    pairs.add_option("policy", limits.map(constraints));
    pairs.add_option("labels", (!asked.labels.is_empty()).then(|| labels(&asked.labels)));
    pairs.add("hash", &asked.hash);
    format!("{}\n{}", pairs.render(paint), decisions(said).render(paint))
}

/// The workflow and the task of it that a job does.
pub fn origin(origin: &OriginView) -> String {
    let item = origin.item.map(|item| format!("[{item}]")).unwrap_or_default();
    let task = origin.task.as_ref().map(|task| format!(" {task}{item}")).unwrap_or_default();
    let undoes = if origin.compensation { " (undoes it)" } else { "" };
    format!("{}{task}{undoes}", origin.workflow)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::id::{JobId, WorkflowId};
    use model::time::{Millis, Timestamp};

    use super::*;
    use crate::jobs::example;

    fn asked() -> ApprovalView {
        ApprovalView {
            id: JobId(1),
            topic: "deploy".to_owned(),
            tenant: "default".to_owned(),
            submitter: Some("ada".to_owned()),
            rule: "protected-topic".to_owned(),
            message: Some("an operator must approve it".to_owned()),
            asked_at: Timestamp(Millis(0)),
            expires_at: Some(Timestamp(Millis(86_400_000))),
            hash: "00".repeat(16),
            labels: BTreeMap::new(),
            origin: None,
        }
    }

    #[test]
    fn a_list_is_one_line_per_job_with_the_time_that_is_left() {
        let expected = "\
ID                 TOPIC   TENANT   SUBMITTER  RULE             WORKFLOW               WAITS  EXPIRES IN  MESSAGE
job_0000000000001  deploy  default  ada        protected-topic  -                      1h00m      23h00m  an operator must approve it
job_0000000000001  deploy  default  ada        protected-topic  wf_0000000000002 ship  1h00m      23h00m  an operator must approve it
";
        let step =
            OriginView { workflow: WorkflowId(2), task: Some("ship".to_owned()), item: None, compensation: false };
        let approvals = [asked(), ApprovalView { origin: Some(step), ..asked() }];
        assert_eq!(table(&approvals, Duration::from_secs(3600), Paint::NONE), expected);
    }

    #[test]
    fn a_page_shows_what_would_run_and_the_hash_that_stands_for_it() {
        let detail = ApprovalDetailView { approval: asked(), job: example::job(), decisions: Vec::new() };
        let text = page(&detail, Paint::NONE);
        for line in ["run        sh -c 'echo hi'\n", "hash       00000000000000000000000000000000\n"] {
            assert!(text.contains(line), "{text}");
        }
    }
}
