//! Life cycle of attempts, across servers and spawners.

use spawner::log::Stream;
use spawner::protocol::{AttemptKey, Command, ExitStatus, Launch, Profile};

use crate::support::{Fixture, exited, launch};

const PROFILES: [Profile; 3] = [Profile::Strict, Profile::Standard, Profile::None];

fn in_profile(fixture: &Fixture, profile: Profile, script: &str) -> Launch {
    let mut launch = launch(profile, script);
    if profile == Profile::None {
        fixture.scratch("none");
        launch.scratch = Some("none".to_owned());
        launch.bounds.processes = None;
    }
    launch
}

#[test]
fn every_profile_returns_output_exit_code_and_usage() {
    let mut fixture = Fixture::new();
    for profile in PROFILES {
        let job = in_profile(&fixture, profile, "echo out; echo err >&2; exit 3");
        let (exit, out, err) = fixture.run(job);
        assert_eq!((exited(&exit), out.as_str(), err.as_str()), (3, "out\n", "err\n"), "{profile:?}");
        assert!(exit.memory_peak_bytes > 0 && !exit.stopped);
    }
}

#[test]
fn a_program_reads_its_standard_input() {
    let mut fixture = Fixture::new();
    let key = fixture.start_with(launch(Profile::Standard, "cat"), b"hello");
    fixture.await_exit(key);
    assert_eq!(fixture.output(key, Stream::Stdout), "hello");
}

#[test]
fn a_missing_program_is_reported_as_exec_failed() {
    let mut fixture = Fixture::new();
    for profile in PROFILES {
        let mut job = in_profile(&fixture, profile, "");
        job.command = vec!["no-such-program".to_owned()];
        let (exit, ..) = fixture.run(job);
        assert_eq!(exit.status, ExitStatus::ExecFailed { errno: 2 }, "{profile:?}");
    }
}

#[test]
fn a_repeated_start_runs_once() {
    let mut fixture = Fixture::new();
    let key = AttemptKey { job: 900, attempt: 1 };
    let job = launch(Profile::Standard, "sleep 0.3; echo once");
    fixture.start_as(key, job.clone(), b"");
    // A second run would append to the same log file.
    let log = std::fs::OpenOptions::new().append(true).open(fixture.log_path(key)).unwrap();
    let input = spawner::memfd_with(b"").unwrap();
    let command = Command::Start { key, launch: Box::new(job) };
    let descriptors = [std::os::fd::AsFd::as_fd(&log), std::os::fd::AsFd::as_fd(&input)];
    fixture.claimed.channel.send(&command, &descriptors).unwrap();
    fixture.await_exit(key);
    assert_eq!(fixture.output(key, Stream::Stdout), "once\n");
}

#[test]
fn a_stop_sends_sigterm_and_kills_the_whole_tree_after_the_grace_period() {
    let mut fixture = Fixture::new();
    for profile in PROFILES {
        let script = "trap 'echo terminated' TERM; (trap '' TERM; setsid sleep 1000 & sleep 1000) & echo up; while :; do sleep 0.05; done";
        let job = in_profile(&fixture, profile, script);
        let key = fixture.start(job);
        fixture.await_output(key, "up");
        fixture.send(&Command::Stop { key, grace_ms: 300 });
        let exit = fixture.await_exit(key);
        assert!(exit.stopped, "{profile:?}");
        assert_eq!(exit.status, ExitStatus::Signalled { signal: 9 }, "{profile:?}");
        assert!(fixture.output(key, Stream::Stdout).contains("terminated"), "{profile:?}");
        assert!(fixture.sample().is_empty());
    }
}

#[test]
fn leftover_processes_of_a_program_are_killed() {
    let mut fixture = Fixture::new();
    for profile in PROFILES {
        let mark = format!("outlast-test-{}-{profile:?}", std::process::id());
        let script = format!("setsid sh -c 'exec -a {mark} sleep 1000' & setsid sleep 1000 & exit 0");
        let job = in_profile(&fixture, profile, &script);
        let (exit, ..) = fixture.run(job);
        assert_eq!(exited(&exit), 0);
        let left = std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line.starts_with(mark.as_bytes()))
        });
        assert!(!left, "{profile:?}");
    }
}

// FEATURES: C5
#[test]
fn running_attempts_are_sampled() {
    let mut fixture = Fixture::new();
    let key = fixture.start(launch(Profile::Standard, "echo up; while :; do :; done"));
    fixture.await_output(key, "up");
    let sampled = loop {
        let samples = fixture.sample();
        assert_eq!(samples[0].key, key);
        if samples[0].cpu_us > 0 {
            break samples[0];
        }
    };
    assert!(sampled.memory_bytes > 0);
    fixture.send(&Command::Stop { key, grace_ms: 0 });
    assert!(fixture.await_exit(key).cpu_us >= sampled.cpu_us);
}

#[test]
fn the_next_server_receives_running_and_ended_attempts() {
    let mut fixture = Fixture::new();
    let done = fixture.start(launch(Profile::Standard, "exit 7"));
    fixture.await_exit(done);
    let running = fixture.start(launch(Profile::Standard, "echo up; read line < /dev/null; sleep 0.5; echo later"));
    fixture.await_output(running, "up");
    fixture.replace_server();
    let in_flight = fixture.claimed.in_flight.clone();
    assert_eq!(in_flight.len(), 2);
    assert_eq!(exited(in_flight[0].exit.as_ref().unwrap()), 7);
    assert_eq!(in_flight[1].key, running);
    fixture.await_exit(running);
    assert_eq!(fixture.output(running, Stream::Stdout), "up\nlater\n");
    fixture.send(&Command::Forget { key: done });
    fixture.replace_server();
    assert_eq!(fixture.claimed.in_flight.len(), 1);
}

#[test]
fn attempts_die_with_their_spawner() {
    let mut fixture = Fixture::new();
    let mark = format!("outlast-test-orphan-{}", std::process::id());
    let alive = || {
        std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            std::fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| line.windows(mark.len()).any(|part| part == mark.as_bytes()))
        })
    };
    for profile in [Profile::Standard, Profile::None] {
        let mut job = in_profile(&fixture, profile, "");
        job.command = ["sh", "-c", "echo up; while :; do sleep 0.1; done", &mark].map(str::to_owned).to_vec();
        let key = fixture.start(job);
        fixture.await_output(key, "up");
    }
    assert!(alive());
    fixture.claimed.child.as_mut().unwrap().kill().unwrap();
    fixture.claimed.child.as_mut().unwrap().wait().unwrap();
    let deadline = std::time::Instant::now() + crate::support::TIMEOUT;
    while alive() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn an_unclaimed_spawner_stops_its_attempts_and_exits() {
    let mut fixture = Fixture::with(|options| options.unclaimed_timeout = std::time::Duration::from_millis(300));
    let key = fixture.start(launch(Profile::Standard, "echo up; sleep 1000"));
    fixture.await_output(key, "up");
    let mut child = fixture.claimed.child.take().unwrap();
    drop(fixture);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_program_can_open_dev_stdout_and_dev_stderr() {
    let mut fixture = Fixture::new();
    for profile in PROFILES {
        let job = in_profile(&fixture, profile, "echo one > /dev/stdout; echo two > /dev/stderr");
        let (exit, out, err) = fixture.run(job);
        assert_eq!((exited(&exit), out.as_str(), err.as_str()), (0, "one\n", "two\n"), "{profile:?}");
    }
}

#[test]
fn a_second_stop_can_only_shorten_the_grace_period() {
    let mut fixture = Fixture::new();
    let key = fixture.start(launch(Profile::Standard, "trap '' TERM; echo up; while :; do sleep 0.1; done"));
    fixture.await_output(key, "up");
    for grace_ms in [1_000_000, 0, 1_000_000] {
        fixture.send(&Command::Stop { key, grace_ms });
    }
    assert_eq!(fixture.await_exit(key).status, ExitStatus::Signalled { signal: 9 });
}
