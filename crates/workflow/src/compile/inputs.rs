//! Compiles the inputs of a definition, and checks the inputs passed to a sub-workflow.

use super::Compiler;
use crate::diagnostic::{closest, code};
use crate::limits;
use crate::node::{Data, Node};
use crate::path::FieldPath;
use crate::plan::{Input, InputType, Plan};
use crate::template::has_templates;

impl Compiler {
    pub(super) fn inputs(&mut self, node: &Node<'_>, path: FieldPath<'_>) -> Vec<Input> {
        let Some(entries) = self.map(node, path, "an object of inputs") else {
            return Vec::new();
        };
        if entries.len() > limits::INPUTS_MAX {
            let message = format!("{} inputs: at most {} are allowed", entries.len(), limits::INPUTS_MAX);
            self.problems.add(node.position, code::TOO_LARGE, path, message);
            return Vec::new();
        }
        let mut inputs = Vec::with_capacity(entries.len());
        for entry in entries {
            let path = path.field(&entry.key);
            self.valid_name(&entry.key, entry.position, path);
            inputs.push(self.input(&entry.key, &entry.value, path));
        }
        inputs
    }

    /// An invalid input is reported and still returned, so that references to it are not reported as unknown.
    fn input(&mut self, name: &str, node: &Node<'_>, path: FieldPath<'_>) -> Input {
        let mut input = Input { name: name.into(), kind: InputType::Any, default: None, description: None };
        if let Data::Text(_) = node.data {
            input.kind =
                self.one_of(node, path, &InputType::ALL.map(|kind| (kind.as_str(), kind))).unwrap_or(InputType::Any);
            return input;
        }
        let Some(entries) = self.map(node, path, "a type or an object with `type` and `default`") else {
            return input;
        };
        self.known_fields(entries, path, &["type", "default", "description"]);
        match node.get("type") {
            Some(kind) => {
                let keywords = InputType::ALL.map(|kind| (kind.as_str(), kind));
                input.kind = self.one_of(kind, path.field("type"), &keywords).unwrap_or(InputType::Any);
            }
            None => {
                let message = "the type is missing";
                let suggestion = Some(format!("write one of: {}", InputType::ALL.map(InputType::as_str).join(", ")));
                self.problems.add_with_suggestion(
                    node.position,
                    code::MISSING_FIELD,
                    path.field("type"),
                    message,
                    suggestion,
                );
            }
        }
        if let Some(description) = node.get("description") {
            input.description = self.description(description, path.field("description"));
        }
        if let Some(default) = node.get("default") {
            let value = default.to_value();
            if input.kind.accepts(&value) {
                input.default = Some(value);
            } else {
                let message = format!("expected {}, found {}", input.kind.describe(), default.kind());
                self.problems.add(default.position, code::WRONG_TYPE, path.field("default"), message);
            }
        }
        input
    }

    /// Checks the inputs passed to a sub-workflow, as far as they are known before rendering.
    pub(super) fn given_inputs(&mut self, child: &Plan, with: Option<&Node<'_>>, task: &Node<'_>, path: FieldPath<'_>) {
        let entries = match with.map(|with| &with.data) {
            None => &[][..],
            Some(Data::Map(entries)) => entries,
            // One template for all inputs: checked when it is rendered.
            Some(_) => return,
        };
        for entry in entries {
            let path = path.field(&entry.key);
            let Some(input) = child.inputs.iter().find(|input| *input.name == *entry.key) else {
                let near = closest(&entry.key, child.inputs.iter().map(|input| &*input.name));
                let suggestion = near.map(|near| format!("did you mean `{near}`?"));
                let message = format!("the workflow `{}` has no such input", child.name);
                self.problems.add_with_suggestion(entry.position, code::UNKNOWN_INPUT, path, message, suggestion);
                continue;
            };
            let is_template = entry.value.text().is_some_and(has_templates);
            if !is_template && !input.kind.accepts(&entry.value.to_value()) {
                let message = format!("expected {}, found {}", input.kind.describe(), entry.value.kind());
                self.problems.add(entry.value.position, code::WRONG_TYPE, path, message);
            }
        }
        for input in child.inputs.iter().filter(|input| input.default.is_none()) {
            if !entries.iter().any(|entry| *entry.key == *input.name) {
                let message = format!("the workflow `{}` requires this input", child.name);
                let position = with.map_or(task.position, |with| with.position);
                self.problems.add(position, code::MISSING_FIELD, path.field(&input.name), message);
            }
        }
    }
}
