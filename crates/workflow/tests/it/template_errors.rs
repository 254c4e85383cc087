//! Diagnostics of invalid templates.

use serde_json::json;
use workflow::{Source, compile};

/// The problem of a template in the `run` of a task.
fn problem_of(text: &str) -> String {
    let definition = json!({
        "name": "w",
        "inputs": {"s": "string", "n": "integer", "l": "list", "o": "object", "b": "boolean", "x": "any"},
        "tasks": {"build": {"run": "x"}, "b-c": {"run": "x"}, "t": {"run": {"echo": {"value": text}}}},
    });
    let problems = compile(Source::Json(definition.to_string().as_bytes())).map(drop).unwrap_err();
    let [only] = &problems.0[..] else { panic!("expected one problem: {problems}") };
    only.to_string().replace("tasks.t.run.echo.value: ", "")
}

#[test]
fn unknown_names_get_a_suggestion() {
    insta::assert_snapshot!(problem_of("${tasks.biuld.result}"), @r#"
    `${tasks.biuld.result}`: there is no task `biuld`
      help: did you mean `tasks.build`?
    "#);
    insta::assert_snapshot!(problem_of("${tasks.nothing.result}"), @"`${tasks.nothing.result}`: there is no task `nothing`");
    insta::assert_snapshot!(problem_of("${inputs.nothing}"), @r#"
    `${inputs.nothing}`: there is no input `nothing`
      help: declare it under `inputs`, such as `nothing: string`
    "#);
    insta::assert_snapshot!(problem_of("${inputs.n-1}"), @r#"
    `${inputs.n-1}`: there is no input `n-1`
      help: for a difference put spaces around the minus: `n - 1`
    "#);
    insta::assert_snapshot!(problem_of("${input.n}"), @r#"
    `${input.n}`: unknown name `input`
      help: did you mean `inputs`?
    "#);
    insta::assert_snapshot!(problem_of("${build}"), @r#"
    `${build}`: unknown name `build`
      help: for the result of the task write `tasks.build.result`
    "#);
    insta::assert_snapshot!(problem_of("${n}"), @r#"
    `${n}`: unknown name `n`
      help: for the input write `inputs.n`
    "#);
    insta::assert_snapshot!(problem_of("${something}"), @r#"
    `${something}`: unknown name `something`
      help: write a string in quotes: `"something"`
    "#);
    insta::assert_snapshot!(problem_of("${lenght(inputs.l)}"), @r#"
    `${lenght(inputs.l)}`: there is no function `lenght`
      help: did you mean `length`?
    "#);
    insta::assert_snapshot!(problem_of("${workflow.nme}"), @"`${workflow.nme}`: there is no `workflow.nme`: write `workflow.id` or `workflow.name`");
    insta::assert_snapshot!(problem_of("${schedule}"), @"`${schedule}`: `schedule` is not a value: write `schedule.time`");
}

#[test]
fn names_that_are_not_available_here_are_reported() {
    insta::assert_snapshot!(problem_of("${item}"), @"`${item}`: `item` is not available here: only the work of a task with `for_each` has it");
    insta::assert_snapshot!(problem_of("${result}"), @r#"
    `${result}`: `result` is not available here: only a `compensation` has it
      help: the result of a task is `tasks.name.result`
    "#);
    insta::assert_snapshot!(problem_of("${tasks}"), @"`${tasks}`: `tasks` is not a value: write `tasks.name.result` or `tasks.name.state`");
    insta::assert_snapshot!(problem_of("${tasks.build}"), @"`${tasks.build}`: expected `tasks.build.result` or `tasks.build.state`");
    insta::assert_snapshot!(problem_of("${tasks.build.output}"), @"`${tasks.build.output}`: expected `tasks.build.result` or `tasks.build.state`");
    insta::assert_snapshot!(problem_of("${tasks[inputs.s].result}"), @r#"`${tasks[inputs.s].result}`: the name of the task must be a constant: write `tasks["name"]`"#);
}

#[test]
fn operations_on_impossible_types_are_refused() {
    insta::assert_snapshot!(problem_of("${1 + true}"), @"`${1 + true}`: `+` does not work between an integer and a boolean");
    insta::assert_snapshot!(problem_of("${inputs.n.foo}"), @"`${inputs.n.foo}`: there is no `foo` in an integer");
    insta::assert_snapshot!(problem_of("${inputs.s[0]}"), @"`${inputs.s[0]}`: a string cannot be indexed with an integer");
    insta::assert_snapshot!(problem_of("${inputs.l['a']}"), @"`${inputs.l['a']}`: there is no `a` in a list");
    insta::assert_snapshot!(problem_of("${!inputs.n}"), @"`${!inputs.n}`: `!` takes a boolean, not an integer");
    insta::assert_snapshot!(problem_of("${-inputs.s}"), @"`${-inputs.s}`: `-` takes a number, not a string");
    insta::assert_snapshot!(problem_of("${inputs.n < inputs.s}"), @"`${inputs.n < inputs.s}`: `<` does not work between an integer and a string");
    insta::assert_snapshot!(problem_of("${inputs.n == '5'}"), @"`${inputs.n == '5'}`: an integer never equals a string");
    insta::assert_snapshot!(problem_of("${inputs.b && inputs.n}"), @"`${inputs.b && inputs.n}`: `&&` does not work between a boolean and an integer");
    insta::assert_snapshot!(problem_of("${inputs.n ? 1 : 2}"), @"`${inputs.n ? 1 : 2}`: the condition before `?` must be a boolean, not an integer");
    insta::assert_snapshot!(problem_of("${keys(inputs.l)}"), @"`${keys(inputs.l)}`: `keys` takes an object, not a list: write `keys(object)`");
    insta::assert_snapshot!(problem_of("${min(inputs.n)}"), @"`${min(inputs.n)}`: `min` takes a list, not an integer: write `min(a, b, …)` or `min(list)`");
    insta::assert_snapshot!(problem_of("${tasks.build.state.x}"), @"`${tasks.build.state.x}`: there is no `x` in a string");
}

#[test]
fn syntax_errors_are_reported() {
    insta::assert_snapshot!(problem_of("${}"), @"`${}`: the expression is empty");
    insta::assert_snapshot!(problem_of("${inputs.n"), @r#"
    the closing `}` of a `${` is missing
      help: for a literal `${` write `$${`
    "#);
    insta::assert_snapshot!(problem_of("${1 +}"), @"`${1 +}`: expected a value, found the end");
    insta::assert_snapshot!(problem_of("${1 2}"), @"`${1 2}`: unexpected `2` after the expression");
    insta::assert_snapshot!(problem_of("${(1}"), @"`${(1}`: `)` is missing before the end");
    insta::assert_snapshot!(problem_of("${[1, 2}"), @"`${[1, 2}`: `,` or `]` is missing before the end");
    insta::assert_snapshot!(problem_of("${inputs.b ? 1}"), @"`${inputs.b ? 1}`: `:` is missing before the end: a conditional is `a ? b : c`");
    insta::assert_snapshot!(problem_of("${inputs.n = 1}"), @"`${inputs.n = 1}`: `=` is not an operator: write `==`");
    insta::assert_snapshot!(problem_of("${inputs.b & true}"), @"`${inputs.b & true}`: `&` is not an operator: write `&&`");
    insta::assert_snapshot!(problem_of("${inputs.x | json}"), @"`${inputs.x | json}`: `|` is not an operator: write `||`, or call a function such as `json(x)`");
    insta::assert_snapshot!(problem_of("${1 < 2 < 3}"), @r#"
    `${1 < 2 < 3}`: comparisons cannot be chained
      help: combine them: `a < b && b < c`
    "#);
    insta::assert_snapshot!(problem_of("${inputs.x.0}"), @r#"
    `${inputs.x.0}`: expected a name after `.`, found `0`
      help: write other names and indexes as `["name"]` or `[0]`
    "#);
    insta::assert_snapshot!(problem_of("${'a\\q'}"), @r#"`${'a\q'}`: unknown escape `\q`: write `\\` for a backslash"#);
    insta::assert_snapshot!(problem_of("${'\\ud800'}"), @r#"`${'\ud800'}`: `\ud800` is not a character"#);
    insta::assert_snapshot!(problem_of("${\"a}"), @r#"
    the closing `}` of a `${` is missing
      help: for a literal `${` write `$${`
    "#);
    insta::assert_snapshot!(problem_of("${12abc}"), @"`${12abc}`: a letter follows the number `12`");
    insta::assert_snapshot!(problem_of("${length()}"), @"`${length()}`: `length` is called with 0 arguments: write `length(value)`");
    insta::assert_snapshot!(problem_of("${{inputs.n}}"), @"`${{inputs.n}`: `{` is not allowed inside `${…}`");
    insta::assert_snapshot!(problem_of("${größe}"), @"`${größe}`: unexpected character `ö`");
}

#[test]
fn conditions_and_lists_are_type_checked() {
    let report = |task: &str| {
        crate::support::report(&format!("name: w\ninputs: {{n: integer}}\ntasks:\n  a:\n    run: x\n    {task}\n"))
    };
    insta::assert_snapshot!(report("when: ${inputs.n}"), @"w.yaml:6:11: tasks.a.when: a condition must be a boolean, not an integer");
    insta::assert_snapshot!(report("when: inputs.n == 1"), @r#"
    w.yaml:6:11: tasks.a.when: a condition must be inside `${…}`
      help: write `${inputs.n == 1}`
    "#);
    insta::assert_snapshot!(report("when: a ${inputs.n == 1}"), @"w.yaml:6:11: tasks.a.when: a condition must be a boolean, not a string");
    insta::assert_snapshot!(report("for_each: ${inputs.n}"), @"w.yaml:6:15: tasks.a.for_each: expected a list, but the template evaluates to an integer");
    insta::assert_snapshot!(report("for_each: [1, '${item}']"), @"w.yaml:6:19: tasks.a.for_each[1]: `${item}`: `item` is not available here: only the work of a task with `for_each` has it");
    insta::assert_snapshot!(report("for_each: text"), @"w.yaml:6:15: tasks.a.for_each: expected a list or a template that evaluates to one, found a string");
    insta::assert_snapshot!(report("labels: {'${inputs.n}': x}"), @"w.yaml:6:14: tasks.a.labels.${inputs.n}: the name of a field cannot be a template");
}

#[test]
fn an_item_is_not_available_in_when() {
    let yaml = "name: w\ntasks:\n  a: {run: '${item}', for_each: [1], when: '${index == 0}'}\n";
    insta::assert_snapshot!(crate::support::report(yaml), @"w.yaml:3:44: tasks.a.when: `${index == 0}`: `index` is not available here: only the work of a task with `for_each` has it");
}
