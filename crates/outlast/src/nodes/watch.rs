//! Live view of nodes: a table that is redrawn on a terminal, else one line per change.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use api::ChangeView;
use client::Client;
use client::events::{EventFilter, Events, Since};
use model::id::NodeId;
use model::time::Timestamp;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use super::table;
use crate::context::Context;
use crate::interrupt::or_interrupt;
use crate::output::{self, Format};
use crate::paint::{Paint, Tone};
use crate::screen::{self, Screen};
use crate::table::shorten;

/// Interval of refreshing figures on a terminal. Changes of nodes are shown at once.
const REFRESH: Duration = Duration::from_secs(2);

/// Shows nodes and their changes until Ctrl-C, or until the reader closes the output.
pub async fn watch(context: &Context) -> Result<()> {
    let filter = EventFilter { kind: Some("node".to_owned()), ..EventFilter::default() };
    // Subscribed before the nodes are listed: no change falls in between.
    let events = context.client.events(Since::Now, filter).await?;
    let work = async {
        let shown = async {
            match (context.printer.format, screen::size()) {
                (Format::Table, Some(_)) => redraw(&context.client, events).await,
                (Format::Table, None) => print_lines(&context.client, events).await,
                (Format::Json | Format::Yaml, _) => print_documents(&context.client, events, context).await,
            }
        };
        tokio::select! {
            shown = shown => shown,
            () = output::closed() => Ok(()),
        }
    };
    or_interrupt(work).await?;
    Ok(())
}

async fn redraw(client: &Client, mut events: Events) -> Result<()> {
    let mut screen = Screen::default();
    let mut ticks = interval(REFRESH);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            change = events.next() => drop(change?),
            _ = ticks.tick() => {}
        }
        let nodes = client.nodes().await?.items;
        let Some(size) = screen::size() else { return Ok(()) };
        // The cursor is on the last line.
        let lines = table(&nodes, Paint::for_stdout());
        let lines: Vec<String> = lines.lines().take(size.height.saturating_sub(1)).map(str::to_owned).collect();
        screen.redraw(&lines, size)?;
    }
}

/// The current state of every node, then a line for each change.
async fn print_lines(client: &Client, mut events: Events) -> Result<()> {
    let nodes = client.nodes().await?.items;
    let mut names: BTreeMap<NodeId, String> = nodes.iter().map(|node| (node.id, node.name.clone())).collect();
    let now = Timestamp(now());
    let paint = Paint::for_stdout();
    for node in &nodes {
        output::write(line(now, node.id, &node.name, &node.state, paint).as_bytes())?;
    }
    loop {
        let change = events.next().await?;
        let Some(node) = change.node else { continue };
        if !names.contains_key(&node) {
            let listed = client.nodes().await?.items;
            names.extend(listed.into_iter().map(|node| (node.id, node.name)));
        }
        let name = names.get(&node).map_or("", String::as_str);
        output::write(line(change.at, node, name, &what(&change), paint).as_bytes())?;
    }
}

/// One document per line: the nodes, then their changes.
async fn print_documents(client: &Client, mut events: Events, context: &Context) -> Result<()> {
    for node in client.nodes().await?.items {
        print_document(&json!({"node": node}), context)?;
    }
    loop {
        print_document(&json!({"change": events.next().await?}), context)?;
    }
}

fn print_document(document: &serde_json::Value, context: &Context) -> Result<()> {
    match context.printer.format {
        Format::Yaml => {
            output::write(b"---\n")?;
            context.printer.print(document, |_, _| String::new())
        }
        Format::Json | Format::Table => Ok(output::write(format!("{document}\n").as_bytes())?),
    }
}

fn now() -> model::time::Millis {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    model::time::Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// What happened, in a word or two.
fn what(change: &ChangeView) -> String {
    match change.session {
        Some(state) => format!("session {state}"),
        None => change.state.clone().unwrap_or_default(),
    }
}

fn line(at: Timestamp, node: NodeId, name: &str, what: &str, paint: Paint) -> String {
    let at = paint.apply(Tone::Quiet, &at.to_string());
    let tone = match what {
        "lost" | "disconnected" | "session abandoned" | "session sunset" => Tone::Bad,
        "ready" | "connected" | "returned" | "joined" | "session ready" => Tone::Good,
        _ => Tone::Plain,
    };
    format!("{at}  {node}  {:<16}  {}\n", shorten(name, 16), paint.apply(tone, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    // FEATURES: C13
    #[test]
    fn a_change_is_one_line_with_time_node_name_and_event() {
        let node = super::super::tests::node();
        let shown = line(Timestamp(model::time::Millis(0)), node.id, &node.name, &node.state, Paint::NONE);
        assert_eq!(shown, format!("1970-01-01T00:00:00.000Z  {}  build-1           ready\n", node.id));
        let change = |state: &str, session| ChangeView {
            cursor: String::new(),
            kind: "node".to_owned(),
            job: None,
            queue: None,
            workflow: None,
            place: None,
            schedule: None,
            node: Some(node.id),
            session,
            state: Some(state.to_owned()),
            attempt: None,
            reason: None,
            at: Timestamp(model::time::Millis(0)),
        };
        assert_eq!(what(&change("lost", None)), "lost");
        assert_eq!(what(&change("session", Some(model::session::SessionState::Paused))), "session paused");
    }
}
