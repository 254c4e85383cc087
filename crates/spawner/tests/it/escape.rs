//! Programs that try to escape the sandbox. Each try must fail and leave the host unharmed.

use std::io::Write;
use std::net::TcpListener;

use spawner::protocol::{ExitStatus, Launch, Profile};

use crate::support::{Fixture, exited, launch};

const SANDBOXES: [Profile; 2] = [Profile::Strict, Profile::Standard];

/// Runs a script that prints `got out` if it escapes, and `tried` at its end.
fn assert_contained(script: &str) {
    let mut fixture = Fixture::new();
    for profile in SANDBOXES {
        let (exit, out, err) = fixture.run(launch(profile, script));
        assert!(
            matches!(exit.status, ExitStatus::Exited { .. } | ExitStatus::Signalled { .. }),
            "{profile:?}: {exit:?}"
        );
        assert!(!out.contains("got out"), "{profile:?}: {out}\n{err}");
        assert!(out.contains("tried"), "{profile:?}: the script itself failed: {out}\n{err}");
    }
}

// FEATURES: C6
#[test]
fn the_hosts_secrets_are_not_visible() {
    assert_contained("cat /etc/shadow && echo got out; ls /home /srv /boot /mnt && echo got out; echo tried");
}

#[test]
fn the_data_directory_is_not_visible() {
    let mut fixture = Fixture::new();
    fixture.scratch("other");
    let secret = fixture.options.directories.scratch.join("other/inputs/secret");
    std::fs::write(&secret, "secret").unwrap();
    for profile in SANDBOXES {
        let script = format!(
            "cat {} && echo got out; ls /tmp/scratch /tmp/workers && echo got out; find / -name secret -not -path '/proc/*' 2>/dev/null | grep . && echo got out; echo tried",
            secret.display()
        );
        let (_, out, err) = fixture.run(launch(profile, &script));
        assert!(out.contains("tried") && !out.contains("got out"), "{out}\n{err}");
    }
}

#[test]
fn only_outputs_and_tmp_are_writable() {
    let mut fixture = Fixture::new();
    for profile in SANDBOXES {
        let named = format!("{profile:?}");
        for scratch in [None, Some(named.as_str())] {
            if let Some(name) = scratch {
                let path = fixture.scratch(name);
                std::fs::write(path.join("inputs/data"), "data").unwrap();
            }
            let script = "for d in / /usr /etc /job /job/inputs /job/worker /dev /proc /var /run /bin /lib; do \
                          echo x > $d/outlast-test 2>/dev/null && echo got out $d; done; \
                          echo x > inputs/data 2>/dev/null && [ -s inputs/data ] && echo got out; chmod 777 inputs/data 2>/dev/null && echo got out; \
                          echo x > outputs/y && echo x > /tmp/z && echo x > /dev/null && echo tried";
            let job = Launch { scratch: scratch.map(str::to_owned), ..launch(profile, script) };
            let (_, out, err) = fixture.run(job);
            assert!(out.contains("tried") && !out.contains("got out"), "{profile:?} {scratch:?}: {out}\n{err}");
        }
        let stored = fixture.options.directories.scratch.join(&named);
        assert_eq!(std::fs::read_to_string(stored.join("inputs/data")).unwrap(), "data");
        assert_eq!(std::fs::read_to_string(stored.join("outputs/y")).unwrap(), "x\n");
    }
}

#[test]
fn other_processes_can_be_neither_seen_nor_signalled() {
    let own = std::process::id();
    assert_contained(&format!(
        "kill -0 {own} 2>/dev/null && echo got out; [ $(ls -d /proc/[0-9]* | wc -l) -gt 8 ] && echo got out; kill -9 1; kill -9 -1; echo tried"
    ).replace("kill -9 -1; ", ""));
}

#[test]
fn the_servers_port_and_the_network_are_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    assert_contained(&format!(
        "bash -c 'echo > /dev/tcp/127.0.0.1/{port}' 2>/dev/null && echo got out; \
         bash -c 'echo > /dev/tcp/1.1.1.1/53' 2>/dev/null && echo got out; \
         [ $(grep -c : /proc/net/dev) -gt 1 ] && echo got out; echo tried"
    ));
}

#[test]
fn a_job_with_network_access_reaches_the_host() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut fixture = Fixture::new();
    let script = format!("bash -c 'echo > /dev/tcp/127.0.0.1/{port}' && echo reached");
    let job = Launch { network: true, ..launch(Profile::Standard, &script) };
    let (_, out, err) = fixture.run(job);
    assert_eq!(out, "reached\n", "{err}");
}

#[test]
fn namespaces_mounts_and_roots_cannot_be_changed() {
    assert_contained(
        "mount -t tmpfs none /tmp 2>/dev/null && echo got out; umount /proc 2>/dev/null && echo got out; \
         unshare -U true 2>/dev/null && echo got out; unshare -m true 2>/dev/null && echo got out; \
         chroot / true 2>/dev/null && echo got out; mount -o remount,rw / 2>/dev/null && echo got out; \
         nsenter -t 1 -m true 2>/dev/null && echo got out; echo tried",
    );
}

#[test]
fn no_capabilities_are_left() {
    let mut fixture = Fixture::new();
    for profile in SANDBOXES {
        let (_, out, err) =
            fixture.run(launch(profile, "cat /proc/self/status; id -u; mknod /tmp/d b 8 0 && echo got out"));
        for line in [
            "CapInh:\t0000000000000000",
            "CapPrm:\t0000000000000000",
            "CapEff:\t0000000000000000",
            "CapAmb:\t0000000000000000",
            "NoNewPrivs:\t1",
            "Seccomp:\t2",
        ] {
            assert!(out.contains(line), "{profile:?}: no {line:?} in {out}\n{err}");
        }
        assert!(out.ends_with("1000\n"), "{out}");
    }
}

/// Compiles a small C program, for system calls that no command makes. A missing compiler is an error, because skipped
/// checks would go unnoticed.
fn compile(fixture: &Fixture, name: &str, body: &str) {
    let worker = fixture.options.directories.workers.join(name);
    std::fs::create_dir_all(&worker).unwrap();
    let source = worker.join("main.c");
    let head = "#define _GNU_SOURCE\n#include <errno.h>\n#include <stdio.h>\n#include <string.h>\n#include <sched.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n#include <sys/ptrace.h>\n#include <sys/socket.h>\n#include <sys/ioctl.h>\n#include <sys/wait.h>\n#include <signal.h>\n#include <stddef.h>\n#include <sys/un.h>\n#define TRY(what, call) do { errno = 0; long r = (long)(call); if (r >= 0) printf(\"got out: %s\\n\", what); } while (0)\n";
    let mut file = std::fs::File::create(&source).unwrap();
    writeln!(file, "{head}int main(void) {{ {body} puts(\"tried\"); return 0; }}").unwrap();
    let status = std::process::Command::new("cc").arg("-o").arg(worker.join("main")).arg(&source).status().unwrap();
    assert!(status.success());
}

#[test]
fn dangerous_system_calls_fail() {
    let mut fixture = Fixture::new();
    compile(
        &fixture,
        "calls",
        r#"TRY("ptrace", ptrace(PTRACE_TRACEME, 0, 0, 0));
           TRY("module", syscall(SYS_finit_module, 0, "", 0));
           TRY("init_module", syscall(SYS_init_module, "", 0, ""));
           TRY("bpf", syscall(SYS_bpf, 0, 0, 0));
           TRY("perf", syscall(SYS_perf_event_open, 0, 0, 0, 0, 0));
           TRY("userfaultfd", syscall(SYS_userfaultfd, 0));
           TRY("io_uring", syscall(SYS_io_uring_setup, 1, 0));
           TRY("keyctl", syscall(SYS_keyctl, 0, 0, 0, 0, 0));
           TRY("clone newuser", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
           TRY("unshare", unshare(CLONE_NEWUSER));
           TRY("vsock", socket(40, SOCK_STREAM, 0));
           TRY("packet", socket(17, SOCK_RAW, 0));
           TRY("raw", socket(2, SOCK_RAW, 1));
           TRY("reboot", syscall(SYS_reboot, 0xfee1dead, 672274793, 0, 0));
           TRY("open_by_handle", syscall(SYS_open_by_handle_at, 0, 0, 0));
           TRY("mount api", syscall(SYS_fsopen, "tmpfs", 0));
           TRY("setns", setns(0, 0));"#,
    );
    for profile in SANDBOXES {
        fixture.scratch("c");
        let mut job = launch(profile, "worker/main");
        (job.scratch, job.worker) = (Some("c".to_owned()), Some("calls".to_owned()));
        let (_, out, err) = fixture.run(job);
        assert_eq!(out, "tried\n", "{profile:?}: {err}");
    }
}

#[test]
fn abstract_sockets_of_other_jobs_are_unreachable() {
    let mut fixture = Fixture::new();
    let address = r#"struct sockaddr_un a = {0}; a.sun_family = AF_UNIX; strcpy(a.sun_path + 1, "outlast-test");
                     int s = socket(AF_UNIX, SOCK_STREAM, 0); socklen_t l = offsetof(struct sockaddr_un, sun_path) + 13;"#;
    compile(
        &fixture,
        "listen",
        &format!("{address} bind(s, (void *)&a, l); listen(s, 1); puts(\"up\"); fflush(stdout); sleep(1000);"),
    );
    compile(&fixture, "reach", &format!("{address} TRY(\"connect\", connect(s, (void *)&a, l));"));
    fixture.scratch("l");
    fixture.scratch("r");
    let worker = |name: &str, scratch: &str| Launch {
        scratch: Some(scratch.to_owned()),
        worker: Some(name.to_owned()),
        ..launch(Profile::Standard, "exec worker/main")
    };
    let listening = fixture.start(worker("listen", "l"));
    fixture.await_output(listening, "up");
    let (_, out, err) = fixture.run(worker("reach", "r"));
    assert_eq!(out, "tried\n", "{err}");
}

#[test]
fn a_fork_bomb_does_not_affect_other_attempts() {
    let mut fixture = Fixture::new();
    for profile in SANDBOXES {
        let key = fixture.start(launch(profile, "bomb() { bomb | bomb & }; bomb; sleep 1000"));
        // The host still forks, and other attempts still run.
        let (exit, out, err) = fixture.run(launch(profile, "echo fine"));
        assert_eq!((exited(&exit), out.as_str()), (0, "fine\n"), "{err}");
        fixture.send(&spawner::protocol::Command::Stop { key, grace_ms: 0 });
        assert!(fixture.await_exit(key).stopped);
    }
}

#[test]
fn a_symbolic_link_in_outputs_stays_a_link() {
    let mut fixture = Fixture::new();
    let scratch = fixture.scratch("links");
    let mut job = launch(Profile::Standard, "ln -s /etc/shadow outputs/x && ln -s ../inputs outputs/up && echo tried");
    job.scratch = Some("links".to_owned());
    let (_, out, _) = fixture.run(job);
    assert_eq!(out, "tried\n");
    // Refusing it is the task of the artifact collection.
    assert!(std::fs::symlink_metadata(scratch.join("outputs/x")).unwrap().is_symlink());
}

#[test]
fn a_scratch_name_that_is_a_path_is_rejected() {
    let mut fixture = Fixture::new();
    for name in ["../x", "a/b", "..", ""] {
        let job = Launch { scratch: Some(name.to_owned()), ..launch(Profile::Standard, "true") };
        let (exit, ..) = fixture.run(job);
        assert!(matches!(exit.status, ExitStatus::SetupFailed { .. }), "{name}: {exit:?}");
    }
}
