//! `outlast stack clean`: removes the state of a stopped stack.

use std::io::{self, BufRead, IsTerminal};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::directory::{StackDirectory, strays};
use super::file::Stack;
use crate::exit::Usage;
use crate::output;

/// Idle spawners end shortly after their server process.
const SPAWNER_END_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What became of the directory of a stack.
#[derive(Debug, PartialEq, Eq)]
pub enum Cleaned {
    Removed,
    /// There was none.
    Nothing,
    /// The user does not want to.
    Kept,
}

/// Removes the directory of the stack.
pub async fn clean(stack: &Stack, is_confirmed: bool) -> Result<Cleaned> {
    let Some(directory) = StackDirectory::open(stack)? else {
        if stack.directory.exists() {
            bail!("{} is not the directory of a stack: nothing was removed", stack.directory.display());
        }
        return Ok(Cleaned::Nothing);
    };
    check_nothing_runs(stack).await?;
    if !is_confirmed && !confirm(stack).await? {
        return Ok(Cleaned::Kept);
    }
    directory.remove()?;
    Ok(Cleaned::Removed)
}

async fn check_nothing_runs(stack: &Stack) -> Result<()> {
    let deadline = Instant::now() + SPAWNER_END_TIMEOUT;
    let strays = strays(stack);
    for service in stack.services.iter().chain(&strays) {
        if let Some(process) = service.process() {
            bail!("{} is running (pid {}): stop the stack with `outlast stack down`", service.name(), process.pid());
        }
        while let Some(spawner) = service.spawner() {
            if spawner.attempts > 0 || Instant::now() > deadline {
                bail!(
                    "the spawner of {} (pid {}) still runs, with {} {}: stop it with `outlast stack down --stop-jobs`",
                    service.name(),
                    spawner.process.pid(),
                    spawner.attempts,
                    if spawner.attempts == 1 { "job" } else { "jobs" }
                );
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}

async fn confirm(stack: &Stack) -> Result<bool> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Usage(format!(
            "confirm with --yes that {} with all jobs and data of the stack is to be removed",
            stack.directory.display()
        ))
        .into());
    }
    let question = format!("Remove {} with all jobs and data of {}? [y/N] ", stack.directory.display(), stack.name);
    output::write(question.as_bytes())?;
    // On a thread of its own, so that Ctrl-C ends the command.
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer).map(|_| answer)
    });
    Ok(is_yes(&answer.await??))
}

fn is_yes(answer: &str) -> bool {
    ["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_counts() {
        assert!(is_yes("y\n") && is_yes(" YES \n"));
        assert!(!is_yes("") && !is_yes("\n") && !is_yes("n\n") && !is_yes("yesterday\n"));
    }
}
