use super::*;
use crate::blob::{BlobId, WorkerId};
use crate::spec::EchoRun;

fn process(command: &[&str]) -> JobSpec {
    let command = command.iter().map(|arg| (*arg).to_owned()).collect();
    JobSpec::new(Run::Process(ProcessRun { command, ..ProcessRun::default() }))
}

fn wasm() -> JobSpec {
    let component = BlobId::of(b"component");
    JobSpec::new(Run::Wasm(WasmRun { component, args: Vec::new(), env: BTreeMap::new(), stdin: String::new() }))
}

/// The command `true` with a modified spec.
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
fn rejected(spec: &JobSpec, field: &str) {
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
    rejected(&spec, "topic");
}

#[test]
fn durations_and_retries_have_limits() {
    let mut spec = process(&["true"]);
    spec.timeout_ms = Some(limits::DURATION_MAX.0);
    spec.max_retries = Some(limits::RETRIES_MAX);
    accepted(&spec);
    spec.timeout_ms = Some(limits::DURATION_MAX.0 + 1);
    rejected(&spec, "timeout_ms");
    spec.timeout_ms = None;
    spec.max_retries = Some(limits::RETRIES_MAX + 1);
    rejected(&spec, "max_retries");
}

#[test]
fn a_process_accepts_any_sandbox_and_a_component_rejects_none() {
    for sandbox in [None, Some(Sandbox::Strict), Some(Sandbox::Standard), Some(Sandbox::None)] {
        accepted(&JobSpec { sandbox, ..process(&["true"]) });
        accepted(&JobSpec { sandbox, ..JobSpec::new(Run::Echo(EchoRun::default())) });
        let component = JobSpec { sandbox, ..wasm() };
        assert_eq!(component.validate().is_ok(), sandbox != Some(Sandbox::None));
    }
}

#[test]
fn a_command_needs_a_program_unless_there_is_a_function() {
    rejected(&process(&[]), "run.process.command");
    rejected(&process(&[""]), "run.process.command");
    rejected(&process(&["a", "b\0"]), "run.process.command");
    let worker = Some(WorkerId::of(b"bundle"));
    let function = Some("main".to_owned());
    accepted(&running(|run| (run.worker, run.function, run.command) = (worker, function.clone(), Vec::new())));
    accepted(&running(|run| (run.worker, run.function) = (worker, function.clone())));
    accepted(&running(|run| run.worker = worker));
    rejected(&running(|run| (run.worker, run.command) = (worker, Vec::new())), "run.process.command");
    rejected(&running(|run| run.function = function), "run.process.function");
    rejected(&running(|run| (run.worker, run.function) = (worker, Some(String::new()))), "run.process.function");
}

#[test]
fn one_argument_is_accepted_up_to_the_kernels_limit() {
    let longest = "x".repeat(limits::ARGUMENT_BYTES_MAX);
    accepted(&process(&["echo", &longest]));
    rejected(&process(&["echo", &format!("{longest}x")]), "run.process.command");
    let variable = |bytes: usize| running(|run| drop(run.env.insert("V".to_owned(), "x".repeat(bytes))));
    accepted(&variable(limits::ARGUMENT_BYTES_MAX - 2));
    rejected(&variable(limits::ARGUMENT_BYTES_MAX - 1), "run.process.env");
}

#[test]
fn arguments_and_variables_have_a_total_limit() {
    // Each argument, with its zero byte, takes exactly 1/16 of the limit.
    let part = limits::COMMAND_BYTES_MAX / 16;
    let argument = |bytes: usize| "x".repeat(bytes - 1);
    let spec = |last: usize| {
        running(|run| {
            run.command = vec![argument(part); 15];
            run.env.insert("V".to_owned(), "x".repeat(last - 3));
        })
    };
    accepted(&spec(part));
    rejected(&spec(part + 1), "run.process.command");
    let mut component = wasm();
    let Run::Wasm(run) = &mut component.run else { panic!("a component") };
    run.args = vec![argument(part); 17];
    rejected(&component, "run.wasm.args");
}

#[test]
fn arguments_and_variables_have_a_maximum_number() {
    accepted(&running(|run| run.command = vec!["x".to_owned(); limits::COMMAND_ARGS_MAX]));
    rejected(&running(|run| run.command = vec!["x".to_owned(); limits::COMMAND_ARGS_MAX + 1]), "run.process.command");
    let variables =
        |count: usize| running(|run| run.env = (0..count).map(|number| (number.to_string(), String::new())).collect());
    accepted(&variables(limits::ENV_VARS_MAX));
    rejected(&variables(limits::ENV_VARS_MAX + 1), "run.process.env");
    rejected(&running(|run| drop(run.env.insert("A=B".to_owned(), String::new()))), "run.process.env");
}

#[test]
fn inputs_stay_in_their_directory() {
    let input = |path: &str| with(|spec| spec.inputs = BTreeMap::from([(path.to_owned(), BlobId::of(b"x"))]));
    for path in ["a", "a/b.txt", "ä ö", r"back\slash", "..a", "a/...", "-"] {
        accepted(&input(path));
    }
    for path in ["", "/", "/etc/passwd", "..", "a/../b", "./a", "a/.", "a//b", "a/", "a\0b"] {
        rejected(&input(path), "inputs");
    }
}

#[test]
fn paths_are_accepted_up_to_their_limits() {
    let input = |path: String| with(|spec| spec.inputs = BTreeMap::from([(path, BlobId::of(b"x"))]));
    accepted(&input("x".repeat(limits::PATH_COMPONENT_BYTES_MAX)));
    rejected(&input("x".repeat(limits::PATH_COMPONENT_BYTES_MAX + 1)), "inputs");
    let long = format!("{}xx", "abc/".repeat(limits::PATH_BYTES_MAX / 4));
    accepted(&input(long[..limits::PATH_BYTES_MAX - 1].to_owned()));
    rejected(&input(long[..limits::PATH_BYTES_MAX + 1].to_owned()), "inputs");
}

#[test]
fn an_input_cannot_be_a_file_and_a_directory() {
    // `a-b` sorts between `a` and `a/b/c`.
    let spec = with(|spec| {
        for path in ["a", "a-b", "a/b/c"] {
            spec.inputs.insert(path.to_owned(), BlobId::of(b"x"));
        }
    });
    rejected(&spec, "inputs");
    assert!(spec.validate().unwrap_err().message.contains("`a`"));
    accepted(&with(|spec| {
        for path in ["ab", "a/b", "a/c"] {
            spec.inputs.insert(path.to_owned(), BlobId::of(b"x"));
        }
    }));
}

#[test]
fn inputs_and_outputs_have_a_maximum_number() {
    let inputs = |count: usize| {
        with(|spec| spec.inputs = (0..count).map(|number| (number.to_string(), BlobId::of(b"x"))).collect())
    };
    accepted(&inputs(limits::INPUTS_MAX));
    rejected(&inputs(limits::INPUTS_MAX + 1), "inputs");
    accepted(&with(|spec| spec.outputs = vec!["*".to_owned(); limits::OUTPUTS_MAX]));
    rejected(&with(|spec| spec.outputs = vec!["*".to_owned(); limits::OUTPUTS_MAX + 1]), "outputs");
}

#[test]
fn outputs_stay_in_their_directory() {
    let output = |glob: &str| with(|spec| spec.outputs = vec![glob.to_owned()]);
    for glob in ["*", "**/*.txt", "out/{a,b}?", &"x".repeat(limits::PATH_BYTES_MAX)] {
        accepted(&output(glob));
    }
    for glob in ["", "/tmp/*", "../*", "a/../*", "a\0", "./*", "a/", &"x".repeat(limits::PATH_BYTES_MAX + 1)] {
        rejected(&output(glob), "outputs");
    }
}

type Set = fn(&mut Limits, Option<u64>);

#[test]
fn limits_are_accepted_from_one_to_their_maximum() {
    let process_limits: [(&str, u64, Set); 5] = [
        ("limits.cpu_ms", limits::CPU_LIMIT_MS_MAX, |limits, value| limits.cpu_ms = value),
        ("limits.memory_bytes", limits::MEMORY_LIMIT_BYTES_MAX, |limits, value| limits.memory_bytes = value),
        ("limits.pids", limits::PIDS_LIMIT_MAX, |limits, value| limits.pids = value),
        ("limits.output_bytes", limits::OUTPUT_LIMIT_BYTES_MAX, |limits, value| limits.output_bytes = value),
        ("limits.open_files", limits::OPEN_FILES_LIMIT_MAX, |limits, value| limits.open_files = value),
    ];
    for (field, max, set) in process_limits {
        accepted(&with(|spec| set(&mut spec.limits, Some(max))));
        rejected(&with(|spec| set(&mut spec.limits, Some(max + 1))), field);
        rejected(&with(|spec| set(&mut spec.limits, Some(0))), field);
    }
    let fuel = |value| JobSpec { limits: Limits { fuel: Some(value), ..Limits::default() }, ..wasm() };
    accepted(&fuel(limits::FUEL_LIMIT_MAX));
    rejected(&fuel(limits::FUEL_LIMIT_MAX + 1), "limits.fuel");
    rejected(&fuel(0), "limits.fuel");
}

#[test]
fn a_limit_without_effect_is_rejected() {
    rejected(&with(|spec| spec.limits.fuel = Some(1)), "limits.fuel");
    let component = |limits: Limits| JobSpec { limits, ..wasm() };
    rejected(&component(Limits { pids: Some(1), ..Limits::default() }), "limits.pids");
    rejected(&component(Limits { open_files: Some(1), ..Limits::default() }), "limits.open_files");
    accepted(&component(Limits { memory_bytes: Some(1), cpu_ms: Some(1), ..Limits::default() }));
    let echo = || JobSpec::new(Run::Echo(EchoRun::default()));
    rejected(&JobSpec { inputs: BTreeMap::from([("a".to_owned(), BlobId::of(b"x"))]), ..echo() }, "inputs");
    rejected(&JobSpec { outputs: vec!["*".to_owned()], ..echo() }, "outputs");
    rejected(&JobSpec { limits: Limits { cpu_ms: Some(1), ..Limits::default() }, ..echo() }, "limits");
}

proptest::proptest! {
    /// An accepted path stays below the directory it is joined to.
    #[test]
    fn an_accepted_path_stays_in_its_directory(path in "[a/.\\\\\0*]{0,12}") {
        if relative_path("inputs", &path).is_ok() {
            let joined = std::path::Path::new("/base").join(&path);
            proptest::prop_assert!(joined.starts_with("/base") && joined != std::path::Path::new("/base"));
            let plain = joined.components().all(|part| !matches!(part, std::path::Component::ParentDir));
            proptest::prop_assert!(plain);
        }
    }
}
