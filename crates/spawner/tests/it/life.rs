//! From a start to an end, across servers and spawners.

use spawner::log::Stream;
use spawner::protocol::{Key, Launch, Order, Profile, Verdict};

use crate::fixture::{Fixture, exited, launch};

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
fn output_exit_code_and_use_come_back_in_every_profile() {
    let mut fixture = Fixture::new();
    for profile in PROFILES {
        let wanted = in_profile(&fixture, profile, "echo out; echo err >&2; exit 3");
        let (exit, out, err) = fixture.run(wanted);
        assert_eq!((exited(&exit), out.as_str(), err.as_str()), (3, "out\n", "err\n"), "{profile:?}");
        assert!(exit.memory_peak_bytes > 0 && !exit.stopped);
    }
}

#[test]
fn a_program_reads_its_input() {
    let mut fixture = Fixture::new();
    let key = fixture.start_with(launch(Profile::Standard, "cat"), b"hello");
    fixture.await_exit(key);
    assert_eq!(fixture.output(key, Stream::Stdout), "hello");
}

#[test]
fn a_program_that_is_not_there_is_told_from_one_that_fails() {
    let mut fixture = Fixture::new();
    for profile in PROFILES {
        let mut wanted = in_profile(&fixture, profile, "");
        wanted.command = vec!["no-such-program".to_owned()];
        let (exit, ..) = fixture.run(wanted);
        assert_eq!(exit.verdict, Verdict::NoProgram { errno: 2 }, "{profile:?}");
    }
}

#[test]
fn a_start_said_twice_starts_once() {
    let mut fixture = Fixture::new();
    let key = Key { job: 900, attempt: 1 };
    let wanted = launch(Profile::Standard, "sleep 0.3; echo once");
    fixture.start_as(key, wanted.clone(), b"");
    // A second one would write to another file of the same name.
    let log = std::fs::OpenOptions::new().append(true).open(fixture.log_path(key)).unwrap();
    let input = spawner::file_with(b"").unwrap();
    let order = Order::Start { key, launch: Box::new(wanted) };
    let descriptors = [std::os::fd::AsFd::as_fd(&log), std::os::fd::AsFd::as_fd(&input)];
    fixture.claimed.channel.send(&order, &descriptors).unwrap();
    fixture.await_exit(key);
    assert_eq!(fixture.output(key, Stream::Stdout), "once\n");
}

#[test]
fn a_stop_asks_first_and_then_ends_the_whole_tree() {
    let mut fixture = Fixture::new();
    for profile in PROFILES {
        let script = "trap 'echo asked' TERM; (trap '' TERM; setsid sleep 1000 & sleep 1000) & echo up; while :; do sleep 0.05; done";
        let wanted = in_profile(&fixture, profile, script);
        let key = fixture.start(wanted);
        fixture.await_output(key, "up");
        fixture.order(&Order::Stop { key, grace_ms: 300 });
        let exit = fixture.await_exit(key);
        assert!(exit.stopped, "{profile:?}");
        assert_eq!(exit.verdict, Verdict::Signalled { signal: 9 }, "{profile:?}");
        assert!(fixture.output(key, Stream::Stdout).contains("asked"), "{profile:?}");
        assert!(fixture.sample().is_empty());
    }
}

#[test]
fn what_a_program_leaves_behind_ends_with_it() {
    let mut fixture = Fixture::new();
    for profile in PROFILES {
        let mark = format!("outlast-test-{}-{profile:?}", std::process::id());
        let script = format!("setsid sh -c 'exec -a {mark} sleep 1000' & setsid sleep 1000 & exit 0");
        let wanted = in_profile(&fixture, profile, &script);
        let (exit, ..) = fixture.run(wanted);
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
    fixture.order(&Order::Stop { key, grace_ms: 0 });
    assert!(fixture.await_exit(key).cpu_us >= sampled.cpu_us);
}

#[test]
fn the_next_server_finds_what_runs_and_what_has_ended() {
    let mut fixture = Fixture::new();
    let done = fixture.start(launch(Profile::Standard, "exit 7"));
    fixture.await_exit(done);
    let running = fixture.start(launch(Profile::Standard, "echo up; read line < /dev/null; sleep 0.5; echo later"));
    fixture.await_output(running, "up");
    fixture.replace_server();
    let holding = fixture.claimed.holding.clone();
    assert_eq!(holding.len(), 2);
    assert_eq!(exited(holding[0].exit.as_ref().unwrap()), 7);
    assert_eq!(holding[1].key, running);
    fixture.await_exit(running);
    assert_eq!(fixture.output(running, Stream::Stdout), "up\nlater\n");
    fixture.order(&Order::Forget { key: done });
    fixture.replace_server();
    assert_eq!(fixture.claimed.holding.len(), 1);
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
        let mut wanted = in_profile(&fixture, profile, "");
        wanted.command = ["sh", "-c", "echo up; while :; do sleep 0.1; done", &mark].map(str::to_owned).to_vec();
        let key = fixture.start(wanted);
        fixture.await_output(key, "up");
    }
    assert!(alive());
    fixture.claimed.child.as_mut().unwrap().kill().unwrap();
    fixture.claimed.child.as_mut().unwrap().wait().unwrap();
    let until = std::time::Instant::now() + crate::fixture::PATIENCE;
    while alive() {
        assert!(std::time::Instant::now() < until);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn a_spawner_that_nobody_claims_ends_its_attempts_and_itself() {
    let mut fixture = Fixture::with(|options| options.unclaimed = std::time::Duration::from_millis(300));
    let key = fixture.start(launch(Profile::Standard, "echo up; sleep 1000"));
    fixture.await_output(key, "up");
    let mut child = fixture.claimed.child.take().unwrap();
    drop(fixture);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_program_may_open_its_own_output_by_name() {
    let mut fixture = Fixture::new();
    for profile in PROFILES {
        let wanted = in_profile(&fixture, profile, "echo one > /dev/stdout; echo two > /dev/stderr");
        let (exit, out, err) = fixture.run(wanted);
        assert_eq!((exited(&exit), out.as_str(), err.as_str()), (0, "one\n", "two\n"), "{profile:?}");
    }
}

#[test]
fn a_second_stop_can_only_be_quicker() {
    let mut fixture = Fixture::new();
    let key = fixture.start(launch(Profile::Standard, "trap '' TERM; echo up; while :; do sleep 0.1; done"));
    fixture.await_output(key, "up");
    for grace_ms in [1_000_000, 0, 1_000_000] {
        fixture.order(&Order::Stop { key, grace_ms });
    }
    assert_eq!(fixture.await_exit(key).verdict, Verdict::Signalled { signal: 9 });
}
