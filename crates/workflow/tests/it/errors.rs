//! Diagnostics of invalid definitions: position, message and suggestion.

use workflow::{Source, compile};

use crate::support::{codes, problems, report};

// FEATURES: B1
#[test]
fn a_dependency_cycle_is_reported() {
    insta::assert_snapshot!(report("name: w\ntasks:\n  a: {run: x, needs: [b]}\n  b: {run: x, needs: c}\n  c: {run: x, needs: [a]}\n"), @"w.yaml:3:23: tasks.a: dependency cycle: a → b → c → a");
    insta::assert_snapshot!(report("name: w\ntasks:\n  a:\n    run: x\n    needs: a\n"), @"w.yaml:5:12: tasks.a: `a` needs itself");
}

#[test]
fn cycles_through_templates_and_switches_are_reported() {
    insta::assert_snapshot!(report("name: w\ntasks:\n  a: {run: 'x ${tasks.b.result}'}\n  b: {run: x, needs: a}\n"), @"w.yaml:3:3: tasks.a: dependency cycle: a → b → a");
    insta::assert_snapshot!(report("name: w\ntasks:\n  a: {switch: [{then: b}], needs: b}\n  b: {run: x}\n"), @"w.yaml:3:35: tasks.a: dependency cycle: a → b → a");
    insta::assert_snapshot!(report("name: w\ntasks:\n  a: {run: 'x ${tasks.a.result}'}\n"), @"w.yaml:3:3: tasks.a: `a` needs itself");
}

#[test]
fn each_of_several_cycles_is_reported_once() {
    let yaml = "name: w\ntasks:\n  a: {run: x, needs: b}\n  b: {run: x, needs: a}\n  in: {run: x, needs: a}\n  \
                c: {run: x, needs: d}\n  d: {run: x, needs: c}\n";
    assert_eq!(codes(yaml), ["cycle", "cycle"]);
}

// FEATURES: B1
#[test]
fn an_unknown_task_gets_a_suggestion() {
    insta::assert_snapshot!(report("name: w\ntasks:\n  build: {run: x}\n  test:\n    run: x\n    needs:\n      - biuld\n      - nothing-like-it\n"), @r#"
    w.yaml:7:9: tasks.test.needs[0]: there is no task `biuld`
      help: did you mean `build`?
    w.yaml:8:9: tasks.test.needs[1]: there is no task `nothing-like-it`
    "#);
    insta::assert_snapshot!(report("name: w\ntasks:\n  build: {run: x}\n  s: {switch: [{then: [buidl]}]}\n"), @r#"
    w.yaml:4:24: tasks.s.switch[0].then[0]: there is no task `buidl`
      help: did you mean `build`?
    "#);
}

// FEATURES: B1
#[test]
fn a_duplicate_name_is_reported_with_both_lines() {
    insta::assert_snapshot!(report("name: w\ntasks:\n  build: {run: x}\n  test: {run: x}\n  build: {run: y}\n"), @r#"
    w.yaml:5:3: tasks.build: `build` is defined twice: in line 3 and in line 5
      help: rename or remove one of the two
    "#);
    insta::assert_snapshot!(report("name: w\ntasks:\n  build:\n    run: x\n    needs: []\n    run: y\n"), @r#"
    w.yaml:6:5: tasks.build.run: `run` is defined twice: in line 4 and in line 6
      help: rename or remove one of the two
    "#);
    let json = "{\"name\": \"w\",\n\"tasks\": {\n  \"a\": {\"run\": \"x\"},\n  \"a\": {\"run\": \"y\"}}}";
    insta::assert_snapshot!(compile(Source::Json(json.as_bytes())).unwrap_err(), @r#"
    4:3: tasks.a: `a` is defined twice: in line 3 and in line 4
      help: rename or remove one of the two
    "#);
}

#[test]
fn unknown_fields_get_a_suggestion() {
    insta::assert_snapshot!(report("name: w\ntask: {}\ntasks:\n  a:\n    run: x\n    depends_on: b\n    tiemout: 5s\n    if: x\n  b: {command: x}\n"), @r#"
    w.yaml:2:1: task: unknown field
      help: did you mean `tasks`?
    w.yaml:6:5: tasks.a.depends_on: unknown field
      help: did you mean `needs`?
    w.yaml:7:5: tasks.a.tiemout: unknown field
      help: did you mean `timeout`?
    w.yaml:8:5: tasks.a.if: unknown field
      help: did you mean `when`?
    w.yaml:9:3: tasks.b: the task has no work: one of run, workflow, delay, approval, wait_for and switch is required
    w.yaml:9:7: tasks.b.command: unknown field
      help: did you mean `run: {process: …}`?
    "#);
}

#[test]
fn values_of_the_wrong_type_are_reported_with_the_expected_type() {
    insta::assert_snapshot!(report(
        "name: 5\ntimeout: 10\ninputs: {a: text, b: {type: list, default: x}, c: {default: 1}, d: []}\nepochs: x\ntasks:\n  \
         a: {run: {process: {command: [x, 5], env: {A: true}}}, retry: often, when: 1, needs: {b: c}}\n  \
         b:\n    run:\n      echo: {delay_ms: -5, fail: fatl}\n  c: text\n  d:\n"
    ), @r#"
    w.yaml:1:7: name: expected a string, found a number
      help: put it in quotes: "5"
    w.yaml:2:10: timeout: a duration needs a unit
      help: write `10s` for seconds, `10ms` for milliseconds
    w.yaml:3:13: inputs.a: `text` is not one of: string, integer, number, boolean, list, object, any
    w.yaml:3:44: inputs.b.default: expected a list, found a string
    w.yaml:3:51: inputs.c.type: the type is missing
      help: write one of: string, integer, number, boolean, list, object, any
    w.yaml:3:68: inputs.d: expected a type or an object with `type` and `default`, found a list
    w.yaml:4:9: epochs: expected a list of names, found a string
    w.yaml:6:36: tasks.a.run.process.command[1]: expected a string, found a number
      help: put it in quotes: "5"
    w.yaml:6:49: tasks.a.run.process.env.A: expected a string, found a boolean
      help: put it in quotes: "true"
    w.yaml:6:65: tasks.a.retry: expected a number, found a string
    w.yaml:6:78: tasks.a.when: expected a condition such as `${inputs.a == 1}`, found a number
    w.yaml:6:88: tasks.a.needs: expected a task or a list of tasks, found an object
    w.yaml:9:24: tasks.b.run.echo.delay_ms: -5 is invalid: expected a whole number of at least 0
    w.yaml:9:34: tasks.b.run.echo.fail: `fatl` is not one of: error, fatal
      help: did you mean `fatal`?
    w.yaml:10:6: tasks.c: expected an object such as `{run: …}`, found a string
    w.yaml:11:4: tasks.d: expected an object such as `{run: …}`, but the value is missing
      help: remove the field, or give it a value
    "#);
}

#[test]
fn a_task_has_exactly_one_kind_of_work_and_only_its_fields() {
    insta::assert_snapshot!(report(
        "name: w\ntasks:\n  a: {}\n  b: {run: x, delay: 5s}\n  c: {delay: 5s, topic: t, retry: 3}\n  d: {approval: ok, compensation: x}\n  \
         e: {run: x, with: {}}\n  f: {switch: [{then: a}], for_each: [1]}\n  g: {run: x, concurrency: 3}\n  \
         h: {run: {echo: {}, process: {command: [x]}}}\n  i: {run: {ehco: {}}}\n  j: {run: {wasm: {}}}\n"
    ), @r#"
    w.yaml:3:3: tasks.a: the task has no work: one of run, workflow, delay, approval, wait_for and switch is required
    w.yaml:4:15: tasks.b: a task has exactly one kind of work: remove `run` or `delay`
    w.yaml:5:18: tasks.c.topic: only a task with `run` can have this field
    w.yaml:5:28: tasks.c.retry: only a task with `run` can have this field
    w.yaml:6:35: tasks.d.compensation: only a task with `run` or `workflow` can have a compensation
    w.yaml:7:15: tasks.e.with: only a task with `workflow` can have this field
    w.yaml:8:28: tasks.f.for_each: a switch cannot have `for_each`
    w.yaml:9:28: tasks.g.concurrency: `concurrency` requires `for_each`
    w.yaml:10:12: tasks.h.run: exactly one of `process`, `echo` and `wasm` is required
    w.yaml:11:13: tasks.i.run.ehco: unknown field
      help: did you mean `echo`?
    w.yaml:12:13: tasks.j.run.wasm.component: the component is missing: name its blob
    "#);
}

#[test]
fn an_invalid_job_is_reported_at_compile_time() {
    insta::assert_snapshot!(report(
        "name: w\ntasks:\n  a: {run: {process: {command: []}}}\n  b:\n    run: {echo: {}}\n    limits: {pids: 5}\n  \
         c: {run: x, retry: 5000}\n  d: {run: x, attempt_timeout: 0s}\n  e: {run: {wasm: {component: 'blob:1'}}}\n  \
         f: {run: x, inputs: {../a: 'blob:1'}}\n  g: {run: x, sandbox: stric, priority: high}\n  \
         h: {run: x, compensation: {run: x, priority: batch}}\n  i: {run: {process: {command: [x], function: f}}}\n"
    ), @r#"
    w.yaml:3:32: tasks.a.run.process.command: the command is empty: name at least a program
    w.yaml:5:10: tasks.b.limits: an echo job has no files and uses nothing: leave it out
    w.yaml:7:22: tasks.c.retry: 5000 is invalid: expected a whole number from 0 to 1000
    w.yaml:8:32: tasks.d.attempt_timeout: a timeout must be longer than 0
    w.yaml:9:31: tasks.e.run.wasm.component: `blob:1` is not of the form `blob:<64 lower-case hexadecimal digits>`
    w.yaml:10:23: tasks.f.inputs.../a: `blob:1` is not of the form `blob:<64 lower-case hexadecimal digits>`
    w.yaml:11:24: tasks.g.sandbox: `stric` is not one of: strict, standard, none
      help: did you mean `strict`?
    w.yaml:11:41: tasks.g.priority: `high` is not one of: critical, interactive, batch
    w.yaml:12:38: tasks.h.compensation.priority: the priority of a compensation is always critical: remove this field
    w.yaml:13:47: tasks.i.run.process.function: whose function? Name the `worker` as well
    "#);
}

#[test]
fn a_task_cannot_need_a_later_epoch() {
    insta::assert_snapshot!(report(
        "name: w\nepochs: [one, two, one]\ntasks:\n  a: {run: x, epoch: one, needs: b}\n  b: {run: x, epoch: two}\n  c: {run: x}\n  \
         d: {run: x, epoch: tow}\n  e: {run: 'x ${tasks.b.result}', epoch: one}\n"
    ), @r#"
    w.yaml:2:20: epochs[2]: the epoch `one` is listed twice
    w.yaml:4:34: tasks.a: the task is in epoch `one` but needs `b`, which is in the later epoch `two`
    w.yaml:6:3: tasks.c.epoch: the workflow has epochs, so each task must name one
      help: one of: one, two, one
    w.yaml:7:22: tasks.d.epoch: there is no epoch `tow`
      help: did you mean `two`?
    w.yaml:8:3: tasks.e: the task is in epoch `one` but needs `b`, which is in the later epoch `two`
    "#);
    insta::assert_snapshot!(report("name: w\ntasks: {a: {run: x, epoch: one}}"), @r#"
    w.yaml:2:28: tasks.a.epoch: there is no epoch `one`
      help: list the epochs in order first: `epochs: [first, second]`
    "#);
}

#[test]
fn the_inputs_of_sub_workflows_are_checked() {
    insta::assert_snapshot!(report(
        "name: w\nworkflows:\n  child:\n    inputs: {count: integer, s: string}\n    tasks:\n      a: {run: x}\n      \
         b: {workflow: child}\ntasks:\n  a: {workflow: chidl}\n  c: {workflow: w}\n"
    ), @r#"
    w.yaml:7:21: workflows.child.tasks.b.workflow: `child` would start itself: recursion is not supported
    w.yaml:9:17: tasks.a.workflow: there is no workflow `chidl` in this definition
      help: did you mean `child`?
    w.yaml:10:17: tasks.c.workflow: `w` would start itself: recursion is not supported
    "#);
    insta::assert_snapshot!(report(
        "name: w\nworkflows:\n  child:\n    inputs: {count: integer, s: string}\n    tasks: {a: {run: x}}\ntasks:\n  \
         b:\n    workflow: child\n    with: {count: '5', coutn: 1}\n  c: {workflow: child, with: 5}\n  d: {workflow: child, with: '${[1]}'}\n"
    ), @r#"
    w.yaml:9:11: tasks.b.with.s: the workflow `child` requires this input
    w.yaml:9:19: tasks.b.with.count: expected an integer, found a string
    w.yaml:9:24: tasks.b.with.coutn: the workflow `child` has no such input
      help: did you mean `count`?
    w.yaml:10:30: tasks.c.with: expected an object of inputs, found a number
    w.yaml:11:30: tasks.d.with: expected an object, but the template evaluates to a list
    "#);
}

#[test]
fn the_cases_of_switches_are_checked() {
    insta::assert_snapshot!(report(
        "name: w\ntasks:\n  a: {run: x}\n  b: {run: x}\n  s:\n    switch:\n      - then: a\n      - {when: '${1 == 1}', default: a}\n      \
         - {when: true}\n  t: {switch: []}\n  u: {switch: {then: a}}\n  v: {switch: [{then: b}]}\n  w: {switch: [{then: b}]}\n"
    ), @r#"
    w.yaml:7:9: tasks.s.switch[0].when: a case without `when` always matches: put it last
    w.yaml:8:16: tasks.s.switch[1].when: a default cannot have a condition: write `then` instead of `default`
    w.yaml:9:9: tasks.s.switch[2].then: a case needs exactly one of `then` and `default`
    w.yaml:10:15: tasks.t.switch: a switch has 1 to 1000 cases, not 0
    w.yaml:11:15: tasks.u.switch: expected a list of `{when: …, then: …}`, found an object
    w.yaml:13:23: tasks.b: both switches `v` and `w` select this task: it can be in one switch only
    "#);
}

#[test]
fn delays_approvals_and_signals_are_checked() {
    insta::assert_snapshot!(report(
        "name: w\ntasks:\n  a: {delay: 5}\n  b: {delay: {until: tomorrow}}\n  c: {delay: {}}\n  d: {approval: {}}\n  e: {wait_for: 'a b'}\n  \
         f: {wait_for: {}}\n  g: {delay: '${5}'}\n  h: {delay: 9999d}\n  i: {approval: [x]}\n"
    ), @r#"
    w.yaml:3:14: tasks.a.delay: a duration needs a unit
      help: write `5s` for seconds, `5ms` for milliseconds
    w.yaml:4:22: tasks.b.delay.until: this is not a time: write it like `2026-01-31T12:00:00Z`
    w.yaml:5:14: tasks.c.delay.until: the time is missing
    w.yaml:6:17: tasks.d.approval.message: the message is missing
    w.yaml:7:17: tasks.e.wait_for: a name cannot contain ` `: only letters, digits, `-`, `_` and `.`
    w.yaml:8:17: tasks.f.wait_for.signal: the name of the signal is missing
    w.yaml:9:14: tasks.g.delay: expected a string such as `90s`, but the template evaluates to an integer
    w.yaml:10:14: tasks.h.delay: the duration is longer than a year: at most 366d
    w.yaml:11:17: tasks.i.approval: expected a string, found a list
    "#);
}

#[test]
fn defaults_cannot_refer_to_tasks() {
    insta::assert_snapshot!(report(
        "name: w\non_failure: fail\ndefaults: {on_failure: fail, topic: '${tasks.a.result}', run: x, labels: {a: 1}, outputs: [a]}\n\
         tasks: {a: {run: x}}\n"
    ), @r#"
    w.yaml:3:12: defaults.on_failure: `on_failure` is set twice: remove either `on_failure` or `defaults.on_failure`
    w.yaml:3:37: defaults.topic: a default cannot refer to a task: all other tasks would need it
    w.yaml:3:58: defaults.run: unknown field
      help: known fields: topic, priority, requires, labels, sandbox, limits, exclusive, retry, timeout, attempt_timeout, on_failure
    w.yaml:3:78: defaults.labels.a: expected a string, found a number
      help: put it in quotes: "1"
    w.yaml:3:82: defaults.outputs: unknown field
      help: known fields: topic, priority, requires, labels, sandbox, limits, exclusive, retry, timeout, attempt_timeout, on_failure
    "#);
}

#[test]
fn invalid_yaml_is_reported_with_a_hint_at_missing_quotes() {
    insta::assert_snapshot!(report("name: w\ntasks:\n  a: {run: x, when: ${inputs.x}}\n"), @r#"
    w.yaml:3:22: this is not YAML: while parsing a flow mapping, did not find expected ',' or '}'
      help: put a string with `${…}` in quotes: YAML requires them inside `{…}` and `[…]`, and around `: ` and ` #`
    "#);
    insta::assert_snapshot!(report("name: w\ntasks:\n  a:\n    when: ${inputs.x ? true : false}\n"), @r#"
    w.yaml:4:29: this is not YAML: mapping values are not allowed in this context
      help: put a string with `${…}` in quotes: YAML requires them inside `{…}` and `[…]`, and around `: ` and ` #`
    "#);
    insta::assert_snapshot!(report("name: [w\n"), @"w.yaml:1:7: this is not YAML: unclosed bracket '['");
    insta::assert_snapshot!(report(""), @"w.yaml:1:1: the definition is empty");
    insta::assert_snapshot!(report("- a\n- b\n"), @"w.yaml:1:1: expected an object with `name` and `tasks`, found a list");
    insta::assert_snapshot!(report("name: w\n---\nname: v\n"), @"w.yaml:2:1: a second document starts here: a definition must be a single document");
    insta::assert_snapshot!(report("name: *nothing\n"), @"w.yaml:1:7: this is not YAML: while parsing node, found unknown anchor");
    insta::assert_snapshot!(report("name: &a [*a]\n"), @"w.yaml:1:11: the alias refers to the value that contains it");
    insta::assert_snapshot!(report("name: !custom w\n"), @"w.yaml:1:15: the tag `!custom` is not supported: remove it");
    insta::assert_snapshot!(report("name: .inf\n"), @"w.yaml:1:7: `.inf` cannot be represented in JSON: put it in quotes if it is a string");
    insta::assert_snapshot!(report("? [a]\n: b\n"), @"w.yaml:1:3: the name of a field must be a string, not a list or an object");
}

#[test]
fn invalid_json_is_reported_with_its_position() {
    let report = |json: &str| compile(Source::Json(json.as_bytes())).unwrap_err().display(Some("w.json")).to_string();
    insta::assert_snapshot!(report("{\"name\": \"w\",\n  \"tasks\": }"), @"w.json:2:12: this is not JSON: expected value");
    insta::assert_snapshot!(report("{\"name\": \"w\",\n\n  \"tasks\": {\"größe\": {\"run\": \"x\",  \"neds\": [\"a\"]}}}"), @r#"
    w.json:3:13: tasks.größe: a name cannot contain `ö`: only letters, digits, `-`, `_` and `.`
    w.json:3:36: tasks.größe.neds: unknown field
      help: did you mean `needs`?
    "#);
    insta::assert_snapshot!(report("{} {}"), @"w.json:1:4: this is not JSON: trailing characters");
    insta::assert_snapshot!(compile(Source::Json(b"\"\xff\"")).unwrap_err(), @"the text is not UTF-8: byte 1 is not part of a character");
}

#[test]
fn unknown_versions_of_the_language_are_refused() {
    insta::assert_snapshot!(report("version: 2\nname: w\ntasks: {a: {run: x}}\n"), @r#"
    w.yaml:1:10: version: unknown version of the language: the only version is 1
      help: write `version: 1`, or remove the field
    "#);
}

#[test]
fn only_the_first_problems_are_listed_and_the_rest_are_counted() {
    let mut yaml = "name: w\ntasks:\n".to_owned();
    for task in 0..30 {
        yaml.push_str(&format!("  t{task}: {{run: x, needs: nothing}}\n"));
    }
    let problems = problems(&yaml);
    assert_eq!((problems.0.len(), problems.more()), (20, 10));
    assert!(problems.to_string().ends_with("\nand 10 more problems"));
    assert_eq!(problems.0[0].line, Some(3));
    assert_eq!(problems.0[0].field, "tasks.t0.needs");
}
