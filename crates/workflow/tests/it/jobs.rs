//! Rendering of jobs, delays and lists.

use std::collections::BTreeMap;

use model::spec::{JobSpec, Limits, Priority, Run, Sandbox};
use model::time::Millis;
use serde_json::{Value, json};
use workflow::plan::{JobTemplate, TaskWork};
use workflow::scope::JobContext;

use crate::support::{World, job_context, plan};

/// Job spec of the first task.
fn render(yaml: &str, world: &World) -> Result<JobSpec, String> {
    let plan = plan(&format!("name: w\ninputs: {{x: any, s: string, l: list}}\n{yaml}"));
    let TaskWork::Job(job) = &plan.tasks[0].work else { panic!("the task is not a job") };
    job.render(&world.scope(), &job_context()).map_err(|error| error.to_string())
}

fn process(spec: &JobSpec) -> (&[String], &BTreeMap<String, String>) {
    match &spec.run {
        Run::Process(process) => (&process.command, &process.env),
        Run::Echo(_) | Run::Wasm(_) => panic!("the job is not a process"),
    }
}

fn world() -> World {
    World::with_inputs(json!({"x": {"a": 1}, "s": "it's", "l": ["p", "q"]}))
}

#[test]
fn a_string_is_a_shell_command() {
    let spec = render("tasks: {a: {run: 'echo ${quote(inputs.s)}'}}", &world()).unwrap();
    assert_eq!(process(&spec).0, ["sh", "-c", r"echo 'it'\''s'"]);
}

#[test]
fn values_in_string_fields_are_converted() {
    let spec = render(
        "tasks: {a: {run: {process: {command: [x, '${inputs.x}', '${1 + 1}'], env: {A: '${true}'}, stdin: '${inputs.l}'}}, labels: {l: '${5}'}}}",
        &world(),
    )
    .unwrap();
    assert_eq!(process(&spec).0, ["x", r#"{"a":1}"#, "2"]);
    assert_eq!(process(&spec).1["A"], "true");
    assert_eq!(spec.labels["l"], "5");
}

#[test]
fn a_template_can_be_the_whole_command() {
    let spec = render("tasks: {a: {run: {process: {command: '${inputs.l}'}}}}", &world()).unwrap();
    assert_eq!(process(&spec).0, ["p", "q"]);
    let refused = render("tasks: {a: {run: {process: {command: '${inputs.x}'}}}}", &world()).unwrap_err();
    insta::assert_snapshot!(refused, @"run.process.command: invalid type: map, expected a sequence");
    let refused = render("tasks: {a: {run: {process: {command: '${[1] + inputs.l}'}}}}", &world()).unwrap_err();
    insta::assert_snapshot!(refused, @"run.process.command[0]: invalid type: integer `1`, expected a string");
}

#[test]
fn an_echo_value_keeps_its_types() {
    let spec = render(
        "tasks: {a: {run: {echo: {value: {v: '${inputs.x}', t: 'a ${inputs.s}', n: [1.50, '$${x}']}}}}}",
        &world(),
    );
    let Run::Echo(echo) = spec.unwrap().run else { panic!("the job is not an echo") };
    assert_eq!(echo.value.as_str(), r#"{"v":{"a":1},"t":"a it's","n":[1.5,"${x}"]}"#);
}

#[test]
fn item_and_index_are_available() {
    let world = World { item: Some((json!({"host": "h"}), 4)), ..world() };
    let spec = render("tasks: {a: {for_each: '${inputs.l}', run: 'ping ${item.host} ${index}'}}", &world).unwrap();
    assert_eq!(process(&spec).0[2], "ping h 4");
}

#[test]
fn variables_identify_the_task_without_overriding_the_user() {
    let spec = render("tasks: {a: {run: {process: {command: [x], env: {OUTLAST_TASK: mine}}}}}", &world()).unwrap();
    let env = process(&spec).1;
    assert_eq!(env["OUTLAST_TASK"], "mine");
    assert_eq!(env["OUTLAST_WORKFLOW"], job_context().workflow.to_string());
    assert_eq!(env["OUTLAST_IDEMPOTENCY_KEY"].len(), 32);
    assert!(!env.contains_key("OUTLAST_ITEM"));
}

#[test]
fn an_idempotency_key_identifies_one_job() {
    let plan = plan("{name: w, tasks: {a: {run: x}}}");
    let TaskWork::Job(job) = &plan.tasks[0].work else { panic!("the task is not a job") };
    let world = World::default();
    let key = |job_context: JobContext<'_>| {
        let spec = job.render(&world.scope(), &job_context).unwrap();
        process(&spec).1["OUTLAST_IDEMPOTENCY_KEY"].clone()
    };
    let others = [
        JobContext { task: "b", ..job_context() },
        JobContext { item: Some(0), ..job_context() },
        JobContext { item: Some(1), ..job_context() },
        JobContext { run: 1, ..job_context() },
        JobContext { compensation: true, ..job_context() },
        JobContext { workflow: model::id::WorkflowId(8), ..job_context() },
    ];
    let mut keys: Vec<String> = others.into_iter().map(key).chain([key(job_context())]).collect();
    assert_eq!(key(job_context()), key(job_context()));
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 7);
    assert_eq!(key(JobContext { tenant: "other", ..job_context() }), key(job_context()));
}

#[test]
fn fields_of_the_task_override_the_defaults() {
    let spec = render(
        "defaults: {topic: t, priority: batch, sandbox: strict, requires: [gpu], retry: 7, attempt_timeout: 2s, \
         labels: {a: '1', b: '1'}, limits: {pids: 5, cpu_ms: 6}}\n\
         tasks: {a: {run: x, topic: 'u-${inputs.l[0]}', labels: {b: '2', c: '2'}, limits: {pids: 8}, retry: 1}}",
        &world(),
    )
    .unwrap();
    assert_eq!((spec.topic.as_str(), spec.tenant.as_str()), ("u-p", "acme"));
    assert_eq!((spec.priority, spec.sandbox), (Priority::Batch, Some(Sandbox::Strict)));
    assert_eq!((spec.max_retries, spec.timeout_ms), (Some(1), Some(2_000)));
    assert_eq!(spec.requires, ["gpu"]);
    let labels: Vec<_> = spec.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(labels, [("a", "1"), ("b", "2"), ("c", "2")]);
    assert_eq!(spec.limits, Limits { pids: Some(8), cpu_ms: Some(6), ..Limits::default() });
}

#[test]
fn defaults_that_do_not_apply_to_the_executor_are_omitted() {
    let defaults = "defaults: {sandbox: none, limits: {pids: 5, fuel: 6, cpu_ms: 7}}\n";
    let echo = render(&format!("{defaults}tasks: {{a: {{run: {{echo: {{}}}}}}}}"), &world()).unwrap();
    assert_eq!(echo.limits, Limits::default());
    let process = render(&format!("{defaults}tasks: {{a: {{run: x}}}}"), &world()).unwrap();
    assert_eq!(process.limits, Limits { pids: Some(5), cpu_ms: Some(7), ..Limits::default() });
    let component = format!("blob:{}", "0".repeat(64));
    let wasm = render(&format!("{defaults}tasks: {{a: {{run: {{wasm: {{component: '{component}'}}}}}}}}"), &world());
    let wasm = wasm.unwrap();
    assert_eq!((wasm.limits.fuel, wasm.limits.pids, wasm.sandbox), (Some(6), None, None));
}

#[test]
fn an_invalid_rendered_job_is_reported_with_its_field() {
    let mut world = world();
    world.inputs["s"] = json!("x".repeat(200));
    insta::assert_snapshot!(render("tasks: {a: {run: x, topic: '${inputs.s}'}}", &world).unwrap_err(), @"topic: it has 200 bytes: at most 128");
    insta::assert_snapshot!(render("tasks: {a: {run: {process: {command: ['${inputs.x.q ?? \"\"}']}}}}", &world).unwrap_err(), @"run.process.command: the program's name is empty");
    insta::assert_snapshot!(render("tasks: {a: {run: x, priority: '${inputs.s}'}}", &world).unwrap_err().replace("xxxxx", ""), @"priority: unknown variant ``, expected one of `critical`, `interactive`, `batch`");
    insta::assert_snapshot!(render("tasks: {a: {run: x, inputs: {f: '${inputs.x}'}}}", &world).unwrap_err(), @r#"inputs.f: `{"a":1}` is not of the form `blob:<64 lower-case hexadecimal digits>`"#);
    insta::assert_snapshot!(render("tasks: {a: {run: x, limits: {pids: '${inputs.x.a / 2}'}}}", &world).unwrap_err(), @"limits.pids: invalid type: floating point `0.5`, expected u64");
}

fn compensation(yaml: &str, world: &World) -> JobSpec {
    let plan = plan(yaml);
    let job: &JobTemplate = plan.tasks[0].compensation.as_ref().unwrap();
    job.render(&world.scope(), &JobContext { compensation: true, ..job_context() }).unwrap()
}

#[test]
fn a_compensation_is_critical_and_labelled_and_reads_the_result() {
    let world = World { result: Some(json!({"id": 9})), ..World::default() };
    let yaml = "name: w\ndefaults: {priority: batch, topic: t, labels: {a: b}}\n\
                tasks: {a: {run: x, compensation: 'revert ${result.id}'}}";
    let spec = compensation(yaml, &world);
    assert_eq!(process(&spec).0[2], "revert 9");
    assert_eq!((spec.priority, spec.topic.as_str()), (Priority::Critical, "t"));
    assert_eq!(spec.labels["saga_compensation"], "true");
    assert_eq!(spec.labels["a"], "b");
    let spec =
        compensation("{name: w, tasks: {a: {run: x, compensation: {run: {echo: {value: 1}}, retry: 9}}}}", &world);
    assert_eq!(spec.max_retries, Some(9));
}

#[test]
fn retries_are_known_before_rendering() {
    let plan = plan("{name: w, defaults: {retry: 4}, tasks: {a: {run: x}, b: {run: x, retry: 0}}}");
    let retries = |task: usize| match &plan.tasks[task].work {
        TaskWork::Job(job) => job.retries(),
        _ => panic!("the task is not a job"),
    };
    assert_eq!((retries(0), retries(1)), (Some(4), Some(0)));
}

#[test]
fn a_list_is_a_template_or_a_literal() {
    let items = |list: &str| {
        let plan = plan(&format!("{{name: w, inputs: {{l: any}}, tasks: {{a: {{run: x, for_each: {list}}}}}}}"));
        let world = World::with_inputs(json!({"l": [1, {"a": 2}]}));
        plan.tasks[0].for_each.as_ref().unwrap().items(&world.scope()).map_err(|error| error.to_string())
    };
    assert_eq!(items("'${inputs.l}'").unwrap(), [json!(1), json!({"a": 2})]);
    assert_eq!(
        items("[x, '${inputs.l[0]}', {y: 'z${inputs.l[0]}'}]").unwrap(),
        [json!("x"), json!(1), json!({"y": "z1"})]
    );
    assert_eq!(items("[]").unwrap(), [] as [Value; 0]);
    insta::assert_snapshot!(items("'${inputs.l[1]}'").unwrap_err(), @"for_each: expected a list, but the template evaluates to an object");
}

#[test]
fn a_delay_is_a_duration_or_a_time() {
    let due = |delay: &str, given: &str| {
        let plan = plan(&format!("{{name: w, inputs: {{t: string}}, tasks: {{a: {{delay: {delay}}}}}}}"));
        let TaskWork::Delay(delay) = &plan.tasks[0].work else { panic!("the task is not a delay") };
        let world = World::with_inputs(json!({"t": given}));
        delay.due(&world.scope(), Millis(1_000_000)).map(|due| due.0).map_err(|error| error.to_string())
    };
    assert_eq!(due("1m30s", ""), Ok(1_090_000));
    assert_eq!(due("{until: '1970-01-01T00:00:05Z'}", ""), Ok(5_000));
    assert_eq!(due("'${inputs.t}'", "2s"), Ok(1_002_000));
    assert_eq!(due("'${inputs.t}'", "1970-01-01T01:00:00+01:00"), Ok(0));
    assert_eq!(due("{until: '${inputs.t}'}", "1970-01-01T00:00:07Z"), Ok(7_000));
    insta::assert_snapshot!(due("'${inputs.t}'", "soon").unwrap_err(), @"delay: `soon` is not a duration: write it like `90s`, `1h30m` or `250ms` (d, h, m, s, ms)");
    insta::assert_snapshot!(due("{until: '${inputs.t}'}", "5s").unwrap_err(), @"delay.until: `5s` is not a time: write it like `2026-01-31T12:00:00Z`");
}
