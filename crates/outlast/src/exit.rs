//! Error reports and exit codes. Scripts rely on the exit codes.

use std::io;
use std::process::ExitCode;

use anyhow::Result;

use crate::definition::InvalidDefinition;
use crate::paint::{Paint, Tone, sanitize};

pub const DONE: u8 = 0;
pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;
const NOT_FOUND: u8 = 3;
const UNREACHABLE: u8 = 4;
pub const REFUSED: u8 = 5;
/// 128 + SIGINT, by shell convention.
pub const INTERRUPTED: u8 = 130;
/// 128 + SIGPIPE, by shell convention.
pub const OUTPUT_CLOSED: u8 = 141;
/// Added to Outlast's own exit codes with `--wait`, where small numbers are the job's.
pub const WAIT_OFFSET: u8 = 120;

/// Invalid usage that the command line parser cannot detect.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// A missing resource, detected without a request to the server.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotFound(pub String);

/// Reports an error and returns the exit code. `waits`: the exit code is that of a job or workflow.
pub fn finish(waits: bool, result: Result<u8>) -> ExitCode {
    let error = match result {
        Ok(code) => return ExitCode::from(code),
        Err(error) => error,
    };
    if is_broken_pipe(&error) {
        // The reader closed the pipe, as with `| head`. With `--wait` that must not look like a successful job.
        return ExitCode::from(if waits { OUTPUT_CLOSED } else { DONE });
    }
    ExitCode::from(report_error(&error) + if waits { WAIT_OFFSET } else { 0 })
}

/// Prints an error with its diagnostics and a hint. Returns the exit code.
pub fn report_error(error: &anyhow::Error) -> u8 {
    eprintln!("{} {}", Paint::for_stderr().apply(Tone::Bad, "error:"), describe(error));
    for line in diagnostics(error) {
        eprintln!("{line}");
    }
    if let Some(hint) = hint(error) {
        eprintln!("{hint}");
    }
    code_of(error)
}

/// The error with its causes. Causes already contained in an outer message are omitted.
fn describe(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if message.is_empty() {
            message = text;
        } else if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        // It already includes the innermost cause; the ones in between are not informative.
        if cause.is::<client::Error>() {
            break;
        }
    }
    message
}

/// Exit code of a command line that cannot be parsed, and of `--help` and `--version`.
pub fn usage(error: &clap::Error) -> ExitCode {
    // If printing fails, only the exit code remains.
    let _ = error.print();
    match error.exit_code() {
        0 => ExitCode::from(DONE),
        _ if has_wait_flag(std::env::args()) => ExitCode::from(WAIT_OFFSET + USAGE),
        _ => ExitCode::from(USAGE),
    }
}

/// Whether a command line that cannot be parsed is a `submit --wait` or `run --wait`.
fn has_wait_flag(arguments: impl Iterator<Item = String>) -> bool {
    let own: Vec<String> = arguments.take_while(|argument| argument != "--").collect();
    own.iter().any(|argument| argument == "submit" || argument == "run")
        && own.iter().any(|argument| argument == "--wait")
}

fn code_of(error: &anyhow::Error) -> u8 {
    if error.is::<Usage>() || error.is::<InvalidDefinition>() {
        return USAGE;
    }
    if error.is::<NotFound>() {
        return NOT_FOUND;
    }
    match client_error(error) {
        Some(client::Error::Unreachable { .. }) => UNREACHABLE,
        Some(client::Error::Refused(problem)) => match (problem.status, problem.code.as_str()) {
            (_, "policy_denied" | "quarantined") | (401 | 403, _) => REFUSED,
            (404, _) => NOT_FOUND,
            (_, _) => FAILED,
        },
        Some(client::Error::Address(_)) => USAGE,
        Some(client::Error::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => NOT_FOUND,
        // Not 4, which tells a script that it may repeat the command.
        Some(client::Error::OutcomeUnknown { .. } | client::Error::Protocol(_) | client::Error::File { .. }) | None => {
            FAILED
        }
    }
}

/// The server's diagnostics of a definition, one line per problem and suggestion.
fn diagnostics(error: &anyhow::Error) -> Vec<String> {
    let Some(client::Error::Refused(problem)) = client_error(error) else { return Vec::new() };
    let mut lines = Vec::new();
    for diagnostic in &problem.diagnostics {
        let position = diagnostic.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        let field = if diagnostic.field.is_empty() { String::new() } else { format!("{}: ", diagnostic.field) };
        lines.push(sanitize(&format!("  {position}{field}{}", diagnostic.message)));
        lines.extend(diagnostic.suggestion.as_ref().map(|help| sanitize(&format!("    help: {help}"))));
    }
    lines
}

fn hint(error: &anyhow::Error) -> Option<&'static str> {
    match client_error(error)? {
        client::Error::Unreachable { .. } => {
            Some("Start a server with `outlast up`, or set another one with --server or OUTLAST_SERVER.")
        }
        client::Error::Refused(problem) if problem.status == 401 => Some("Authenticate with --token or OUTLAST_TOKEN."),
        client::Error::Protocol(_) => {
            Some("Run `outlast doctor` to compare the versions of the server and this command.")
        }
        client::Error::OutcomeUnknown { .. } => {
            Some("Show the job, workflow or schedule first: the command may have been executed.")
        }
        client::Error::Refused(_) | client::Error::Address(_) | client::Error::File { .. } => None,
    }
}

fn client_error(error: &anyhow::Error) -> Option<&client::Error> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kinds = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    // A broken HTTP connection is wrapped in a client error and is a failure.
    client_error(error).is_none() && kinds.into_iter().any(|kind| kind == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use api::Problem;

    use super::*;

    fn refused(status: u16, code: &str) -> anyhow::Error {
        let problem = Problem {
            kind: "about:blank".to_owned(),
            title: String::new(),
            status,
            detail: String::new(),
            code: code.to_owned(),
            field: None,
            blobs: Vec::new(),
            offset: None,
            diagnostics: Vec::new(),
        };
        client::Error::Refused(Box::new(problem)).into()
    }

    fn unreachable(server: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> client::Error {
        let (servers, tried_for) = (server.to_owned(), std::time::Duration::ZERO);
        client::Error::Unreachable { servers, tried_for, source: source.into() }
    }

    #[test]
    fn exit_codes_match_the_documentation() {
        assert_eq!(code_of(&Usage(String::new()).into()), 2);
        assert_eq!(code_of(&NotFound(String::new()).into()), 3);
        assert_eq!(code_of(&refused(404, "job_not_found")), 3);
        assert_eq!(code_of(&refused(401, "unauthenticated")), 5);
        assert_eq!(code_of(&refused(403, "forbidden")), 5);
        assert_eq!(code_of(&refused(409, "policy_denied")), 5);
        assert_eq!(code_of(&refused(409, "quarantined")), 5);
        assert_eq!(code_of(&refused(409, "conflict")), 1);
        assert_eq!(code_of(&client::Error::Protocol(String::new()).into()), 1);
        assert_eq!(code_of(&anyhow::Error::from(unreachable("", "x")).context("while waiting")), 4);
        let text = String::new;
        let unknown = client::Error::OutcomeUnknown { request: text(), server: text(), why: text(), check: text() };
        assert_eq!(code_of(&unknown.into()), 1);
        assert_eq!(code_of(&anyhow::anyhow!("anything else")), 1);
    }

    #[test]
    fn a_cause_is_reported_once() {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let wrapped = io::Error::other(anyhow::Error::from(refused()).context("tcp connect error"));
        let error = anyhow::Error::from(unreachable("http://x", wrapped)).context("while waiting");
        let expected = "while waiting: cannot reach the server at http://x: connection refused";
        assert_eq!(describe(&error), expected);
        let error = anyhow::Error::from(refused()).context("it fails: connection refused. Try later");
        assert_eq!(describe(&error), "it fails: connection refused. Try later");
        assert_eq!(describe(&anyhow::Error::from(refused()).context("outer")), "outer: connection refused");
    }

    #[test]
    fn a_closed_pipe_is_no_failure_but_a_broken_connection_is() {
        let pipe = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(&Err::<(), _>(pipe()).context("cannot print").unwrap_err()));
        let connection = unreachable("", pipe());
        assert!(!is_broken_pipe(&connection.into()));
    }

    #[test]
    fn submit_and_run_with_wait_are_recognised_in_invalid_command_lines() {
        let waits = |line: &str| has_wait_flag(line.split(' ').map(str::to_owned));
        assert!(waits("outlast run --wait"));
        assert!(waits("outlast submit --wait --bogus -- true"));
        assert!(!waits("outlast submit --bogus -- x --wait"));
        assert!(!waits("outlast queues drain --wait"));
    }
}
