//! `outlast approvals`: lists, approves and rejects jobs that require approval.

use std::time::Duration;

use anyhow::Result;
use api::{ApprovalDetailView, ApprovalRequest, ApprovalView, JobView, OriginView, Page};
use clap::{Args, Subcommand};
use client::approvals::Filter;

use crate::context::Context;
use crate::jobs::list::{describe_run, now};
use crate::jobs::show::{approval, constraints, decisions, labels};
use crate::paint::{Paint, Tone};
use crate::table::{Align, Cell, Pairs, Table, shorten};
use crate::{duration, exit, ids};

const PAGE_APPROVALS: usize = 500;
const MESSAGE_WIDTH: usize = 60;

/// List, inspect, approve and reject jobs that require approval.
#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// List jobs waiting for approval, oldest first.
    List(ListOptions),
    /// Show a job waiting for approval, with the policy's decisions.
    Show {
        /// Job id.
        id: String,
    },
    /// Approve a job.
    Approve(DecisionOptions),
    /// Reject a job.
    Reject(DecisionOptions),
}

#[derive(Args, Default)]
struct ListOptions {
    /// Only jobs of this topic.
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only jobs of this tenant.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Maximum number of approvals [default: all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

#[derive(Args)]
struct DecisionOptions {
    /// Job id.
    id: String,
    /// Reason, recorded in the audit log.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Expected job hash. Fails if the job has changed.
    #[arg(long, value_name = "HASH")]
    hash: Option<String>,
    /// Expected rule. Fails if another rule requires the approval now.
    #[arg(long, value_name = "RULE")]
    rule: Option<String>,
}

impl DecisionOptions {
    fn request(self) -> ApprovalRequest {
        ApprovalRequest { comment: Some(self.reason), hash: self.hash, rule: self.rule }
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
            let job = client.approve(ids::job(&options.id)?, &options.request()).await?;
            context.printer.print(&job, |job, _| decided(job, "approved"))?;
        }
        Command::Reject(options) => {
            let job = client.reject(ids::job(&options.id)?, &options.request()).await?;
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
        ("WAITING", Align::Right),
        ("EXPIRES IN", Align::Right),
        ("MESSAGE", Align::Left),
    ]);
    for approval in approvals {
        let waits = now.saturating_sub(Duration::from_millis(approval.asked_at.0.0));
        let remaining = approval.expires_at.map(|end| Duration::from_millis(end.0.0).saturating_sub(now));
        table.row([
            Cell::new(approval.id),
            Cell::new(&approval.topic),
            Cell::new(&approval.tenant),
            Cell::option(approval.submitter.as_ref()),
            Cell::new(&approval.rule),
            Cell::option(approval.origin.as_ref().map(origin)),
            Cell::new(duration::show(waits)),
            Cell::option(remaining.map(duration::show)),
            Cell::option(approval.message.as_ref().map(|message| shorten(message, MESSAGE_WIDTH))),
        ]);
    }
    table.render(paint)
}

fn page(detail: &ApprovalDetailView, paint: Paint) -> String {
    let ApprovalDetailView { approval: pending, job, decisions: policy_decisions } = detail;
    let mut pairs = Pairs::default();
    pairs.add_cell("id", Cell::new(pending.id).tone(Tone::Strong));
    pairs.add_cell("state", Cell::new(job.state).tone(Tone::of_state(job.state)));
    pairs.add("rule", &pending.rule);
    pairs.add_option("message", pending.message.as_ref());
    pairs.add("requested", pending.asked_at);
    pairs.add_option("expires", pending.expires_at);
    pairs.add_option("decided", job.approval.as_ref().map(approval));
    pairs.add_option("workflow", pending.origin.as_ref().map(origin));
    pairs.add("run", describe_run(&job.run));
    pairs.add("topic", &pending.topic);
    pairs.add("tenant", &pending.tenant);
    pairs.add_option("submitter", pending.submitter.as_ref());
    pairs.add_option("sandbox", job.sandbox.map(model::spec::Sandbox::as_str));
    let limits = policy_decisions.iter().rev().find_map(|decision| decision.constraints.as_ref());
    pairs.add_option("policy", limits.map(constraints));
    pairs.add_option("labels", (!pending.labels.is_empty()).then(|| labels(&pending.labels)));
    pairs.add("hash", &pending.hash);
    format!("{}\n{}", pairs.render(paint), decisions(policy_decisions).render(paint))
}

/// Workflow and task a job belongs to.
pub fn origin(origin: &OriginView) -> String {
    let item = origin.item.map(|item| format!("[{item}]")).unwrap_or_default();
    let task = origin.task.as_ref().map(|task| format!(" {task}{item}")).unwrap_or_default();
    let compensation = if origin.compensation { " (compensation)" } else { "" };
    format!("{}{task}{compensation}", origin.workflow)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::id::{JobId, WorkflowId};
    use model::time::{Millis, Timestamp};

    use super::*;
    use crate::jobs::example;

    fn pending() -> ApprovalView {
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
    fn a_list_is_one_line_per_job_with_the_remaining_time() {
        let expected = "\
ID                 TOPIC   TENANT   SUBMITTER  RULE             WORKFLOW               WAITING  EXPIRES IN  MESSAGE
job_0000000000001  deploy  default  ada        protected-topic  -                        1h00m      23h00m  an operator must approve it
job_0000000000001  deploy  default  ada        protected-topic  wf_0000000000002 ship    1h00m      23h00m  an operator must approve it
";
        let step =
            OriginView { workflow: WorkflowId(2), task: Some("ship".to_owned()), item: None, compensation: false };
        let approvals = [pending(), ApprovalView { origin: Some(step), ..pending() }];
        assert_eq!(table(&approvals, Duration::from_secs(3600), Paint::NONE), expected);
    }

    #[test]
    fn a_page_shows_the_command_and_the_job_hash() {
        let detail = ApprovalDetailView { approval: pending(), job: example::job(), decisions: Vec::new() };
        let text = page(&detail, Paint::NONE);
        for line in ["run        sh -c 'echo hi'\n", "hash       00000000000000000000000000000000\n"] {
            assert!(text.contains(line), "{text}");
        }
    }
}
