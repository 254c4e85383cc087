//! `outlast policy`: shows, checks and tests the policy.

mod check;
mod test;

use std::path::PathBuf;

use anyhow::Result;
use api::PolicyView;
use clap::{Args, Subcommand};

use crate::context::Context;
use crate::exit;
use crate::paint::{Paint, Tone, sanitize};
use crate::table::{Cell, Pairs};

/// Show the policy, check a job against it, or test rules.
#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Show the policy backend and its status.
    Show,
    /// Check a job against the policy without submitting it. Exit code 5 if it would be denied.
    Check(check::Options),
    /// Run the test cases (`*_test.yaml`, `*_test.json`) of the rules in a directory, without a server.
    Test {
        /// Directory with rules and test cases.
        directory: PathBuf,
    },
}

pub async fn run(options: Options, context: &Context) -> Result<u8> {
    match options.command.unwrap_or(Command::Show) {
        Command::Show => {
            let policy = context.client.policy().await?;
            context.printer.print(&policy, page)?;
            Ok(exit::DONE)
        }
        Command::Check(options) => check::run(&options, context).await,
        Command::Test { directory } => test::run(&directory, context),
    }
}

fn page(policy: &PolicyView, paint: Paint) -> String {
    let mut pairs = Pairs::default();
    let mode = match policy.mode.as_str() {
        "none" => "no policy: every job may run",
        "rules" => "rules in Rego",
        "kernel" => "policy service",
        other => other,
    };
    pairs.add_cell("backend", Cell::new(mode).tone(Tone::Strong));
    pairs.add_option("version", policy.version);
    pairs.add("when unavailable", if policy.fail_mode == "open" { "jobs run" } else { "jobs wait" });
    pairs.add_option("ran without a decision", (policy.failed_open > 0).then_some(policy.failed_open));
    if let Some(rules) = &policy.rules {
        pairs.add("directory", &rules.directory);
        pairs.add("files", rules.files.join(" "));
        pairs.add("loaded", rules.loaded_at);
        pairs.add("output rules", if rules.has_output_rules { "yes" } else { "no" });
        if let Some(error) = &rules.error {
            pairs.add_cell("load error", Cell::new(first_line(error)).tone(Tone::Bad));
        }
    }
    let service =
        policy.service.as_ref().and_then(|status| serde_json::from_slice::<serde_json::Value>(status.as_bytes()).ok());
    if let Some(service) = &service {
        for (name, field) in [("address", &service["address"]), ("service version", &service["kernel_version"])] {
            pairs.add_option(name, field.as_str());
        }
        for (name, calls) in [("input calls", &service["input"]), ("output calls", &service["output"])] {
            let state = calls["state"].as_str().unwrap_or_default();
            pairs.add(name, format!("circuit breaker {state}, {} calls, {} failed", calls["calls"], calls["failures"]));
        }
    }
    let mut text = pairs.render(paint);
    if let Some(error) = policy.rules.as_ref().and_then(|rules| rules.error.as_ref()) {
        let lines: Vec<String> = error.lines().map(sanitize).collect();
        text.push_str(&format!(
            "\nThe rules in the directory are invalid; the previously loaded rules stay in force:\n{}\n",
            lines.join("\n")
        ));
    }
    text
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use api::RulesView;
    use model::json::Json;
    use model::time::{Millis, Timestamp};

    use super::*;

    fn policy() -> PolicyView {
        PolicyView {
            mode: "rules".to_owned(),
            fail_mode: "closed".to_owned(),
            version: None,
            failed_open: 0,
            rules: None,
            service: None,
        }
    }

    #[test]
    fn invalid_rules_are_reported() {
        let rules = RulesView {
            directory: "rules".to_owned(),
            files: vec!["a.rego".to_owned()],
            loaded_at: Timestamp(Millis(0)),
            error: Some("a.rego:3: expected a brace\n  deny contains".to_owned()),
            cacheable: true,
            reads: Vec::new(),
            has_output_rules: false,
        };
        let text = page(&PolicyView { rules: Some(rules), ..policy() }, Paint::NONE);
        assert!(text.contains("load error        a.rego:3: expected a brace\n"), "{text}");
        assert!(text.ends_with("  deny contains\n"), "{text}");
    }

    #[test]
    fn a_policy_service_is_shown_with_its_circuit_breakers() {
        let status = br#"{"address":"k:1","input":{"state":"open","calls":5,"failures":3},"output":{"state":"closed","calls":0,"failures":0}}"#;
        let text = page(&PolicyView { service: Json::parse(status), ..policy() }, Paint::NONE);
        assert!(text.contains("breaker open, 5 calls, 3 failed\n"), "{text}");
    }
}
