//! What is wrong with a template is found before anything runs.

use serde_json::json;
use workflow::{Source, compile};

/// What is wrong with a text in the `run` of a task.
fn wrong(text: &str) -> String {
    let definition = json!({
        "name": "w",
        "inputs": {"s": "string", "n": "integer", "l": "list", "o": "object", "b": "boolean", "x": "any"},
        "tasks": {"build": {"run": "x"}, "b-c": {"run": "x"}, "t": {"run": {"echo": {"value": text}}}},
    });
    let problems = compile(Source::Json(definition.to_string().as_bytes())).map(drop).unwrap_err();
    let [only] = &problems.0[..] else { panic!("one problem: {problems}") };
    only.to_string().replace("tasks.t.run.echo.value: ", "")
}

#[test]
fn names_that_are_not_known_are_told_with_those_that_are() {
    insta::assert_snapshot!(wrong("${tasks.biuld.result}"), @r#"
    `${tasks.biuld.result}`: there is no task `biuld`
      help: did you mean `tasks.build`?
    "#);
    insta::assert_snapshot!(wrong("${tasks.nothing.result}"), @"`${tasks.nothing.result}`: there is no task `nothing`");
    insta::assert_snapshot!(wrong("${inputs.nothing}"), @r#"
    `${inputs.nothing}`: there is no input `nothing`
      help: name it under `inputs`, like `nothing: string`
    "#);
    insta::assert_snapshot!(wrong("${inputs.n-1}"), @r#"
    `${inputs.n-1}`: there is no input `n-1`
      help: for a difference put spaces around the sign: `n - 1`
    "#);
    insta::assert_snapshot!(wrong("${input.n}"), @r#"
    `${input.n}`: `input` is not known here
      help: did you mean `inputs`?
    "#);
    insta::assert_snapshot!(wrong("${build}"), @r#"
    `${build}`: `build` is not known here
      help: the result of a task is `tasks.build.result`
    "#);
    insta::assert_snapshot!(wrong("${n}"), @r#"
    `${n}`: `n` is not known here
      help: inputs are written `inputs.n`
    "#);
    insta::assert_snapshot!(wrong("${something}"), @r#"
    `${something}`: `something` is not known here
      help: a text is written in quotes: `"something"`
    "#);
    insta::assert_snapshot!(wrong("${lenght(inputs.l)}"), @r#"
    `${lenght(inputs.l)}`: there is no function `lenght`
      help: did you mean `length`?
    "#);
    insta::assert_snapshot!(wrong("${workflow.nme}"), @"`${workflow.nme}`: there is no `workflow.nme`, but `workflow.id` and `workflow.name`");
    insta::assert_snapshot!(wrong("${schedule}"), @"`${schedule}`: `schedule` is no value: there is `schedule.time`");
}

#[test]
fn names_that_exist_elsewhere_are_told_so() {
    insta::assert_snapshot!(wrong("${item}"), @"`${item}`: there is no `item` here: only what a task with `for_each` does has one");
    insta::assert_snapshot!(wrong("${result}"), @r#"
    `${result}`: there is no `result` here: it exists in a `compensation` only
      help: the result of a task is `tasks.name.result`
    "#);
    insta::assert_snapshot!(wrong("${tasks}"), @"`${tasks}`: `tasks` is no value: write `tasks.name.result` or `tasks.name.state`");
    insta::assert_snapshot!(wrong("${tasks.build}"), @"`${tasks.build}`: of a task there is `tasks.build.result` and `tasks.build.state`");
    insta::assert_snapshot!(wrong("${tasks.build.output}"), @"`${tasks.build.output}`: of a task there is `tasks.build.result` and `tasks.build.state`");
    insta::assert_snapshot!(wrong("${tasks[inputs.s].result}"), @r#"`${tasks[inputs.s].result}`: which task is meant must be known beforehand: write `tasks["name"]`"#);
}

#[test]
fn types_that_never_fit_are_refused() {
    insta::assert_snapshot!(wrong("${1 + true}"), @"`${1 + true}`: `+` does not work between an integer and a boolean");
    insta::assert_snapshot!(wrong("${inputs.n.foo}"), @"`${inputs.n.foo}`: there is no `foo` in an integer");
    insta::assert_snapshot!(wrong("${inputs.s[0]}"), @"`${inputs.s[0]}`: a string cannot be asked for `[…]` with an integer");
    insta::assert_snapshot!(wrong("${inputs.l['a']}"), @"`${inputs.l['a']}`: there is no `a` in a list");
    insta::assert_snapshot!(wrong("${!inputs.n}"), @"`${!inputs.n}`: `!` takes a boolean, not an integer");
    insta::assert_snapshot!(wrong("${-inputs.s}"), @"`${-inputs.s}`: `-` takes a number, not a string");
    insta::assert_snapshot!(wrong("${inputs.n < inputs.s}"), @"`${inputs.n < inputs.s}`: `<` does not work between an integer and a string");
    insta::assert_snapshot!(wrong("${inputs.n == '5'}"), @"`${inputs.n == '5'}`: an integer never equals a string");
    insta::assert_snapshot!(wrong("${inputs.b && inputs.n}"), @"`${inputs.b && inputs.n}`: `&&` does not work between a boolean and an integer");
    insta::assert_snapshot!(wrong("${inputs.n ? 1 : 2}"), @"`${inputs.n ? 1 : 2}`: the condition before `?` must be a boolean, not an integer");
    insta::assert_snapshot!(wrong("${keys(inputs.l)}"), @"`${keys(inputs.l)}`: `keys` takes an object, not a list: write `keys(object)`");
    insta::assert_snapshot!(wrong("${min(inputs.n)}"), @"`${min(inputs.n)}`: `min` takes a list, not an integer: write `min(a, b, …)` or `min(list)`");
    insta::assert_snapshot!(wrong("${tasks.build.state.x}"), @"`${tasks.build.state.x}`: there is no `x` in a string");
}

#[test]
fn what_is_no_expression_is_told_where_it_ends() {
    insta::assert_snapshot!(wrong("${}"), @"`${}`: the expression is empty");
    insta::assert_snapshot!(wrong("${inputs.n"), @r#"
    a `${` is not closed by `}`
      help: to write `${` itself, write `$${`
    "#);
    insta::assert_snapshot!(wrong("${1 +}"), @"`${1 +}`: a value is expected instead of the end");
    insta::assert_snapshot!(wrong("${1 2}"), @"`${1 2}`: the expression should end before `2`");
    insta::assert_snapshot!(wrong("${(1}"), @"`${(1}`: `)` is missing before the end");
    insta::assert_snapshot!(wrong("${[1, 2}"), @"`${[1, 2}`: `,` or `]` is missing before the end");
    insta::assert_snapshot!(wrong("${inputs.b ? 1}"), @"`${inputs.b ? 1}`: `:` is missing before the end: a condition is `a ? b : c`");
    insta::assert_snapshot!(wrong("${inputs.n = 1}"), @"`${inputs.n = 1}`: `=` compares nothing: write `==`");
    insta::assert_snapshot!(wrong("${inputs.b & true}"), @"`${inputs.b & true}`: `&` means nothing: write `&&`");
    insta::assert_snapshot!(wrong("${inputs.x | json}"), @"`${inputs.x | json}`: `|` means nothing: write `||`, or a function around its value");
    insta::assert_snapshot!(wrong("${1 < 2 < 3}"), @r#"
    `${1 < 2 < 3}`: comparisons cannot stand in a row
      help: join them: `a < b && b < c`
    "#);
    insta::assert_snapshot!(wrong("${inputs.x.0}"), @r#"
    `${inputs.x.0}`: after `.` a name is expected, not `0`
      help: write other names and places as `["name"]` or `[0]`
    "#);
    insta::assert_snapshot!(wrong("${'a\\q'}"), @r#"`${'a\q'}`: `\q` means nothing in a text; `\\` is a backslash"#);
    insta::assert_snapshot!(wrong("${'\\ud800'}"), @r#"`${'\ud800'}`: `\ud800` is no character"#);
    insta::assert_snapshot!(wrong("${\"a}"), @r#"
    a `${` is not closed by `}`
      help: to write `${` itself, write `$${`
    "#);
    insta::assert_snapshot!(wrong("${12abc}"), @"`${12abc}`: `12` runs into the letters after it");
    insta::assert_snapshot!(wrong("${length()}"), @"`${length()}`: `length` is called with 0 values: write `length(value)`");
    insta::assert_snapshot!(wrong("${{inputs.n}}"), @"`${{inputs.n}`: `{` has no place inside of `${…}`");
    insta::assert_snapshot!(wrong("${größe}"), @"`${größe}`: `ö` means nothing in an expression");
}

#[test]
fn conditions_and_lists_have_their_types() {
    let told = |task: &str| {
        crate::fixture::told(&format!("name: w\ninputs: {{n: integer}}\ntasks:\n  a:\n    run: x\n    {task}\n"))
    };
    insta::assert_snapshot!(told("when: ${inputs.n}"), @"w.yaml:6:11: tasks.a.when: a condition is true or false, this is an integer");
    insta::assert_snapshot!(told("when: inputs.n == 1"), @r#"
    w.yaml:6:11: tasks.a.when: a condition stands in `${…}`
      help: write `${inputs.n == 1}`
    "#);
    insta::assert_snapshot!(told("when: a ${inputs.n == 1}"), @"w.yaml:6:11: tasks.a.when: a condition is true or false, this is a string");
    insta::assert_snapshot!(told("for_each: ${inputs.n}"), @"w.yaml:6:15: tasks.a.for_each: this comes to an integer: a list is needed");
    insta::assert_snapshot!(told("for_each: [1, '${item}']"), @"w.yaml:6:19: tasks.a.for_each[1]: `${item}`: there is no `item` here: only what a task with `for_each` does has one");
    insta::assert_snapshot!(told("for_each: text"), @"w.yaml:6:15: tasks.a.for_each: this is a text: a list, or a template that comes to one, is needed");
    insta::assert_snapshot!(told("labels: {'${inputs.n}': x}"), @"w.yaml:6:14: tasks.a.labels.${inputs.n}: the name of a field cannot be a template");
}

#[test]
fn an_item_exists_only_in_what_is_done_for_each() {
    let yaml = "name: w\ntasks:\n  a: {run: '${item}', for_each: [1], when: '${index == 0}'}\n";
    insta::assert_snapshot!(crate::fixture::told(yaml), @"w.yaml:3:44: tasks.a.when: `${index == 0}`: there is no `index` here: only what a task with `for_each` does has one");
}
