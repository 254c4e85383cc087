//! What a definition asks of a server, as far as its text tells.

use std::collections::BTreeMap;

use model::blob::{BlobId, named_in};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// What must be there, or be allowed, before a workflow of this definition is started.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Demands {
    /// Where it says that something runs without a sandbox.
    pub unsandboxed: Option<String>,
    /// The blobs that it names, each once.
    pub blobs: Vec<BlobId>,
}

impl Demands {
    /// `source` is a definition that was compiled.
    pub fn of(source: &[u8]) -> Self {
        let mut blobs: Vec<BlobId> = named_in(source).collect();
        blobs.sort_unstable();
        blobs.dedup();
        let definition: Definition = serde_json::from_slice(source).unwrap_or_default();
        Self { unsandboxed: definition.unsandboxed(), blobs }
    }
}

/// As much of a definition as matters here.
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
    sandbox: Option<Word>,
    compensation: Option<Compensation>,
}

/// A compensation may be a command alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Compensation {
    Fields(Fields),
    Other(IgnoredAny),
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Fields {
    sandbox: Option<Word>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Word {
    Text(String),
    Other(IgnoredAny),
}

fn is_none(sandbox: Option<&Word>) -> bool {
    matches!(sandbox, Some(Word::Text(text)) if text == "none")
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
    fn a_wish_for_no_sandbox_is_found_wherever_it_stands() {
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
            assert_eq!(Demands::of(source.as_bytes()).unsandboxed.as_deref(), field, "{source}");
        }
    }

    #[test]
    fn blobs_are_named_once() {
        let blob = BlobId::of(b"x");
        let source = format!(r#"{{"tasks":{{"a":{{"inputs":{{"f":"{blob}","g":"{blob}"}}}}}}}}"#);
        assert_eq!(Demands::of(source.as_bytes()).blobs, [blob]);
    }
}
