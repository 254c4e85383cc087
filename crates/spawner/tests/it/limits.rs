//! Limits end an attempt, and nothing else.

use spawner::protocol::{Limit, Profile, Verdict};

use crate::fixture::{Fixture, exited, launch};

#[test]
fn processor_time_is_counted_over_all_processes() {
    let mut fixture = Fixture::new();
    let mut wanted = launch(Profile::Standard, "for i in 1 2 3 4; do (while :; do :; done) & done; wait");
    wanted.bounds.cpu_ms = Some(600);
    let (exit, ..) = fixture.run(wanted);
    assert_eq!(exit.verdict, Verdict::OverLimit { limit: Limit::Cpu });
    assert!(exit.cpu_us >= 600_000);
}

#[test]
fn memory_is_bounded() {
    let mut fixture = Fixture::new();
    let mut wanted = launch(Profile::Standard, "exec dd if=/dev/zero of=/dev/null bs=300M count=1");
    let (exit, ..) = fixture.run(wanted.clone());
    assert_eq!(exited(&exit), 0);
    assert!(exit.memory_peak_bytes > 300 << 20);
    wanted.bounds.memory_bytes = Some(96 << 20);
    let (exit, _, err) = fixture.run(wanted);
    // Killed by its group, or refused the memory where there is none.
    let refused = exit.verdict == Verdict::Exited { code: 1 } && err.contains("memory exhausted");
    assert!(refused || exit.verdict == Verdict::OverLimit { limit: Limit::Memory }, "{exit:?} {err}");
}

#[test]
fn outputs_are_bounded_each_and_together() {
    let mut fixture = Fixture::new();
    fixture.scratch("a");
    let mut wanted = launch(Profile::Standard, "head -c 20m /dev/zero > outputs/x");
    wanted.scratch = Some("a".to_owned());
    wanted.bounds.output_bytes = Some(10 << 20);
    let (exit, ..) = fixture.run(wanted.clone());
    assert_ne!(exit.verdict, Verdict::Exited { code: 0 });
    wanted.command =
        launch(Profile::Standard, "for i in 1 2 3 4 5 6 7 8; do head -c 4m /dev/zero > outputs/$i; done; sleep 100")
            .command;
    let (exit, ..) = fixture.run(wanted);
    assert_eq!(exit.verdict, Verdict::OverLimit { limit: Limit::Output });
}

#[test]
fn open_files_are_bounded() {
    let mut fixture = Fixture::new();
    let mut wanted = launch(Profile::Standard, "ulimit -n");
    wanted.bounds.open_files = Some(33);
    let (exit, out, _) = fixture.run(wanted);
    assert_eq!((exited(&exit), out.trim()), (0, "33"));
}

#[test]
fn a_job_at_its_limit_of_processes_runs() {
    let mut fixture = Fixture::new();
    // The shell and two more.
    let mut wanted = launch(Profile::Standard, "sleep 0.1 & sleep 0.1 & wait; echo fine");
    wanted.bounds.processes = Some(3);
    let (exit, out, err) = fixture.run(wanted.clone());
    assert_eq!((exited(&exit), out.as_str()), (0, "fine\n"), "{err}");
    wanted.bounds.processes = Some(2);
    let (_, _, err) = fixture.run(wanted);
    assert!(err.to_lowercase().contains("fork"), "{err}");
}

#[test]
fn a_limit_of_whole_seconds_is_told_as_such() {
    let mut fixture = Fixture::new();
    let mut wanted = launch(Profile::Standard, "exec sh -c 'while :; do :; done'");
    wanted.bounds.cpu_ms = Some(1000);
    let (exit, ..) = fixture.run(wanted);
    assert_eq!(exit.verdict, Verdict::OverLimit { limit: Limit::Cpu });
}

#[test]
fn outputs_that_cannot_be_looked_at_are_too_much() {
    let mut fixture = Fixture::new();
    fixture.scratch("deep");
    let name = "x".repeat(200);
    let script = format!("cd outputs; for i in $(seq 30); do mkdir {name} && cd -P {name} || exit 9; done; sleep 100");
    let mut wanted = launch(Profile::Standard, &script);
    wanted.scratch = Some("deep".to_owned());
    wanted.bounds.output_bytes = Some(1 << 30);
    let (exit, _, err) = fixture.run(wanted);
    assert_eq!(exit.verdict, Verdict::OverLimit { limit: Limit::Output }, "{err}");
}
