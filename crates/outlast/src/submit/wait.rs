//! `--wait`: prints the job's output while it runs and returns its exit code.
//!
//! The job survives a restart of its server, so the wait tolerates short outages.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Result;
use api::JobView;
use client::Client;
use model::id::JobId;
use model::spec::Run;
use model::state::State;

use crate::context::Context;
use crate::interrupt::{OrInterrupt, or_interrupt};
use crate::logs::{Outage, follow};
use crate::paint::{Paint, Tone, sanitize};
use crate::{exit, output};

/// Server-side wait of one request.
const WAIT_STEP: Duration = Duration::from_secs(30);
/// The first wait is shorter, so that a pending approval is reported soon.
const FIRST_WAIT: Duration = Duration::from_secs(2);

pub async fn until_terminal(id: JobId, context: &Context) -> Result<u8> {
    let with_output = context.printer.is_human_readable();
    let paint = Paint::for_stderr();
    if with_output && paint != Paint::NONE {
        eprintln!("{}", paint.apply(Tone::Quiet, &id.to_string()));
    }
    let work = async {
        let client = &context.client;
        if !with_output {
            return wait_until_terminal(client, id).await;
        }
        // The first failure ends the wait, for example if the output can no longer be written.
        let (job, ()) = tokio::try_join!(wait_until_terminal(client, id), follow(client, id))?;
        Ok(job)
    };
    let work = async {
        tokio::select! {
            // A finished job takes precedence over a closed output.
            biased;
            result = work => result,
            () = output::closed() => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        }
    };
    match or_interrupt(work).await {
        Ok(OrInterrupt::Done(job)) => {
            let denial = denial_reason(&job, context).await;
            context.printer.print(&job, |job: &JobView, _| summary(job, denial))?;
            Ok(exit_code(&job))
        }
        Ok(OrInterrupt::Interrupted) => {
            print_stderr(&format!("\n{}", continues_message(id)));
            Ok(exit::INTERRUPTED)
        }
        Err(error) if exit::is_broken_pipe(&error) => {
            print_stderr(&continues_message(id));
            Ok(exit::OUTPUT_CLOSED)
        }
        Err(error) => Err(error),
    }
}

fn continues_message(id: JobId) -> String {
    format!("{id} continues. Follow it with `outlast logs -f {id}`, or cancel it with `outlast jobs cancel {id}`.")
}

/// Unlike `eprintln!`, does not panic if standard error is closed.
fn print_stderr(message: &str) {
    let _ = writeln!(io::stderr().lock(), "{message}");
}

async fn wait_until_terminal(client: &Client, id: JobId) -> Result<JobView> {
    let (mut outage, client) = Outage::of(client);
    let mut step = FIRST_WAIT;
    loop {
        match client.wait(id, step).await {
            Ok(job) if job.state.is_terminal() => return Ok(job),
            Ok(job) => {
                if step == FIRST_WAIT && job.state == State::ApprovalRequired {
                    print_stderr(&format!("{id} requires approval; see `outlast approvals show {id}`."));
                }
                step = WAIT_STEP;
                outage.end();
            }
            Err(error) => outage.wait_or_fail(error).await?,
        }
    }
}

/// The rule or person that denied a job, with the reason.
async fn denial_reason(job: &JobView, context: &Context) -> Option<String> {
    if job.state != State::Denied {
        return None;
    }
    let history = context.client.history(job.id).await.ok()?;
    if let Some(rejected) = history.approval.filter(|decision| !decision.approved) {
        let by = rejected.by.as_deref().unwrap_or("an unknown person");
        let comment = rejected.comment.map(|comment| format!(": {comment}")).unwrap_or_default();
        return Some(format!("rejected by {by}{comment}"));
    }
    let decision = history.decisions.into_iter().next_back()?;
    let message = decision.message.map(|message| format!(": {message}")).unwrap_or_default();
    Some(format!("rule {}{message}", decision.rule))
}

/// Result for standard output. The reason of a failure goes to standard error.
fn summary(job: &JobView, denial: Option<String>) -> String {
    let is_process = matches!(job.run, Run::Process(_) | Run::Wasm(_));
    if job.state == State::Succeeded {
        let result = job.result.as_ref().filter(|_| !is_process);
        return result.map(|result| format!("{}\n", result.as_str())).unwrap_or_default();
    }
    // A program that failed with an exit code has reported the reason itself.
    let has_exit_code = is_process && job.state == State::Failed && job.exit_code.is_some();
    if !has_exit_code {
        let why = denial.or_else(|| job.message.clone()).or_else(|| job.reason.clone());
        let why = why.map(|why| format!(": {}", sanitize(&why))).unwrap_or_default();
        eprintln!("{} {} {}{why}", Paint::for_stderr().apply(Tone::Bad, "error:"), job.id, verb(job.state));
    }
    String::new()
}

fn verb(state: State) -> &'static str {
    match state {
        State::Failed => "failed",
        State::TimedOut => "timed out",
        State::Cancelled => "was cancelled",
        State::Denied => "was denied by the policy",
        State::Quarantined => "is quarantined: the policy withholds its result",
        State::Abandoned => "was abandoned",
        State::Succeeded => "succeeded",
        State::Pending
        | State::Blocked
        | State::ApprovalRequired
        | State::Scheduled
        | State::Dispatched
        | State::Running
        | State::Cancelling
        | State::Scanning => "is not terminal",
    }
}

/// The job's exit code, or 128 plus the signal that killed it, by shell convention.
fn exit_code(job: &JobView) -> u8 {
    match job.state {
        State::Succeeded => exit::DONE,
        State::Denied | State::Quarantined => exit::WAIT_OFFSET + exit::REFUSED,
        State::Failed
        | State::TimedOut
        | State::Cancelled
        | State::Abandoned
        | State::Pending
        | State::Blocked
        | State::ApprovalRequired
        | State::Scheduled
        | State::Dispatched
        | State::Running
        | State::Cancelling
        | State::Scanning => {
            let own = job.exit_code.map(|code| (code & 0xff) as u8).filter(|code| *code != 0);
            let signal = job.signal.and_then(|signal| u8::try_from(signal).ok()?.checked_add(128));
            own.or(signal).unwrap_or(exit::FAILED)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::example;

    #[test]
    fn the_exit_code_is_the_jobs_own() {
        let code = |state, exit_code, signal| exit_code_of(JobView { state, exit_code, signal, ..example::job() });
        assert_eq!(code(State::Succeeded, Some(0), None), 0);
        assert_eq!(code(State::Failed, Some(3), None), 3);
        assert_eq!(code(State::Failed, Some(256), None), 1);
        assert_eq!(code(State::Failed, None, Some(9)), 137);
        assert_eq!(code(State::Failed, None, None), 1);
        assert_eq!(code(State::TimedOut, None, Some(15)), 143);
        assert_eq!(code(State::Cancelled, Some(0), None), 1);
        assert_eq!(code(State::Denied, None, None), 125);
    }

    fn exit_code_of(job: JobView) -> u8 {
        exit_code(&job)
    }
}
