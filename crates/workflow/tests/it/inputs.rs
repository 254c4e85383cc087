//! Binding of workflow inputs.

use serde_json::{Map, Value, json};

use crate::support::plan;

fn bind(given: Value) -> Result<Value, String> {
    let plan = plan(
        "name: w\ninputs:\n  repo: {type: string, default: here}\n  shards: integer\n  ratio: {type: number, default: 1}\n  \
         flags: {type: any, default: null}\ntasks: {a: {run: x}}\n",
    );
    let Value::Object(given) = given else { panic!("inputs must be an object") };
    plan.bind(&given).map_err(|problems| problems.to_string())
}

#[test]
fn missing_inputs_get_their_defaults() {
    let bound = bind(json!({"shards": 3, "ratio": 0.5})).unwrap();
    assert_eq!(bound, json!({"repo": "here", "shards": 3, "ratio": 0.5, "flags": null}));
}

#[test]
fn all_invalid_inputs_are_reported_together() {
    insta::assert_snapshot!(bind(json!({"shards": "3", "repo": 5, "ratoi": 1, "other": 1})).unwrap_err(), @r#"
    inputs.other: the workflow `w` has no such input
    inputs.ratoi: the workflow `w` has no such input
      help: did you mean `ratio`?
    inputs.repo: expected a string, found a number
    inputs.shards: expected an integer, found a string
    "#);
    insta::assert_snapshot!(bind(json!({})).unwrap_err(), @"inputs.shards: an integer is required: the input has no default");
    insta::assert_snapshot!(bind(json!({"shards": 1.5})).unwrap_err(), @"inputs.shards: expected an integer, found a number");
}

#[test]
fn a_workflow_without_inputs_accepts_none() {
    let plan = plan("name: w\ntasks: {a: {run: x}}\n");
    assert_eq!(plan.bind(&Map::new()).unwrap(), json!({}));
    let given = Map::from_iter([("a".to_owned(), json!(1))]);
    insta::assert_snapshot!(plan.bind(&given).unwrap_err(), @r#"
    inputs.a: the workflow `w` has no such input
      help: the workflow has no inputs
    "#);
}
