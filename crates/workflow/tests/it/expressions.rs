//! Values of expressions.

use serde_json::{Value, json};
use workflow::{Plan, Source, compile};

use crate::support::World;

/// A plan whose output is one template, with tasks `a`, `b-c` and `d.e` and an input of each type.
fn output(text: &str) -> std::sync::Arc<Plan> {
    let definition = json!({
        "name": "w",
        "inputs": {"s": "string", "i": "integer", "n": "number", "b": "boolean", "l": "list", "o": "object", "x": "any"},
        "tasks": {"a": {"run": {"echo": {}}}, "b-c": {"run": {"echo": {}}}, "d.e": {"run": {"echo": {}}}},
        "outputs": text,
    });
    compile(Source::Json(definition.to_string().as_bytes())).unwrap_or_else(|problems| panic!("{problems}"))
}

fn world() -> World {
    let mut world = World::with_inputs(json!({
        "s": "some text", "i": 7, "n": 2.5, "b": true, "l": [1, "two", null], "o": {"k": {"m": [10, 20]}, "z": 1}, "x": null,
    }));
    world.tasks.results.insert(0, json!({"url": "u", "list": [{"v": 1}, {"v": 2}], "dashed-name": 3}));
    world.tasks.results.insert(1, json!("text of b-c"));
    world
}

fn value(text: &str) -> Result<Value, String> {
    let world = world();
    output(text).outputs.as_ref().unwrap().render(&world.scope()).map_err(|error| error.to_string())
}

fn evaluate(expression: &str) -> Value {
    value(&format!("${{{expression}}}")).unwrap_or_else(|error| panic!("{expression}: {error}"))
}

fn failure(expression: &str) -> String {
    value(&format!("${{{expression}}}")).unwrap_err()
}

#[test]
fn a_single_expression_keeps_its_type_and_mixed_templates_are_joined() {
    assert_eq!(value("${inputs.i}").unwrap(), json!(7));
    assert_eq!(value(" ${inputs.i}").unwrap(), json!(" 7"));
    assert_eq!(value("${inputs.i}${inputs.s}").unwrap(), json!("7some text"));
    assert_eq!(
        value("x ${inputs.o} ${inputs.l} ${inputs.x} ${1.50}").unwrap(),
        json!(r#"x {"k":{"m":[10,20]},"z":1} [1,"two",null] null 1.5"#)
    );
    assert_eq!(value("$${inputs.i} $$ $x {y}").unwrap(), json!("${inputs.i} $$ $x {y}"));
    assert_eq!(value("plain").unwrap(), json!("plain"));
}

#[test]
fn paths_return_values_and_missing_ones_are_null() {
    for (expression, expected) in [
        ("inputs.o.k.m[1]", json!(20)),
        (r#"inputs["o"]["k"].m[0]"#, json!(10)),
        ("inputs.o.nothing.at.all[5]", json!(null)),
        ("inputs.l[99]", json!(null)),
        ("inputs.l[-1]", json!(null)),
        ("inputs.l[0.5]", json!(null)),
        ("inputs.x.y", json!(null)),
        ("tasks.a.result.url", json!("u")),
        ("tasks.a.result.list[1].v", json!(2)),
        ("tasks.a.result.dashed-name", json!(3)),
        ("tasks.b-c.result", json!("text of b-c")),
        (r#"tasks["d.e"].result.x"#, json!(null)),
        ("tasks.a.state", json!("succeeded")),
        (r#"tasks["d.e"].state"#, json!("pending")),
        ("inputs.l[inputs.o.z]", json!("two")),
        ("[1, 2, 3][inputs.i - 5]", json!(3)),
        ("workflow.name", json!("the-name")),
        ("schedule.time", json!(null)),
    ] {
        assert_eq!(evaluate(expression), expected, "{expression}");
    }
    assert_eq!(evaluate("workflow.id").as_str().unwrap()[..3], *"wf_");
    assert_eq!(evaluate("inputs")["i"], json!(7));
}

#[test]
fn task_results_can_be_owned_values() {
    let mut world = world();
    world.tasks.owned = true;
    let plan = output("${tasks.a.result.list[1].v} ${tasks.a.result.nothing}");
    assert_eq!(plan.outputs.as_ref().unwrap().render(&world.scope()).unwrap(), json!("2 null"));
}

#[test]
fn schedule_time_is_the_slot() {
    let world = World { schedule: Some("2026-01-01T00:00:00Z".to_owned()), ..world() };
    let plan = output("${schedule.time}");
    assert_eq!(plan.outputs.as_ref().unwrap().render(&world.scope()).unwrap(), json!("2026-01-01T00:00:00Z"));
}

#[test]
fn integer_arithmetic_is_exact() {
    for (expression, expected) in [
        ("1 + 2 * 3 - 4", json!(3)),
        ("(1 + 2) * 3", json!(9)),
        ("7 / 2", json!(3.5)),
        ("8 / 2", json!(4)),
        ("-7 % 3", json!(-1)),
        ("7.5 % 2", json!(1.5)),
        ("2 * 1.5", json!(3.0)),
        ("-inputs.i", json!(-7)),
        ("- -5", json!(5)),
        ("10 - 2 - 3", json!(5)),
        ("9223372036854775807 + 1", json!(9223372036854775808u64)),
        ("0.1 + 0.2", json!(0.1 + 0.2)),
        ("1e3", json!(1000.0)),
        ("'a' + \"b\"", json!("ab")),
        ("[1] + inputs.l", json!([1, 1, "two", null])),
    ] {
        assert_eq!(evaluate(expression), expected, "{expression}");
    }
    assert!(failure("1 / 0").contains("division by zero"));
    assert!(failure("1 % 0.0").contains("division by zero"));
    assert!(failure("18446744073709551615 * 2").contains("too large"));
    assert!(failure("1e308 * 10").contains("too large"));
}

#[test]
fn comparisons_and_conditionals_are_evaluated() {
    for (expression, expected) in [
        ("1 < 2", true),
        ("2 <= 2", true),
        ("'b' > 'a'", true),
        ("1 >= 1.5", false),
        ("1 == 1.0", true),
        ("inputs.x == null", true),
        ("inputs.l == [1, 'two', null]", true),
        ("inputs.o != tasks.a.result", true),
        ("!inputs.b || inputs.i == 7 && true", true),
        ("!(inputs.b && false)", true),
        ("inputs.b && inputs.i > 7", false),
        // The right side of a decided operator is not evaluated.
        ("false && tasks.a.result", false),
        ("true || tasks.a.result", true),
    ] {
        assert_eq!(evaluate(expression), json!(expected), "{expression}");
    }
    assert_eq!(evaluate("inputs.b ? 'yes' : 'no'"), json!("yes"));
    assert_eq!(evaluate("inputs.i > 9 ? 1 : inputs.i > 5 ? 2 : 3"), json!(2));
}

#[test]
fn missing_values_have_defaults() {
    assert_eq!(evaluate("inputs.o.nothing ?? inputs.x ?? 'last'"), json!("last"));
    assert_eq!(evaluate("inputs.i ?? 5"), json!(7));
    assert_eq!(evaluate("tasks.a.result.count ?? 0 + 5"), json!(5));
    assert_eq!(evaluate("default(inputs.x, 1)"), json!(1));
    assert_eq!(evaluate("default(false, true)"), json!(false));
}

#[test]
fn functions_are_evaluated() {
    for (expression, expected) in [
        ("length('größe')", json!(5)),
        ("length(inputs.l) + length(inputs.o)", json!(5)),
        ("contains(inputs.s, 'text')", json!(true)),
        ("contains(inputs.l, 1.0)", json!(true)),
        ("contains(inputs.o, 'k')", json!(true)),
        ("contains(inputs.o, 'q')", json!(false)),
        ("starts_with(inputs.s, 'some')", json!(true)),
        ("ends_with(inputs.s, 'some')", json!(false)),
        ("split('a,b,,c', ',')", json!(["a", "b", "", "c"])),
        ("join([1, 'a', null, [2]], '-')", json!("1-a-null-[2]")),
        ("join(['a', 'b'])", json!("ab")),
        ("keys(inputs.o)", json!(["k", "z"])),
        ("values(inputs.o)", json!([{"m": [10, 20]}, 1])),
        ("range(3)", json!([0, 1, 2])),
        ("range(2, 5)", json!([2, 3, 4])),
        ("range(5, 2)", json!([])),
        ("json(inputs.o)", json!(r#"{"k":{"m":[10,20]},"z":1}"#)),
        ("json('a\"b')", json!(r#""a\"b""#)),
        ("parse('{\"a\": [1]}').a[0]", json!(1)),
        ("string(7) + string('x') + string(null)", json!("7xnull")),
        ("number(' 42 ') + number('1.5')", json!(43.5)),
        ("lower('AbÖ') + upper('aß')", json!("aböASS")),
        ("trim('  x ')", json!("x")),
        ("min(3, 1.5, 2)", json!(1.5)),
        ("max([1, 5, 3])", json!(5)),
        ("round(2.5)", json!(3)),
        ("round(-2.345, 2)", json!(-2.35)),
        ("round(7)", json!(7)),
        (r#"quote("it's; rm -rf /")"#, json!(r"'it'\''s; rm -rf /'")),
        (r#"'a\n\t\\\'\u00e4'"#, json!("a\n\t\\'ä")),
    ] {
        assert_eq!(evaluate(expression), expected, "{expression}");
    }
}

#[test]
fn evaluation_errors_name_field_expression_and_types() {
    insta::assert_snapshot!(failure("inputs.x + tasks.a.result"), @"outputs: `${inputs.x + tasks.a.result}`: `+` does not work between null and an object");
    insta::assert_snapshot!(failure("tasks.b-c.result.url"), @"outputs: `${tasks.b-c.result.url}`: there is no `url` in a string");
    insta::assert_snapshot!(failure("tasks.a.result[0]"), @"outputs: `${tasks.a.result[0]}`: an object cannot be indexed with a number");
    insta::assert_snapshot!(failure("!tasks.a.result"), @"outputs: `${!tasks.a.result}`: `!` takes a boolean, not an object");
    insta::assert_snapshot!(failure("-tasks.a.result.url"), @"outputs: `${-tasks.a.result.url}`: `-` takes a number, not a string");
    insta::assert_snapshot!(failure("true && tasks.a.result"), @"outputs: `${true && tasks.a.result}`: `&&` takes booleans, not an object");
    insta::assert_snapshot!(failure("inputs.x < 1"), @"outputs: `${inputs.x < 1}`: `<` does not work between null and a number");
    insta::assert_snapshot!(failure("tasks.a.result ? 1 : 2"), @"outputs: `${tasks.a.result ? 1 : 2}`: the condition before `?` must be a boolean, not an object");
    insta::assert_snapshot!(failure("length(inputs.x)"), @"outputs: `${length(inputs.x)}`: `length` does not take null: write `length(value)`");
    insta::assert_snapshot!(failure("join(tasks.b-c.result, 1 == 1 ? ',' : '')"), @"outputs: `${join(tasks.b-c.result, 1 == 1 ? ',' : '')}`: `join` does not take a string: write `join(list, separator)`");
    insta::assert_snapshot!(failure("parse(inputs.s)"), @"outputs: `${parse(inputs.s)}`: `parse`: the string is not valid JSON: expected value at line 1 column 1");
    insta::assert_snapshot!(failure("number(inputs.s)"), @r#"outputs: `${number(inputs.s)}`: `number`: "some text" is not a number"#);
    insta::assert_snapshot!(failure("max([])"), @"outputs: `${max([])}`: `max` of an empty list is undefined");
    insta::assert_snapshot!(failure("split(inputs.s, '')"), @"outputs: `${split(inputs.s, '')}`: `split` needs a separator that is not empty");
    insta::assert_snapshot!(value("a ${inputs.i} b ${inputs.x.a + 1} c").unwrap_err(), @"outputs: `${inputs.x.a + 1}`: `+` does not work between null and a number");
}

#[test]
fn rendered_values_are_not_evaluated_again() {
    let mut world = world();
    world.inputs["s"] = json!("${inputs.i}");
    let plan = output("${inputs.s} and ${inputs.s + ''}");
    assert_eq!(plan.outputs.as_ref().unwrap().render(&world.scope()).unwrap(), json!("${inputs.i} and ${inputs.i}"));
}
