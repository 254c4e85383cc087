//! The subset of JSON Schema that the OpenAPI document uses.

use serde_json::{Map, Value};

/// Panics unless `value` matches `schema` and has no other properties.
#[track_caller]
pub fn check(document: &Value, schema: &Value, value: &Value) {
    if let Err(why) = fits(document, schema, value) {
        panic!("{why}\nin {value:#}");
    }
}

pub fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => document.pointer(reference.strip_prefix('#').unwrap()).unwrap(),
        None => schema,
    }
}

fn fits(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let schema = resolve(document, schema);
    if let Some(choices) = schema["oneOf"].as_array() {
        let fitting = choices.iter().filter(|choice| fits(document, choice, value).is_ok()).count();
        return if fitting == 1 { Ok(()) } else { Err(format!("{fitting} of the choices fit")) };
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let fits_any = choices.iter().any(|choice| fits(document, choice, value).is_ok());
        return if fits_any { Ok(()) } else { Err("none of the choices fits".to_owned()) };
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        return Err(format!("{value} is none of {allowed:?}"));
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return Ok(()),
    };
    if !kinds.iter().any(|kind| is_a(kind, value)) {
        return Err(format!("{value} is no {kinds:?}"));
    }
    if let Value::Array(items) = value {
        items.iter().try_for_each(|item| fits(document, &schema["items"], item))?;
    }
    match value {
        Value::Object(fields) => object_fits(document, schema, fields),
        _ => Ok(()),
    }
}

fn object_fits(document: &Value, schema: &Value, fields: &Map<String, Value>) -> Result<(), String> {
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            return Err(format!("`{name}` is missing"));
        }
    }
    for (name, value) in fields {
        let others = schema.get("additionalProperties").filter(|others| others.is_object());
        let Some(known) = schema["properties"].get(name).or(others) else {
            return Err(format!("`{name}` is not in the schema"));
        };
        fits(document, known, value).map_err(|why| format!("`{name}`: {why}"))?;
    }
    Ok(())
}

fn is_a(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the schema has the unknown type {other}"),
    }
}
