//! Validation of specs. Errors name the field and the remedy.

use std::collections::BTreeMap;

use super::{JobSpec, Limits, ProcessRun, Run, Sandbox, WasmRun};
use crate::limits;
use crate::time::Millis;

/// Validation error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: {message}")]
pub struct Invalid {
    /// Path of the field in the request.
    pub field: &'static str,
    pub message: String,
}

impl Invalid {
    pub fn new(field: &'static str, message: impl Into<String>) -> Self {
        Self { field, message: message.into() }
    }
}

type Checked = Result<(), Invalid>;

impl JobSpec {
    /// Validates all fields. Returns the first error.
    pub fn validate(&self) -> Checked {
        name("topic", &self.topic)?;
        name("tenant", &self.tenant)?;
        duration("timeout_ms", self.timeout_ms)?;
        if self.timeout_ms == Some(0) {
            return Err(Invalid::new("timeout_ms", "it must be at least 1 ms"));
        }
        if let Some(retries) = self.max_retries.filter(|retries| *retries > limits::RETRIES_MAX) {
            let message = format!("{retries} retries are too many: at most {}", limits::RETRIES_MAX);
            return Err(Invalid::new("max_retries", message));
        }
        if let Some(key) = &self.idempotency_key {
            validate_key(key)?;
        }
        self.validate_labels()?;
        self.validate_requires()?;
        match &self.run {
            Run::Echo(echo) => {
                self.reject_unused_by_echo()?;
                duration("run.echo.delay_ms", Some(echo.delay_ms))
            }
            Run::Process(process) => {
                validate_process(process)?;
                if self.limits.fuel.is_some() {
                    return Err(Invalid::new("limits.fuel", "fuel is counted in WebAssembly only: limit `cpu_ms`"));
                }
                self.validate_files()
            }
            Run::Wasm(wasm) => {
                validate_wasm(wasm)?;
                if self.sandbox == Some(Sandbox::None) {
                    let message = "a WebAssembly component is always in its sandbox: leave this out";
                    return Err(Invalid::new("sandbox", message));
                }
                for (field, limit) in [("limits.pids", self.limits.pids), ("limits.open_files", self.limits.open_files)]
                {
                    if limit.is_some() {
                        return Err(Invalid::new(field, "it applies to processes only: leave it out"));
                    }
                }
                self.validate_files()
            }
        }
    }

    fn validate_labels(&self) -> Checked {
        if self.labels.len() > limits::LABELS_MAX {
            let message = format!("{} labels are too many: at most {}", self.labels.len(), limits::LABELS_MAX);
            return Err(Invalid::new("labels", message));
        }
        for (label, value) in &self.labels {
            name("labels", label)?;
            if value.len() > limits::LABEL_VALUE_BYTES_MAX {
                let message = format!("the value of `{label}` is longer than {} bytes", limits::LABEL_VALUE_BYTES_MAX);
                return Err(Invalid::new("labels", message));
            }
        }
        Ok(())
    }

    fn validate_requires(&self) -> Checked {
        if self.requires.len() > limits::REQUIRES_MAX {
            let message =
                format!("{} capabilities are too many: at most {}", self.requires.len(), limits::REQUIRES_MAX);
            return Err(Invalid::new("requires", message));
        }
        self.requires.iter().try_for_each(|capability| name("requires", capability))
    }

    /// Rejects fields that would have no effect.
    fn reject_unused_by_echo(&self) -> Checked {
        let message = "an echo job has no files and uses nothing: leave it out";
        for (field, given) in [
            ("inputs", !self.inputs.is_empty()),
            ("outputs", !self.outputs.is_empty()),
            ("limits", !self.limits.is_empty()),
        ] {
            if given {
                return Err(Invalid::new(field, message));
            }
        }
        Ok(())
    }

    /// Inputs, outputs and limits.
    fn validate_files(&self) -> Checked {
        if self.inputs.len() > limits::INPUTS_MAX {
            let message = format!("{} inputs are too many: at most {}", self.inputs.len(), limits::INPUTS_MAX);
            return Err(Invalid::new("inputs", message));
        }
        for path in self.inputs.keys() {
            relative_path("inputs", path)?;
            let mut directories = path.match_indices('/').map(|(at, _)| &path[..at]);
            if let Some(file) = directories.find(|directory| self.inputs.contains_key(*directory)) {
                let message = format!("`{file}` cannot be a file and the directory of `{path}`");
                return Err(Invalid::new("inputs", message));
            }
        }
        if self.outputs.len() > limits::OUTPUTS_MAX {
            let message = format!("{} patterns are too many: at most {}", self.outputs.len(), limits::OUTPUTS_MAX);
            return Err(Invalid::new("outputs", message));
        }
        self.outputs.iter().try_for_each(|glob| components("outputs", glob).map(drop))?;
        validate_limits(&self.limits)
    }
}

fn validate_process(process: &ProcessRun) -> Checked {
    const COMMAND: &str = "run.process.command";
    if let Some(function) = &process.function {
        name("run.process.function", function)?;
        if process.worker.is_none() {
            return Err(Invalid::new("run.process.function", "whose function? Name the `worker` as well"));
        }
    } else {
        match process.command.first() {
            None => return Err(Invalid::new(COMMAND, "the command is empty: name at least a program")),
            Some(program) if program.is_empty() => return Err(Invalid::new(COMMAND, "the program's name is empty")),
            Some(_) => {}
        }
    }
    arguments(COMMAND, &process.command)?;
    environment("run.process.env", &process.env)?;
    total_size(COMMAND, &process.command, &process.env)
}

fn validate_wasm(wasm: &WasmRun) -> Checked {
    arguments("run.wasm.args", &wasm.args)?;
    environment("run.wasm.env", &wasm.env)?;
    total_size("run.wasm.args", &wasm.args, &wasm.env)
}

fn arguments(field: &'static str, arguments: &[String]) -> Checked {
    if arguments.len() > limits::COMMAND_ARGS_MAX {
        return Err(Invalid::new(field, format!("more than {} arguments", limits::COMMAND_ARGS_MAX)));
    }
    if arguments.iter().any(|argument| argument.contains('\0')) {
        return Err(Invalid::new(field, "an argument contains a zero byte"));
    }
    if let Some(long) = arguments.iter().map(String::len).find(|bytes| *bytes > limits::ARGUMENT_BYTES_MAX) {
        let message = format!(
            "an argument has {long} bytes: at most {}. Give more as `stdin` or as one of the `inputs`",
            limits::ARGUMENT_BYTES_MAX
        );
        return Err(Invalid::new(field, message));
    }
    Ok(())
}

fn environment(field: &'static str, env: &BTreeMap<String, String>) -> Checked {
    if env.len() > limits::ENV_VARS_MAX {
        return Err(Invalid::new(field, format!("more than {} variables", limits::ENV_VARS_MAX)));
    }
    for (variable, value) in env {
        if variable.is_empty() || variable.contains(['=', '\0']) || value.contains('\0') {
            let message = "a variable has an empty name, a name with `=`, or a zero byte";
            return Err(Invalid::new(field, message));
        }
        if variable.len() + 1 + value.len() > limits::ARGUMENT_BYTES_MAX {
            let shown: String = variable.chars().take(100).collect();
            let message = format!("`{shown}` and its value are longer than {} bytes", limits::ARGUMENT_BYTES_MAX);
            return Err(Invalid::new(field, message));
        }
    }
    Ok(())
}

/// The kernel limits the total size of arguments and variables, each with a terminating zero byte.
fn total_size(field: &'static str, arguments: &[String], env: &BTreeMap<String, String>) -> Checked {
    let bytes = arguments.iter().map(|argument| argument.len() + 1).sum::<usize>()
        + env.iter().map(|(variable, value)| variable.len() + value.len() + 2).sum::<usize>();
    if bytes > limits::COMMAND_BYTES_MAX {
        let message = format!(
            "arguments and environment have {bytes} bytes together: at most {}. Give more as `stdin` or as one of the `inputs`",
            limits::COMMAND_BYTES_MAX
        );
        return Err(Invalid::new(field, message));
    }
    Ok(())
}

fn validate_limits(given: &Limits) -> Checked {
    for (field, limit, max) in [
        ("limits.cpu_ms", given.cpu_ms, limits::CPU_LIMIT_MS_MAX),
        ("limits.memory_bytes", given.memory_bytes, limits::MEMORY_LIMIT_BYTES_MAX),
        ("limits.pids", given.pids, limits::PIDS_LIMIT_MAX),
        ("limits.output_bytes", given.output_bytes, limits::OUTPUT_LIMIT_BYTES_MAX),
        ("limits.open_files", given.open_files, limits::OPEN_FILES_LIMIT_MAX),
        ("limits.fuel", given.fuel, limits::FUEL_LIMIT_MAX),
    ] {
        match limit {
            Some(0) => return Err(Invalid::new(field, "it must be at least 1: leave it out for no limit")),
            Some(limit) if limit > max => return Err(Invalid::new(field, format!("{limit} is more than {max}"))),
            Some(_) | None => {}
        }
    }
    Ok(())
}

/// Validates a relative path that stays below its directory.
pub fn relative_path(field: &'static str, path: &str) -> Checked {
    for component in components(field, path)? {
        if component.len() > limits::PATH_COMPONENT_BYTES_MAX {
            let message =
                format!("a part of `{}` is longer than {} bytes", shortened(path), limits::PATH_COMPONENT_BYTES_MAX);
            return Err(Invalid::new(field, message));
        }
    }
    Ok(())
}

/// Components of a relative path or glob. `.`, `..` and empty components are errors.
fn components<'a>(field: &'static str, path: &'a str) -> Result<impl Iterator<Item = &'a str>, Invalid> {
    let wrong = |what: &str| Err(Invalid::new(field, format!("`{}` {what}", shortened(path))));
    if path.is_empty() {
        return Err(Invalid::new(field, "a path is empty"));
    }
    if path.len() > limits::PATH_BYTES_MAX {
        return wrong(&format!("is longer than {} bytes", limits::PATH_BYTES_MAX));
    }
    if path.contains('\0') {
        return wrong("contains a zero byte");
    }
    if path.starts_with('/') {
        return wrong("is absolute: make it relative");
    }
    let parts = path.split('/');
    match parts.clone().find(|part| matches!(*part, "" | "." | "..")) {
        Some("..") => wrong("leaves its directory: `..` is not allowed"),
        Some(".") => wrong("has a part `.`: leave it out"),
        Some(_) => wrong("has an empty part: one `/` between two names, none at the end"),
        None => Ok(parts),
    }
}

fn shortened(path: &str) -> String {
    path.chars().take(100).collect()
}

/// Validates an idempotency key.
pub fn validate_key(key: &str) -> Result<(), Invalid> {
    if key.is_empty() || key.len() > limits::IDEMPOTENCY_KEY_BYTES_MAX {
        let message = format!(
            "an idempotency key has 1 to {} bytes, this one has {}",
            limits::IDEMPOTENCY_KEY_BYTES_MAX,
            key.len()
        );
        return Err(Invalid::new("idempotency_key", message));
    }
    Ok(())
}

/// Validates the name of a topic, tenant, tag or label.
pub fn name(field: &'static str, text: &str) -> Result<(), Invalid> {
    if text.is_empty() {
        return Err(Invalid::new(field, "it is empty"));
    }
    if text.len() > limits::NAME_BYTES_MAX {
        return Err(Invalid::new(field, format!("it has {} bytes: at most {}", text.len(), limits::NAME_BYTES_MAX)));
    }
    if text.chars().any(char::is_control) {
        return Err(Invalid::new(field, "it contains control characters"));
    }
    Ok(())
}

fn duration(field: &'static str, value: Option<u64>) -> Result<(), Invalid> {
    match value {
        Some(millis) if Millis(millis) > limits::DURATION_MAX => {
            Err(Invalid::new(field, format!("{millis} ms is longer than a year: at most {}", limits::DURATION_MAX.0)))
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
