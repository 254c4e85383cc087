//! Job lists, logs and actions.

use std::io::{BufRead, BufReader};

use crate::support::{Server, finish};

#[test]
fn lists_have_no_colour_in_pipes_and_are_json_on_request() {
    let server = Server::start();
    let id = server.run(["submit", "--topic", "colours", "--", "sh", "-c", "echo 'a b'"]).expect(0).line().to_owned();
    server.wait_for_state(&id, &["succeeded"]);
    for arguments in [&["jobs"][..], &["jobs", "list"], &["jobs", "show", &id], &["jobs", "history", &id], &["queues"]]
    {
        let ran = server.run(arguments).expect(0);
        assert!(!ran.stdout.contains('\x1b') && !ran.stdout.is_empty(), "{ran:?}");
        assert_eq!(ran.stderr, "");
    }
    let table = server.run(["jobs", "--topic", "colours"]).expect(0).stdout;
    assert!(
        table.starts_with("ID  ") && table.contains(&id) && table.contains("sh -c 'echo '\\''a b'\\'''"),
        "{table}"
    );
    assert_eq!(server.run(["jobs", "--topic", "none"]).expect(0).stdout.lines().count(), 1);
    // A list that ends exactly at the limit is complete.
    assert_eq!(server.run(["jobs", "--limit", "1"]).expect(0).stderr, "");
    let page = server.run(["jobs", "list", "--state", "succeeded", "--output", "json"]).expect(0).json();
    assert_eq!(page["items"][0]["id"], id.as_str());
    let yaml = server.run(["jobs", "show", &id, "--output", "yaml"]).expect(0).stdout;
    assert!(yaml.contains(&format!("id: {id}\n")), "{yaml}");
}

#[test]
fn pages_are_concatenated() {
    let server = Server::start();
    let input = "{\"run\":{\"echo\":{\"value\":1}}}\n".repeat(700);
    server.run_with_input(&["submit", "--file", "-"], &input).expect(0);
    let count = |arguments: &[&str]| {
        let page = server.run(arguments.iter().chain(&["--output", "json"])).expect(0).json();
        (page["items"].as_array().unwrap().len(), page["next_cursor"].is_null())
    };
    assert_eq!(count(&["jobs", "--limit", "3"]), (3, false));
    assert_eq!(count(&["jobs", "--all"]), (700, true));
    assert_eq!(count(&["jobs", "--limit", "650"]).0, 650);
    let cut = server.run(["jobs", "--limit", "3"]).expect(0);
    assert!(cut.stderr.starts_with("more jobs exist"), "{}", cut.stderr);
    assert_eq!(server.run(["jobs", "--all"]).expect(0).stderr, "");
    assert_eq!(server.run(["jobs", "--limit", "3", "--output", "json"]).expect(0).stderr, "");
}

#[test]
fn logs_are_printed_whole_by_tail_and_followed() {
    let server = Server::start();
    let directory = server.directory.path().display().to_string();
    let script =
        format!("echo one; echo two; echo oops >&2; while [ ! -e {directory}/go ]; do sleep 0.02; done; echo three");
    let id = server.run(["submit", "--sandbox", "none", "--", "sh", "-c", &script]).expect(0).line().to_owned();
    let mut child = server.command(["logs", "-f", &id]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "one");
    assert_eq!(lines.next().unwrap().unwrap(), "two");
    std::fs::write(server.directory.path().join("go"), "").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "three");
    assert!(lines.next().is_none());
    finish(child).expect(0);
    assert_eq!(server.run(["logs", &id]).expect(0).stdout, "one\ntwo\nthree\n");
    assert_eq!(server.run(["logs", "--tail", "1", &id]).expect(0).stdout, "three\n");
    assert_eq!(server.run(["logs", "--stderr", &id]).expect(0).stdout, "oops\n");
}

#[test]
fn jobs_are_cancelled_retried_and_deleted() {
    let server = Server::start();
    let id = server.run(["submit", "--", "sleep", "60"]).expect(0).line().to_owned();
    server.wait_for_state(&id, &["running"]);
    let refused = server.run(["jobs", "rm", &id]).expect(1);
    assert!(refused.stderr.starts_with("error: "), "{}", refused.stderr);
    server.run(["jobs", "cancel", &id]).expect(0);
    server.wait_for_state(&id, &["cancelled"]);
    assert_eq!(server.run(["jobs", "rm", &id]).expect(0).line(), format!("{id} deleted"));
    server.run(["jobs", "show", &id]).expect(3);
    // A fatal failure does not use up the retries.
    let fatal = r#"{"run":{"echo":{"value":1,"fail":"fatal"}},"max_retries":1}"#;
    let failed = server.run_with_input(&["submit", "--file", "-"], fatal).expect(0).line().to_owned();
    server.wait_for_state(&failed, &["failed"]);
    let retried = server.run(["jobs", "retry", &failed, "--output", "json"]).expect(0).json();
    assert_eq!(retried["id"], failed.as_str());
    let job = server.wait_for_state(&failed, &["failed"]);
    assert_eq!(job["attempt"], 2, "{job}");
}

#[test]
fn a_failure_for_one_job_does_not_stop_the_others() {
    let server = Server::start();
    let submit = || server.run(["submit", "--delay", "1h", "true"]).expect(0).line().to_owned();
    let (first, last, unknown) = (submit(), submit(), "job_0000000000001");
    let ran = server.run(["jobs", "cancel", &first, "nonsense", unknown, &last]).expect(3);
    assert_eq!(ran.stdout.lines().count(), 2, "{ran:?}");
    assert!(ran.stdout.starts_with(&first) && ran.stdout.contains(&last), "{ran:?}");
    let errors: Vec<_> = ran.stderr.lines().collect();
    assert_eq!(errors.len(), 2, "{ran:?}");
    assert!(errors[0].contains("nonsense") && errors[1].contains(unknown), "{ran:?}");
    server.wait_for_state(&last, &["cancelled"]);
    let running = submit();
    let ran = server.run(["jobs", "rm", &running, &first, &last]).expect(1);
    assert_eq!(ran.stdout, format!("{first} deleted\n{last} deleted\n"));
    assert!(ran.stderr.contains(&running), "{ran:?}");
    server.run(["jobs", "retry", unknown, "nonsense"]).expect(3);
    server.run(["jobs", "retract", unknown, "nonsense"]).expect(3);
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let server = Server::start();
    let input = "{\"run\":{\"echo\":{\"value\":1}}}\n".repeat(2000);
    server.run_with_input(&["submit", "--file", "-"], &input).expect(0);
    let mut child = server.command(["jobs", "--all"]).spawn().unwrap();
    drop(child.stdout.take());
    let ran = finish(child).expect(0);
    assert_eq!(ran.stderr, "");
}
