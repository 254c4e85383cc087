//! `outlast run`: a workflow from a file, and its progress if somebody waits for it.

mod inputs;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use model::json::Json;
use model::view::{WorkflowStart, WorkflowView};
use model::workflow::WorkflowState;
use workflow::Plan;

use crate::context::Context;
use crate::paint::{Paint, Tone};
use crate::submit::parse_pair;
use crate::workflows::tree::ended_words;
use crate::workflows::watch::{Watched, say, watch};
use crate::{definition, exit, ids};

/// Start the workflow of a file and print its id.
#[derive(Args)]
#[command(after_help = "\
The file is YAML or JSON. It is checked before anything is sent; `outlast workflows validate FILE` does only that.
A task that starts a sub-workflow may name a file: `workflow: ./other.yaml`, relative to the file it stands in.

Examples:
  outlast run build.yaml --wait
  outlast run build.yaml --input shards=4 --input 'targets=[\"linux\", \"wasm\"]'
  id=$(outlast run deploy.yaml --inputs production.json --key release-17)")]
pub struct Options {
    /// The file with the workflow; `-` is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// A value to start it with; lists and objects as JSON; may be repeated.
    #[arg(long, value_parser = parse_pair, value_name = "NAME=VALUE")]
    input: Vec<(String, String)>,
    /// A JSON or YAML file with values to start it with; what --input says counts more.
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// The queue of its jobs, by id or token.
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Whose workflow it is.
    #[arg(long)]
    tenant: Option<String>,
    /// A label, kept and shown with the workflow; may be repeated.
    #[arg(long, value_parser = parse_pair, value_name = "NAME=VALUE")]
    label: Vec<(String, String)>,
    /// Names this start: the same key again gives the same workflow, not another one.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Show what every task does until the workflow has ended; exit with 0 if it succeeded, else with 1.
    #[arg(long)]
    pub wait: bool,
    /// Do not wait, which is the default.
    #[arg(long, conflicts_with = "wait")]
    detach: bool,
}

pub async fn run(options: Options, context: &Context) -> Result<u8> {
    let plan = definition::open(&options.file)?;
    let inputs = inputs::gather(options.inputs.as_deref(), &options.input, &plan)?;
    let start = WorkflowStart {
        definition: Some(source(&plan)?),
        yaml: None,
        inputs: Some(inputs),
        queue: options.queue.as_deref().map(ids::queue).transpose()?,
        tenant: options.tenant,
        labels: options.label.into_iter().collect::<BTreeMap<_, _>>(),
        idempotency_key: options.key,
    };
    let started = context.client.start_workflow(&start).await?;
    if options.wait {
        return wait(&started, context).await;
    }
    context.printer.print(&started, |started: &WorkflowView, _| format!("{}\n", started.id))?;
    if context.printer.is_for_people() {
        let verb = if started.deduplicated { "was started before" } else { "has started" };
        let words = format!("{} {verb}; watch it: outlast workflows show {} --watch", started.name, started.id);
        say(&Paint::for_stderr().apply(Tone::Quiet, &words));
    }
    Ok(exit::DONE)
}

/// The definition as it is sent, with everything that it needs.
pub fn source(plan: &Plan) -> Result<Json> {
    Json::parse(&plan.source).context("the compiled definition is not JSON")
}

async fn wait(started: &WorkflowView, context: &Context) -> Result<u8> {
    let shows = context.printer.is_for_people();
    match watch(started.id, shows, context).await? {
        Watched::Ended(view) => {
            context.printer.print(&*view, last_words)?;
            Ok(exit_code(view.state))
        }
        Watched::Interrupted => Ok(exit::INTERRUPTED),
        Watched::Unread => Ok(exit::NOT_READ),
    }
}

/// How it ended, and what it has come to.
pub fn last_words(view: &WorkflowView, paint: Paint) -> String {
    let mut text = format!("{}\n", paint.apply(Tone::of_workflow(view.state), &ended_words(view)));
    if let Some(result) = view.result.as_ref().filter(|result| result.as_str() != "null") {
        let pretty = serde_json::from_slice::<serde_json::Value>(result.as_bytes())
            .and_then(|value| serde_json::to_string_pretty(&value));
        text.push_str(&pretty.unwrap_or_else(|_| result.as_str().to_owned()));
        text.push('\n');
    }
    text
}

fn exit_code(state: WorkflowState) -> u8 {
    match state {
        WorkflowState::Succeeded => exit::DONE,
        WorkflowState::Failed
        | WorkflowState::Cancelled
        | WorkflowState::Running
        | WorkflowState::Paused
        | WorkflowState::Stopping
        | WorkflowState::RollingBack => exit::FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflows::tree::example;

    #[test]
    fn the_exit_code_tells_whether_it_succeeded() {
        let codes = WorkflowState::ALL.map(|state| (state.is_terminal(), exit_code(state)));
        let ended: Vec<u8> = codes.into_iter().filter(|(has_ended, _)| *has_ended).map(|(_, code)| code).collect();
        assert_eq!(ended, [0, 1, 1], "succeeded, failed, cancelled");
    }

    #[test]
    fn the_last_words_are_a_summary_and_the_result() {
        let mut view = example::workflow("succeeded");
        view.result = Json::parse(br#"{"b":1,"a":[2]}"#);
        assert_eq!(
            last_words(&view, Paint::NONE),
            "build-and-test succeeded in 12s, 3 jobs, 0.42s cpu\n{\n  \"a\": [\n    2\n  ],\n  \"b\": 1\n}\n"
        );
        view.result = Some(Json::null());
        assert_eq!(last_words(&view, Paint::NONE), "build-and-test succeeded in 12s, 3 jobs, 0.42s cpu\n");
    }
}
