//! Values for a workflow from the command line, in the types that its definition declares.

use std::path::Path;

use anyhow::Result;
use serde_json::{Map, Value};
use workflow::Plan;
use workflow::plan::Kind;

use crate::definition::{Located, called, read};
use crate::exit::Usage;
use crate::paint::tame;

/// What the file and the options say together, checked against the definition.
pub fn gather(file: Option<&Path>, given: &[(String, String)], plan: &Plan) -> Result<Map<String, Value>> {
    let mut inputs = file.map(from_file).transpose()?.unwrap_or_default();
    for (name, text) in given {
        let kind = plan.inputs.iter().find(|input| &*input.name == name).map(|input| input.kind);
        // A name that is not known is told below, with those that are.
        let value = coerce(kind.unwrap_or(Kind::Any), text);
        inputs.insert(name.clone(), value.map_err(|problem| Usage(format!("--input {name}: {problem}")))?);
    }
    match plan.bind(&inputs) {
        Ok(_) => Ok(inputs),
        Err(found) => Err(Usage(format!("the inputs do not fit {}\n{found}", plan.name)).into()),
    }
}

fn from_file(path: &Path) -> Result<Map<String, Value>> {
    let file = called(path);
    match Located::parse(&read(path)?, &file)?.value()? {
        Value::Object(inputs) => Ok(inputs),
        Value::Null => Ok(Map::new()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(Usage(format!("{file} must be an object with a value for each input")).into())
        }
    }
}

/// A text in the type that is wanted.
fn coerce(kind: Kind, text: &str) -> Result<Value, String> {
    let json = || serde_json::from_str::<Value>(text).ok();
    let wrong = |wanted: &str, such_as: &str| {
        format!("`{}` is not {wanted}; write it like {such_as}", crate::table::shorten(&tame(text), 80))
    };
    match kind {
        Kind::String => Ok(Value::String(text.to_owned())),
        Kind::Integer => {
            json().filter(|value| value.is_i64() || value.is_u64()).ok_or_else(|| wrong("an integer", "42"))
        }
        Kind::Number => json().filter(Value::is_number).ok_or_else(|| wrong("a number", "2.5")),
        Kind::Boolean => json().filter(Value::is_boolean).ok_or_else(|| wrong("a boolean", "true or false")),
        Kind::List => json().filter(Value::is_array).ok_or_else(|| wrong("a list", r#"'["a", "b"]'"#)),
        Kind::Object => json().filter(Value::is_object).ok_or_else(|| wrong("an object", r#"'{"a": 1}'"#)),
        Kind::Any => Ok(json().unwrap_or_else(|| Value::String(text.to_owned()))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use workflow::Source;

    use super::*;

    #[test]
    fn texts_become_what_the_definition_declares() {
        for (kind, text, value) in [
            (Kind::String, "42", json!("42")),
            (Kind::String, "", json!("")),
            (Kind::Integer, "42", json!(42)),
            (Kind::Integer, "-7", json!(-7)),
            (Kind::Number, "2.5", json!(2.5)),
            (Kind::Number, "3", json!(3)),
            (Kind::Boolean, "true", json!(true)),
            (Kind::List, "[1, \"a\"]", json!([1, "a"])),
            (Kind::Object, "{\"a\": {}}", json!({"a": {}})),
            (Kind::Any, "[1]", json!([1])),
            (Kind::Any, "plain words", json!("plain words")),
        ] {
            assert_eq!(coerce(kind, text), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_is_of_another_type_is_told_which_one_is_wanted() {
        for (kind, text, named) in [
            (Kind::Integer, "4.5", "an integer"),
            (Kind::Integer, "four", "an integer"),
            (Kind::Integer, "1e3", "an integer"),
            (Kind::Integer, "", "an integer"),
            (Kind::Number, "\"3\"", "a number"),
            (Kind::Number, "NaN", "a number"),
            (Kind::Boolean, "yes", "a boolean"),
            (Kind::List, "a,b", "a list"),
            (Kind::List, "{}", "a list"),
            (Kind::Object, "[]", "an object"),
        ] {
            let problem = coerce(kind, text).unwrap_err();
            assert!(problem.contains(named), "{text}: {problem}");
        }
    }

    const DEFINITION: &str =
        "name: x\ninputs: {shards: integer, note: {type: string, default: none}}\ntasks:\n  a: {run: 'true'}\n";

    #[test]
    fn options_count_more_than_the_file_and_both_are_checked() {
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
