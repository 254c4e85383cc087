//! Actions on workflows: cancel, pause, resume, signal, rerun, delete.

use std::path::PathBuf;

use anyhow::Result;
use api::{SignalledView, WorkflowView};
use clap::Args;
use serde_json::Value;

use crate::context::Context;
use crate::definition::{display_name, read};
use crate::exit::Usage;
use crate::{exit, ids};

#[derive(Debug, Clone, Copy)]
pub enum WorkflowAction {
    Cancel { compensate: bool },
    Pause,
    Resume,
    Remove,
}

#[derive(Args)]
pub struct SignalOptions {
    /// Workflow id.
    id: String,
    /// Signal name.
    name: String,
    /// Payload as JSON [default: null]
    #[arg(value_name = "JSON")]
    payload: Option<String>,
    /// JSON file with the payload; `-` for standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    file: Option<PathBuf>,
}

pub async fn run(action: WorkflowAction, texts: &[String], context: &Context) -> Result<u8> {
    crate::for_each::for_each(texts, context, async |text: &str| run_one(action, text, context).await, line).await
}

/// Returns the workflow, or `None` if it was deleted.
async fn run_one(action: WorkflowAction, text: &str, context: &Context) -> Result<Option<WorkflowView>> {
    let id = ids::workflow(text)?;
    let client = &context.client;
    Ok(match action {
        WorkflowAction::Cancel { compensate } => Some(client.cancel_workflow(id, compensate).await?),
        WorkflowAction::Pause => Some(client.pause_workflow(id).await?),
        WorkflowAction::Resume => Some(client.resume_workflow(id).await?),
        WorkflowAction::Remove => {
            client.remove_workflow(id).await?;
            None
        }
    })
}

fn line(workflow: &WorkflowView) -> String {
    format!("{} {}\n", workflow.id, workflow.state)
}

pub async fn rerun(id: &str, from: Option<&str>, context: &Context) -> Result<u8> {
    let workflow = context.client.rerun_workflow(ids::workflow(id)?, from).await?;
    context.printer.print(&workflow, |workflow, _| line(workflow))?;
    Ok(exit::DONE)
}

pub async fn signal(options: &SignalOptions, context: &Context) -> Result<u8> {
    let id = ids::workflow(&options.id)?;
    let payload = payload(options)?;
    let response = context.client.signal_workflow(id, &options.name, &payload).await?;
    context.printer.print(&response, |_: &SignalledView, _| format!("signal {} sent to {id}\n", options.name))?;
    Ok(exit::DONE)
}

/// No payload is `null`.
fn payload(options: &SignalOptions) -> Result<Value> {
    let parse = |text: &str, from: &str| {
        let value = serde_json::from_str(text);
        value
            .map_err(|error| Usage(format!("{from} is not JSON: {error}; write a text with quotes: '\"text\"'")).into())
    };
    match (&options.payload, &options.file) {
        (Some(text), _) => parse(text, "the payload"),
        (None, Some(file)) => parse(&read(file)?, &display_name(file)),
        (None, None) => Ok(Value::Null),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn options(payload: Option<&str>) -> SignalOptions {
        SignalOptions { id: String::new(), name: String::new(), payload: payload.map(str::to_owned), file: None }
    }

    #[test]
    fn a_payload_is_json_or_null() {
        assert_eq!(payload(&options(None)).unwrap(), Value::Null);
        assert_eq!(payload(&options(Some(r#"{"ok": true}"#))).unwrap(), json!({"ok": true}));
        let error = payload(&options(Some("go"))).unwrap_err();
        assert!(error.is::<Usage>() && error.to_string().contains("with quotes"), "{error}");
    }
}
