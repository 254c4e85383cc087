//! How the program ends: what is said about a failure, and the exit code that scripts rely on.

use std::io;
use std::process::ExitCode;

use anyhow::Result;

use crate::definition::Invalid;
use crate::paint::{Paint, Tone, tame};

pub const DONE: u8 = 0;
pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;
const NOT_FOUND: u8 = 3;
const UNREACHABLE: u8 = 4;
pub const REFUSED: u8 = 5;
/// As shells have it for a program that Ctrl-C ended.
pub const INTERRUPTED: u8 = 130;
/// As shells have it for a program that ended because nobody reads its output any more.
pub const NOT_READ: u8 = 141;
/// With `--wait` small numbers are the job's own, so Outlast's failures are moved up by this much.
pub const WAIT_OFFSET: u8 = 120;

/// What was asked for makes no sense, beyond what the parser of the command line can see.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Something that cannot exist, known without asking a server.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotFound(pub String);

/// The last words and the exit code. `waits`: the command's exit code stands for a job's.
pub fn finish(waits: bool, result: Result<u8>) -> ExitCode {
    let error = match result {
        Ok(code) => return ExitCode::from(code),
        Err(error) => error,
    };
    if is_broken_pipe(&error) {
        // Whoever reads has seen enough, as with `| head`. That is no success of a job, though.
        return ExitCode::from(if waits { NOT_READ } else { DONE });
    }
    ExitCode::from(complain(&error) + if waits { WAIT_OFFSET } else { 0 })
}

/// Says what went wrong and what may help, and gives the exit code for it.
pub fn complain(error: &anyhow::Error) -> u8 {
    eprintln!("{} {}", Paint::for_stderr().apply(Tone::Bad, "error:"), in_words(error));
    for line in diagnostics(error) {
        eprintln!("{line}");
    }
    if let Some(hint) = hint(error) {
        eprintln!("{hint}");
    }
    code_of(error)
}

/// The error and its causes, each said once: many errors already say their cause.
fn in_words(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if words.is_empty() {
            words = text;
        } else if !words.contains(&text) {
            words = format!("{words}: {text}");
        }
        // It says the innermost cause itself, and what is in between tells nobody anything.
        if cause.is::<client::Error>() {
            break;
        }
    }
    words
}

/// For a command line that could not be understood; help and version end here, too.
pub fn usage(error: &clap::Error) -> ExitCode {
    // If not even that can be printed, the exit code must say it all.
    let _ = error.print();
    match error.exit_code() {
        0 => ExitCode::from(DONE),
        _ if asks_to_wait(std::env::args()) => ExitCode::from(WAIT_OFFSET + USAGE),
        _ => ExitCode::from(USAGE),
    }
}

/// Whether a command line that cannot be understood is one of `submit --wait` or `run --wait`.
fn asks_to_wait(arguments: impl Iterator<Item = String>) -> bool {
    let own: Vec<String> = arguments.take_while(|argument| argument != "--").collect();
    own.iter().any(|argument| argument == "submit" || argument == "run")
        && own.iter().any(|argument| argument == "--wait")
}

fn code_of(error: &anyhow::Error) -> u8 {
    if error.is::<Usage>() || error.is::<Invalid>() {
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
        Some(client::Error::Protocol(_) | client::Error::File { .. }) | None => FAILED,
    }
}

/// What a server has found in a definition, a line for each problem and one for what helps.
fn diagnostics(error: &anyhow::Error) -> Vec<String> {
    let Some(client::Error::Refused(problem)) = client_error(error) else { return Vec::new() };
    let mut lines = Vec::new();
    for found in &problem.diagnostics {
        let place = found.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        let field = if found.field.is_empty() { String::new() } else { format!("{}: ", found.field) };
        lines.push(tame(&format!("  {place}{field}{}", found.message)));
        lines.extend(found.suggestion.as_ref().map(|help| tame(&format!("    help: {help}"))));
    }
    lines
}

fn hint(error: &anyhow::Error) -> Option<&'static str> {
    match client_error(error)? {
        client::Error::Unreachable { .. } => {
            Some("`outlast up` starts a server here; --server or OUTLAST_SERVER names another one.")
        }
        client::Error::Refused(problem) if problem.status == 401 => {
            Some("Say who you are with --token or OUTLAST_TOKEN.")
        }
        client::Error::Protocol(_) => {
            Some("`outlast doctor` tells whether the server has another version than this command.")
        }
        client::Error::Refused(_) | client::Error::Address(_) | client::Error::File { .. } => None,
    }
}

fn client_error(error: &anyhow::Error) -> Option<&client::Error> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kinds = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    // An HTTP connection that breaks has a client error around it, and is a failure.
    client_error(error).is_none() && kinds.into_iter().any(|kind| kind == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use model::view::Problem;

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

    #[test]
    fn exit_codes_are_those_of_the_contract() {
        assert_eq!(code_of(&Usage(String::new()).into()), 2);
        assert_eq!(code_of(&NotFound(String::new()).into()), 3);
        assert_eq!(code_of(&refused(404, "job_not_found")), 3);
        assert_eq!(code_of(&refused(401, "unauthenticated")), 5);
        assert_eq!(code_of(&refused(403, "forbidden")), 5);
        assert_eq!(code_of(&refused(409, "policy_denied")), 5);
        assert_eq!(code_of(&refused(409, "quarantined")), 5);
        assert_eq!(code_of(&refused(409, "conflict")), 1);
        assert_eq!(code_of(&client::Error::Protocol(String::new()).into()), 1);
        let unreachable = client::Error::Unreachable { url: String::new(), source: "x".into() };
        assert_eq!(code_of(&anyhow::Error::from(unreachable).context("while waiting")), 4);
        assert_eq!(code_of(&anyhow::anyhow!("anything else")), 1);
    }

    #[test]
    fn a_cause_is_said_once() {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let wrapped = io::Error::other(anyhow::Error::from(refused()).context("tcp connect error"));
        let unreachable = client::Error::Unreachable { url: "http://x".to_owned(), source: wrapped.into() };
        let error = anyhow::Error::from(unreachable).context("while waiting");
        let expected = "while waiting: cannot reach the server at http://x: connection refused";
        assert_eq!(in_words(&error), expected);
        let error = anyhow::Error::from(refused()).context("it fails: connection refused. Try later");
        assert_eq!(in_words(&error), "it fails: connection refused. Try later");
        assert_eq!(in_words(&anyhow::Error::from(refused()).context("outer")), "outer: connection refused");
    }

    #[test]
    fn a_reader_that_has_seen_enough_is_no_failure_but_a_broken_connection_is() {
        let pipe = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(&Err::<(), _>(pipe()).context("cannot print").unwrap_err()));
        let connection = client::Error::Unreachable { url: String::new(), source: pipe().into() };
        assert!(!is_broken_pipe(&connection.into()));
    }

    #[test]
    fn a_waiting_submit_or_run_is_recognised_even_if_it_makes_no_sense() {
        let waits = |line: &str| asks_to_wait(line.split(' ').map(str::to_owned));
        assert!(waits("outlast run --wait"));
        assert!(waits("outlast submit --wait --bogus -- true"));
        assert!(!waits("outlast submit --bogus -- x --wait"));
        assert!(!waits("outlast queues drain --wait"));
    }
}
