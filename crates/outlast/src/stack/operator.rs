//! Starts, stops and awaits the services of a stack.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use api::{CreateJoinToken, NodeView};
use client::Client;
use rustix::process::Signal;

use super::file::Stack;
use super::process::Process;
use super::progress::Progress;
use super::service::{Role, Service, Started};
use crate::duration;

const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time for one answer of the control node.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// A service that is ready for this long is considered to have started.
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// Time for nodes to find their control node again.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(20);
/// A token is for one node that is being started.
const TOKEN_LIFETIME: Duration = Duration::from_secs(600);

/// Works on the services of a stack.
pub struct Operator<'a> {
    stack: &'a Stack,
    client: &'a Client,
    timeout: Duration,
    pub progress: Progress,
    work: BTreeMap<String, Work>,
}

/// What this command does with a service.
struct Work {
    since: Instant,
    was_stopped: bool,
    started: Option<Started>,
}

/// Whether a service can be used.
enum Readiness {
    Ready,
    /// What is missing.
    NotYet(String),
    /// Its process has ended.
    Ended(String),
}

impl<'a> Operator<'a> {
    pub fn new(stack: &'a Stack, client: &'a Client, timeout: Duration, progress: Progress) -> Self {
        Self { stack, client, timeout, progress, work: BTreeMap::new() }
    }

    fn work(&mut self, service: &Service) -> &mut Work {
        let new = || Work { since: Instant::now(), was_stopped: false, started: None };
        self.work.entry(service.name().to_owned()).or_insert_with(new)
    }

    /// Starts a service that does not run.
    pub async fn start(&mut self, service: &Service) -> Result<()> {
        self.work(service);
        self.progress.active(service.name(), "starting");
        let token = match service.role() {
            Role::Runner if !service.has_joined() => Some(self.join_token(service).await?),
            Role::Runner | Role::Control => None,
        };
        let started = service.start(token.as_deref())?;
        self.work(service).started = Some(started);
        Ok(())
    }

    async fn join_token(&self, service: &Service) -> Result<String> {
        let request = CreateJoinToken {
            reusable: false,
            expires_in_ms: Some(TOKEN_LIFETIME.as_millis() as u64),
            note: Some(format!("stack {}: {}", self.stack.name, service.name())),
        };
        let created = self.client.create_join_token(&request).await;
        Ok(created.with_context(|| format!("cannot create a join token for {}", service.name()))?.token)
    }

    /// Signals the services that run, in this order, and waits until they have ended. Returns how many there were.
    pub async fn stop(&mut self, services: &[&Service], signal: Signal) -> Result<usize> {
        let mut stopping: Vec<(&Service, Process)> = Vec::new();
        for service in services {
            let Some(process) = service.process() else { continue };
            self.work(service).was_stopped = true;
            self.progress.active(service.name(), "stopping");
            let sent = process.signal(signal);
            sent.with_context(|| format!("cannot stop {} (pid {})", service.name(), process.pid()))?;
            stopping.push((service, process));
        }
        let (count, deadline) = (stopping.len(), Instant::now() + self.timeout);
        loop {
            stopping.retain(|(_, process)| process.is_running());
            if stopping.is_empty() {
                return Ok(count);
            }
            if Instant::now() > deadline {
                let left: Vec<String> = stopping
                    .iter()
                    .map(|(service, process)| format!("{} (pid {})", service.name(), process.pid()))
                    .collect();
                let after = duration::show(self.timeout);
                bail!(
                    "still running {after} after it was told to stop: {}. Its log is in {}",
                    left.join(", "),
                    stopping[0].0.log().display()
                );
            }
            tokio::time::sleep(POLL_INTERVAL).await;
            self.progress.tick();
        }
    }

    /// Waits until services that run can be used. Reports all that cannot.
    pub async fn wait_until_ready(&mut self, services: &[&Service]) -> Result<()> {
        self.wait(services, self.timeout, true).await
    }

    /// The same for services to which nothing was done: without progress.
    pub async fn wait_for_others(&mut self, services: &[&Service]) -> Result<()> {
        self.wait(services, self.timeout.min(OTHERS_TIMEOUT), false).await
    }

    async fn wait(&mut self, services: &[&Service], timeout: Duration, shows: bool) -> Result<()> {
        let deadline = Instant::now() + timeout;
        let (mut waiting, mut problems) = (services.to_vec(), Vec::new());
        loop {
            let nodes = self.nodes().await;
            let is_late = Instant::now() > deadline;
            let mut next = Vec::new();
            for service in waiting {
                match self.readiness(service, &nodes)? {
                    Readiness::Ready if shows => self.report_ready(service),
                    Readiness::Ready => {}
                    Readiness::NotYet(reason) if is_late => {
                        let text = format!("is not ready after {}: {reason}", duration::show(timeout));
                        problems.push(self.report_failed(service, &text));
                    }
                    Readiness::NotYet(reason) => {
                        if shows {
                            self.progress.active(service.name(), &format!("starting: {reason}"));
                        }
                        next.push(service);
                    }
                    Readiness::Ended(how) => problems.push(self.report_failed(service, &format!("has ended: {how}"))),
                }
            }
            waiting = next;
            if waiting.is_empty() {
                return if problems.is_empty() { Ok(()) } else { Err(anyhow!(problems.join("\n"))) };
            }
            tokio::time::sleep(POLL_INTERVAL).await;
            self.progress.tick();
        }
    }

    fn report_ready(&mut self, service: &Service) {
        let pid = service.process().map(|process| format!(", pid {}", process.pid())).unwrap_or_default();
        let jobs = match service.spawner().map_or(0, |spawner| spawner.attempts) {
            0 => String::new(),
            1 => ", 1 job running".to_owned(),
            jobs => format!(", {jobs} jobs running"),
        };
        let work = self.work(service);
        let verb = match (&work.started, work.was_stopped) {
            (None, _) => "already running".to_owned(),
            (Some(_), false) => format!("started in {}", duration::show(work.since.elapsed())),
            (Some(_), true) => format!("restarted in {}", duration::show(work.since.elapsed())),
        };
        self.progress.done(service.name(), &format!("{verb}{pid}{jobs}"));
    }

    /// The problem with the end of the service's log.
    fn report_failed(&mut self, service: &Service, text: &str) -> String {
        self.progress.failed(service.name(), text);
        let tail = service.log_tail(self.work(service).started.as_ref());
        let log = service.log();
        match tail.is_empty() {
            true => format!("{} {text}. Its log, {}, is empty", service.name(), log.display()),
            false => format!("{} {text}. The end of its log, {}:{tail}", service.name(), log.display()),
        }
    }

    /// The nodes of the cluster, or why the control node does not tell them.
    pub async fn nodes(&self) -> Result<Vec<NodeView>, String> {
        let asked = async {
            self.client.ready().await?;
            self.client.nodes().await
        };
        match tokio::time::timeout(ANSWER_TIMEOUT, asked).await {
            Ok(Ok(page)) => Ok(page.items),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the control node does not answer".to_owned()),
        }
    }

    /// Whether a service can be used, given the nodes that the control node knows.
    fn readiness(&mut self, service: &Service, nodes: &Result<Vec<NodeView>, String>) -> Result<Readiness> {
        let started = &mut self.work(service).started;
        let ended = match started {
            Some(started) => started.ended(),
            None if service.process().is_none() => Some("it does not run".to_owned()),
            None => None,
        };
        if let Some(ended) = ended {
            return Ok(Readiness::Ended(ended));
        }
        let nodes = match nodes {
            Ok(nodes) => nodes,
            Err(reason) => return Ok(Readiness::NotYet(reason.clone())),
        };
        let Some((id, incarnation)) = service.identity()? else {
            return Ok(Readiness::NotYet("it has not opened its data directory".to_owned()));
        };
        // The control node may not have noticed yet that the previous process has ended.
        let is_current = started.as_ref().is_none_or(|started| started.is_newer(incarnation));
        let node = nodes.iter().find(|node| node.id == id);
        Ok(match (service.role(), node) {
            (Role::Control, None) => {
                Readiness::NotYet(format!("another server answers at {}: stop it", self.stack.url()))
            }
            (Role::Runner, None) => Readiness::NotYet("it has not joined the cluster".to_owned()),
            (Role::Control, Some(_)) => Readiness::Ready,
            (Role::Runner, Some(node)) if node.incarnation != incarnation.0 || !is_current => {
                Readiness::NotYet("it is not connected".to_owned())
            }
            (Role::Runner, Some(node)) => match node.state.as_str() {
                "disconnected" | "lost" => Readiness::NotYet(format!("the control node sees it as {}", node.state)),
                _ if node.capacity.echo == 0 => Readiness::NotYet("it has not reported its capacity".to_owned()),
                // Cordoned and drained nodes are as their operator wants them.
                _ => Readiness::Ready,
            },
        })
    }

    /// Makes sure that a service stays ready: a process may fail shortly after its start.
    pub async fn settle(&mut self, service: &Service) -> Result<()> {
        let until = Instant::now() + SETTLE_TIME;
        while Instant::now() < until {
            tokio::time::sleep(POLL_INTERVAL).await;
            self.progress.tick();
        }
        let nodes = self.nodes().await;
        match self.readiness(service, &nodes)? {
            Readiness::Ready => Ok(()),
            Readiness::NotYet(reason) | Readiness::Ended(reason) => {
                bail!(self.report_failed(service, &format!("was ready and is not any more: {reason}")))
            }
        }
    }

    /// Replaces the process of a service. Its jobs go on.
    pub async fn replace(&mut self, service: &Service) -> Result<()> {
        self.work.remove(service.name());
        self.stop(&[service], Signal::TERM).await?;
        self.start(service).await?;
        self.wait_until_ready(&[service]).await
    }
}
