//! Plans of valid definitions.

use model::time::Millis;
use workflow::plan::{InputType, OnFailure, TaskWork};
use workflow::{Plan, Source, compile};

use crate::support::plan;

/// Uses every field of the language.
pub const EVERYTHING: &str = r#"
version: 1
name: build-and-test
description: Builds, tests and publishes.
inputs:
  repo: {type: string, default: "https://example.com/repo", description: What to build.}
  shards: integer
  targets: {type: list, default: [linux, windows]}
defaults:
  topic: builds
  priority: batch
  labels: {team: core}
  limits: {memory_bytes: 1000000}
  retry: 2
  attempt_timeout: 1m
timeout: 1h
on_failure: compensate
epochs: [extract, load]
outputs: {url: "${tasks.publish.result.url}", states: ["${tasks.build.state}"]}
workflows:
  sign:
    inputs: {file: string}
    outputs: ${tasks.sign.result}
    tasks:
      sign: {run: {echo: {value: "signed ${inputs.file}"}}}
tasks:
  fetch:
    run: git clone ${inputs.repo} .
    epoch: extract
    compensation: rm -rf ${result.path}
  build:
    needs: fetch
    for_each: ${inputs.targets}
    concurrency: 2
    run: {process: {command: [make, "${item}"], env: {N: "${index}"}}}
    retry: {limit: 5}
    timeout: 10m
    on_failure: continue
    merge: build-${item}
    epoch: extract
    labels: {kind: build}
    outputs: ["out/**"]
  choose:
    needs: [build]
    epoch: load
    switch:
      - when: ${inputs.shards > 1}
        then: [many, wait]
      - default: one
  many: {run: {echo: {value: 1}}, epoch: load}
  one: {run: {echo: {value: 2}}, epoch: load}
  wait: {delay: 1h30m, epoch: load}
  until: {delay: {until: "2026-01-01T00:00:00Z"}, epoch: load}
  ask: {approval: "Publish ${inputs.repo}?", epoch: load, timeout: 1d}
  signal: {wait_for: {signal: go}, epoch: load}
  sign: {workflow: sign, with: {file: "${tasks.build.result[0]}"}, epoch: load, compensation: {run: {echo: {}}}}
  publish:
    needs: [sign, ask]
    when: ${tasks.sign.state == "succeeded"}
    run: {echo: {value: {url: x}}}
    epoch: load
"#;

fn names(plan: &Plan, tasks: &[u32]) -> Vec<String> {
    tasks.iter().map(|task| plan.tasks[*task as usize].name.to_string()).collect()
}

fn needs(plan: &Plan, task: &str) -> Vec<String> {
    names(plan, &plan.tasks[plan.task(task).unwrap() as usize].needs)
}

// FEATURES: B1
#[test]
fn a_definition_with_all_fields_is_compiled() {
    let plan = plan(EVERYTHING);
    assert_eq!((&*plan.name, plan.timeout), ("build-and-test", Some(Millis(3_600_000))));
    assert_eq!(plan.epochs, ["extract".into(), "load".into()]);
    let kinds: Vec<_> = plan.inputs.iter().map(|input| (&*input.name, input.kind, input.default.is_some())).collect();
    assert_eq!(
        kinds,
        [("repo", InputType::String, true), ("shards", InputType::Integer, false), ("targets", InputType::List, true)]
    );
    let task = |name: &str| &plan.tasks[plan.task(name).unwrap() as usize];
    assert_eq!((task("build").epoch, task("publish").epoch), (0, 1));
    assert_eq!((task("build").timeout, task("fetch").timeout), (Some(Millis(600_000)), None));
    assert_eq!((task("build").on_failure, task("fetch").on_failure), (OnFailure::Continue, OnFailure::Compensate));
    assert_eq!(task("build").for_each.as_ref().unwrap().concurrency, Some(2));
    assert!(task("fetch").compensation.is_some() && task("sign").compensation.is_some());
    assert!(matches!(&task("signal").work, TaskWork::WaitFor { signal } if &**signal == "go"));
    assert!(matches!(&task("sign").work, TaskWork::Workflow { child: 0, .. }));
    assert_eq!(&*plan.children[0].name, "sign");
    assert_eq!(plan.task("nothing"), None);
}

// FEATURES: B1
#[test]
fn a_task_needs_its_needs_its_template_references_and_its_switch() {
    let plan = plan(EVERYTHING);
    assert_eq!(needs(&plan, "build"), ["fetch"]);
    assert_eq!(needs(&plan, "sign"), ["build"], "by its template reference");
    assert_eq!(needs(&plan, "publish"), ["sign", "ask"], "without duplicates");
    assert_eq!(needs(&plan, "many"), ["choose"]);
    assert_eq!(needs(&plan, "one"), ["choose"]);
    let dependents = &plan.tasks[plan.task("build").unwrap() as usize].dependents;
    assert_eq!(names(&plan, dependents), ["choose", "sign"]);
}

#[test]
fn dependents_are_the_inverse_of_needs() {
    let plan = plan(EVERYTHING);
    for (number, task) in (0u32..).zip(&plan.tasks) {
        for needed in &task.needs {
            assert!(plan.tasks[*needed as usize].dependents.contains(&number));
        }
        for dependent in &task.dependents {
            assert!(plan.tasks[*dependent as usize].needs.contains(&number));
        }
    }
}

#[test]
fn a_task_is_read_when_any_template_reads_its_result() {
    let plan = plan(EVERYTHING);
    let read: Vec<_> = plan.tasks.iter().filter(|task| task.is_read).map(|task| &*task.name).collect();
    // Read by its own compensation, the inputs of a sub-workflow, and the outputs. A state is not a result.
    assert_eq!(read, ["fetch", "build", "publish"]);
}

#[test]
fn references_of_a_compensation_are_not_needs() {
    let plan =
        plan("name: w\ntasks:\n  a: {run: x, compensation: 'revert ${tasks.b.result}'}\n  b: {run: x, needs: a}\n");
    assert_eq!(needs(&plan, "a"), [""; 0]);
    assert!(plan.tasks[1].is_read);
}

#[test]
fn a_stored_definition_is_compiled_to_the_same_plan() {
    let plan = plan(EVERYTHING);
    let again = Plan::load(&plan.source).unwrap();
    assert_eq!((again.digest, &again.source), (plan.digest, &plan.source));
    assert_eq!(format!("{again:?}"), format!("{plan:?}"));
    let child = Plan::load(&plan.children[0].source).unwrap();
    assert_eq!(format!("{child:?}"), format!("{:?}", plan.children[0]));
}

#[test]
fn equal_definitions_in_yaml_and_json_have_the_same_digest() {
    let yaml = plan("name: w\ninputs:\n  n: {type: number, default: 1.50}\ntasks:\n  a:\n    run: make # all\n");
    let json = r#"{ "name": "w", "inputs": {"n": {"type": "number", "default": 1.5}},
        "tasks": {"a": {"run": {"process": {"command": ["sh", "-c", "make"]}}}} }"#;
    let json = compile(Source::Json(json.as_bytes())).unwrap();
    assert_eq!(yaml.digest, json.digest);
    assert_eq!(yaml.source, json.source);
}

#[test]
fn the_order_of_tasks_changes_the_digest() {
    let (one, two) =
        (plan("{name: w, tasks: {a: {run: x}, b: {run: x}}}"), plan("{name: w, tasks: {b: {run: x}, a: {run: x}}}"));
    assert_ne!(one.digest, two.digest);
}

#[test]
fn anchors_aliases_and_merge_keys_are_expanded() {
    let plan = plan(
        "name: w\ninputs: {o: {type: object, default: &base {a: 1, b: 2}}, p: {type: object, default: {<<: *base, b: 3}}}\n\
         tasks:\n  a: &a\n    run: {echo: {value: *base}}\n  b:\n    <<: *a\n    needs: a\n",
    );
    assert_eq!(plan.inputs[1].default, Some(serde_json::json!({"a": 1, "b": 3})));
    assert_eq!(needs(&plan, "b"), ["a"]);
    assert!(matches!(plan.tasks[1].work, TaskWork::Job(_)));
}

#[test]
fn plain_scalars_have_the_types_of_yaml_1_2() {
    let plan = plan(
        "name: w\ninputs:\n  v: {type: any, default: [1, -2, 0x1f, 0o17, 1.5, 1e3, true, yes, ~, null, 1_000, \
         '5', 2026-01-01, 1.2.3, +7, 18446744073709551615, .5]}\ntasks: {a: {run: x}}\n",
    );
    let expected = serde_json::json!([
        1,
        -2,
        31,
        15,
        1.5,
        1000.0,
        true,
        "yes",
        null,
        null,
        "1_000",
        "5",
        "2026-01-01",
        "1.2.3",
        7,
        18446744073709551615u64,
        0.5
    ]);
    assert_eq!(plan.inputs[0].default, Some(expected));
}

#[test]
fn nested_definitions_have_their_own_names_and_inputs() {
    let plan = plan(
        "name: w\nworkflows:\n  one:\n    inputs: {x: integer}\n    workflows:\n      two: {name: other, tasks: {a: {run: x}}}\n    \
         tasks: {a: {workflow: two}}\ntasks:\n  a: {workflow: one, with: {x: 1}}\n  b: {workflow: one, with: '${tasks.a.result}'}\n",
    );
    let one = &plan.children[0];
    assert_eq!((&*one.name, &*one.children[0].name), ("one", "other"));
    assert_eq!(needs(&plan, "b"), ["a"]);
}
