//! Property tests: every text compiles or fails with diagnostics, and every plan can be loaded from its source.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use workflow::plan::TaskWork;
use workflow::{Plan, Source, compile};

use crate::definitions::EVERYTHING;
use crate::support::{World, job_context};

/// Concatenated tokens of definitions and templates.
fn tokens() -> impl Strategy<Value = String> {
    let tokens: &'static [&'static str] = &[
        "name: w\n",
        "tasks:\n",
        "  a:\n",
        "    run: x\n",
        "    needs: [a, b]\n",
        "inputs:\n",
        "  n: integer\n",
        "${",
        "}",
        "$${",
        "inputs.n",
        "tasks.a.result",
        "[",
        "]",
        "{",
        ", ",
        ": ",
        "\"",
        "'",
        "- ",
        "&a ",
        "*a",
        "<<: *a",
        "|",
        ">\n",
        "#",
        "!",
        "? ",
        "\n",
        "  ",
        "1",
        "-",
        "e9",
        "==",
        "&&",
        "??",
        "(",
        ")",
        "length(",
        "range(9",
        "item",
        "%",
        "\\",
        "ß",
        "\u{0}",
        "\u{feff}",
        "---\n",
        "...",
    ];
    prop::collection::vec(prop::sample::select(tokens), 0..40).prop_map(|tokens| tokens.concat())
}

/// Arbitrary values, some with templates.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        "(\\$\\{)?[a-z.\\[\\]0-9+ ()'\"]{0,12}\\}?".prop_map(Value::from),
        prop::sample::select(vec![
            "${inputs.n}",
            "${tasks.a.result.x ?? 1}",
            "x ${inputs.n + 1}",
            "${range(inputs.n)}",
            "$${"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-z]{1,3}", inner), 0..4).prop_map(|fields| Value::Object(Map::from_iter(fields))),
        ]
    })
}

/// Definitions, most of them valid.
fn definitions() -> impl Strategy<Value = Value> {
    let kind = prop_oneof![
        4 => values().prop_map(|value| json!({"run": {"echo": {"value": value}}})),
        2 => "[a-z $]{1,10}".prop_map(|text| json!({"run": text})),
        1 => Just(json!({"delay": "5s"})),
        1 => Just(json!({"approval": "go ${inputs.n}?"})),
        1 => Just(json!({"workflow": "child", "with": {"m": "${inputs.n}"}})),
        1 => Just(json!({"wait_for": "it", "timeout": "1h"})),
    ];
    let task = (kind, prop::collection::vec(0usize..8, 0..3), any::<[bool; 4]>());
    (prop::collection::vec(task, 1..8), values()).prop_map(|(tasks, outputs)| {
        let mut map = Map::new();
        for (at, (mut task, needs, [each, when, retry, compensate])) in tasks.into_iter().enumerate() {
            // Only earlier tasks, so that there is no cycle.
            let needs: Vec<_> = needs.into_iter().filter(|need| *need < at).map(|need| format!("t{need}")).collect();
            task["needs"] = json!(needs);
            if each {
                task["for_each"] = json!("${range(3)}");
            }
            if when {
                task["when"] = json!("${inputs.n > 0}");
            }
            if task.get("run").is_some() {
                if retry {
                    task["retry"] = json!(at);
                }
                if compensate {
                    task["compensation"] = json!("revert ${result}");
                }
            }
            map.insert(format!("t{at}"), task);
        }
        map.insert("a".to_owned(), json!({"run": {"echo": {}}}));
        json!({
            "name": "w",
            "inputs": {"n": "integer"},
            "defaults": {"labels": {"n": "${inputs.n}"}},
            "workflows": {"child": {"inputs": {"m": "any"}, "tasks": {"a": {"run": "x"}}}},
            "tasks": map,
            "outputs": outputs,
        })
    })
}

/// Renders everything. Rendering may fail, but must not panic.
fn exercise(plan: &Plan) {
    let mut world = World::with_inputs(json!({"n": 3, "repo": "r", "shards": 2, "targets": ["x"]}));
    world.item = Some((json!({"x": 1}), 0));
    world.result = Some(json!([1]));
    world.tasks.results.insert(0, json!({"x": [1, 2]}));
    let scope = world.scope();
    for task in &plan.tasks {
        let _ = task.when.as_ref().map(|when| when.boolean(&scope));
        let _ = task.for_each.as_ref().map(|for_each| for_each.items(&scope));
        let _ = task.merge.as_ref().map(|merge| merge.text(&scope));
        let _ = task.compensation.as_ref().map(|job| job.render(&scope, &job_context()));
        match &task.work {
            TaskWork::Job(job) => {
                if let Ok(spec) = job.render(&scope, &job_context()) {
                    assert_eq!(spec.validate(), Ok(()));
                }
            }
            TaskWork::Workflow { with, .. } => drop(with.render(&scope)),
            TaskWork::Delay(delay) => drop(delay.due(&scope, model::time::Millis(0))),
            TaskWork::Approval { message } => drop(message.value(&scope)),
            TaskWork::WaitFor { .. } | TaskWork::Switch(_) => {}
        }
    }
    let _ = plan.outputs.as_ref().map(|outputs| outputs.render(&scope));
}

fn check(plan: &Plan) {
    let again = Plan::load(&plan.source).unwrap();
    assert_eq!((again.digest, &again.source), (plan.digest, &plan.source));
    assert_eq!(format!("{again:?}"), format!("{plan:?}"));
    exercise(plan);
    plan.children.iter().for_each(|child| check(child));
}

fn compiles_or_fails(source: Source<'_>) {
    match compile(source) {
        Ok(plan) => check(&plan),
        Err(problems) => assert!(!problems.0.is_empty() && !problems.display(Some("f")).to_string().is_empty()),
    }
}

#[test]
fn enough_generated_definitions_are_valid() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let valid = (0..200).filter(|_| {
        let text = definitions().new_tree(&mut runner).unwrap().current().to_string();
        compile(Source::Json(text.as_bytes())).is_ok()
    });
    assert!(valid.count() > 50);
}

proptest! {
    #[test]
    fn arbitrary_text_does_not_panic(text in ".{0,300}") {
        compiles_or_fails(Source::Yaml(&text));
        compiles_or_fails(Source::Json(text.as_bytes()));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) {
        compiles_or_fails(Source::Json(&bytes));
    }

    #[test]
    fn arbitrary_tokens_do_not_panic(text in tokens()) {
        compiles_or_fails(Source::Yaml(&text));
    }

    #[test]
    fn tokens_inserted_into_a_valid_definition_do_not_panic(text in tokens(), at in 0usize..EVERYTHING.len(), cut in 0usize..20) {
        let mut at = at;
        while !EVERYTHING.is_char_boundary(at) { at -= 1; }
        let end = (at + cut).min(EVERYTHING.len());
        compiles_or_fails(Source::Yaml(&format!("{}{text}{}", &EVERYTHING[..at], EVERYTHING.get(end..).unwrap_or_default())));
    }

    #[test]
    fn arbitrary_expressions_do_not_panic(text in tokens()) {
        let definition = json!({"name": "w", "inputs": {"n": "any"}, "tasks": {"a": {"run": "x"}}, "outputs": format!("${{{text}}}")});
        compiles_or_fails(Source::Json(definition.to_string().as_bytes()));
    }

    #[test]
    fn a_loaded_plan_equals_the_compiled_one(definition in definitions()) {
        compiles_or_fails(Source::Json(definition.to_string().as_bytes()));
        compiles_or_fails(Source::Yaml(&definition.to_string()));
    }

    #[test]
    fn json_values_equal_those_of_serde_json(value in values()) {
        // Without templates, to compare only values.
        let text = value.to_string().replace("${", "");
        let definition = format!(r#"{{"name":"w","inputs":{{"v":{{"type":"any","default":{text}}}}},"tasks":{{"a":{{"run":"x"}}}}}}"#);
        let expected: Value = serde_json::from_str(&text).unwrap();
        let plan = compile(Source::Json(definition.as_bytes())).unwrap();
        prop_assert_eq!(plan.inputs[0].default.as_ref(), Some(&expected));
    }
}
