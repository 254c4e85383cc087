//! A control node with runner nodes, and its client.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use api::{CordonNode, CreateJoinToken, JobView, NodeView};
use client::jobs::{Filter, JobList};
use client::{Client, Options};
use hosts::{Delay, Network};
use model::id::{JobId, NodeId, RunnerId};
use model::state::State;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::node::{Node, Output, outlast};
use super::{Gate, wait_for, wait_until};

const API: &str = "127.0.0.1:7070";
const CLUSTER_PORT: u16 = 7071;

/// A cluster. Its client and the test's thread are on the control node's host.
pub struct Cluster {
    runtime: Runtime,
    client: Client,
    control: Node,
    runners: Vec<Node>,
    ids: Vec<NodeId>,
    /// Of the links of further nodes.
    delay: Option<Delay>,
    network: Network,
    directory: TempDir,
}

impl Cluster {
    /// Starts a control node and runner nodes, all ready.
    pub fn start(runners: usize) -> Self {
        Self::start_with("", runners)
    }

    /// The same, with additional settings of the control node.
    pub fn start_with(settings: &str, runners: usize) -> Self {
        let mut cluster = Self::start_control_with(settings);
        cluster.add_runners(runners);
        cluster
    }

    /// Starts runner nodes until they are ready.
    fn add_runners(&mut self, runners: usize) {
        let token = self.join_token(CreateJoinToken { reusable: true, ..CreateJoinToken::default() });
        for number in 1..=runners {
            self.add_runner(&format!("runner{number}"), &token);
        }
        self.ids = (0..runners).map(|index| self.wait_until_joined(self.runners[index].name())).collect();
        (0..runners).for_each(|index| self.wait_until_ready(index));
        (0..runners).for_each(|index| self.assert_gets_work(index));
    }

    /// A cluster whose runner nodes are far away.
    pub fn start_distant(runners: usize, delay: Delay) -> Self {
        let mut cluster = Self::start_control();
        cluster.delay = Some(delay);
        cluster.add_runners(runners);
        cluster
    }

    /// Starts a control node alone.
    pub fn start_control() -> Self {
        Self::start_control_with("")
    }

    fn start_control_with(settings: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut network = Network::new();
        let host = network.add_host();
        host.enter();
        let cluster_address = SocketAddr::new(host.address().into(), CLUSTER_PORT).to_string();
        let arguments = ["up", "--listen", API, "--cluster-listen", &cluster_address];
        let mut control = Node::new("control", host, directory.path().join("control"), settings, &arguments);
        control.start();
        // Its sockets belong to the host that the thread is on.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = Client::with_options(
            &format!("http://{API}"),
            Options { resend_for: Duration::ZERO, connect_wait: Duration::ZERO, ..Options::default() },
        );
        let client = client.unwrap();
        let mut cluster =
            Self { runtime, client, control, runners: Vec::new(), ids: Vec::new(), delay: None, network, directory };
        cluster.wait_until_control_is_ready();
        cluster
    }

    /// A node on a host of its own, not started yet.
    pub fn new_node(&mut self, name: &str, arguments: &[&str]) -> Node {
        self.new_node_with("", name, arguments)
    }

    fn new_node_with(&mut self, settings: &str, name: &str, arguments: &[&str]) -> Node {
        let host = match self.delay {
            Some(delay) => self.network.add_distant_host(delay),
            None => self.network.add_host(),
        };
        Node::new(name, host, self.directory.path().join(name), settings, arguments)
    }

    /// Starts another runner node. Its labels are for placement: the control node, which runs jobs as well, has none. Its
    /// index is the number of runner nodes before.
    pub fn add_runner(&mut self, name: &str, token: &str) {
        let address = self.cluster_address().to_string();
        let settings = format!("name: {name}\nprocess_slots: 8\nrunner: {{labels: {{role: runner, name: {name}}}}}\n");
        let mut node = self.new_node_with(&settings, name, &["join", "--token", token, &address]);
        node.start();
        self.runners.push(node);
    }

    /// The same, until it is ready. Returns its index.
    pub fn join_runner(&mut self, name: &str, token: &str) -> usize {
        self.add_runner(name, token);
        self.ids.push(self.wait_until_joined(name));
        let index = self.runners.len() - 1;
        self.wait_until_ready(index);
        index
    }

    /// Runs a request of the client.
    pub fn ask<T, E: std::fmt::Debug>(&self, request: impl Future<Output = Result<T, E>>) -> T {
        self.runtime.block_on(request).unwrap()
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn control(&mut self) -> &mut Node {
        &mut self.control
    }

    pub fn runner(&mut self, index: usize) -> &mut Node {
        &mut self.runners[index]
    }

    pub fn id(&self, index: usize) -> NodeId {
        self.ids[index]
    }

    /// Address of the control node for other nodes.
    pub fn cluster_address(&self) -> SocketAddr {
        SocketAddr::new(self.control.host().address().into(), CLUSTER_PORT)
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn gate(&self, name: &str) -> Gate {
        Gate::new(self.directory(), name)
    }

    pub fn join_token(&self, request: CreateJoinToken) -> String {
        self.ask(self.client.create_join_token(&request)).token
    }

    /// The command, for this cluster.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = outlast();
        command.env("OUTLAST_SERVER", format!("http://{API}")).current_dir(self.directory()).args(arguments);
        command
    }

    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        Output::of(self.command(arguments).spawn().unwrap())
    }

    pub fn wait_until_control_is_ready(&mut self) {
        let Self { control, runtime, client, .. } = self;
        wait_for("the control node is ready", || {
            assert!(control.is_up(), "the control node has ended");
            runtime.block_on(client.ready()).ok()
        });
    }

    /// The id of a runner node, once it has joined.
    pub fn wait_until_joined(&self, name: &str) -> NodeId {
        wait_for(&format!("{name} joins"), || {
            self.ask(self.client.nodes()).items.iter().find(|node| node.name == name).map(|node| node.id)
        })
    }

    pub fn node(&self, index: usize) -> NodeView {
        self.ask(self.client.node(self.ids[index]))
    }

    /// Waits until the runner node is in this state.
    pub fn wait_for_node(&self, index: usize, state: &str) -> NodeView {
        let name = self.runners[index].name();
        wait_for(&format!("{name} is {state}"), || Some(self.node(index)).filter(|node| node.state == state))
    }

    /// Waits until the runner node is connected, has reported and answers probes, whatever its state.
    pub fn wait_until_connected(&self, index: usize) {
        let is_connected = |node: &NodeView| {
            node.connected_since.is_some() && node.capacity.process > 0 && node.probes.as_deref() == Some("alive")
        };
        let name = self.runners[index].name();
        wait_for(&format!("{name} is connected"), || Some(self.node(index)).filter(is_connected));
    }

    /// Waits until the runner node is connected and gets work.
    pub fn wait_until_ready(&self, index: usize) {
        self.wait_until_connected(index);
        self.wait_for_node(index, "ready");
    }

    /// A job that can run nowhere else succeeds on the runner node.
    pub fn assert_gets_work(&self, index: usize) {
        let job = json!({"run": {"echo": {}}, "labels": self.pin(index)});
        self.wait_for_success(self.submit(&job));
    }

    /// Events of a runner node's timeline, in order.
    pub fn timeline(&self, index: usize) -> Vec<String> {
        self.node(index).timeline.into_iter().map(|entry| entry.event).collect()
    }

    /// Waits until the timeline has one of these events.
    pub fn wait_for_event(&self, index: usize, events: &[&str]) {
        let name = self.runners[index].name();
        wait_until(&format!("the timeline of {name} has {events:?}"), || {
            self.timeline(index).iter().any(|event| events.contains(&event.as_str()))
        });
    }

    /// Whether the runner node was ever taken for lost.
    pub fn was_lost(&self, index: usize) -> bool {
        self.timeline(index).iter().any(|event| event == "lost")
    }

    pub fn assert_never_lost(&self, index: usize) {
        assert!(!self.was_lost(index), "{} was lost", self.runners[index].name());
    }

    /// Waits until a runner node has printed or logged a text.
    pub fn wait_for_log(&self, index: usize, text: &str) {
        let node = &self.runners[index];
        wait_until(&format!("{} says `{text}`", node.name()), || node.log().contains(text));
    }

    /// The runner of a node, as jobs name it.
    pub fn runner_id(&self, index: usize) -> String {
        RunnerId(self.ids[index].0).to_string()
    }

    /// Number of terminal jobs that the test has submitted with a key.
    pub fn ended_jobs(&self) -> usize {
        let filter = Filter { limit: Some(1000), ..Filter::default() };
        let page = self.ask(self.client.jobs(JobList::Completed, &filter));
        assert_eq!(page.next_cursor, None, "too many jobs for one page");
        // Jobs without a key of their own have one that the client has generated.
        let is_ours = |key: &String| !key.starts_with("auto-");
        page.items.iter().filter(|job| job.idempotency_key.as_ref().is_some_and(is_ours)).count()
    }

    /// Labels of a job that runs on any runner node.
    pub fn anywhere(&self) -> BTreeMap<&'static str, String> {
        [("placement.role", "runner".to_owned())].into()
    }

    /// Labels of a job that runs on this runner node only.
    pub fn pin(&self, index: usize) -> BTreeMap<&'static str, String> {
        [("placement.name", self.runners[index].name().to_owned())].into()
    }

    /// Submits jobs that may run anywhere and waits until they run on this runner node. Meanwhile the others get no work.
    pub fn start_on<const N: usize>(&self, index: usize, gate: &Gate, names: [&str; N]) -> ([JobId; N], [u32; N]) {
        let others = || self.ids.iter().filter(|id| **id != self.ids[index]);
        others().for_each(|id| drop(self.ask(self.client.cordon_node(*id, &CordonNode::default()))));
        let jobs = names.map(|name| self.submit(&gate.job(name, &self.anywhere())));
        let pids = gate.wait_for_attempts(names, 1);
        others().for_each(|id| drop(self.ask(self.client.uncordon_node(*id))));
        for id in jobs {
            assert_eq!(self.job(id).runner, Some(self.runner_id(index)));
        }
        (jobs, pids)
    }

    pub fn submit(&self, job: &Value) -> JobId {
        let job = serde_json::to_vec(job).unwrap();
        self.ask(self.client.submit_raw(job.into(), &Default::default())).id
    }

    pub fn job(&self, id: JobId) -> JobView {
        self.ask(self.client.job(id))
    }

    /// Waits until the job satisfies a condition.
    pub fn wait_for_job(&self, id: JobId, what: &str, is_so: impl Fn(&JobView) -> bool) -> JobView {
        let mut last = None;
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for(&format!("{id} {what}"), || {
                last = Some(self.job(id));
                last.clone().filter(|job| is_so(job))
            })
        }));
        found.unwrap_or_else(|panic| {
            eprintln!("{last:#?}\n{:#?}", self.ask(self.client.history(id)).attempts);
            std::panic::resume_unwind(panic)
        })
    }

    /// Waits until the job has succeeded. It must not end otherwise, nor use a retry.
    pub fn wait_for_success(&self, id: JobId) -> JobView {
        let job = self.wait_for_job(id, "ends", |job| job.state.is_terminal());
        let history = self.ask(self.client.history(id));
        assert_eq!((job.state, job.retries), (State::Succeeded, 0), "{job:#?}\n{history:#?}");
        let ends = job.states.iter().filter(|entry| entry.state.is_terminal()).count();
        assert_eq!(ends, 1, "one terminal state: {:?}", job.states);
        let results = history.attempts.iter().filter(|attempt| attempt.end.as_deref() == Some("succeeded")).count();
        assert_eq!(results, 1, "one result: {:#?}", history.attempts);
        job
    }

    /// Prints what the control node knows about the runner nodes.
    fn print_timelines(&self) {
        for (node, id) in self.runners.iter().zip(&self.ids) {
            let Ok(view) = self.runtime.block_on(self.client.node(*id)) else { continue };
            eprintln!("=== {}, {id}, is {}. Its timeline:", node.name(), view.state);
            for entry in view.timeline {
                eprintln!("{} {} {}", entry.at, entry.event, entry.detail.unwrap_or_default());
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_timelines();
        }
    }
}
