//! Prerequisites of a definition: blobs that must exist, and permission to run without a sandbox.

use std::collections::BTreeMap;

use model::blob::{BlobId, named_in};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Conditions to check before a workflow of a definition is started.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Prerequisites {
    /// Path of the first field with `sandbox: none`.
    pub unsandboxed: Option<String>,
    /// Referenced blobs, without duplicates.
    pub blobs: Vec<BlobId>,
}

impl Prerequisites {
    /// `source` is the JSON of a compiled definition.
    pub fn of(source: &[u8]) -> Self {
        let mut blobs: Vec<BlobId> = named_in(source).collect();
        blobs.sort_unstable();
        blobs.dedup();
        let definition: Definition = serde_json::from_slice(source).unwrap_or_default();
        Self { unsandboxed: definition.unsandboxed(), blobs }
    }
}

/// The relevant fields of a definition.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Definition {
    defaults: Fields,
    tasks: BTreeMap<String, Task>,
    workflows: BTreeMap<String, Definition>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Task {
    sandbox: Option<Sandbox>,
    compensation: Option<Compensation>,
}

/// A compensation may be just a command.
#[derive(Deserialize)]
#[serde(untagged)]
enum Compensation {
    Fields(Fields),
    Other(IgnoredAny),
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Fields {
    sandbox: Option<Sandbox>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Sandbox {
    Text(String),
    Other(IgnoredAny),
}

fn is_none(sandbox: Option<&Sandbox>) -> bool {
    matches!(sandbox, Some(Sandbox::Text(text)) if text == "none")
}

impl Definition {
    fn unsandboxed(&self) -> Option<String> {
        if is_none(self.defaults.sandbox.as_ref()) {
            return Some("defaults.sandbox".to_owned());
        }
        for (name, task) in &self.tasks {
            if is_none(task.sandbox.as_ref()) {
                return Some(format!("tasks.{name}.sandbox"));
            }
            if let Some(Compensation::Fields(fields)) = &task.compensation
                && is_none(fields.sandbox.as_ref())
            {
                return Some(format!("tasks.{name}.compensation.sandbox"));
            }
        }
        self.workflows
            .iter()
            .find_map(|(name, inner)| inner.unsandboxed().map(|field| format!("workflows.{name}.{field}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandbox_none_is_found_at_every_level() {
        for (source, field) in [
            (r#"{"tasks":{"a":{"run":"x","sandbox":"strict"}}}"#, None),
            (r#"{"tasks":{"a":{"run":{"echo":{"value":{"sandbox":"none"}}}}}}"#, None),
            (r#"{"defaults":{"sandbox":"none"},"tasks":{}}"#, Some("defaults.sandbox")),
            (r#"{"tasks":{"a":{"run":"x","sandbox":"none"}}}"#, Some("tasks.a.sandbox")),
            (r#"{"tasks":{"a":{"compensation":"undo"}}}"#, None),
            (r#"{"tasks":{"a":{"compensation":{"run":"x","sandbox":"none"}}}}"#, Some("tasks.a.compensation.sandbox")),
            (
                r#"{"tasks":{},"workflows":{"w":{"tasks":{"b":{"sandbox":"none"}}}}}"#,
                Some("workflows.w.tasks.b.sandbox"),
            ),
        ] {
            assert_eq!(Prerequisites::of(source.as_bytes()).unsandboxed.as_deref(), field, "{source}");
        }
    }

    #[test]
    fn blobs_are_listed_once() {
        let blob = BlobId::of(b"x");
        let source = format!(r#"{{"tasks":{{"a":{{"inputs":{{"f":"{blob}","g":"{blob}"}}}}}}}}"#);
        assert_eq!(Prerequisites::of(source.as_bytes()).blobs, [blob]);
    }
}
