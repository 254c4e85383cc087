//! `outlast nodes`: nodes with their capacity and protections; cordon and drain.

use std::time::Duration;

use anyhow::Result;
use api::{CordonNode, DrainNode, NodeView, Page};
use clap::{Args, Subcommand};

use crate::context::Context;
use crate::paint::{Paint, Tone};
use crate::table::{Align, Cell, Pairs, Table};
use crate::{duration, exit, ids, size};

/// List, inspect, cordon and drain nodes.
#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// List nodes with their capacity.
    List,
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
    /// End the cordon or drain of a node: it gets work again.
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
        /// Reason, shown to other operators.
        #[arg(long)]
        reason: Option<String>,
    },
}

pub async fn run(options: Options, context: &Context) -> Result<u8> {
    match options.command.unwrap_or(Command::List) {
        Command::List => {
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
        Command::Drain { id, deadline, reason } => {
            let deadline_ms = deadline.map(|deadline| deadline.as_millis() as u64);
            let node = context.client.drain_node(ids::node(&id)?, &DrainNode { reason, deadline_ms }).await?;
            context.printer.print(&node, changed)?;
        }
    }
    Ok(exit::DONE)
}

/// The node after a change.
fn changed(node: &NodeView, paint: Paint) -> String {
    let state = paint.apply(tone_of(&node.state), &node.state);
    match node.in_flight {
        0 => format!("{} is {state}", node.id),
        running => format!("{} is {state}, {running} running", node.id),
    }
}

fn tone_of(state: &str) -> Tone {
    if state == "ready" { Tone::Good } else { Tone::Bad }
}

fn table(nodes: &[NodeView], paint: Paint) -> String {
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("STATE", Align::Left),
        ("RUNNING", Align::Right),
        ("VERSION", Align::Left),
        ("INCARNATION", Align::Right),
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
            Cell::new(&node.state).tone(tone_of(&node.state)),
            Cell::new(node.in_flight),
            Cell::new(&node.version),
            Cell::new(node.incarnation),
            Cell::new(node.capacity.process),
            Cell::new(node.capacity.wasm),
            Cell::new(node.capacity.echo),
            Cell::option(node.memory_available_bytes.map(size::show)),
            Cell::new(format!("{in_force} of {all}")).tone(tone),
        ]);
    }
    table.render(paint)
}

fn page(node: &NodeView, paint: Paint) -> String {
    let mut pairs = Pairs::default();
    pairs.add_cell("id", Cell::new(node.id).tone(Tone::Strong));
    pairs.add_cell("state", Cell::new(&node.state).tone(tone_of(&node.state)));
    if let Some(cordon) = &node.cordon {
        pairs.add("since", cordon.at);
        pairs.add_option("by", cordon.by.as_ref());
        pairs.add_option("reason", cordon.reason.as_ref());
        pairs.add_option("deadline", cordon.drain_deadline);
    }
    pairs.add("running", node.in_flight);
    pairs.add("version", &node.version);
    pairs.add("incarnation", node.incarnation);
    pairs.add("processes", format!("{} at a time", node.capacity.process));
    pairs.add("wasm", format!("{} at a time", node.capacity.wasm));
    pairs.add("echo", format!("{} at a time", node.capacity.echo));
    pairs.add_option("free memory", node.memory_available_bytes.map(size::show));
    let columns = [("PROTECTION", Align::Left), ("IN FORCE", Align::Left), ("HOW", Align::Left)];
    let mut table = Table::new(&columns);
    for protection in &node.protections {
        let (status, tone) = if protection.in_force { ("yes", Tone::Good) } else { ("no", Tone::Bad) };
        table.row([Cell::new(&protection.name), Cell::new(status).tone(tone), Cell::new(&protection.how)]);
    }
    format!("{}\n{}", pairs.render(paint), table.render(paint))
}

#[cfg(test)]
mod tests {
    use api::{CapacityView, ProtectionView};
    use model::id::NodeId;

    use super::*;

    #[test]
    fn a_node_is_shown_with_its_capacity_and_protections() {
        let protection =
            |name: &str, in_force, how: &str| ProtectionView { name: name.to_owned(), in_force, how: how.to_owned() };
        let node = NodeView {
            id: NodeId(1),
            incarnation: 3,
            version: "0.1.0".to_owned(),
            state: "ready".to_owned(),
            cordon: None,
            in_flight: 2,
            capacity: CapacityView { process: 4, wasm: 64, echo: 1000 },
            memory_available_bytes: Some(1 << 30),
            protections: vec![protection("files", true, "landlock"), protection("memory", false, "no cgroups")],
        };
        let listed = table(std::slice::from_ref(&node), Paint::NONE);
        assert!(listed.lines().nth(1).is_some_and(|line| line.ends_with("1.0 GiB  1 of 2")), "{listed}");
        let shown = page(&node, Paint::NONE);
        assert!(
            shown.contains("processes    4 at a time\n") && shown.contains("memory      no        no cgroups\n"),
            "{shown}"
        );
    }
}
