//! What is wrong with a definition is told with its place, in plain words, and with a way out.

use workflow::{Source, compile};

use crate::fixture::{codes, problems, told};

// FEATURES: B1
#[test]
fn a_cycle_is_named() {
    insta::assert_snapshot!(told("name: w\ntasks:\n  a: {run: x, needs: [b]}\n  b: {run: x, needs: c}\n  c: {run: x, needs: [a]}\n"), @"w.yaml:3:23: tasks.a: the tasks need each other: a → b → c → a");
    insta::assert_snapshot!(told("name: w\ntasks:\n  a:\n    run: x\n    needs: a\n"), @"w.yaml:5:12: tasks.a: `a` needs itself");
}

#[test]
fn cycles_through_templates_and_switches_are_cycles() {
    insta::assert_snapshot!(told("name: w\ntasks:\n  a: {run: 'x ${tasks.b.result}'}\n  b: {run: x, needs: a}\n"), @"w.yaml:3:3: tasks.a: the tasks need each other: a → b → a");
    insta::assert_snapshot!(told("name: w\ntasks:\n  a: {switch: [{then: b}], needs: b}\n  b: {run: x}\n"), @"w.yaml:3:35: tasks.a: the tasks need each other: a → b → a");
    insta::assert_snapshot!(told("name: w\ntasks:\n  a: {run: 'x ${tasks.a.result}'}\n"), @"w.yaml:3:3: tasks.a: `a` needs itself");
}

#[test]
fn each_of_several_cycles_is_told_once() {
    let yaml = "name: w\ntasks:\n  a: {run: x, needs: b}\n  b: {run: x, needs: a}\n  in: {run: x, needs: a}\n  \
                c: {run: x, needs: d}\n  d: {run: x, needs: c}\n";
    assert_eq!(codes(yaml), ["cycle", "cycle"]);
}

// FEATURES: B1
#[test]
fn a_task_that_does_not_exist_is_named_with_the_one_that_was_meant() {
    insta::assert_snapshot!(told("name: w\ntasks:\n  build: {run: x}\n  test:\n    run: x\n    needs:\n      - biuld\n      - nothing-like-it\n"), @r#"
    w.yaml:7:9: tasks.test.needs[0]: there is no task `biuld`
      help: did you mean `build`?
    w.yaml:8:9: tasks.test.needs[1]: there is no task `nothing-like-it`
    "#);
    insta::assert_snapshot!(told("name: w\ntasks:\n  build: {run: x}\n  s: {switch: [{then: [buidl]}]}\n"), @r#"
    w.yaml:4:24: tasks.s.switch[0].then[0]: there is no task `buidl`
      help: did you mean `build`?
    "#);
}

// FEATURES: B1
#[test]
fn a_name_that_stands_twice_is_told_with_both_lines() {
    insta::assert_snapshot!(told("name: w\ntasks:\n  build: {run: x}\n  test: {run: x}\n  build: {run: y}\n"), @r#"
    w.yaml:5:3: tasks.build: `build` stands twice: in line 3 and again in line 5
      help: give one of the two another name, or leave it out
    "#);
    insta::assert_snapshot!(told("name: w\ntasks:\n  build:\n    run: x\n    needs: []\n    run: y\n"), @r#"
    w.yaml:6:5: tasks.build.run: `run` stands twice: in line 4 and again in line 6
      help: give one of the two another name, or leave it out
    "#);
    let json = "{\"name\": \"w\",\n\"tasks\": {\n  \"a\": {\"run\": \"x\"},\n  \"a\": {\"run\": \"y\"}}}";
    insta::assert_snapshot!(compile(Source::Json(json.as_bytes())).unwrap_err(), @r#"
    4:3: tasks.a: `a` stands twice: in line 3 and again in line 4
      help: give one of the two another name, or leave it out
    "#);
}

#[test]
fn fields_that_do_not_exist_are_told_with_those_that_do() {
    insta::assert_snapshot!(told("name: w\ntask: {}\ntasks:\n  a:\n    run: x\n    depends_on: b\n    tiemout: 5s\n    if: x\n  b: {command: x}\n"), @r#"
    w.yaml:2:1: task: there is no such field
      help: did you mean `tasks`?
    w.yaml:6:5: tasks.a.depends_on: there is no such field
      help: did you mean `needs`?
    w.yaml:7:5: tasks.a.tiemout: there is no such field
      help: did you mean `timeout`?
    w.yaml:8:5: tasks.a.if: there is no such field
      help: did you mean `when`?
    w.yaml:9:3: tasks.b: what does it do? One of run, workflow, delay, approval, wait_for and switch is needed
    w.yaml:9:7: tasks.b.command: there is no such field
      help: did you mean `run: {process: …}`?
    "#);
}

#[test]
fn values_of_the_wrong_type_are_told_with_the_right_one() {
    insta::assert_snapshot!(told(
        "name: 5\ntimeout: 10\ninputs: {a: text, b: {type: list, default: x}, c: {default: 1}, d: []}\nepochs: x\ntasks:\n  \
         a: {run: {process: {command: [x, 5], env: {A: true}}}, retry: often, when: 1, needs: {b: c}}\n  \
         b:\n    run:\n      echo: {delay_ms: -5, fail: fatl}\n  c: text\n  d:\n"
    ), @r#"
    w.yaml:1:7: name: this is a number: a text is needed
      help: put it into quotes: "5"
    w.yaml:2:10: timeout: a duration needs a unit
      help: write `10s` for seconds, `10ms` for milliseconds
    w.yaml:3:13: inputs.a: `text` is none of: string, integer, number, boolean, list, object, any
    w.yaml:3:44: inputs.b.default: this is a text, but the input is a list
    w.yaml:3:51: inputs.c.type: which type has it?
      help: write one of: string, integer, number, boolean, list, object, any
    w.yaml:3:68: inputs.d: this is a list: a type, or an object with `type` and `default`, is needed
    w.yaml:4:9: epochs: this is a text: a list of names is needed
    w.yaml:6:36: tasks.a.run.process.command[1]: this is a number: a text is needed
      help: put it into quotes: "5"
    w.yaml:6:49: tasks.a.run.process.env.A: this is a boolean: a text is needed
      help: put it into quotes: "true"
    w.yaml:6:65: tasks.a.retry: this is a text: a number is needed
    w.yaml:6:78: tasks.a.when: this is a number: a condition like `${inputs.a == 1}` is needed
    w.yaml:6:88: tasks.a.needs: this is an object: a task, or a list of tasks, is needed
    w.yaml:9:24: tasks.b.run.echo.delay_ms: -5 is not possible: a whole number from 0 is
    w.yaml:9:34: tasks.b.run.echo.fail: `fatl` is none of: error, fatal
      help: did you mean `fatal`?
    w.yaml:10:6: tasks.c: this is a text: an object, like `{run: …}`, is needed
    w.yaml:11:4: tasks.d: nothing is given: an object, like `{run: …}`, is needed
      help: leave the field out, or give it a value
    "#);
}

#[test]
fn a_task_does_exactly_one_thing_and_says_what_goes_with_it() {
    insta::assert_snapshot!(told(
        "name: w\ntasks:\n  a: {}\n  b: {run: x, delay: 5s}\n  c: {delay: 5s, topic: t, retry: 3}\n  d: {approval: ok, compensation: x}\n  \
         e: {run: x, with: {}}\n  f: {switch: [{then: a}], for_each: [1]}\n  g: {run: x, concurrency: 3}\n  \
         h: {run: {echo: {}, process: {command: [x]}}}\n  i: {run: {ehco: {}}}\n  j: {run: {wasm: {}}}\n"
    ), @r#"
    w.yaml:3:3: tasks.a: what does it do? One of run, workflow, delay, approval, wait_for and switch is needed
    w.yaml:4:15: tasks.b: a task does one thing: `run` or `delay`
    w.yaml:5:18: tasks.c.topic: only a task with `run` has this
    w.yaml:5:28: tasks.c.retry: only a task with `run` has this
    w.yaml:6:35: tasks.d.compensation: only what a task with `run` or `workflow` has done can be undone
    w.yaml:7:15: tasks.e.with: only a task with `workflow` has this
    w.yaml:8:28: tasks.f.for_each: a switch decides once: it has no `for_each`
    w.yaml:9:28: tasks.g.concurrency: without `for_each` there is nothing to run at once
    w.yaml:10:12: tasks.h.run: exactly one of `process`, `echo` and `wasm` is needed
    w.yaml:11:13: tasks.i.run.ehco: there is no such field
      help: did you mean `echo`?
    w.yaml:12:13: tasks.j.run.wasm.component: which component? Name its blob
    "#);
}

#[test]
fn what_a_job_must_not_be_is_told_before_it_runs() {
    insta::assert_snapshot!(told(
        "name: w\ntasks:\n  a: {run: {process: {command: []}}}\n  b:\n    run: {echo: {}}\n    limits: {pids: 5}\n  \
         c: {run: x, retry: 5000}\n  d: {run: x, attempt_timeout: 0s}\n  e: {run: {wasm: {component: 'blob:1'}}}\n  \
         f: {run: x, inputs: {../a: 'blob:1'}}\n  g: {run: x, sandbox: stric, priority: high}\n  \
         h: {run: x, compensation: {run: x, priority: batch}}\n  i: {run: {process: {command: [x], function: f}}}\n"
    ), @r#"
    w.yaml:3:32: tasks.a.run.process.command: the command is empty: name at least a program
    w.yaml:5:10: tasks.b.limits: an echo job has no files and uses nothing: leave it out
    w.yaml:7:22: tasks.c.retry: 5000 is not possible: a whole number from 0 to 1000 is
    w.yaml:8:32: tasks.d.attempt_timeout: with 0 nothing could ever end in time
    w.yaml:9:31: tasks.e.run.wasm.component: `blob:1` is not of the form `blob:<64 lower-case hexadecimal digits>`
    w.yaml:10:23: tasks.f.inputs.../a: `blob:1` is not of the form `blob:<64 lower-case hexadecimal digits>`
    w.yaml:11:24: tasks.g.sandbox: `stric` is none of: strict, standard, none
      help: did you mean `strict`?
    w.yaml:11:41: tasks.g.priority: `high` is none of: critical, interactive, batch
    w.yaml:12:38: tasks.h.compensation.priority: a compensation is always critical: leave this out
    w.yaml:13:47: tasks.i.run.process.function: whose function? Name the `worker` as well
    "#);
}

#[test]
fn epochs_come_in_their_order() {
    insta::assert_snapshot!(told(
        "name: w\nepochs: [one, two, one]\ntasks:\n  a: {run: x, epoch: one, needs: b}\n  b: {run: x, epoch: two}\n  c: {run: x}\n  \
         d: {run: x, epoch: tow}\n  e: {run: 'x ${tasks.b.result}', epoch: one}\n"
    ), @r#"
    w.yaml:2:20: epochs[2]: there is an epoch `one` already
    w.yaml:4:34: tasks.a: it is in epoch `one` and needs `b`, which is in the later epoch `two`
    w.yaml:6:3: tasks.c.epoch: the workflow has epochs: which one is it in?
      help: one of: one, two, one
    w.yaml:7:22: tasks.d.epoch: there is no epoch `tow`
      help: did you mean `two`?
    w.yaml:8:3: tasks.e: it is in epoch `one` and needs `b`, which is in the later epoch `two`
    "#);
    insta::assert_snapshot!(told("name: w\ntasks: {a: {run: x, epoch: one}}"), @r#"
    w.yaml:2:28: tasks.a.epoch: there is no epoch `one`
      help: name the epochs in their order first: `epochs: [first, second]`
    "#);
}

#[test]
fn sub_workflows_get_what_they_ask_for() {
    insta::assert_snapshot!(told(
        "name: w\nworkflows:\n  child:\n    inputs: {count: integer, s: string}\n    tasks:\n      a: {run: x}\n      \
         b: {workflow: child}\ntasks:\n  a: {workflow: chidl}\n  c: {workflow: w}\n"
    ), @r#"
    w.yaml:7:21: workflows.child.tasks.b.workflow: `child` would start itself: there is no recursion
    w.yaml:9:17: tasks.a.workflow: there is no workflow `chidl` in this definition
      help: did you mean `child`?
    w.yaml:10:17: tasks.c.workflow: `w` would start itself: there is no recursion
    "#);
    insta::assert_snapshot!(told(
        "name: w\nworkflows:\n  child:\n    inputs: {count: integer, s: string}\n    tasks: {a: {run: x}}\ntasks:\n  \
         b:\n    workflow: child\n    with: {count: '5', coutn: 1}\n  c: {workflow: child, with: 5}\n  d: {workflow: child, with: '${[1]}'}\n"
    ), @r#"
    w.yaml:9:11: tasks.b.with.s: the workflow `child` needs this input
    w.yaml:9:19: tasks.b.with.count: this is a text, but the input is an integer
    w.yaml:9:24: tasks.b.with.coutn: the workflow `child` has no such input
      help: did you mean `count`?
    w.yaml:10:30: tasks.c.with: this is a number: an object of inputs is needed
    w.yaml:11:30: tasks.d.with: this comes to a list: an object is needed
    "#);
}

#[test]
fn switches_have_cases_in_a_sensible_order() {
    insta::assert_snapshot!(told(
        "name: w\ntasks:\n  a: {run: x}\n  b: {run: x}\n  s:\n    switch:\n      - then: a\n      - {when: '${1 == 1}', default: a}\n      \
         - {when: true}\n  t: {switch: []}\n  u: {switch: {then: a}}\n  v: {switch: [{then: b}]}\n  w: {switch: [{then: b}]}\n"
    ), @r#"
    w.yaml:7:9: tasks.s.switch[0].when: without `when` it always holds, and the cases after it never do: put it last
    w.yaml:8:16: tasks.s.switch[1].when: a default has no condition: write `then` instead of `default`
    w.yaml:9:9: tasks.s.switch[2].then: a case has `then`, or `default` if it is the last
    w.yaml:10:15: tasks.t.switch: a switch has 1 to 1000 cases, this one has 0
    w.yaml:11:15: tasks.u.switch: this is an object: a list of `{when: …, then: …}` is needed
    w.yaml:13:23: tasks.b: two switches choose it, `v` and `w`: one can
    "#);
}

#[test]
fn delays_approvals_and_signals_are_checked() {
    insta::assert_snapshot!(told(
        "name: w\ntasks:\n  a: {delay: 5}\n  b: {delay: {until: tomorrow}}\n  c: {delay: {}}\n  d: {approval: {}}\n  e: {wait_for: 'a b'}\n  \
         f: {wait_for: {}}\n  g: {delay: '${5}'}\n  h: {delay: 9999d}\n  i: {approval: [x]}\n"
    ), @r#"
    w.yaml:3:14: tasks.a.delay: a duration needs a unit
      help: write `5s` for seconds, `5ms` for milliseconds
    w.yaml:4:22: tasks.b.delay.until: this is no time: write it like `2026-01-31T12:00:00Z`
    w.yaml:5:14: tasks.c.delay.until: until when?
    w.yaml:6:17: tasks.d.approval.message: what is to be approved?
    w.yaml:7:17: tasks.e.wait_for: ` ` cannot be in a name: letters, digits, `-`, `_` and `.` can
    w.yaml:8:17: tasks.f.wait_for.signal: for which signal?
    w.yaml:9:14: tasks.g.delay: this comes to an integer: a text like `90s` is needed
    w.yaml:10:14: tasks.h.delay: it is longer than a year: at most 366d
    w.yaml:11:17: tasks.i.approval: this is a list: a text is needed
    "#);
}

#[test]
fn defaults_hold_for_all_tasks_and_so_refer_to_none() {
    insta::assert_snapshot!(told(
        "name: w\non_failure: fail\ndefaults: {on_failure: fail, topic: '${tasks.a.result}', run: x, labels: {a: 1}, outputs: [a]}\n\
         tasks: {a: {run: x}}\n"
    ), @r#"
    w.yaml:3:12: defaults.on_failure: it is said twice: leave out one of `on_failure` and `defaults.on_failure`
    w.yaml:3:37: defaults.topic: a default cannot refer to a task: all tasks would have to wait for it
    w.yaml:3:58: defaults.run: there is no such field
      help: there is: topic, priority, requires, labels, sandbox, limits, retry, timeout, attempt_timeout, on_failure
    w.yaml:3:78: defaults.labels.a: this is a number: a text is needed
      help: put it into quotes: "1"
    w.yaml:3:82: defaults.outputs: there is no such field
      help: there is: topic, priority, requires, labels, sandbox, limits, retry, timeout, attempt_timeout, on_failure
    "#);
}

#[test]
fn what_is_not_yaml_is_told_with_what_it_most_often_means() {
    insta::assert_snapshot!(told("name: w\ntasks:\n  a: {run: x, when: ${inputs.x}}\n"), @r#"
    w.yaml:3:22: this is not YAML: while parsing a flow mapping, did not find expected ',' or '}'
      help: put a text with `${…}` into quotes: inside `{…}` or `[…]`, and where it contains `: ` or ` #`, YAML does not take it for a text otherwise
    "#);
    insta::assert_snapshot!(told("name: w\ntasks:\n  a:\n    when: ${inputs.x ? true : false}\n"), @r#"
    w.yaml:4:29: this is not YAML: mapping values are not allowed in this context
      help: put a text with `${…}` into quotes: inside `{…}` or `[…]`, and where it contains `: ` or ` #`, YAML does not take it for a text otherwise
    "#);
    insta::assert_snapshot!(told("name: [w\n"), @"w.yaml:1:7: this is not YAML: unclosed bracket '['");
    insta::assert_snapshot!(told(""), @"w.yaml:1:1: there is nothing in it");
    insta::assert_snapshot!(told("- a\n- b\n"), @"w.yaml:1:1: this is a list: an object with `name` and `tasks` is needed");
    insta::assert_snapshot!(told("name: w\n---\nname: v\n"), @"w.yaml:2:1: a second document begins here: a definition is one");
    insta::assert_snapshot!(told("name: *nothing\n"), @"w.yaml:1:7: this is not YAML: while parsing node, found unknown anchor");
    insta::assert_snapshot!(told("name: &a [*a]\n"), @"w.yaml:1:11: an alias stands inside of what it names");
    insta::assert_snapshot!(told("name: !custom w\n"), @"w.yaml:1:15: the tag `!custom` means nothing here: leave it out");
    insta::assert_snapshot!(told("name: .inf\n"), @"w.yaml:1:7: `.inf` cannot be said in JSON: put it into quotes if it is a text");
    insta::assert_snapshot!(told("? [a]\n: b\n"), @"w.yaml:1:3: the name of a field must be a text, this is a list or an object");
}

#[test]
fn what_is_not_json_is_told_with_its_place() {
    let told = |json: &str| compile(Source::Json(json.as_bytes())).unwrap_err().display(Some("w.json")).to_string();
    insta::assert_snapshot!(told("{\"name\": \"w\",\n  \"tasks\": }"), @"w.json:2:12: this is not JSON: expected value");
    insta::assert_snapshot!(told("{\"name\": \"w\",\n\n  \"tasks\": {\"größe\": {\"run\": \"x\",  \"neds\": [\"a\"]}}}"), @r#"
    w.json:3:13: tasks.größe: `ö` cannot be in a name: letters, digits, `-`, `_` and `.` can
    w.json:3:36: tasks.größe.neds: there is no such field
      help: did you mean `needs`?
    "#);
    insta::assert_snapshot!(told("{} {}"), @"w.json:1:4: this is not JSON: trailing characters");
    insta::assert_snapshot!(compile(Source::Json(b"\"\xff\"")).unwrap_err(), @"the text is not UTF-8: byte 1 is not part of a character");
}

#[test]
fn versions_of_the_language_that_are_not_known_are_refused() {
    insta::assert_snapshot!(told("version: 2\nname: w\ntasks: {a: {run: x}}\n"), @r#"
    w.yaml:1:10: version: this version of the language is not known: there is version 1
      help: write `version: 1`, or leave it out
    "#);
}

#[test]
fn only_the_first_problems_are_told_and_the_rest_is_counted() {
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
