//! `outlast stack down`: stops the services and keeps their state.

use anyhow::{Context as _, Result};
use rustix::process::Signal;

use super::file::Stack;
use super::operator::Operator;
use super::service::Service;

/// What goes on after the services were stopped.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Leftover {
    /// Jobs whose processes go on under their spawner.
    pub jobs: usize,
}

/// Stops runner nodes, then the control node, so that it hears what becomes of their jobs. `strays` are services that
/// are no longer in the stack file.
pub async fn down(
    stack: &Stack,
    strays: &[Service],
    stops_jobs: bool,
    operator: &mut Operator<'_>,
) -> Result<Leftover> {
    let signal = if stops_jobs { Signal::INT } else { Signal::TERM };
    let runners: Vec<&Service> = stack.runners().iter().chain(strays).rev().collect();
    stop(&runners, signal, operator).await?;
    stop(&[stack.control()], signal, operator).await?;
    let mut leftover = Leftover::default();
    for service in runners.into_iter().chain([stack.control()]) {
        let Some(spawner) = service.spawner() else { continue };
        if stops_jobs {
            // Its server process was stopped earlier, without its jobs.
            let sent = spawner.process.signal(Signal::TERM);
            sent.with_context(|| format!("cannot stop the jobs of {}", service.name()))?;
        } else {
            leftover.jobs += spawner.attempts;
        }
    }
    Ok(leftover)
}

async fn stop(services: &[&Service], signal: Signal, operator: &mut Operator<'_>) -> Result<()> {
    let running: Vec<&Service> = services.iter().copied().filter(|service| service.process().is_some()).collect();
    operator.stop(&running, signal).await?;
    for service in services {
        let was_running = running.iter().any(|stopped| stopped.name() == service.name());
        operator.progress.done(service.name(), if was_running { "stopped" } else { "was not running" });
    }
    Ok(())
}
