//! Life cycle of queues.

use crate::support::Server;

#[test]
fn a_queue_is_created_used_drained_and_deleted() {
    let server = Server::start();
    let queue =
        server.run(["queues", "create", "--tag", "nightly", "--max-running", "2", "--output", "json"]).expect(0).json();
    let (id, token) = (queue["id"].as_str().unwrap(), queue["token"].as_str().unwrap());
    assert_eq!(queue["max_running"], 2);
    server.run(["submit", "--wait", "--queue", token, "--echo", "1"]).expect(0);
    let page = server.run(["queues", "show", id]).expect(0).stdout;
    assert!(page.contains("tag          nightly\n") && page.contains("succeeded    1\n"), "{page}");
    let jobs = server.run(["jobs", "--queue", id, "--output", "json"]).expect(0).json();
    assert_eq!(jobs["items"].as_array().unwrap().len(), 1);
    assert!(server.run(["queues"]).expect(0).stdout.contains(id));
    server.run(["queues", "drain", "--wait", id]).expect(0);
    let refused = server.run(["submit", "--queue", id, "--echo", "1"]).expect(1);
    assert!(refused.stderr.starts_with("error: "), "{}", refused.stderr);
    server.run(["queues", "rm", id]).expect(0);
    server.run(["queues", "show", id]).expect(3);
}

#[test]
fn a_cancelled_queue_ends_its_jobs() {
    let server = Server::start();
    let queue = server.run(["queues", "create", "--output", "json", "--tag", "x"]).expect(0).json();
    let id = queue["id"].as_str().unwrap();
    for _ in 0..3 {
        server.run(["submit", "--queue", id, "--", "sleep", "60"]).expect(0);
    }
    let cancelled = server.run(["queues", "cancel", "--wait", "--output", "json", id]).expect(0).json();
    assert_eq!((&cancelled["counters"]["active"], &cancelled["counters"]["cancelled"]), (&0.into(), &3.into()));
}
