//! Workflow inputs from the command line, converted to the declared types.

use std::path::Path;

use anyhow::Result;
use serde_json::{Map, Value};
use workflow::Plan;
use workflow::plan::InputType;

use crate::definition::{Located, display_name, read};
use crate::exit::Usage;
use crate::paint::sanitize;

/// Merges the inputs of the file and the options, and validates them against the definition.
pub fn gather(file: Option<&Path>, given: &[(String, String)], plan: &Plan) -> Result<Map<String, Value>> {
    let mut inputs = file.map(from_file).transpose()?.unwrap_or_default();
    for (name, text) in given {
        let kind = plan.inputs.iter().find(|input| &*input.name == name).map(|input| input.kind);
        // `bind` reports unknown names below, with the known ones.
        let value = coerce(kind.unwrap_or(InputType::Any), text);
        inputs.insert(name.clone(), value.map_err(|problem| Usage(format!("--input {name}: {problem}")))?);
    }
    match plan.bind(&inputs) {
        Ok(_) => Ok(inputs),
        Err(found) => Err(Usage(format!("the inputs do not match the inputs of {}\n{found}", plan.name)).into()),
    }
}

fn from_file(path: &Path) -> Result<Map<String, Value>> {
    let file = display_name(path);
    match Located::parse(&read(path)?, &file)?.value()? {
        Value::Object(inputs) => Ok(inputs),
        Value::Null => Ok(Map::new()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(Usage(format!("{file} must be an object with a value for each input")).into())
        }
    }
}

/// Converts a text to the declared type.
fn coerce(kind: InputType, text: &str) -> Result<Value, String> {
    let json = || serde_json::from_str::<Value>(text).ok();
    let error = |expected: &str, example: &str| {
        format!("`{}` is not {expected}; expected a form such as {example}", crate::table::shorten(&sanitize(text), 80))
    };
    match kind {
        InputType::String => Ok(Value::String(text.to_owned())),
        InputType::Integer => {
            json().filter(|value| value.is_i64() || value.is_u64()).ok_or_else(|| error("an integer", "42"))
        }
        InputType::Number => json().filter(Value::is_number).ok_or_else(|| error("a number", "2.5")),
        InputType::Boolean => json().filter(Value::is_boolean).ok_or_else(|| error("a boolean", "true or false")),
        InputType::List => json().filter(Value::is_array).ok_or_else(|| error("a list", r#"'["a", "b"]'"#)),
        InputType::Object => json().filter(Value::is_object).ok_or_else(|| error("an object", r#"'{"a": 1}'"#)),
        InputType::Any => Ok(json().unwrap_or_else(|| Value::String(text.to_owned()))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use workflow::Source;

    use super::*;

    #[test]
    fn texts_are_converted_to_the_declared_types() {
        for (kind, text, value) in [
            (InputType::String, "42", json!("42")),
            (InputType::String, "", json!("")),
            (InputType::Integer, "42", json!(42)),
            (InputType::Integer, "-7", json!(-7)),
            (InputType::Number, "2.5", json!(2.5)),
            (InputType::Number, "3", json!(3)),
            (InputType::Boolean, "true", json!(true)),
            (InputType::List, "[1, \"a\"]", json!([1, "a"])),
            (InputType::Object, "{\"a\": {}}", json!({"a": {}})),
            (InputType::Any, "[1]", json!([1])),
            (InputType::Any, "plain words", json!("plain words")),
        ] {
            assert_eq!(coerce(kind, text), Ok(value), "{text}");
        }
    }

    #[test]
    fn type_errors_name_the_declared_type() {
        for (kind, text, named) in [
            (InputType::Integer, "4.5", "an integer"),
            (InputType::Integer, "four", "an integer"),
            (InputType::Integer, "1e3", "an integer"),
            (InputType::Integer, "", "an integer"),
            (InputType::Number, "\"3\"", "a number"),
            (InputType::Number, "NaN", "a number"),
            (InputType::Boolean, "yes", "a boolean"),
            (InputType::List, "a,b", "a list"),
            (InputType::List, "{}", "a list"),
            (InputType::Object, "[]", "an object"),
        ] {
            let problem = coerce(kind, text).unwrap_err();
            assert!(problem.contains(named), "{text}: {problem}");
        }
    }

    const DEFINITION: &str =
        "name: x\ninputs: {shards: integer, note: {type: string, default: none}}\ntasks:\n  a: {run: 'true'}\n";

    #[test]
    fn options_override_the_file_and_both_are_validated() {
        let plan = workflow::compile(Source::Yaml(DEFINITION)).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("inputs.yaml");
        std::fs::write(&file, "shards: 2\nnote: from the file\n").unwrap();
        let given = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let inputs = gather(Some(&file), &[given("shards", "3")], &plan).unwrap();
        assert_eq!(Value::Object(inputs), json!({"shards": 3, "note": "from the file"}));
        for wrong in [vec![], vec![given("shards", "many")], vec![given("shards", "1"), given("shrads", "1")]] {
            let error = gather(None, &wrong, &plan).unwrap_err();
            assert!(error.is::<Usage>() && error.to_string().contains("sh"), "{error}");
        }
        std::fs::write(&file, "[1]").unwrap();
        assert!(gather(Some(&file), &[], &plan).unwrap_err().is::<Usage>());
    }
}
