//! Documentation and JSON Schema agree with the language.

use serde_json::Value;
use workflow::{SCHEMA, Source, compile};

use crate::definitions::EVERYTHING;

const GUIDE: &str = include_str!("../../../../docs/workflows.md");

/// YAML blocks of the guide.
fn blocks() -> Vec<&'static str> {
    GUIDE.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// Checks that a definition compiles and matches the schema, both as written and as stored.
fn valid(definition: &str) -> Result<(), String> {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let plan = compile(Source::Yaml(definition)).map_err(|problems| problems.to_string())?;
    let written: Value = serde_saphyr::from_str(definition).unwrap();
    for instance in [written, serde_json::from_slice(&plan.source).unwrap()] {
        validator.validate(&instance).map_err(|error| format!("{error} at {}", error.instance_path))?;
    }
    Ok(())
}

#[test]
fn every_definition_of_the_guide_compiles_and_matches_the_schema() {
    let blocks = blocks();
    assert!(blocks.len() >= 3);
    for block in blocks {
        valid(block).unwrap_or_else(|problem| panic!("{problem}\n{block}"));
    }
}

#[test]
fn a_definition_with_all_fields_matches_the_schema() {
    valid(EVERYTHING).unwrap();
}

#[test]
fn the_schema_is_valid_and_refuses_invalid_definitions() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    assert!(jsonschema::draft202012::meta::is_valid(&schema));
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    for wrong in [
        r#"{"tasks": {"a": {"run": "x"}}}"#,
        r#"{"name": "w", "tasks": {}}"#,
        r#"{"name": "w w", "tasks": {"a": {"run": "x"}}}"#,
        r#"{"name": "w", "tasks": {"a": {}}}"#,
        r#"{"name": "w", "tasks": {"a": {"run": "x", "delay": "5s"}}}"#,
        r#"{"name": "w", "tasks": {"a": {"delay": "5s", "topic": "x"}}}"#,
        r#"{"name": "w", "tasks": {"a": {"run": {"echo": {"valu": 1}}}}}"#,
        r#"{"name": "w", "tasks": {"a": {"run": "x", "timeout": 5}}}"#,
        r#"{"name": "w", "version": 2, "tasks": {"a": {"run": "x"}}}"#,
        r#"{"name": "w", "unknown": 1, "tasks": {"a": {"run": "x"}}}"#,
    ] {
        assert!(compile(Source::Json(wrong.as_bytes())).is_err(), "{wrong}");
        assert!(!validator.is_valid(&serde_json::from_str(wrong).unwrap()), "{wrong}");
    }
}
