//! `outlast nodes`: sessions, and the live view.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout};

use serde_json::{Value, json};

use crate::support::Server;

// FEATURES: C2
#[test]
fn the_session_of_the_server_is_shown_and_moved() {
    let server = Server::start();
    let shown = server.run(["nodes", "session"]).expect(0).stdout;
    assert!(shown.ends_with(": session 1 is ready\n"), "{shown}");
    let id = shown.split(':').next().unwrap().to_owned();
    let paused =
        server.run(["nodes", "session", "paused", "--reason", "new disk", "--output", "json"]).expect(0).json();
    assert_eq!((&paused["state"], &paused["reason"]), (&json!("paused"), &json!("new disk")));
    let refused = server.run(["nodes", "session", "drain", &id]).expect(1).stderr;
    assert!(refused.contains("a session that is paused cannot become draining"), "{refused}");
    assert!(refused.contains(&format!("outlast nodes uncordon {id}")), "{refused}");
    let page = server.run(["nodes", "show", &id]).expect(0).stdout;
    assert!(page.contains("1 paused") && page.contains(": new disk\n"), "{page}");
    let again = server.run(["nodes", "uncordon", &id]).expect(0).stdout;
    assert!(again.contains("is ready"), "{again}");
    server.run(["nodes", "session", "abandon", &id]).expect(0);
    let page = server.run(["nodes", "show", &id]).expect(0).stdout;
    assert!(page.contains("2 abandoned") && page.contains("healthy") && page.contains("no\n"), "{page}");
    server.run(["nodes", "session", "nonsense"]).expect(2);
    server.run(["nodes", "session", "ready", "node_0000000000001"]).expect(3);
}

/// A command in a pipe, stopped on drop.
struct Watching {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watching {
    fn start(server: &Server, arguments: &[&str]) -> Self {
        let mut process = server.command(arguments).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

// FEATURES: C13
#[test]
fn changes_of_nodes_are_printed_one_per_line() {
    let server = Server::start();
    let id = server.run(["nodes", "session", "--output", "json"]).expect(0).json()["node"].as_str().unwrap().to_owned();
    let mut watching = Watching::start(&server, &["nodes", "--watch"]);
    let mut documents = Watching::start(&server, &["nodes", "list", "--watch", "--output", "json"]);
    let first = watching.line();
    assert!(first.contains(&id) && first.ends_with("  ready"), "{first}");
    let first: Value = serde_json::from_str(&documents.line()).unwrap();
    assert_eq!(first["node"]["id"], json!(id));
    server.run(["nodes", "drain", &id]).expect(0);
    server.run(["nodes", "uncordon", &id]).expect(0);
    for what in ["cordoned", "session draining", "uncordoned", "session ready"] {
        let line = watching.line();
        assert!(line.contains(&id) && line.ends_with(&format!("  {what}")), "{line}");
    }
    for what in ["cordoned", "session", "uncordoned", "session"] {
        let document: Value = serde_json::from_str(&documents.line()).unwrap();
        assert_eq!((&document["change"]["node"], &document["change"]["state"]), (&json!(id), &json!(what)));
    }
}
