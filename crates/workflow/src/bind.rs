//! Binding: checks the inputs of a workflow start against the plan.

use serde_json::{Map, Value};

use crate::diagnostic::{Diagnostics, Position, Problems, closest, code};
use crate::expression::kind;
use crate::plan::{InputType, Plan};

impl Plan {
    /// Returns all inputs with their values: the given ones, and defaults for the rest. Types are checked, never
    /// converted.
    pub fn bind(&self, given: &Map<String, Value>) -> Result<Value, Diagnostics> {
        let mut problems = Problems::default();
        let no_position = Position::default();
        for name in given.keys() {
            if !self.inputs.iter().any(|input| *input.name == **name) {
                let near = closest(name, self.inputs.iter().map(|input| &*input.name));
                let suggestion = match near {
                    Some(near) => Some(format!("did you mean `{near}`?")),
                    None if self.inputs.is_empty() => Some("the workflow has no inputs".to_owned()),
                    None => None,
                };
                let shown: String = name.chars().take(80).collect();
                let message = format!("the workflow `{}` has no such input", self.name);
                problems.add_with_suggestion(
                    no_position,
                    code::UNKNOWN_INPUT,
                    format!("inputs.{shown}"),
                    message,
                    suggestion,
                );
            }
        }
        let mut bound = Map::new();
        for input in &self.inputs {
            let field = || format!("inputs.{}", input.name);
            match given.get(&*input.name).or(input.default.as_ref()) {
                Some(value) if input.kind.accepts(value) => {
                    bound.insert(input.name.to_string(), value.clone());
                }
                Some(value) => {
                    let message = format!("expected {}, found {}", input.kind.describe(), kind(value));
                    problems.add(no_position, code::WRONG_TYPE, field(), message);
                }
                None => {
                    let message = format!("{} is required: the input has no default", input.kind.describe());
                    problems.add(no_position, code::MISSING_FIELD, field(), message);
                }
            }
        }
        problems.finish()?;
        Ok(Value::Object(bound))
    }
}

impl InputType {
    pub const ALL: [Self; 7] =
        [Self::String, Self::Integer, Self::Number, Self::Boolean, Self::List, Self::Object, Self::Any];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::List => "list",
            Self::Object => "object",
            Self::Any => "any",
        }
    }

    /// With its article, for messages.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::String => "a string",
            Self::Integer => "an integer",
            Self::Number => "a number",
            Self::Boolean => "a boolean",
            Self::List => "a list",
            Self::Object => "an object",
            Self::Any => "any value",
        }
    }

    pub fn accepts(self, value: &Value) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::Integer => value.is_i64() || value.is_u64(),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::List => value.is_array(),
            Self::Object => value.is_object(),
            Self::Any => true,
        }
    }
}
