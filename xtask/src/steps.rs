//! Steps that all run, each with one line, and a summary that decides the exit code.

use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, anyhow, bail};

const NAME_WIDTH: usize = 12;

/// Runs steps one after the other and remembers which failed.
#[derive(Default)]
pub struct Steps {
    ran: usize,
    failed: Vec<String>,
}

impl Steps {
    /// A step that says nothing unless it fails; then its message is shown, and what to do about it.
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

    /// A step whose output is worth following while it runs.
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

    /// Says that a step does not apply, and why.
    pub fn left_out(&self, name: &str, why: &str) {
        println!("{name:<NAME_WIDTH$} left out: {why}");
    }

    /// The last line, and an error when a step failed.
    pub fn finish(self) -> Result<()> {
        if self.failed.is_empty() {
            println!("All {} steps passed.", self.ran);
            return Ok(());
        }
        Err(anyhow!("{} of {} steps failed: {}", self.failed.len(), self.ran, self.failed.join(", ")))
    }
}

/// Runs a command and keeps its output for the case that it fails.
pub fn run_captured(command: &mut Command) -> Result<()> {
    let shown = display(command);
    let output = command.stdin(Stdio::null()).output().map_err(|error| anyhow!("cannot run `{shown}`: {error}"))?;
    if !output.status.success() {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        bail!("{err}{out}\n`{shown}` ended with {}", output.status);
    }
    Ok(())
}

/// Runs a command with its output going where ours goes.
pub fn run_shown(command: &mut Command) -> Result<()> {
    let shown = display(command);
    let status = command.stdin(Stdio::null()).status().map_err(|error| anyhow!("cannot run `{shown}`: {error}"))?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

/// The command as one would type it.
fn display(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program()).to_string_lossy().into_owned();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    std::iter::once(name).chain(arguments).collect::<Vec<_>>().join(" ")
}

fn flush() {
    // Nobody reads our output any more: nothing to do about it.
    let _ = io::stdout().flush();
}
