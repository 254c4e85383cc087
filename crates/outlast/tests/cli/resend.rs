//! Requests in flight survive a restart of the server, and none is executed twice.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use client::Client;
use client::jobs::{Filter, JobList};
use model::id::JobId;
use model::spec::{JobSpec, ProcessRun, Run, Sandbox};
use model::state::State;

use crate::cutting_proxy::CuttingProxy;
use crate::support::{Server, finish, run_alone};

const TIMEOUT: Duration = Duration::from_secs(60);
const SUBMITTERS: usize = 4;
const KILLS: usize = 6;

fn free_url() -> String {
    format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn shell(script: String) -> JobSpec {
    let command = vec!["sh".to_owned(), "-c".to_owned(), script];
    let run = Run::Process(ProcessRun { command, ..ProcessRun::default() });
    JobSpec { sandbox: Some(Sandbox::None), ..JobSpec::new(run) }
}

/// The jobs of a submitter: finished ones with the file each of them writes a line to, and cancelled ones.
#[derive(Default)]
struct Submitted {
    writers: Vec<(JobId, PathBuf)>,
    cancelled: Vec<JobId>,
}

/// Submits jobs without idempotency keys and cancels some. Every request must succeed.
async fn submit_until(
    client: Client,
    directory: PathBuf,
    name: usize,
    count: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) -> Submitted {
    let mut submitted = Submitted::default();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let file = directory.join(format!("{name}-{number}"));
        let accepted = client.submit(&shell(format!("echo ran >> {}", file.display()))).await.unwrap();
        assert!(!accepted.deduplicated);
        submitted.writers.push((accepted.id, file));
        let endless = client.submit(&shell("sleep 1000".to_owned())).await.unwrap();
        client.cancel(endless.id).await.unwrap();
        submitted.cancelled.push(endless.id);
        count.fetch_add(1, Ordering::Relaxed);
    }
    submitted
}

/// All jobs, once they have ended.
async fn ended_jobs(client: &Client) -> Vec<(JobId, State)> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let mut jobs = Vec::new();
        let mut filter = Filter { limit: Some(1000), ..Filter::default() };
        loop {
            let page = client.jobs(JobList::All, &filter).await.unwrap();
            jobs.extend(page.items.into_iter().map(|job| (job.id, job.state)));
            filter.cursor = page.next_cursor;
            if filter.cursor.is_none() {
                break;
            }
        }
        if jobs.iter().all(|(_, state)| state.is_terminal()) {
            return jobs;
        }
        assert!(Instant::now() < deadline, "{jobs:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

// FEATURES: A14
#[test]
fn submits_and_cancels_survive_sigkill_and_are_executed_once() {
    let mut server = Server::start();
    let client = Client::new(&format!("{},{}", free_url(), server.url)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (count, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let start = |name| {
        let (client, directory) = (client.clone(), directory.path().to_owned());
        runtime.spawn(submit_until(client, directory, name, count.clone(), stop.clone()))
    };
    let submitters: Vec<_> = (0..SUBMITTERS).map(start).collect();
    for _ in 0..KILLS {
        let before = count.load(Ordering::Relaxed);
        wait_until("the clients go on", || count.load(Ordering::Relaxed) >= before + SUBMITTERS);
        server.kill_and_restart();
    }
    stop.store(true, Ordering::Relaxed);
    runtime.block_on(async {
        let mut expected = Vec::new();
        let mut files = Vec::new();
        for submitter in submitters {
            let submitted = submitter.await.unwrap();
            expected.extend(submitted.cancelled.into_iter().map(|id| (id, State::Cancelled)));
            for (id, file) in submitted.writers {
                expected.push((id, State::Succeeded));
                files.push(file);
            }
        }
        let mut jobs = ended_jobs(&client).await;
        jobs.sort_by_key(|(id, _)| *id);
        expected.sort_by_key(|(id, _)| *id);
        assert_eq!(jobs, expected, "every job exists once, and there is no other");
        for file in files {
            assert_eq!(fs::read_to_string(&file).unwrap(), "ran\n", "{}", file.display());
        }
    });
}

/// A job that fails at once, each time it is tried, and can be retried.
fn failed_job(server: &Server) -> String {
    let job = r#"{"run": {"echo": {"fail": "fatal"}}, "max_retries": 3}"#;
    let id = server.run_with_input(&["submit", "--file", "-"], job).expect(0).line().to_owned();
    server.wait_for_state(&id, &["failed"]);
    id
}

fn job_count(server: &Server) -> usize {
    server.run(["jobs", "list", "--output", "json"]).expect(0).json()["items"].as_array().unwrap().len()
}

// FEATURES: A14
#[test]
fn an_answer_that_is_lost_is_given_again() {
    let server = Server::start();
    let proxy = CuttingProxy::start(&server.url, || {});
    let id = failed_job(&server);
    proxy.cut_answer_to("/retry");
    let retried = server.run(["jobs", "retry", &id, "--server", &proxy.url]).expect(0);
    assert!(proxy.has_cut() && retried.stdout.starts_with(&id), "{}", retried.stdout);
    let job = server.wait_for_state(&id, &["failed"]);
    assert_eq!((&job["attempt"], &job["retries"]), (&2.into(), &1.into()), "it was retried once");

    proxy.cut_answer_to("DELETE");
    server.run(["jobs", "rm", &id, "--server", &proxy.url]).expect(0);
    proxy.cut_answer_to("POST /v1/jobs");
    server.run(["submit", "--echo", "1", "--server", &proxy.url]).expect(0);
    assert!(proxy.has_cut());
    assert_eq!(job_count(&server), 1);
    proxy.cut_answer_to("POST /v1/queues");
    server.run(["queues", "create", "--server", &proxy.url]).expect(0);
    assert!(proxy.has_cut());
}

/// A proxy whose cut connection stays open until the server has restarted.
fn proxy_across_restart(server: &Server) -> (CuttingProxy, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (cut, is_cut) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = std::sync::Mutex::new(may_go_on);
    let proxy = CuttingProxy::start(&server.url, move || {
        cut.send(()).unwrap();
        may_go_on.lock().unwrap().recv_timeout(TIMEOUT).unwrap();
    });
    (proxy, is_cut, go_on)
}

// FEATURES: A14
#[test]
fn a_restarted_server_executes_nothing_twice() {
    let mut server = Server::start();
    let (proxy, is_cut, go_on) = proxy_across_restart(&server);
    let retried = failed_job(&server);
    let cancelled = server.run(["submit", "--", "sleep", "1000"]).expect(0).line().to_owned();
    for (cut, command, code) in [
        ("/retry", vec!["jobs", "retry", &retried], 1),
        ("/cancel", vec!["jobs", "cancel", &cancelled], 0),
        ("POST /v1/jobs", vec!["submit", "--echo", "1"], 0),
    ] {
        proxy.cut_answer_to(cut);
        let running = server.command(&command).args(["--server", &proxy.url]).spawn().unwrap();
        is_cut.recv_timeout(TIMEOUT).unwrap();
        server.kill_and_restart();
        go_on.send(()).unwrap();
        let ran = finish(running).expect(code);
        if code == 1 {
            assert!(ran.stderr.contains("unknown whether") && ran.stderr.contains(&retried), "{}", ran.stderr);
        }
    }
    // The kill may have interrupted the attempt: the next one uses no retry.
    assert_eq!(server.wait_for_state(&retried, &["failed"])["retries"], 1, "it was retried once");
    server.wait_for_state(&cancelled, &["cancelled"]);
    assert_eq!(job_count(&server), 3);
}

// FEATURES: A14
#[test]
fn a_command_uses_the_server_that_works() {
    let server = Server::start();
    let both = format!("{},{}", free_url(), server.url);
    server.run(["jobs", "list", "--server", &both]).expect(0);
    let (first, second) = (free_url(), free_url());
    let ran = run_alone(["jobs", "--server", &format!("{first},{second}")]).expect(4);
    assert!(ran.stderr.contains(&first) && ran.stderr.contains(&second), "{}", ran.stderr);
    let ran = run_alone(["jobs", "--server", &format!("{first},")]).expect(2);
    assert!(ran.stderr.contains("invalid server address"), "{}", ran.stderr);
}

// FEATURES: A14
#[test]
fn a_command_waits_for_a_server_that_starts() {
    let mut server = Server::start();
    server.kill();
    let arguments = ["submit", "--wait", "--echo", "7", "--connect-wait", "60s"];
    let mut child = server.command(arguments).stderr(Stdio::piped()).spawn().unwrap();
    let mut notice = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut notice).unwrap();
    assert!(notice.contains(&server.url) && notice.contains("trying again for up to"), "{notice}");
    server.start_again();
    assert_eq!(finish(child).expect(0).stdout, "7\n");
}
