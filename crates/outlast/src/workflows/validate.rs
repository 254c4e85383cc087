//! Validates a definition file without a server.

use std::path::Path;

use anyhow::Result;
use api::ValidView;
use serde::Serialize;

use crate::context::Context;
use crate::definition::{self, FileDiagnostic, InvalidDefinition};
use crate::exit;

pub fn run(file: &Path, context: &Context) -> Result<u8> {
    match definition::open(file) {
        Ok(plan) => {
            let tasks = u32::try_from(plan.tasks.len()).unwrap_or(u32::MAX);
            let valid = ValidView { valid: true, name: plan.name.to_string(), tasks, warnings: Vec::new() };
            context.printer.print(&valid, |valid: &ValidView, _| match valid.tasks {
                1 => "valid: 1 task\n".to_owned(),
                tasks => format!("valid: {tasks} tasks\n"),
            })?;
            Ok(exit::DONE)
        }
        Err(error) => match error.downcast::<InvalidDefinition>() {
            // A result in JSON and YAML output, an error in table output.
            Ok(invalid) if !context.printer.is_human_readable() => {
                #[derive(Serialize)]
                struct Report<'a> {
                    valid: bool,
                    diagnostics: &'a [FileDiagnostic],
                    more: usize,
                }
                let report = Report { valid: false, diagnostics: &invalid.diagnostics, more: invalid.more };
                context.printer.print(&report, |_, _| String::new())?;
                Ok(exit::USAGE)
            }
            Ok(invalid) => Err(invalid.into()),
            Err(error) => Err(error),
        },
    }
}
