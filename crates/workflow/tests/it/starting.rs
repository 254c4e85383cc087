//! The values that a workflow is started with.

use serde_json::{Map, Value, json};

use crate::fixture::plan;

fn bind(given: Value) -> Result<Value, String> {
    let plan = plan(
        "name: w\ninputs:\n  repo: {type: string, default: here}\n  shards: integer\n  ratio: {type: number, default: 1}\n  \
         flags: {type: any, default: null}\ntasks: {a: {run: x}}\n",
    );
    let Value::Object(given) = given else { panic!("inputs are an object") };
    plan.bind(&given).map_err(|problems| problems.to_string())
}

#[test]
fn defaults_stand_in_for_what_is_not_given() {
    let bound = bind(json!({"shards": 3, "ratio": 0.5})).unwrap();
    assert_eq!(bound, json!({"repo": "here", "shards": 3, "ratio": 0.5, "flags": null}));
}

#[test]
fn what_does_not_fit_is_told_all_at_once() {
    insta::assert_snapshot!(bind(json!({"shards": "3", "repo": 5, "ratoi": 1, "other": 1})).unwrap_err(), @r#"
    inputs.other: the workflow `w` has no such input
    inputs.ratoi: the workflow `w` has no such input
      help: did you mean `ratio`?
    inputs.repo: this is a number: a string is needed
    inputs.shards: this is a string: an integer is needed
    "#);
    insta::assert_snapshot!(bind(json!({})).unwrap_err(), @"inputs.shards: an integer is needed, and there is no default");
    insta::assert_snapshot!(bind(json!({"shards": 1.5})).unwrap_err(), @"inputs.shards: this is a number: an integer is needed");
}

#[test]
fn a_workflow_without_inputs_takes_none() {
    let plan = plan("name: w\ntasks: {a: {run: x}}\n");
    assert_eq!(plan.bind(&Map::new()).unwrap(), json!({}));
    let given = Map::from_iter([("a".to_owned(), json!(1))]);
    insta::assert_snapshot!(plan.bind(&given).unwrap_err(), @r#"
    inputs.a: the workflow `w` has no such input
      help: it takes none
    "#);
}
