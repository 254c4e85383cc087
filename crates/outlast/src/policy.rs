//! `outlast policy`: what decides about jobs, what it would say, and whether the rules do as they should.

mod check;
mod test;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use model::view::PolicyView;

use crate::context::Context;
use crate::exit;
use crate::paint::{Paint, Tone, tame};
use crate::table::{Cell, Pairs};

/// Show the policy, ask what it says of a job, or test rules.
#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Show who decides about jobs, and how that is going.
    Show,
    /// Ask what the policy says of a job, without submitting it. A job that would be denied gives exit code 5.
    Check(check::Options),
    /// Ask the rules in a directory about the cases beside them (`*_test.yaml`, `*_test.json`); no server is asked.
    Test { directory: PathBuf },
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
        "none" => "nobody is asked: every job may run",
        "rules" => "rules in Rego",
        "kernel" => "a kernel, asked over the network",
        other => other,
    };
    pairs.add_cell("decided by", Cell::new(mode).tone(Tone::Strong));
    pairs.add_option("version", policy.version);
    pairs.add("while it cannot be asked", if policy.fail_mode == "open" { "jobs run" } else { "jobs wait" });
    pairs.add_option("ran without being asked about", (policy.failed_open > 0).then_some(policy.failed_open));
    if let Some(rules) = &policy.rules {
        pairs.add("directory", &rules.directory);
        pairs.add("files", rules.files.join(" "));
        pairs.add("loaded", rules.loaded_at);
        pairs.add("rules for results", if rules.has_output_rules { "yes" } else { "no" });
        if let Some(error) = &rules.error {
            pairs.add_cell("not in force", Cell::new(first_line(error)).tone(Tone::Bad));
        }
    }
    let kernel =
        policy.kernel.as_ref().and_then(|kernel| serde_json::from_slice::<serde_json::Value>(kernel.as_bytes()).ok());
    if let Some(kernel) = &kernel {
        for (name, field) in [("address", &kernel["address"]), ("its own version", &kernel["kernel_version"])] {
            pairs.add_option(name, field.as_str());
        }
        for (name, gate) in [("jobs", &kernel["input"]), ("results", &kernel["output"])] {
            let state = gate["state"].as_str().unwrap_or_default();
            pairs.add(name, format!("breaker {state}, {} calls, {} failed", gate["calls"], gate["failures"]));
        }
    }
    let mut text = pairs.render(paint);
    if let Some(error) = policy.rules.as_ref().and_then(|rules| rules.error.as_ref()) {
        let lines: Vec<String> = error.lines().map(tame).collect();
        text.push_str(&format!(
            "\nWhat is in the directory cannot be used, those from before stay in force:\n{}\n",
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
    use model::json::Json;
    use model::time::{Millis, Timestamp};
    use model::view::RulesView;

    use super::*;

    fn policy() -> PolicyView {
        PolicyView {
            mode: "rules".to_owned(),
            fail_mode: "closed".to_owned(),
            version: None,
            failed_open: 0,
            rules: None,
            kernel: None,
        }
    }

    #[test]
    fn rules_that_cannot_be_used_are_told_of() {
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
        assert!(text.contains("not in force              a.rego:3: expected a brace\n"), "{text}");
        assert!(text.ends_with("  deny contains\n"), "{text}");
    }

    #[test]
    fn a_kernel_is_shown_with_its_breakers() {
        let kernel = br#"{"address":"k:1","input":{"state":"open","calls":5,"failures":3},"output":{"state":"closed","calls":0,"failures":0}}"#;
        let text = page(&PolicyView { kernel: Json::parse(kernel), ..policy() }, Paint::NONE);
        assert!(text.contains("breaker open, 5 calls, 3 failed\n"), "{text}");
    }
}
