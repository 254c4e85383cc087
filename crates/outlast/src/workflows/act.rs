//! Steering workflows: cancel, pause, resume, signal, run again, remove.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use model::view::{SignalledView, WorkflowView};
use serde_json::Value;

use crate::context::Context;
use crate::definition::{called, read};
use crate::exit::Usage;
use crate::{exit, ids};

#[derive(Debug, Clone, Copy)]
pub enum Act {
    Cancel { compensate: bool },
    Pause,
    Resume,
    Remove,
}

#[derive(Args)]
pub struct SignalOptions {
    id: String,
    name: String,
    /// What comes with it, as JSON.
    #[arg(value_name = "JSON")]
    payload: Option<String>,
    /// The same from a file with JSON; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    file: Option<PathBuf>,
}

/// All of them, one after the other.
pub async fn each(act: Act, texts: &[String], context: &Context) -> Result<u8> {
    crate::each::each(texts, context, async |text: &str| one(act, text, context).await, line).await
}

/// The workflow as it is now; nothing if it is gone.
async fn one(act: Act, text: &str, context: &Context) -> Result<Option<WorkflowView>> {
    let id = ids::workflow(text)?;
    let client = &context.client;
    Ok(match act {
        Act::Cancel { compensate } => Some(client.cancel_workflow(id, compensate).await?),
        Act::Pause => Some(client.pause_workflow(id).await?),
        Act::Resume => Some(client.resume_workflow(id).await?),
        Act::Remove => {
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
    let answer = context.client.signal_workflow(id, &options.name, &payload).await?;
    context.printer.print(&answer, |_: &SignalledView, _| format!("{id} has got the signal {}\n", options.name))?;
    Ok(exit::DONE)
}

/// Nothing is `null`.
fn payload(options: &SignalOptions) -> Result<Value> {
    let parse = |text: &str, from: &str| {
        let value = serde_json::from_str(text);
        value.map_err(|error| Usage(format!("{from} is not JSON: {error}; a text needs its quotes: '\"text\"'")).into())
    };
    match (&options.payload, &options.file) {
        (Some(text), _) => parse(text, "what comes with the signal"),
        (None, Some(file)) => parse(&read(file)?, &called(file)),
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
    fn a_signal_comes_with_json_or_with_nothing() {
        assert_eq!(payload(&options(None)).unwrap(), Value::Null);
        assert_eq!(payload(&options(Some(r#"{"ok": true}"#))).unwrap(), json!({"ok": true}));
        let error = payload(&options(Some("go"))).unwrap_err();
        assert!(error.is::<Usage>() && error.to_string().contains("needs its quotes"), "{error}");
    }
}
