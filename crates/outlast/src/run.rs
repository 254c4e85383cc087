//! `outlast run`: starts a workflow from a file and optionally waits for its end.

mod inputs;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use api::{WorkflowStart, WorkflowView};
use clap::Args;
use model::json::Json;
use model::workflow::WorkflowState;
use workflow::Plan;

use crate::context::Context;
use crate::paint::{Paint, Tone};
use crate::submit::parse_pair;
use crate::workflows::tree::end_summary;
use crate::workflows::watch::{Watched, print_stderr, watch};
use crate::{definition, exit, ids};

/// Start a workflow from a file and print its id.
#[derive(Args)]
#[command(after_help = "\
The file is YAML or JSON. It is validated before it is sent; `outlast workflows validate FILE` only validates it.
A task that starts a sub-workflow may refer to a file: `workflow: ./other.yaml`, relative to the referring file.

Examples:
  outlast run build.yaml --wait
  outlast run build.yaml --input shards=4 --input 'targets=[\"linux\", \"wasm\"]'
  id=$(outlast run deploy.yaml --inputs production.json --key release-17)")]
pub struct Options {
    /// Workflow definition; `-` for standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Input value; lists and objects as JSON; repeatable.
    #[arg(long, value_parser = parse_pair, value_name = "NAME=VALUE")]
    input: Vec<(String, String)>,
    /// JSON or YAML file with input values. --input takes precedence.
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// Queue of its jobs, by id or token [default: the tenant's implicit queue]
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Tenant of the workflow [default: default]
    #[arg(long)]
    tenant: Option<String>,
    /// Label of the workflow; repeatable.
    #[arg(long, value_parser = parse_pair, value_name = "NAME=VALUE")]
    label: Vec<(String, String)>,
    /// Idempotency key. Repeating it returns the same workflow.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Show progress until the workflow ends. Exit code 0 if it succeeded, 1 otherwise.
    #[arg(long)]
    pub wait: bool,
    /// Do not wait (default).
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
    if context.printer.is_human_readable() {
        let verb = if started.deduplicated { "was already started" } else { "has started" };
        let message = format!("{} {verb}; watch it with: outlast workflows show {} --watch", started.name, started.id);
        print_stderr(&Paint::for_stderr().apply(Tone::Quiet, &message));
    }
    Ok(exit::DONE)
}

/// The definition as sent to the server, with all referenced files embedded.
pub fn source(plan: &Plan) -> Result<Json> {
    Json::parse(&plan.source).context("the compiled definition is not JSON")
}

async fn wait(started: &WorkflowView, context: &Context) -> Result<u8> {
    let shows = context.printer.is_human_readable();
    match watch(started.id, shows, context).await? {
        Watched::Ended(view) => {
            context.printer.print(&*view, summary)?;
            Ok(exit_code(view.state))
        }
        Watched::Interrupted => Ok(exit::INTERRUPTED),
        Watched::OutputClosed => Ok(exit::OUTPUT_CLOSED),
    }
}

/// Final state, duration, usage and result of a workflow.
pub fn summary(view: &WorkflowView, paint: Paint) -> String {
    let mut text = format!("{}\n", paint.apply(Tone::of_workflow(view.state), &end_summary(view)));
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
    fn the_exit_code_is_zero_only_on_success() {
        let codes = WorkflowState::ALL.map(|state| (state.is_terminal(), exit_code(state)));
        let ended: Vec<u8> = codes.into_iter().filter(|(has_ended, _)| *has_ended).map(|(_, code)| code).collect();
        assert_eq!(ended, [0, 1, 1], "succeeded, failed, cancelled");
    }

    #[test]
    fn the_summary_includes_the_result() {
        let mut view = example::workflow("succeeded");
        view.result = Json::parse(br#"{"b":1,"a":[2]}"#);
        assert_eq!(
            summary(&view, Paint::NONE),
            "build-and-test succeeded in 12s, 3 jobs, 0.42s cpu\n{\n  \"a\": [\n    2\n  ],\n  \"b\": 1\n}\n"
        );
        view.result = Some(Json::null());
        assert_eq!(summary(&view, Paint::NONE), "build-and-test succeeded in 12s, 3 jobs, 0.42s cpu\n");
    }
}
