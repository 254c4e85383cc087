//! `--wait`: the job's output as it comes, then its exit code as ours.
//!
//! The job outlasts its server, so the wait does, too: a server that goes away is given some time to come back.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Result;
use client::Client;
use model::id::JobId;
use model::spec::Run;
use model::state::State;
use model::view::JobView;

use crate::context::Context;
use crate::interrupt::{Raced, race};
use crate::logs::{Absence, follow};
use crate::paint::{Paint, Tone, tame};
use crate::{exit, output};

/// How long one request waits for the job; then the next one does.
const WAIT_STEP: Duration = Duration::from_secs(30);
/// The first request is shorter: a job that waits for a person should not do so without a word.
const FIRST_WAIT: Duration = Duration::from_secs(2);

pub async fn until_terminal(id: JobId, context: &Context) -> Result<u8> {
    let with_output = context.printer.is_for_people();
    let paint = Paint::for_stderr();
    if with_output && paint != Paint::NONE {
        eprintln!("{}", paint.apply(Tone::Quiet, &id.to_string()));
    }
    let work = async {
        let client = &context.client;
        if !with_output {
            return terminal(client, id).await;
        }
        // The first that fails ends it: nobody should wait for a job whose output cannot be written any more.
        let (job, ()) = tokio::try_join!(terminal(client, id), follow(client, id))?;
        Ok(job)
    };
    let work = async {
        tokio::select! {
            // What is there in time counts, even if nobody reads it.
            biased;
            result = work => result,
            () = output::unread() => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        }
    };
    match race(work).await {
        Ok(Raced::Done(job)) => {
            let verdict = verdict_on(&job, context).await;
            context.printer.print(&job, |job: &JobView, _| last_words(job, verdict))?;
            Ok(exit_code(&job))
        }
        Ok(Raced::Interrupted) => {
            leave(&format!("\n{}", goes_on(id)));
            Ok(exit::INTERRUPTED)
        }
        Err(error) if exit::is_broken_pipe(&error) => {
            leave(&goes_on(id));
            Ok(exit::NOT_READ)
        }
        Err(error) => Err(error),
    }
}

fn goes_on(id: JobId) -> String {
    format!("{id} goes on. `outlast jobs cancel {id}` stops it, `outlast logs -f {id}` follows it.")
}

/// Unlike `eprintln!`, without a panic where standard error went away together with standard output.
fn leave(words: &str) {
    let _ = writeln!(io::stderr().lock(), "{words}");
}

async fn terminal(client: &Client, id: JobId) -> Result<JobView> {
    let mut absence = Absence::default();
    let mut step = FIRST_WAIT;
    loop {
        match client.wait(id, step).await {
            Ok(job) if job.state.is_terminal() => return Ok(job),
            Ok(job) => {
                if step == FIRST_WAIT && job.state == State::ApprovalRequired {
                    leave(&format!("{id} waits for somebody's approval: `outlast approvals show {id}` says why."));
                }
                step = WAIT_STEP;
                absence.end();
            }
            Err(error) => absence.bear(error).await?,
        }
    }
}

/// For a job that was denied: the rule that did it, and why. Its own message is worth something as well.
async fn verdict_on(job: &JobView, context: &Context) -> Option<String> {
    if job.state != State::Denied {
        return None;
    }
    let history = context.client.history(job.id).await.ok()?;
    if let Some(rejected) = history.approval.filter(|word| !word.approved) {
        let by = rejected.by.as_deref().unwrap_or("somebody");
        let comment = rejected.comment.map(|comment| format!(": {comment}")).unwrap_or_default();
        return Some(format!("{by} has rejected it{comment}"));
    }
    let decision = history.decisions.into_iter().next_back()?;
    let message = decision.message.map(|message| format!(": {message}")).unwrap_or_default();
    Some(format!("rule {}{message}", decision.rule))
}

/// What is left to say on standard output; why it did not succeed goes to standard error.
fn last_words(job: &JobView, verdict: Option<String>) -> String {
    let is_process = matches!(job.run, Run::Process(_) | Run::Wasm(_));
    if job.state == State::Succeeded {
        let result = job.result.as_ref().filter(|_| !is_process);
        return result.map(|result| format!("{}\n", result.as_str())).unwrap_or_default();
    }
    // A program that exits with a code of its own has said what it wanted to say.
    let speaks_for_itself = is_process && job.state == State::Failed && job.exit_code.is_some();
    if !speaks_for_itself {
        let why = verdict.or_else(|| job.message.clone()).or_else(|| job.reason.clone());
        let why = why.map(|why| format!(": {}", tame(&why))).unwrap_or_default();
        eprintln!("{} {} {}{why}", Paint::for_stderr().apply(Tone::Bad, "error:"), job.id, verb(job.state));
    }
    String::new()
}

fn verb(state: State) -> &'static str {
    match state {
        State::Failed => "failed",
        State::TimedOut => "ran out of time",
        State::Cancelled => "was cancelled",
        State::Denied => "was denied by the policy",
        State::Quarantined => "ended, but the policy holds its result back",
        State::Abandoned => "was abandoned",
        State::Succeeded => "succeeded",
        State::Pending
        | State::Blocked
        | State::ApprovalRequired
        | State::Scheduled
        | State::Dispatched
        | State::Running
        | State::Cancelling
        | State::Scanning => "has not ended",
    }
}

/// The job's own exit code where it has one; as shells have it, 128 and the signal that ended it.
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
