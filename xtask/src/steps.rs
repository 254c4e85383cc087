//! Runs a sequence of steps to the end, with one line per step and a summary that decides the exit code.

use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, anyhow, bail};

const NAME_WIDTH: usize = 12;

/// Runs steps in order and records failures.
#[derive(Default)]
pub struct Steps {
    ran: usize,
    failed: Vec<String>,
}

impl Steps {
    /// Runs a step without output. On failure prints the error and the advice.
    pub fn quiet(&mut self, name: &str, advice: &str, step: impl FnOnce() -> Result<String>) {
        print!("{name:<NAME_WIDTH$} ");
        flush();
        let started = Instant::now();
        let result = step();
        let seconds = started.elapsed().as_secs_f64();
        match result {
            Ok(note) if note.is_empty() => println!("ok      {seconds:6.1} s"),
            Ok(note) => println!("ok      {seconds:6.1} s   {note}"),
            Err(error) => {
                println!("FAILED  {seconds:6.1} s");
                println!("\n{}\n", format!("{error:#}").trim_end());
                println!("What to do: {advice}\n");
                self.failed.push(name.to_owned());
            }
        }
        self.ran += 1;
        flush();
    }

    /// Runs a step with its output shown.
    pub fn shown(&mut self, name: &str, advice: &str, step: impl FnOnce() -> Result<()>) {
        println!("{name:<NAME_WIDTH$} …");
        flush();
        let started = Instant::now();
        let result = step();
        let seconds = started.elapsed().as_secs_f64();
        match result {
            Ok(()) => println!("{name:<NAME_WIDTH$} ok      {seconds:6.1} s"),
            Err(error) => {
                println!("{name:<NAME_WIDTH$} FAILED  {seconds:6.1} s   {error:#}");
                println!("What to do: {advice}\n");
                self.failed.push(name.to_owned());
            }
        }
        self.ran += 1;
        flush();
    }

    /// Prints that a step does not apply, and why.
    pub fn skip(&self, name: &str, reason: &str) {
        println!("{name:<NAME_WIDTH$} skipped: {reason}");
    }

    /// Prints the summary. An error if a step failed.
    pub fn finish(self) -> Result<()> {
        if self.failed.is_empty() {
            println!("All {} steps passed.", self.ran);
            return Ok(());
        }
        Err(anyhow!("{} of {} steps failed: {}", self.failed.len(), self.ran, self.failed.join(", ")))
    }
}

/// Runs a command. Its output is part of the error if it fails.
pub fn run_captured(command: &mut Command) -> Result<()> {
    let command_line = display(command);
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| anyhow!("cannot run `{command_line}`: {error}"))?;
    if !output.status.success() {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        bail!("{err}{out}\n`{command_line}` failed: {}", output.status);
    }
    Ok(())
}

/// Runs a command with inherited output.
pub fn run_shown(command: &mut Command) -> Result<()> {
    let command_line = display(command);
    let status =
        command.stdin(Stdio::null()).status().map_err(|error| anyhow!("cannot run `{command_line}`: {error}"))?;
    if !status.success() {
        bail!("`{command_line}` failed: {status}");
    }
    Ok(())
}

/// The command line.
fn display(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program()).to_string_lossy().into_owned();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    std::iter::once(name).chain(arguments).collect::<Vec<_>>().join(" ")
}

fn flush() {
    // The reader closed the pipe; nothing to do.
    let _ = io::stdout().flush();
}
