//! The values that a workflow is started with.

use serde_json::{Map, Value};

use crate::diagnostic::{Diagnostics, Place, Problems, closest, code};
use crate::expression::kind;
use crate::plan::{Kind, Plan};

impl Plan {
    /// All inputs with their values: those given, and defaults for the rest. Types are checked, nothing is converted.
    pub fn bind(&self, given: &Map<String, Value>) -> Result<Value, Diagnostics> {
        let mut problems = Problems::default();
        let nowhere = Place::default();
        for name in given.keys() {
            if !self.inputs.iter().any(|input| *input.name == **name) {
                let near = closest(name, self.inputs.iter().map(|input| &*input.name));
                let suggestion = match near {
                    Some(near) => Some(format!("did you mean `{near}`?")),
                    None if self.inputs.is_empty() => Some("it takes none".to_owned()),
                    None => None,
                };
                let shown: String = name.chars().take(80).collect();
                let message = format!("the workflow `{}` has no such input", self.name);
                problems.advise(nowhere, code::UNKNOWN_INPUT, format!("inputs.{shown}"), message, suggestion);
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
                    let message = format!("this is {}: {} is needed", kind(value), input.kind.shown());
                    problems.add(nowhere, code::WRONG_TYPE, field(), message);
                }
                None => {
                    let message = format!("{} is needed, and there is no default", input.kind.shown());
                    problems.add(nowhere, code::MISSING_FIELD, field(), message);
                }
            }
        }
        problems.finish()?;
        Ok(Value::Object(bound))
    }
}

impl Kind {
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

    /// In words for a message.
    pub(crate) fn shown(self) -> &'static str {
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
