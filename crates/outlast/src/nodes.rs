//! `outlast nodes`: nodes with their capacity and protections.

use anyhow::Result;
use api::{NodeView, Page};
use clap::{Args, Subcommand};

use crate::context::Context;
use crate::paint::{Paint, Tone};
use crate::table::{Align, Cell, Pairs, Table};
use crate::{exit, ids, size};

/// List and inspect nodes.
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
    }
    Ok(exit::DONE)
}

fn table(nodes: &[NodeView], paint: Paint) -> String {
    let mut table = Table::new(&[
        ("ID", Align::Left),
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
