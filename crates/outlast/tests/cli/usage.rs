//! Exit codes and messages of failures.

use std::net::TcpListener;

use crate::support::{Server, run_alone};

#[test]
fn invalid_usage_is_2_and_122_with_wait() {
    for line in
        ["", "submit", "jobs --state nonsense", "submit --timeout 10 -- true", "submit --echo nonsense", "frobnicate"]
    {
        let ran = run_alone(line.split_whitespace()).expect(2);
        assert!(!ran.stderr.is_empty(), "{line}");
        assert_eq!(ran.stdout, "", "{line}");
    }
    run_alone(["submit", "--wait", "--bogus", "--", "true"]).expect(122);
    run_alone(["submit", "--wait", "--echo", "nonsense"]).expect(122);
    let ran = run_alone(["jobs", "--server", "https://example.org"]).expect(2);
    assert!(ran.stderr.contains("TLS"), "{}", ran.stderr);
}

#[test]
fn an_unreachable_server_is_4_with_a_hint_and_124_with_wait() {
    let free_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{free_port}");
    let ran = run_alone(["jobs", "--server", &url]).expect(4);
    assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("outlast up"), "{}", ran.stderr);
    assert!(ran.stderr.lines().count() <= 2, "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("Connection refused").count(), 1, "{}", ran.stderr);
    assert!(!ran.stderr.contains("tcp connect error"), "{}", ran.stderr);
    run_alone(["submit", "--wait", "--server", &url, "--", "true"]).expect(124);
    run_alone(["bench", "--server", &url]).expect(4);
}

#[test]
fn missing_resources_are_3() {
    let server = Server::start();
    let unknown = "job_0000000000001";
    for line in [
        format!("jobs show {unknown}"),
        format!("jobs cancel {unknown}"),
        format!("jobs rm {unknown}"),
        format!("jobs history {unknown}"),
        format!("logs {unknown}"),
        format!("logs -f {unknown}"),
        "jobs show nonsense".to_owned(),
        "queues show q_0000000000001".to_owned(),
        "queues show nonsense".to_owned(),
        "submit --queue q_0000000000001 -- true".to_owned(),
        "submit --file missing.json".to_owned(),
    ] {
        let ran = server.run(line.split(' ')).expect(3);
        assert!(ran.stderr.starts_with("error: "), "{line}: {}", ran.stderr);
    }
}

#[test]
fn a_server_passes_the_doctor_and_stops_cleanly() {
    let mut server = Server::start();
    let data = server.directory.path().join("data");
    let arguments = ["doctor", "--output", "json", "--data-dir", data.to_str().unwrap()];
    let ran = server.run(arguments);
    let checks = ran.json();
    let mark = |checks: &serde_json::Value, name: &str| {
        let checks = checks["checks"].as_array().unwrap().clone();
        checks.iter().find(|check| check["name"] == name).unwrap()["mark"].as_str().unwrap().to_owned()
    };
    for name in ["server", "ready", "version", "data directory"] {
        assert_eq!(mark(&checks, name), "good", "{checks}");
    }
    let in_use = server.run(arguments.into_iter().chain(["--verify"])).expect(1);
    assert_eq!(mark(&in_use.json(), "records"), "bad");
    assert!(in_use.stdout.contains("stop the server"), "{}", in_use.stdout);
    assert_eq!(server.stop(), Some(0));
    assert_eq!(mark(&server.run(arguments).expect(1).json(), "server"), "bad");
    let at_rest = server.run(arguments.into_iter().chain(["--verify"])).json();
    assert_eq!(mark(&at_rest, "server"), "skipped");
    assert_eq!(mark(&at_rest, "records"), "good");
}

#[test]
fn a_second_server_on_the_same_address_fails_with_a_hint() {
    let server = Server::start();
    let other = server.directory.path().join("other");
    let listen = server.url.trim_start_matches("http://");
    let ran = run_alone(["up", "--data-dir", other.to_str().unwrap(), "--listen", listen]).expect(1);
    assert!(ran.stderr.contains("--listen"), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("in use").count(), 1, "{}", ran.stderr);
    let open = ["up", "--data-dir", other.to_str().unwrap(), "--listen", "0.0.0.0:0"];
    assert!(run_alone(open).expect(2).stderr.contains("--insecure"));
}

#[test]
fn completions_are_printed() {
    assert!(run_alone(["completions", "bash"]).expect(0).stdout.contains("outlast"));
}
