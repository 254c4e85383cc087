//! Compatibility of encodings: records of earlier versions are readable, and unchanged types encode to the same bytes.
//!
//! The bytes are from the version before inputs, limits, WebAssembly and artifacts. The encoding of a spec must not
//! change: idempotency compares specs by the digest of their bytes.

use std::collections::BTreeMap;

use model::codec;
use model::id::{Attempt, Incarnation, RunnerId};
use model::job::{End, Job, Outcome, Usage};
use model::json::Json;
use model::message::Capacity;
use model::spec::{EchoRun, JobSpec, Priority, ProcessRun, Run, Sandbox, decode_run, decode_task};
use model::state::State;
use model::time::Millis;

const PROCESS_SPEC: &str = "8c6764656661756c74f66764656661756c7402820081838264736f7274622d75a1644c414e47614364620a610a19ea60f6f6\
     f6a1647465616d6372656402616b";
const ECHO_SPEC: &str = "8a6764656661756c74f66764656661756c740182018182442268692205f6f6f6f6a0";
const OUTCOME: &str = "860000f6820c1910006466696e6545226f757422";
const RUNNING_JOB: &str = "01981a01020305010200040419ea60f6030000f4f458408c6764656661756c74f66764656661756c7402820081838264736f\
     7274622d75a1644c414e47614364620a610a19ea60f6f6f6a1647465616d6372656402616b50271e72b38bbb52e9a085aae3\
     5931d25350d07a239ddb8c0053e928eaff88b84d7f8482000482030a82040a82050a0081850107080a0900f6f680";
const DONE_JOB: &str = "01981a01020308010200040419ea60f6030000f4f458408c6764656661756c74f66764656661756c7402820081838264736f\
     7274622d75a1644c414e47614364620a610a19ea60f6f6f6a1647465616d6372656402616b50271e72b38bbb52e9a085aae3\
     5931d25350d07a239ddb8c0053e928eaff88b84d7f8582000482030a82040a82050a82080b00818b0107080a090b0000f682\
     0c1910006466696e6500f645226f75742280";
const CAPACITY: &str = "820203";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits")).collect()
}

fn process() -> JobSpec {
    let command = ["sort", "-u"].map(str::to_owned).to_vec();
    let env = BTreeMap::from([("LANG".to_owned(), "C".to_owned())]);
    let run = ProcessRun { command, env, stdin: "b\na\n".to_owned(), ..ProcessRun::default() };
    JobSpec {
        sandbox: Some(Sandbox::None),
        timeout_ms: Some(60_000),
        labels: BTreeMap::from([("team".to_owned(), "red".to_owned())]),
        priority: Priority::Batch,
        idempotency_key: Some("k".to_owned()),
        ..JobSpec::new(Run::Process(run))
    }
}

fn outcome() -> Outcome {
    Outcome {
        exit_code: Some(0),
        usage: Some(Usage { cpu: Millis(12), memory_peak_bytes: 4096 }),
        message: Some("fine".to_owned()),
        result: Some(Json::of(&"out")),
        ..Outcome::of(End::Succeeded)
    }
}

#[test]
fn specs_are_decoded_and_encoded_as_in_earlier_versions() {
    let echo = JobSpec::new(Run::Echo(EchoRun { value: Json::of(&"hi"), delay_ms: 5, fail: None }));
    for (old, spec) in [(PROCESS_SPEC, process()), (ECHO_SPEC, echo)] {
        let old = bytes(old);
        assert_eq!(codec::decode::<JobSpec>(&old).unwrap(), spec);
        assert_eq!(decode_run(&old).unwrap(), spec.run);
        let task = decode_task(&old).unwrap();
        assert_eq!((task.sandbox, task.timeout_ms), (spec.sandbox.unwrap_or_default(), spec.timeout_ms));
        assert_eq!(spec.pack().bytes, old);
    }
}

#[test]
fn outcomes_and_capacities_of_earlier_versions_are_decoded() {
    assert_eq!(codec::decode::<Outcome>(&bytes(OUTCOME)).unwrap(), outcome());
    let capacity: Capacity = codec::decode(&bytes(CAPACITY)).unwrap();
    assert_eq!(capacity, Capacity { process: 2, echo: 3, wasm: 0 });
}

#[test]
fn job_records_are_decoded_and_encoded_as_in_earlier_versions() {
    for (old, state, end) in [(RUNNING_JOB, State::Running, None), (DONE_JOB, State::Succeeded, Some(outcome()))] {
        let old = bytes(old);
        let job = Job::decode(&old).unwrap();
        assert_eq!((job.state, job.attempt, job.artifacts().len()), (state, Attempt(1), 0));
        assert_eq!(job.decode_spec().unwrap(), process());
        let attempt = job.last_attempt().unwrap();
        assert_eq!((attempt.runner, attempt.incarnation, attempt.log.as_deref()), (RunnerId(7), Incarnation(8), None));
        assert_eq!(attempt.usage.as_deref().copied(), end.and_then(|end| end.usage));
        let mut written = Vec::new();
        job.encode_into(&mut written);
        assert_eq!(written, old);
    }
}

/// An earlier version skips fields that it does not know.
#[test]
fn an_earlier_version_decodes_a_new_spec() {
    #[derive(minicbor::Decode)]
    struct Before {
        #[n(0)]
        topic: String,
        #[n(4)]
        run: Run,
        #[n(11)]
        idempotency_key: Option<String>,
    }
    let mut spec = process();
    spec.outputs = vec!["*".to_owned()];
    spec.limits.pids = Some(4);
    let read: Before = codec::decode(&spec.clone().pack().bytes).unwrap();
    assert_eq!((read.topic, read.run, read.idempotency_key), (spec.topic, spec.run, spec.idempotency_key));
}
