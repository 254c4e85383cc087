//! The inputs of a definition, and what is given for those of another.

use super::Compiler;
use crate::diagnostic::{closest, code};
use crate::limits;
use crate::node::{Data, Node};
use crate::path::Path;
use crate::plan::{Input, Kind, Plan};
use crate::template::has_templates;

impl Compiler {
    pub(super) fn inputs(&mut self, node: &Node<'_>, path: Path<'_>) -> Vec<Input> {
        let Some(entries) = self.map(node, path, "an object of inputs") else {
            return Vec::new();
        };
        if entries.len() > limits::INPUTS_MAX {
            let message = format!("{} inputs are too many: at most {}", entries.len(), limits::INPUTS_MAX);
            self.problems.add(node.place, code::TOO_LARGE, path, message);
            return Vec::new();
        }
        let mut inputs = Vec::with_capacity(entries.len());
        for entry in entries {
            let path = path.field(&entry.key);
            self.valid_name(&entry.key, entry.place, path);
            inputs.push(self.input(&entry.key, &entry.value, path));
        }
        inputs
    }

    /// What is wrong with an input is told; what refers to it is then not told as unknown as well.
    fn input(&mut self, name: &str, node: &Node<'_>, path: Path<'_>) -> Input {
        let mut input = Input { name: name.into(), kind: Kind::Any, default: None, description: None };
        if let Data::Text(_) = node.data {
            input.kind = self.one_of(node, path, &Kind::ALL.map(|kind| (kind.as_str(), kind))).unwrap_or(Kind::Any);
            return input;
        }
        let Some(entries) = self.map(node, path, "a type, or an object with `type` and `default`,") else {
            return input;
        };
        self.known_fields(entries, path, &["type", "default", "description"]);
        match node.get("type") {
            Some(kind) => {
                let words = Kind::ALL.map(|kind| (kind.as_str(), kind));
                input.kind = self.one_of(kind, path.field("type"), &words).unwrap_or(Kind::Any);
            }
            None => {
                let message = "which type has it?";
                let suggestion = Some(format!("write one of: {}", Kind::ALL.map(Kind::as_str).join(", ")));
                self.problems.advise(node.place, code::MISSING_FIELD, path.field("type"), message, suggestion);
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
                let message = format!("this is {}, but the input is {}", default.kind(), input.kind.shown());
                self.problems.add(default.place, code::WRONG_TYPE, path.field("default"), message);
            }
        }
        input
    }

    /// Whether what is given to a child is what the child asks for, as far as it can be told now.
    pub(super) fn given_inputs(&mut self, child: &Plan, with: Option<&Node<'_>>, task: &Node<'_>, path: Path<'_>) {
        let entries = match with.map(|with| &with.data) {
            None => &[][..],
            Some(Data::Map(entries)) => entries,
            // A template for all of them: told when it is rendered.
            Some(_) => return,
        };
        for entry in entries {
            let path = path.field(&entry.key);
            let Some(input) = child.inputs.iter().find(|input| *input.name == *entry.key) else {
                let near = closest(&entry.key, child.inputs.iter().map(|input| &*input.name));
                let suggestion = near.map(|near| format!("did you mean `{near}`?"));
                let message = format!("the workflow `{}` has no such input", child.name);
                self.problems.advise(entry.place, code::UNKNOWN_INPUT, path, message, suggestion);
                continue;
            };
            let is_template = entry.value.text().is_some_and(has_templates);
            if !is_template && !input.kind.accepts(&entry.value.to_value()) {
                let message = format!("this is {}, but the input is {}", entry.value.kind(), input.kind.shown());
                self.problems.add(entry.value.place, code::WRONG_TYPE, path, message);
            }
        }
        for input in child.inputs.iter().filter(|input| input.default.is_none()) {
            if !entries.iter().any(|entry| *entry.key == *input.name) {
                let message = format!("the workflow `{}` needs this input", child.name);
                let place = with.map_or(task.place, |with| with.place);
                self.problems.add(place, code::MISSING_FIELD, path.field(&input.name), message);
            }
        }
    }
}
