//! `outlast nodes`: nodes with their capacity and protections; sessions, join tokens, cordon and drain.

mod watch;

use std::time::Duration;

use anyhow::Result;
use api::{
    CordonNode, CreateJoinToken, DrainNode, JoinTokenView, MoveSession, NewJoinTokenView, NodeView, Page, SessionMove,
    SessionView,
};
use clap::{Args, Subcommand, ValueEnum};

use crate::context::Context;
use crate::paint::{Paint, Tone};
use crate::table::{Align, Cell, Pairs, Table};
use crate::{duration, exit, ids, output, size};

/// Interval of looking whether a node is drained.
const DRAIN_POLL: Duration = Duration::from_millis(200);

/// List, inspect, add, cordon, drain and remove nodes.
#[derive(Args)]
pub struct Options {
    /// Show nodes and their changes until Ctrl-C. In a pipe: one line per change.
    #[arg(long)]
    watch: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// List nodes with their capacity.
    List {
        /// Show nodes and their changes until Ctrl-C. In a pipe: one line per change.
        #[arg(long)]
        watch: bool,
    },
    /// Show a node with its capacity and protections.
    Show {
        /// Node id.
        id: String,
    },
    /// Give a node no new work. What runs on it goes on.
    Cordon {
        /// Node id.
        id: String,
        /// Reason, shown to other operators.
        #[arg(long)]
        reason: Option<String>,
    },
    /// End the cordon or drain of a node: it gets work again. If its session takes no work any more, a new one begins.
    Uncordon {
        /// Node id.
        id: String,
    },
    /// Give a node no new work and let its work end.
    Drain {
        /// Node id.
        id: String,
        /// Time for running work to end, such as 10m. Then it is taken back, and its jobs run elsewhere without using a
        /// retry. Without it, running work may take as long as it likes.
        #[arg(long, value_parser = duration::parse)]
        deadline: Option<Duration>,
        /// Wait until nothing runs on the node any more.
        #[arg(long)]
        wait: bool,
        /// Reason, shown to other operators.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Show the session of a node, or move it. Sessions only move forward.
    ///
    /// An abandoned node begins a new session when it is started again, any other with `outlast nodes uncordon`.
    Session {
        /// What to do with the session.
        state: Option<SessionTarget>,
        /// Node id [default: the node of the server]
        node: Option<String>,
        /// Reason, shown to other operators.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Create a token with which a machine can join: see `outlast join`.
    JoinToken {
        /// Several nodes may join with it.
        #[arg(long)]
        reusable: bool,
        /// Lifetime of the token [default: 1h]
        #[arg(long, value_parser = duration::parse)]
        expires: Option<Duration>,
        /// Note, shown to other operators.
        #[arg(long)]
        note: Option<String>,
    },
    /// List join tokens.
    JoinTokens,
    /// Revoke a join token. Nodes that have joined with it stay.
    RevokeToken {
        /// Token id, as listed by `outlast nodes join-tokens`.
        id: String,
    },
    /// Remove a runner node from the cluster. Its work is given to other nodes.
    Rm {
        /// Node id.
        id: String,
    },
}

/// A state that a session can be moved to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SessionTarget {
    /// The node takes work.
    Ready,
    /// No new work; running work ends.
    #[value(alias = "drain")]
    Draining,
    /// No new work; running work goes on.
    #[value(alias = "pause")]
    Paused,
    /// The node is given up: its attempts are ended at once, and their jobs run elsewhere without using a retry. Without
    /// another node they end as abandoned.
    #[value(alias = "abandon")]
    Abandoned,
    /// The node is over. Like abandoned, and a restart does not bring it back.
    Sunset,
}

impl SessionTarget {
    fn as_move(self) -> SessionMove {
        match self {
            Self::Ready => SessionMove::Ready,
            Self::Draining => SessionMove::Drain,
            Self::Paused => SessionMove::Pause,
            Self::Abandoned => SessionMove::Abandon,
            Self::Sunset => SessionMove::Sunset,
        }
    }
}

async fn session(
    context: &Context,
    target: Option<SessionTarget>,
    node: Option<String>,
    reason: Option<String>,
) -> Result<()> {
    let node = node.map(|id| ids::node(&id)).transpose()?;
    let session = match target {
        None => context.client.session(node).await?,
        Some(target) => context.client.move_session(node, target.as_move(), &MoveSession { reason }).await?,
    };
    context.printer.print(&session, |session: &SessionView, paint| {
        let state = paint.apply(tone_of(session.state.as_str()), session.state.as_str());
        format!("{}: session {} is {state}\n", session.node, session.number)
    })
}

pub async fn run(options: Options, context: &Context) -> Result<u8> {
    match options.command.unwrap_or(Command::List { watch: options.watch }) {
        Command::List { watch: true } => watch::watch(context).await?,
        Command::Session { state, node, reason } => session(context, state, node, reason).await?,
        Command::List { watch: false } => {
            let page = context.client.nodes().await?;
            context.printer.print(&page, |page: &Page<NodeView>, paint| table(&page.items, paint))?;
        }
        Command::Show { id } => {
            let node = context.client.node(ids::node(&id)?).await?;
            context.printer.print(&node, page)?;
        }
        Command::Cordon { id, reason } => {
            let node = context.client.cordon_node(ids::node(&id)?, &CordonNode { reason }).await?;
            context.printer.print(&node, changed)?;
        }
        Command::Uncordon { id } => {
            let node = context.client.uncordon_node(ids::node(&id)?).await?;
            context.printer.print(&node, changed)?;
        }
        Command::Drain { id, deadline, wait, reason } => {
            let deadline_ms = deadline.map(|deadline| deadline.as_millis() as u64);
            let mut node = context.client.drain_node(ids::node(&id)?, &DrainNode { reason, deadline_ms }).await?;
            // Ends as well if somebody uncordons the node, or if it is lost.
            while wait && node.state == "draining" {
                tokio::time::sleep(DRAIN_POLL).await;
                node = context.client.node(node.id).await?;
            }
            context.printer.print(&node, changed)?;
        }
        Command::JoinToken { reusable, expires, note } => {
            let expires_in_ms = expires.map(|expires| expires.as_millis() as u64);
            let request = CreateJoinToken { reusable, expires_in_ms, note };
            context.printer.print(&context.client.create_join_token(&request).await?, new_token)?;
        }
        Command::JoinTokens => {
            let tokens = context.client.join_tokens().await?;
            context.printer.print(&tokens, |tokens: &Page<JoinTokenView>, paint| token_table(&tokens.items, paint))?;
        }
        Command::RevokeToken { id } => {
            context.client.revoke_join_token(&id).await?;
            output::write(format!("{id} revoked\n").as_bytes())?;
        }
        Command::Rm { id } => {
            context.client.remove_node(ids::node(&id)?).await?;
            output::write(format!("{id} removed\n").as_bytes())?;
        }
    }
    Ok(exit::DONE)
}

/// The node after a change.
fn changed(node: &NodeView, paint: Paint) -> String {
    let state = paint.apply(tone_of(&node.state), &node.state);
    match node.in_flight {
        0 => format!("{} is {state}\n", node.id),
        running => format!("{} is {state}, {running} running\n", node.id),
    }
}

pub fn tone_of(state: &str) -> Tone {
    if state == "ready" { Tone::Good } else { Tone::Bad }
}

/// The token with the command that uses it.
fn new_token(token: &NewJoinTokenView, paint: Paint) -> String {
    let who = if token.reusable { "any number of machines" } else { "one machine" };
    let until = token.expires_at.map(|at| format!(" until {at}")).unwrap_or_default();
    let note = paint.apply(Tone::Quiet, &format!("On {who}{until}, run:"));
    format!("{note}\noutlast join --token {} {}\n", token.token, token.address)
}

fn token_table(tokens: &[JoinTokenView], paint: Paint) -> String {
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("STATE", Align::Left),
        ("USES", Align::Left),
        ("USED", Align::Right),
        ("EXPIRES", Align::Left),
        ("NOTE", Align::Left),
    ]);
    for token in tokens {
        let tone = if token.state == "usable" { Tone::Good } else { Tone::Quiet };
        table.row([
            Cell::new(&token.id),
            Cell::new(&token.state).tone(tone),
            Cell::new(if token.reusable { "many" } else { "one" }),
            Cell::new(token.used),
            Cell::option(token.expires_at),
            Cell::option(token.note.as_ref()),
        ]);
    }
    table.render(paint)
}

fn table(nodes: &[NodeView], paint: Paint) -> String {
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("NAME", Align::Left),
        ("ROLE", Align::Left),
        ("STATE", Align::Left),
        ("PROBES", Align::Left),
        ("RUNNING", Align::Right),
        ("CPU", Align::Right),
        ("VERSION", Align::Left),
        ("PROCESSES", Align::Right),
        ("WASM", Align::Right),
        ("ECHO", Align::Right),
        ("FREE MEMORY", Align::Right),
        ("PROTECTIONS", Align::Left),
    ]);
    for node in nodes {
        let in_force = node.protections.iter().filter(|protection| protection.in_force).count();
        let all = node.protections.len();
        let tone = if in_force == all { Tone::Good } else { Tone::Bad };
        table.row([
            Cell::new(node.id),
            Cell::new(&node.name),
            Cell::new(&node.role),
            Cell::new(&node.state).tone(tone_of(&node.state)),
            Cell::option(node.probes.as_ref()),
            Cell::new(node.in_flight),
            Cell::option(node.load.map(|load| format!("{}%", load.cpu_percent))),
            Cell::new(&node.version),
            Cell::new(node.capacity.process),
            Cell::new(node.capacity.wasm),
            Cell::new(node.capacity.echo),
            Cell::option(node.memory_available_bytes.map(size::show)),
            Cell::new(format!("{in_force} of {all}")).tone(tone),
        ]);
    }
    table.render(paint)
}

/// Number and state of a session, with who moved it there and why.
fn session_text(session: &SessionView) -> String {
    let by = session.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    let reason = session.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{} {}{by}{reason}", session.number, session.state)
}

fn page(node: &NodeView, paint: Paint) -> String {
    let mut pairs = Pairs::default();
    pairs.add_cell("id", Cell::new(node.id).tone(Tone::Strong));
    pairs.add("name", &node.name);
    pairs.add("role", &node.role);
    pairs.add_cell("state", Cell::new(&node.state).tone(tone_of(&node.state)));
    pairs.add_option("failing", node.failing.as_ref());
    if let Some(cordon) = &node.cordon {
        pairs.add("since", cordon.at);
        pairs.add_option("by", cordon.by.as_ref());
        pairs.add_option("reason", cordon.reason.as_ref());
        pairs.add_option("deadline", cordon.drain_deadline);
        pairs.add_option("failing since", cordon.failing_since);
    }
    pairs.add("session", session_text(&node.session));
    pairs.add("healthy", if node.healthy { "yes" } else { "no" });
    pairs.add_option("probes", node.probes.as_ref());
    pairs.add_option("address", node.address.as_ref());
    pairs.add_option("connected", node.connected_since);
    pairs.add_option("joined", node.joined_at);
    pairs.add_option("refuses work", node.refuses_work.as_ref());
    pairs.add("running", node.in_flight);
    pairs.add_option("CPU", node.load.map(|load| format!("{}%", load.cpu_percent)));
    pairs.add("version", &node.version);
    pairs.add("incarnation", node.incarnation);
    let list = |names: &std::collections::BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
    let labels: Vec<String> = node.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let gpus: Vec<String> = node.gpus.iter().map(|(model, count)| format!("{count} x {model}")).collect();
    pairs.add("pools", list(&node.pools));
    pairs.add_option("capabilities", Some(list(&node.capabilities)).filter(|list| !list.is_empty()));
    pairs.add_option("labels", Some(labels.join(", ")).filter(|list| !list.is_empty()));
    pairs.add("cores", node.cores);
    pairs.add("memory", size::show(node.memory_bytes));
    pairs.add("free disk", size::show(node.disk_available_bytes));
    pairs.add_option("GPUs", Some(gpus.join(", ")).filter(|list| !list.is_empty()));
    pairs.add("processes", format!("{} of {} at a time", node.in_use.process, node.capacity.process));
    pairs.add("wasm", format!("{} of {} at a time", node.in_use.wasm, node.capacity.wasm));
    pairs.add("echo", format!("{} of {} at a time", node.in_use.echo, node.capacity.echo));
    pairs.add_option("free memory", node.memory_available_bytes.map(size::show));
    let columns = [("PROTECTION", Align::Left), ("IN FORCE", Align::Left), ("HOW", Align::Left)];
    let mut table = Table::new(&columns);
    for protection in &node.protections {
        let (status, tone) = if protection.in_force { ("yes", Tone::Good) } else { ("no", Tone::Bad) };
        table.row([Cell::new(&protection.name), Cell::new(status).tone(tone), Cell::new(&protection.how)]);
    }
    let mut shown = format!("{}\n{}", pairs.render(paint), table.render(paint));
    if !node.timeline.is_empty() {
        let mut timeline = Table::new(&[("AT", Align::Left), ("EVENT", Align::Left), ("DETAIL", Align::Left)]);
        for entry in &node.timeline {
            timeline.row([Cell::new(entry.at), Cell::new(&entry.event), Cell::option(entry.detail.as_ref())]);
        }
        shown.push('\n');
        shown.push_str(&timeline.render(paint));
    }
    shown
}

#[cfg(test)]
mod tests {
    use api::{CapacityView, ProtectionView};
    use model::id::NodeId;

    use super::*;

    /// A node to show.
    pub fn node() -> NodeView {
        let protection =
            |name: &str, in_force, how: &str| ProtectionView { name: name.to_owned(), in_force, how: how.to_owned() };
        NodeView {
            id: NodeId(1),
            name: "build-1".to_owned(),
            role: "runner".to_owned(),
            probes: Some("alive".to_owned()),
            address: None,
            connected_since: None,
            joined_at: None,
            refuses_work: None,
            pools: ["default".to_owned()].into(),
            capabilities: ["cuda".to_owned()].into(),
            labels: [("zone".to_owned(), "a".to_owned())].into(),
            cores: 8,
            memory_bytes: 1 << 34,
            disk_bytes: 1 << 40,
            disk_available_bytes: 1 << 39,
            gpus: [("A100".to_owned(), 2)].into(),
            timeline: Vec::new(),
            incarnation: 3,
            version: "0.1.0".to_owned(),
            state: "ready".to_owned(),
            healthy: true,
            session: SessionView {
                node: NodeId(1),
                state: model::session::SessionState::Ready,
                number: 2,
                since: None,
                by: Some("ann".to_owned()),
                reason: None,
            },
            cordon: None,
            failing: None,
            in_flight: 2,
            in_use: CapacityView { process: 2, wasm: 0, echo: 0 },
            load: Some(api::LoadView { cpu_percent: 35, gpu_percent: 0 }),
            capacity: CapacityView { process: 4, wasm: 64, echo: 1000 },
            memory_available_bytes: Some(1 << 30),
            protections: vec![protection("files", true, "landlock"), protection("memory", false, "no cgroups")],
        }
    }

    #[test]
    fn a_node_is_shown_with_its_capacity_and_protections() {
        let node = node();
        let listed = table(std::slice::from_ref(&node), Paint::NONE);
        assert!(listed.lines().nth(1).is_some_and(|line| line.ends_with("1.0 GiB  1 of 2")), "{listed}");
        let shown = page(&node, Paint::NONE);
        assert!(shown.contains("2 ready by ann\n") && shown.contains("35%\n"), "{shown}");
        assert!(
            shown.contains("2 of 4 at a time\n") && shown.contains("memory      no        no cgroups\n"),
            "{shown}"
        );
    }
}
