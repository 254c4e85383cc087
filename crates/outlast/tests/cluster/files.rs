//! Files and output of jobs on runner nodes.

use std::io::{BufRead, BufReader};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::support::{Cluster, Gate, is_running, wait_until};

/// Larger than a part of a transfer.
const INPUT_BYTES: usize = 3_000_000;
const LINES: usize = 20_000;

#[test]
fn inputs_reach_a_runner_node_and_outputs_come_back() {
    let cluster = Cluster::start(2);
    let input: Vec<u8> = (0..INPUT_BYTES).map(|at| b'a' + (at % 26) as u8).collect();
    let blob = cluster.ask(cluster.client().put_blob(Bytes::from(input.clone()))).id;
    let job = json!({
        "run": {"process": {"command": ["sh", "-c", "tr a-z A-Z < inputs/letters > outputs/letters.txt; echo x > outputs/rest"]}},
        "inputs": {"letters": blob.to_string()},
        "outputs": ["*.txt"],
        "labels": cluster.pin(0),
    });
    let job = cluster.wait_for_success(cluster.submit(&job));
    assert_eq!(job.runner, Some(cluster.runner_id(0)));
    let [artifact] = &job.artifacts[..] else { panic!("one artifact: {:?}", job.artifacts) };
    assert_eq!((artifact.path.as_str(), artifact.bytes), ("letters.txt", INPUT_BYTES as u64));
    let content = cluster.ask(async {
        let mut download = cluster.client().get_blob(artifact.blob).await?;
        let mut content = Vec::new();
        while let Some(chunk) = download.chunk().await? {
            content.extend_from_slice(&chunk);
        }
        Ok::<_, client::Error>(content)
    });
    assert!(content == input.to_ascii_uppercase(), "the output is not the input in capitals");
}

/// A job that prints a line, waits at the gate and prints many lines.
fn talkative_job(cluster: &Cluster, gate: &Gate) -> Value {
    let mut job = gate.job("a", &cluster.pin(0));
    let script = job["run"]["process"]["command"][2].as_str().unwrap().to_owned();
    job["run"]["process"]["command"][2] = format!("echo begin; {script}; seq {LINES}").into();
    job
}

/// Follows the output of a job, does something once it has begun, and lets it end.
fn follow(meanwhile: impl FnOnce(&mut Cluster)) {
    let mut cluster = Cluster::start(2);
    let mut gate = cluster.gate("gate");
    let id = cluster.submit(&talkative_job(&cluster, &gate));
    let mut follow = cluster.command(["logs", "--follow", &id.to_string()]).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("begin"));
    assert!(!cluster.job(id).state.is_terminal(), "the line is shown while the job runs");
    gate.wait_for_attempt("a", 1);
    meanwhile(&mut cluster);
    gate.open();
    assert_eq!(lines.next().as_deref(), Some("a.1"));
    assert!(lines.eq((1..=LINES).map(|number| number.to_string())));
    assert!(follow.wait().unwrap().success());
    cluster.wait_for_success(id);
    let whole = cluster.run(["logs", &id.to_string()]).expect(0).stdout;
    assert_eq!(whole.lines().count(), LINES + 2);
}

#[test]
fn the_output_of_a_job_on_a_runner_node_is_followed_while_it_runs() {
    follow(|_| {});
}

// FEATURES: B8
#[test]
fn the_output_of_a_job_is_followed_while_servers_are_replaced() {
    follow(|cluster| {
        cluster.runner(0).kill_server();
        cluster.wait_for_node(0, "disconnected");
        cluster.runner(0).start();
        cluster.wait_until_ready(0);
        cluster.control().kill_server();
        cluster.control().start();
        cluster.wait_until_control_is_ready();
    });
}

/// Nobody but the spawner knows of the end when both servers are started again.
// FEATURES: B8, B11
#[test]
fn outputs_of_a_job_that_ends_while_there_is_no_server_arrive() {
    let mut cluster = Cluster::start(2);
    let mut gate = cluster.gate("gate");
    let mut job = gate.job("a", &cluster.pin(0));
    let script = job["run"]["process"]["command"][2].as_str().unwrap().to_owned();
    job["run"]["process"]["command"][2] = format!("{script}; head -c {INPUT_BYTES} /dev/zero > outputs/zeros").into();
    job["outputs"] = json!(["*"]);
    let id = cluster.submit(&job);
    let pid = gate.wait_for_attempt("a", 1);
    cluster.control().kill_server();
    cluster.runner(0).kill_server();
    gate.open();
    wait_until("the attempt ends", || !is_running(pid));
    cluster.runner(0).start();
    cluster.control().start();
    cluster.wait_until_control_is_ready();
    let job = cluster.wait_for_success(id);
    let [artifact] = &job.artifacts[..] else { panic!("one artifact: {:?}", job.artifacts) };
    assert_eq!((artifact.bytes, job.attempt.0), (INPUT_BYTES as u64, 1));
}
