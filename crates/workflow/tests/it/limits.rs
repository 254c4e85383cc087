//! Every limit, at the limit and one beyond.

use std::fmt::Write as _;

use serde_json::json;
use workflow::limits::*;
use workflow::plan::TaskWork;
use workflow::{Source, compile};

use crate::support::{World, codes, plan};

/// A definition with this expression as its output.
fn expression(text: &str) -> String {
    json!({"name": "w", "inputs": {"x": "any"}, "tasks": {"a": {"run": "x"}}, "outputs": format!("${{{text}}}")})
        .to_string()
}

/// Code of the first diagnostic of a JSON definition, if it is invalid.
fn refusal(json: &str) -> Option<&'static str> {
    compile(Source::Json(json.as_bytes())).err().map(|problems| problems.0[0].code)
}

fn rendered(text: &str, inputs: serde_json::Value) -> Result<serde_json::Value, String> {
    let plan = compile(Source::Json(expression(text).as_bytes())).unwrap();
    let world = World::with_inputs(inputs);
    plan.outputs.as_ref().unwrap().render(&world.scope()).map_err(|error| error.message)
}

#[test]
fn tasks_of_all_nested_definitions_are_counted() {
    let tasks = |count: usize| {
        (0..count).fold(String::new(), |mut text, at| {
            let _ = write!(text, "{}\"t{at}\":{{\"delay\":\"1s\"}}", if at > 0 { "," } else { "" });
            text
        })
    };
    let definition = |outer: usize, inner: usize| {
        format!(r#"{{"name":"w","workflows":{{"c":{{"tasks":{{{}}}}}}},"tasks":{{{}}}}}"#, tasks(inner), tasks(outer))
    };
    assert_eq!(refusal(&definition(TASKS_MAX / 2, TASKS_MAX / 2)), None);
    assert_eq!(refusal(&definition(TASKS_MAX / 2, TASKS_MAX / 2 + 1)), Some("too_large"));
}

#[test]
fn the_maximum_number_of_tasks_can_be_a_chain_or_a_fan_out() {
    let compiled = |needs: &dyn Fn(usize) -> String| {
        let mut text = r#"{"name":"w","tasks":{"#.to_owned();
        for at in 0..TASKS_MAX {
            let comma = if at > 0 { "," } else { "" };
            let _ = write!(text, r#"{comma}"t{at}":{{"run":{{"echo":{{"value":{at}}}}},"needs":[{}]}}"#, needs(at));
        }
        compile(Source::Json(format!("{text}}}}}").as_bytes())).unwrap()
    };
    let chain = compiled(&|at| if at == 0 { String::new() } else { format!("\"t{}\"", at - 1) });
    assert_eq!(*chain.tasks[TASKS_MAX - 1].needs, [TASKS_MAX as u32 - 2]);
    let last = TASKS_MAX - 1;
    let all: Vec<String> = (0..last).map(|at| format!("\"t{at}\"")).collect();
    let fan = compiled(&|at| {
        if at == last {
            all.join(",")
        } else if at > 0 {
            "\"t0\"".to_owned()
        } else {
            String::new()
        }
    });
    assert_eq!((fan.tasks[last].needs.len(), fan.tasks[0].dependents.len()), (last, last));
}

#[test]
fn needs_are_counted() {
    // Each of the last tasks needs all of the first ones.
    let definition = |more: usize| {
        let (first, last) = (1_000, NEEDS_MAX / 1_000);
        let mut text = r#"{"name":"w","tasks":{"#.to_owned();
        let all: Vec<String> = (0..first).map(|at| format!("\"f{at}\"")).collect();
        for at in 0..first {
            let _ = write!(text, r#""f{at}":{{"delay":"1s"}},"#);
        }
        for at in 0..last {
            let _ = write!(text, r#""l{at}":{{"delay":"1s","needs":[{}]}},"#, all.join(","));
        }
        let _ = write!(text, r#""x":{{"delay":"1s","needs":[{}]}}}}}}"#, all[..more].join(","));
        text
    };
    assert_eq!(refusal(&definition(0)), None);
    assert_eq!(refusal(&definition(1)), Some("too_large"));
}

#[test]
fn names_inputs_epochs_and_cases_are_bounded() {
    let named = |bytes: usize| format!("{{name: {}, tasks: {{a: {{run: x}}}}}}", "n".repeat(bytes));
    plan(&named(NAME_BYTES_MAX));
    assert_eq!(codes(&named(NAME_BYTES_MAX + 1)), ["invalid_name"]);
    let list = |count: usize, each: &dyn Fn(usize) -> String| (0..count).map(each).collect::<Vec<_>>().join(", ");
    let inputs = |count| {
        format!("{{name: w, inputs: {{{}}}, tasks: {{a: {{run: x}}}}}}", list(count, &|at| format!("i{at}: any")))
    };
    plan(&inputs(INPUTS_MAX));
    assert_eq!(codes(&inputs(INPUTS_MAX + 1)), ["too_large"]);
    let epochs = |count| {
        format!("{{name: w, epochs: [{}], tasks: {{a: {{run: x, epoch: e0}}}}}}", list(count, &|at| format!("e{at}")))
    };
    plan(&epochs(EPOCHS_MAX));
    assert_eq!(codes(&epochs(EPOCHS_MAX + 1))[0], "too_large");
    let cases = |count| {
        format!(
            "{{name: w, tasks: {{a: {{run: x}}, s: {{switch: [{}]}}}}}}",
            list(count, &|_| "{when: true, then: a}".to_owned())
        )
    };
    plan(&cases(CASES_MAX));
    assert_eq!(codes(&cases(CASES_MAX + 1)), ["invalid_value"]);
    let described = |bytes: usize| format!("{{name: w, description: {}, tasks: {{a: {{run: x}}}}}}", "d".repeat(bytes));
    plan(&described(DESCRIPTION_BYTES_MAX));
    assert_eq!(codes(&described(DESCRIPTION_BYTES_MAX + 1)), ["too_large"]);
}

#[test]
fn the_nesting_of_definitions_is_bounded() {
    let nested = |depth: usize| {
        let mut definition = json!({"tasks": {"a": {"run": "x"}}});
        for _ in 1..depth {
            definition = json!({"workflows": {"w": definition}, "tasks": {"a": {"run": "x"}}});
        }
        definition["name"] = json!("w");
        definition.to_string()
    };
    assert_eq!(refusal(&nested(NESTING_MAX)), None);
    assert_eq!(refusal(&nested(NESTING_MAX + 1)), Some("too_large"));
}

#[test]
fn the_nesting_of_values_is_bounded() {
    // The list is the fourth level, inside the definition, its inputs and the input.
    let json = |lists: usize| {
        format!(
            r#"{{"name":"w","inputs":{{"a":{{"type":"any","default":{}{}}}}},"tasks":{{"a":{{"run":"x"}}}}}}"#,
            "[".repeat(lists),
            "]".repeat(lists)
        )
    };
    assert_eq!(refusal(&json(DEPTH_MAX - 3)), None);
    plan(&json(DEPTH_MAX - 3));
    assert_eq!(refusal(&json(DEPTH_MAX - 2)), Some("too_large"));
    assert_eq!(codes(&json(DEPTH_MAX - 2)), ["too_large"]);
    assert!(refusal(&json(100_000)).is_some());
    assert!(!codes(&json(100_000)).is_empty());
}

#[test]
fn alias_bombs_are_refused() {
    let mut yaml = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let all = vec![format!("*a{}", level - 1); 10].join(", ");
        let _ = writeln!(yaml, "a{level}: &a{level} [{all}]");
    }
    assert_eq!(codes(&yaml), ["too_large"]);
    // The depth of expanded aliases is bounded as well.
    let mut yaml = "a0: &a0 [x]\n".to_owned();
    for level in 1..=DEPTH_MAX {
        let _ = writeln!(yaml, "a{level}: &a{level} [*a{}]", level - 1);
    }
    assert_eq!(codes(&yaml), ["too_large"]);
}

#[test]
fn values_are_counted() {
    let json = |values: usize| {
        format!(
            r#"{{"name":"w","inputs":{{"a":{{"type":"any","default":[{}0]}}}},"tasks":{{"a":{{"delay":"1s"}}}}}}"#,
            "0,".repeat(values - 1)
        )
    };
    // Nine other values: the definition, its name, inputs, the input, its type and the list; tasks, the task, its delay.
    assert_eq!(refusal(&json(NODES_MAX - 9)), None);
    assert_eq!(refusal(&json(NODES_MAX - 8)), Some("too_large"));
}

#[test]
fn the_size_of_a_definition_is_bounded() {
    let padded = |bytes: usize| {
        let start = "name: w\ntasks: {a: {run: x}}\n#";
        format!("{start}{}", " ".repeat(bytes - start.len()))
    };
    plan(&padded(DEFINITION_BYTES_MAX));
    assert_eq!(codes(&padded(DEFINITION_BYTES_MAX + 1)), ["too_large"]);
}

#[test]
fn the_length_and_depth_of_expressions_are_bounded() {
    let long = |bytes: usize| expression(&format!("'{}'", "x".repeat(bytes - 2)));
    assert_eq!(refusal(&long(EXPRESSION_BYTES_MAX)), None);
    assert_eq!(refusal(&long(EXPRESSION_BYTES_MAX + 1)), Some("too_large"));
    let nested =
        |open: &str, close: &str, depth: usize| expression(&format!("{}1{}", open.repeat(depth), close.repeat(depth)));
    // The expression itself is the first level.
    for (open, close) in [("(", ")"), ("[", "]"), ("- ", ""), ("max(1,", ")")] {
        assert_eq!(refusal(&nested(open, close, EXPRESSION_DEPTH_MAX - 1)), None, "{open}");
        assert_eq!(refusal(&nested(open, close, EXPRESSION_DEPTH_MAX)), Some("too_large"), "{open}");
    }
    // A long sum is not deep.
    assert_eq!(refusal(&expression(&vec!["1"; 1_000].join("+"))), None);
    assert_eq!(refusal(&expression(&format!("inputs.x{}", ".a".repeat(1_000)))), None);
}

#[test]
fn expressions_are_counted() {
    let text = |count: usize| format!("\"{}\"", "${1}".repeat(count));
    let texts = |text: String, count: usize| {
        let all = vec![text; count].join(",");
        format!(r#"{{"name":"w","tasks":{{"a":{{"run":"x"}}}},"outputs":[{all}]}}"#)
    };
    assert_eq!(refusal(&texts(text(TEXT_EXPRESSIONS_MAX), 1)), None);
    assert_eq!(refusal(&texts(text(TEXT_EXPRESSIONS_MAX + 1), 1)), Some("too_large"));
    let full = EXPRESSIONS_MAX / TEXT_EXPRESSIONS_MAX;
    assert_eq!(refusal(&texts(text(TEXT_EXPRESSIONS_MAX), full)), None);
    assert_eq!(refusal(&texts(text(TEXT_EXPRESSIONS_MAX), full + 1)), Some("too_large"));
}

#[test]
fn evaluation_steps_are_bounded() {
    let text = "x".repeat(500_000);
    let once = "length(split(inputs.x, 'y'))";
    assert_eq!(rendered(once, json!({"x": text})).unwrap(), json!(1));
    let often = vec![once; 20].join("+");
    assert!(rendered(&often, json!({"x": text})).unwrap_err().contains("100000 steps"));
    // The budget covers all expressions of one value.
    let plan = plan(&format!(
        "{{name: w, inputs: {{x: string}}, tasks: {{a: {{run: x}}}}, outputs: [{}]}}",
        vec![format!("\"${{{once}}}\""); 20].join(", ")
    ));
    let world = World::with_inputs(json!({"x": text}));
    assert!(plan.outputs.as_ref().unwrap().render(&world.scope()).unwrap_err().message.contains("100000 steps"));
}

#[test]
fn computed_lists_are_bounded() {
    assert_eq!(rendered(&format!("length(range({ITEMS_MAX}))"), json!({})).unwrap(), json!(ITEMS_MAX));
    assert!(rendered(&format!("length(range({ITEMS_MAX} + 1))"), json!({})).unwrap_err().contains("100000"));
    assert!(rendered("range(0 - 9223372036854775807, 9223372036854775807)", json!({})).is_err());
    let commas = |parts: usize| json!({"x": ",".repeat(parts - 1)});
    assert_eq!(rendered("length(split(inputs.x, ','))", commas(ITEMS_MAX)).unwrap(), json!(ITEMS_MAX));
    assert!(rendered("split(inputs.x, ',')", commas(ITEMS_MAX + 1)).is_err());
    let half = format!("range({})", ITEMS_MAX / 2);
    assert_eq!(rendered(&format!("length({half} + {half})"), json!({})).unwrap(), json!(ITEMS_MAX));
    assert!(rendered(&format!("length({half} + {half} + [1])"), json!({})).is_err());
}

#[test]
fn items_are_bounded_in_number_and_size() {
    let items = |list: serde_json::Value| {
        let plan = plan("{name: w, inputs: {l: list}, tasks: {a: {run: x, for_each: '${inputs.l}'}}}");
        let world = World::with_inputs(json!({"l": list}));
        plan.tasks[0]
            .for_each
            .as_ref()
            .unwrap()
            .items(&world.scope())
            .map(|items| items.len())
            .map_err(|error| error.message)
    };
    assert_eq!(items(json!(vec![json!({"a": 1, "b": "text"}); ITEMS_MAX])), Ok(ITEMS_MAX));
    assert!(items(json!(vec![0; ITEMS_MAX + 1])).unwrap_err().contains("at most 100000"));
    // Brackets and quotes count.
    let text = |bytes: usize| json!(["x".repeat(bytes - 4)]);
    assert_eq!(items(text(ITEMS_BYTES_MAX)), Ok(1));
    assert!(items(text(ITEMS_BYTES_MAX + 1)).unwrap_err().contains("larger"));
    let literal =
        |count: usize| format!("{{name: w, tasks: {{a: {{run: x, for_each: [{}0]}}}}}}", "0,".repeat(count - 1));
    plan(&literal(ITEMS_MAX));
    assert_eq!(codes(&literal(ITEMS_MAX + 1)), ["too_large"]);
}

#[test]
fn the_size_of_rendered_values_is_bounded() {
    let text = |bytes: usize| json!({"x": "x".repeat(bytes)});
    // A value counts with its quotes, a string without.
    assert!(rendered("inputs.x", text(RENDERED_BYTES_MAX - 2)).is_ok());
    assert!(rendered("inputs.x", text(RENDERED_BYTES_MAX - 1)).is_err());
    assert!(rendered("length(inputs.x + 'y')", text(RENDERED_BYTES_MAX - 1)).is_ok());
    assert!(rendered("length(inputs.x + 'y')", text(RENDERED_BYTES_MAX)).is_err());
    assert!(rendered("length(json(inputs.x))", text(RENDERED_BYTES_MAX - 2)).is_ok());
    assert!(rendered("length(json([inputs.x]))", text(RENDERED_BYTES_MAX - 3)).is_err());
    let plan = plan("{name: w, inputs: {x: string}, tasks: {a: {approval: 'a${inputs.x}'}}}");
    let TaskWork::Approval { message } = &plan.tasks[0].work else { panic!("the task is not an approval") };
    assert!(message.text(&World::with_inputs(text(RENDERED_BYTES_MAX - 1)).scope()).is_ok());
    assert!(message.text(&World::with_inputs(text(RENDERED_BYTES_MAX)).scope()).is_err());
}

#[test]
fn many_errors_in_a_large_definition_are_reported_quickly() {
    let mut yaml = "name: w\ntasks:\n".to_owned();
    for at in 0..20_000 {
        let _ = writeln!(yaml, "  task-number-{at}: {{run: x, needs: task-numbr-{at}}}");
    }
    assert_eq!(codes(&yaml), ["unknown_task"; DIAGNOSTICS_MAX]);
    let fields: Vec<String> = (0..200_000).map(|at| format!("\"neds{at}\":1")).collect();
    let json = format!(r#"{{"name":"w","tasks":{{"a":{{"run":"x",{}}}}}}}"#, fields.join(","));
    assert_eq!(refusal(&json), Some("unknown_field"));
}
