use super::*;
use crate::blob::{BlobId, WorkerId};
use crate::spec::EchoRun;

fn process(command: &[&str]) -> JobSpec {
    let command = command.iter().map(|word| (*word).to_owned()).collect();
    JobSpec::new(Run::Process(ProcessRun { command, ..ProcessRun::default() }))
}

fn wasm() -> JobSpec {
    let component = BlobId::of(b"component");
    JobSpec::new(Run::Wasm(WasmRun { component, args: Vec::new(), env: BTreeMap::new(), stdin: String::new() }))
}

/// `true` with something changed.
fn with(change: impl FnOnce(&mut JobSpec)) -> JobSpec {
    let mut spec = process(&["true"]);
    change(&mut spec);
    spec
}

fn running(change: impl FnOnce(&mut ProcessRun)) -> JobSpec {
    let mut run = ProcessRun { command: vec!["true".to_owned()], ..ProcessRun::default() };
    change(&mut run);
    JobSpec::new(Run::Process(run))
}

#[track_caller]
fn refused(spec: &JobSpec, field: &str) {
    assert_eq!(spec.validate().map_err(|invalid| invalid.field), Err(field));
}

#[track_caller]
fn accepted(spec: &JobSpec) {
    assert_eq!(spec.validate(), Ok(()));
}

#[test]
fn names_are_accepted_up_to_their_limit() {
    let mut spec = process(&["true"]);
    spec.topic = "x".repeat(limits::NAME_BYTES_MAX);
    accepted(&spec);
    spec.topic.push('x');
    refused(&spec, "topic");
}

#[test]
fn durations_and_retries_have_limits() {
    let mut spec = process(&["true"]);
    spec.timeout_ms = Some(limits::DURATION_MAX.0);
    spec.max_retries = Some(limits::RETRIES_MAX);
    accepted(&spec);
    spec.timeout_ms = Some(limits::DURATION_MAX.0 + 1);
    refused(&spec, "timeout_ms");
    spec.timeout_ms = None;
    spec.max_retries = Some(limits::RETRIES_MAX + 1);
    refused(&spec, "max_retries");
}

#[test]
fn any_sandbox_is_valid_for_a_process_and_none_is_for_no_component() {
    for sandbox in [None, Some(Sandbox::Strict), Some(Sandbox::Standard), Some(Sandbox::None)] {
        accepted(&JobSpec { sandbox, ..process(&["true"]) });
        accepted(&JobSpec { sandbox, ..JobSpec::new(Run::Echo(EchoRun::default())) });
        let component = JobSpec { sandbox, ..wasm() };
        assert_eq!(component.validate().is_ok(), sandbox != Some(Sandbox::None));
    }
}

#[test]
fn a_command_names_a_program_unless_a_function_does() {
    refused(&process(&[]), "run.process.command");
    refused(&process(&[""]), "run.process.command");
    refused(&process(&["a", "b\0"]), "run.process.command");
    let worker = Some(WorkerId::of(b"bundle"));
    let function = Some("main".to_owned());
    accepted(&running(|run| (run.worker, run.function, run.command) = (worker, function.clone(), Vec::new())));
    accepted(&running(|run| (run.worker, run.function) = (worker, function.clone())));
    accepted(&running(|run| run.worker = worker));
    refused(&running(|run| (run.worker, run.command) = (worker, Vec::new())), "run.process.command");
    refused(&running(|run| run.function = function), "run.process.function");
    refused(&running(|run| (run.worker, run.function) = (worker, Some(String::new()))), "run.process.function");
}

#[test]
fn one_argument_is_shorter_than_the_kernels_longest() {
    let longest = "x".repeat(limits::ARGUMENT_BYTES_MAX);
    accepted(&process(&["echo", &longest]));
    refused(&process(&["echo", &format!("{longest}x")]), "run.process.command");
    let variable = |bytes: usize| running(|run| drop(run.env.insert("V".to_owned(), "x".repeat(bytes))));
    accepted(&variable(limits::ARGUMENT_BYTES_MAX - 2));
    refused(&variable(limits::ARGUMENT_BYTES_MAX - 1), "run.process.env");
}

#[test]
fn arguments_and_variables_have_a_limit_together() {
    // With its zero byte each takes a whole number of the limit's bytes.
    let part = limits::COMMAND_BYTES_MAX / 16;
    let word = |bytes: usize| "x".repeat(bytes - 1);
    let spec = |last: usize| {
        running(|run| {
            run.command = vec![word(part); 15];
            run.env.insert("V".to_owned(), "x".repeat(last - 3));
        })
    };
    accepted(&spec(part));
    refused(&spec(part + 1), "run.process.command");
    let mut component = wasm();
    let Run::Wasm(run) = &mut component.run else { panic!("a component") };
    run.args = vec![word(part); 17];
    refused(&component, "run.wasm.args");
}

#[test]
fn there_are_only_so_many_arguments_and_variables() {
    accepted(&running(|run| run.command = vec!["x".to_owned(); limits::COMMAND_ARGS_MAX]));
    refused(&running(|run| run.command = vec!["x".to_owned(); limits::COMMAND_ARGS_MAX + 1]), "run.process.command");
    let variables =
        |count: usize| running(|run| run.env = (0..count).map(|number| (number.to_string(), String::new())).collect());
    accepted(&variables(limits::ENV_VARS_MAX));
    refused(&variables(limits::ENV_VARS_MAX + 1), "run.process.env");
    refused(&running(|run| drop(run.env.insert("A=B".to_owned(), String::new()))), "run.process.env");
}

#[test]
fn inputs_stay_in_the_working_directory() {
    let input = |path: &str| with(|spec| spec.inputs = BTreeMap::from([(path.to_owned(), BlobId::of(b"x"))]));
    for path in ["a", "a/b.txt", "ä ö", r"back\slash", "..a", "a/...", "-"] {
        accepted(&input(path));
    }
    for path in ["", "/", "/etc/passwd", "..", "a/../b", "./a", "a/.", "a//b", "a/", "a\0b"] {
        refused(&input(path), "inputs");
    }
}

#[test]
fn paths_are_accepted_up_to_their_limits() {
    let input = |path: String| with(|spec| spec.inputs = BTreeMap::from([(path, BlobId::of(b"x"))]));
    accepted(&input("x".repeat(limits::PATH_COMPONENT_BYTES_MAX)));
    refused(&input("x".repeat(limits::PATH_COMPONENT_BYTES_MAX + 1)), "inputs");
    let long = format!("{}xx", "abc/".repeat(limits::PATH_BYTES_MAX / 4));
    accepted(&input(long[..limits::PATH_BYTES_MAX - 1].to_owned()));
    refused(&input(long[..limits::PATH_BYTES_MAX + 1].to_owned()), "inputs");
}

#[test]
fn an_input_cannot_be_a_file_and_a_directory() {
    // `a-b` sorts between the two.
    let spec = with(|spec| {
        for path in ["a", "a-b", "a/b/c"] {
            spec.inputs.insert(path.to_owned(), BlobId::of(b"x"));
        }
    });
    refused(&spec, "inputs");
    assert!(spec.validate().unwrap_err().message.contains("`a`"));
    accepted(&with(|spec| {
        for path in ["ab", "a/b", "a/c"] {
            spec.inputs.insert(path.to_owned(), BlobId::of(b"x"));
        }
    }));
}

#[test]
fn there_are_only_so_many_inputs_and_outputs() {
    let inputs = |count: usize| {
        with(|spec| spec.inputs = (0..count).map(|number| (number.to_string(), BlobId::of(b"x"))).collect())
    };
    accepted(&inputs(limits::INPUTS_MAX));
    refused(&inputs(limits::INPUTS_MAX + 1), "inputs");
    accepted(&with(|spec| spec.outputs = vec!["*".to_owned(); limits::OUTPUTS_MAX]));
    refused(&with(|spec| spec.outputs = vec!["*".to_owned(); limits::OUTPUTS_MAX + 1]), "outputs");
}

#[test]
fn outputs_stay_in_the_working_directory() {
    let output = |glob: &str| with(|spec| spec.outputs = vec![glob.to_owned()]);
    for glob in ["*", "**/*.txt", "out/{a,b}?", &"x".repeat(limits::PATH_BYTES_MAX)] {
        accepted(&output(glob));
    }
    for glob in ["", "/tmp/*", "../*", "a/../*", "a\0", "./*", "a/", &"x".repeat(limits::PATH_BYTES_MAX + 1)] {
        refused(&output(glob), "outputs");
    }
}

type Set = fn(&mut Limits, Option<u64>);

#[test]
fn limits_are_more_than_nothing_and_not_more_than_there_can_be() {
    let process_limits: [(&str, u64, Set); 5] = [
        ("limits.cpu_ms", limits::CPU_LIMIT_MS_MAX, |limits, value| limits.cpu_ms = value),
        ("limits.memory_bytes", limits::MEMORY_LIMIT_BYTES_MAX, |limits, value| limits.memory_bytes = value),
        ("limits.pids", limits::PIDS_LIMIT_MAX, |limits, value| limits.pids = value),
        ("limits.output_bytes", limits::OUTPUT_LIMIT_BYTES_MAX, |limits, value| limits.output_bytes = value),
        ("limits.open_files", limits::OPEN_FILES_LIMIT_MAX, |limits, value| limits.open_files = value),
    ];
    for (field, max, set) in process_limits {
        accepted(&with(|spec| set(&mut spec.limits, Some(max))));
        refused(&with(|spec| set(&mut spec.limits, Some(max + 1))), field);
        refused(&with(|spec| set(&mut spec.limits, Some(0))), field);
    }
    let fuel = |value| JobSpec { limits: Limits { fuel: Some(value), ..Limits::default() }, ..wasm() };
    accepted(&fuel(limits::FUEL_LIMIT_MAX));
    refused(&fuel(limits::FUEL_LIMIT_MAX + 1), "limits.fuel");
    refused(&fuel(0), "limits.fuel");
}

#[test]
fn a_limit_that_would_do_nothing_is_refused() {
    refused(&with(|spec| spec.limits.fuel = Some(1)), "limits.fuel");
    let component = |limits: Limits| JobSpec { limits, ..wasm() };
    refused(&component(Limits { pids: Some(1), ..Limits::default() }), "limits.pids");
    refused(&component(Limits { open_files: Some(1), ..Limits::default() }), "limits.open_files");
    accepted(&component(Limits { memory_bytes: Some(1), cpu_ms: Some(1), ..Limits::default() }));
    let echo = || JobSpec::new(Run::Echo(EchoRun::default()));
    refused(&JobSpec { inputs: BTreeMap::from([("a".to_owned(), BlobId::of(b"x"))]), ..echo() }, "inputs");
    refused(&JobSpec { outputs: vec!["*".to_owned()], ..echo() }, "outputs");
    refused(&JobSpec { limits: Limits { cpu_ms: Some(1), ..Limits::default() }, ..echo() }, "limits");
}

proptest::proptest! {
    /// What is accepted names something below the directory it is joined to.
    #[test]
    fn an_accepted_path_never_leads_out(path in "[a/.\\\\\0*]{0,12}") {
        if relative_path("inputs", &path).is_ok() {
            let joined = std::path::Path::new("/base").join(&path);
            proptest::prop_assert!(joined.starts_with("/base") && joined != std::path::Path::new("/base"));
            let plain = joined.components().all(|part| !matches!(part, std::path::Component::ParentDir));
            proptest::prop_assert!(plain);
        }
    }
}
