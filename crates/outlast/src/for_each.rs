//! One action on several named resources.

use anyhow::Result;
use serde::Serialize;

use crate::context::Context;
use crate::{exit, output};

/// Runs `action` on each resource in turn. Failures are reported and do not stop the loop. Returns the highest exit
/// code. `action` returns the resource, or `None` if it was deleted; `line` formats it for the table output.
pub async fn for_each<T: Serialize>(
    texts: &[String],
    context: &Context,
    action: impl AsyncFn(&str) -> Result<Option<T>>,
    line: impl Fn(&T) -> String,
) -> Result<u8> {
    let mut resources = Vec::new();
    let mut exit_code = exit::DONE;
    for text in texts {
        match action(text).await {
            Ok(Some(resource)) if context.printer.is_human_readable() => output::write(line(&resource).as_bytes())?,
            Ok(Some(resource)) => resources.push(resource),
            Ok(None) if context.printer.is_human_readable() => output::write(format!("{text} deleted\n").as_bytes())?,
            Ok(None) => {}
            Err(error) => {
                // With several resources the message must name the one that failed.
                let is_named = texts.len() == 1 || error.to_string().contains(text);
                let error = if is_named { error } else { error.context(text.clone()) };
                exit_code = exit_code.max(exit::report_error(&error));
            }
        }
    }
    match &resources[..] {
        [] => {}
        [resource] if texts.len() == 1 => context.printer.print(resource, |_, _| String::new())?,
        resources => context.printer.print(&resources, |_, _| String::new())?,
    }
    Ok(exit_code)
}
