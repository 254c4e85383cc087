//! `outlast stack status`: the services with their processes and what the control node says about them.

use std::path::PathBuf;
use std::time::Duration;

use api::NodeView;
use model::id::NodeId;
use serde::Serialize;

use super::file::Stack;
use super::service::{Role, Service};
use crate::duration;
use crate::nodes::tone_of;
use crate::paint::{Paint, Tone};
use crate::table::{Align, Cell, Table};

/// A stack as it is.
#[derive(Debug, Serialize)]
pub struct StackView {
    name: String,
    directory: PathBuf,
    url: String,
    /// Why the control node says nothing about its nodes.
    problem: Option<String>,
    services: Vec<ServiceView>,
}

#[derive(Debug, Serialize)]
struct ServiceView {
    service: String,
    /// `control` or `runner`.
    role: &'static str,
    pid: Option<i32>,
    /// `running` or `stopped`.
    state: &'static str,
    uptime_ms: Option<u64>,
    /// False: it is no longer in the stack file.
    in_file: bool,
    /// Jobs that go on without the service.
    detached_jobs: usize,
    node: Option<NodeId>,
    node_state: Option<String>,
    version: Option<String>,
    jobs: Option<u32>,
    log: PathBuf,
}

impl StackView {
    /// `nodes` are those of the cluster, or why they are not known.
    pub fn new(stack: &Stack, strays: &[Service], nodes: Result<Vec<NodeView>, String>) -> Self {
        let (nodes, problem) = match nodes {
            Ok(nodes) => (nodes, None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        let listed = stack.services.iter().map(|service| ServiceView::new(service, true, &nodes));
        let strays = strays.iter().filter(|service| service.process().is_some());
        let services = listed.chain(strays.map(|service| ServiceView::new(service, false, &nodes))).collect();
        let (name, directory) = (stack.name.clone(), stack.directory.clone());
        Self { name, directory, url: stack.url(), problem, services }
    }

    pub fn table(&self, paint: Paint) -> String {
        let mut table = Table::new(&[
            ("SERVICE", Align::Left),
            ("PID", Align::Right),
            ("STATE", Align::Left),
            ("VERSION", Align::Left),
            ("UPTIME", Align::Right),
            ("NODE", Align::Left),
            ("NODE STATE", Align::Left),
            ("JOBS", Align::Right),
        ]);
        for service in &self.services {
            table.row(service.cells());
        }
        let mut text = table.render(paint);
        let runs = self.services.iter().any(|service| service.state == "running");
        if let Some(problem) = self.problem.as_ref().filter(|_| runs) {
            text.push_str(&format!("\n{} {problem}\n", paint.apply(Tone::Bad, "The control node is not ready:")));
        }
        text
    }
}

impl ServiceView {
    fn new(service: &Service, in_file: bool, nodes: &[NodeView]) -> Self {
        let process = service.process();
        let id = service.identity().ok().flatten().map(|(id, _)| id);
        let node = nodes.iter().find(|node| Some(node.id) == id);
        let detached_jobs = match process {
            Some(_) => 0,
            None => service.spawner().map_or(0, |spawner| spawner.attempts),
        };
        let role = match service.role() {
            Role::Control => "control",
            Role::Runner => "runner",
        };
        let uptime = process.as_ref().and_then(|process| process.uptime());
        Self {
            service: service.name().to_owned(),
            role,
            pid: process.as_ref().map(|process| process.pid()),
            state: if process.is_some() { "running" } else { "stopped" },
            uptime_ms: uptime.map(|uptime| uptime.as_millis() as u64),
            in_file,
            detached_jobs,
            node: id,
            node_state: node.map(|node| node.state.clone()),
            version: node.filter(|_| process.is_some()).map(|node| node.version.clone()),
            jobs: node.map(|node| node.in_flight),
            log: service.log(),
        }
    }

    fn cells(&self) -> [Cell; 8] {
        let state = match (self.detached_jobs, self.in_file) {
            (0, true) => self.state.to_owned(),
            (0, false) => format!("{}, not in the file", self.state),
            (1, _) => format!("{}, 1 job goes on", self.state),
            (jobs, _) => format!("{}, {jobs} jobs go on", self.state),
        };
        let tone = if self.pid.is_some() { Tone::Good } else { Tone::Bad };
        let node_state = Cell::option(self.node_state.as_ref());
        let node_state = match &self.node_state {
            Some(state) => node_state.tone(tone_of(state)),
            None => node_state,
        };
        [
            Cell::new(&self.service),
            Cell::option(self.pid),
            Cell::new(state).tone(tone),
            Cell::option(self.version.as_ref()),
            Cell::option(self.uptime_ms.map(|uptime| duration::show(Duration::from_millis(uptime)))),
            Cell::option(self.node),
            node_state,
            Cell::option(self.jobs),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::file::Purpose;

    #[test]
    fn a_stack_that_was_never_started_is_shown_as_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("stack.yaml");
        std::fs::write(&file, "nodes: [{name: build-1}]\n").unwrap();
        let stack = Stack::read(&file, Purpose::Inspect).unwrap();
        let view = StackView::new(&stack, &[], Err("cannot reach it".to_owned()));
        let table = view.table(Paint::NONE);
        let rows: Vec<Vec<&str>> = table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            rows,
            [
                ["control", "-", "stopped", "-", "-", "-", "-", "-"],
                ["build-1", "-", "stopped", "-", "-", "-", "-", "-"]
            ]
        );
    }
}
