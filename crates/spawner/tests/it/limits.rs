//! Limits end the attempt that exceeds them, and nothing else.

use spawner::protocol::{ExitStatus, Limit, Profile};

use crate::support::{Fixture, exited, launch};

#[test]
fn the_cpu_limit_covers_all_processes_together() {
    let mut fixture = Fixture::new();
    let mut job = launch(Profile::Standard, "for i in 1 2 3 4; do (while :; do :; done) & done; wait");
    job.bounds.cpu_ms = Some(600);
    let (exit, ..) = fixture.run(job);
    assert_eq!(exit.status, ExitStatus::OverLimit { limit: Limit::Cpu });
    assert!(exit.cpu_us >= 600_000);
}

#[test]
fn memory_is_limited() {
    let mut fixture = Fixture::new();
    let mut job = launch(Profile::Standard, "exec dd if=/dev/zero of=/dev/null bs=300M count=1");
    let (exit, ..) = fixture.run(job.clone());
    assert_eq!(exited(&exit), 0);
    assert!(exit.memory_peak_bytes > 300 << 20);
    job.bounds.memory_bytes = Some(96 << 20);
    let (exit, _, err) = fixture.run(job);
    // Killed by its control group, or denied the allocation on hosts without one.
    let refused = exit.status == ExitStatus::Exited { code: 1 } && err.contains("memory exhausted");
    assert!(refused || exit.status == ExitStatus::OverLimit { limit: Limit::Memory }, "{exit:?} {err}");
}

#[test]
fn outputs_are_limited_individually_and_in_total() {
    let mut fixture = Fixture::new();
    fixture.scratch("a");
    let mut job = launch(Profile::Standard, "head -c 20m /dev/zero > outputs/x");
    job.scratch = Some("a".to_owned());
    job.bounds.output_bytes = Some(10 << 20);
    let (exit, ..) = fixture.run(job.clone());
    assert_ne!(exit.status, ExitStatus::Exited { code: 0 });
    job.command =
        launch(Profile::Standard, "for i in 1 2 3 4 5 6 7 8; do head -c 4m /dev/zero > outputs/$i; done; sleep 100")
            .command;
    let (exit, ..) = fixture.run(job);
    assert_eq!(exit.status, ExitStatus::OverLimit { limit: Limit::Output });
}

#[test]
fn open_files_are_limited() {
    let mut fixture = Fixture::new();
    let mut job = launch(Profile::Standard, "ulimit -n");
    job.bounds.open_files = Some(33);
    let (exit, out, _) = fixture.run(job);
    assert_eq!((exited(&exit), out.trim()), (0, "33"));
}

#[test]
fn a_job_at_its_process_limit_runs() {
    let mut fixture = Fixture::new();
    // The shell and two more.
    let mut job = launch(Profile::Standard, "sleep 0.1 & sleep 0.1 & wait; echo fine");
    job.bounds.processes = Some(3);
    let (exit, out, err) = fixture.run(job.clone());
    assert_eq!((exited(&exit), out.as_str()), (0, "fine\n"), "{err}");
    job.bounds.processes = Some(2);
    let (_, _, err) = fixture.run(job);
    assert!(err.to_lowercase().contains("fork"), "{err}");
}

#[test]
fn a_cpu_limit_enforced_by_the_kernel_is_reported_as_over_limit() {
    let mut fixture = Fixture::new();
    let mut job = launch(Profile::Standard, "exec sh -c 'while :; do :; done'");
    job.bounds.cpu_ms = Some(1000);
    let (exit, ..) = fixture.run(job);
    assert_eq!(exit.status, ExitStatus::OverLimit { limit: Limit::Cpu });
}

#[test]
fn outputs_nested_too_deeply_to_measure_exceed_the_limit() {
    let mut fixture = Fixture::new();
    fixture.scratch("deep");
    let name = "x".repeat(200);
    let script = format!("cd outputs; for i in $(seq 30); do mkdir {name} && cd -P {name} || exit 9; done; sleep 100");
    let mut job = launch(Profile::Standard, &script);
    job.scratch = Some("deep".to_owned());
    job.bounds.output_bytes = Some(1 << 30);
    let (exit, _, err) = fixture.run(job);
    assert_eq!(exit.status, ExitStatus::OverLimit { limit: Limit::Output }, "{err}");
}
