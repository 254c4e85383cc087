//! The workflows in `examples/workflows`, as described in their README.

use std::path::{Path, PathBuf};

use crate::support::{Server, run_alone};
use crate::workflows::{await_task, ended};

fn example(name: &str) -> String {
    let directory: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/workflows");
    directory.join(name).display().to_string()
}

#[test]
fn every_example_is_valid_and_can_be_drawn() {
    for name in ["build-and-test", "data-pipeline", "order-saga", "deployment"] {
        let file = example(&format!("{name}.yaml"));
        let checked = run_alone(["workflows", "validate", &file]).expect(0).stdout;
        assert!(checked.starts_with("valid: "), "{checked}");
        let drawn = run_alone(["workflows", "graph", &file]).expect(0).stdout;
        assert!(drawn.starts_with("flowchart"), "{drawn}");
    }
}

// FEATURES: B1
#[test]
fn a_build_fans_out_and_in_again() {
    let server = Server::start();
    let file = example("build-and-test.yaml");
    let ran = server.run(["run", &file, "--wait", "--input", "shards=3", "--output", "json"]).expect(0).json();
    assert_eq!((&ran["state"], &ran["result"]["report"]), (&"succeeded".into(), &"3 of 3 parts passed".into()));
    assert_eq!((&ran["items"]["succeeded"], &ran["usage"]["jobs"]), (&3.into(), &5.into()));
}

// FEATURES: B1
#[test]
fn a_pipeline_runs_epoch_by_epoch() {
    let server = Server::start();
    let ran = server.run(["run", &example("data-pipeline.yaml"), "--wait", "--output", "json"]).expect(0).json();
    assert_eq!(ran["result"]["stored"], "today: 3 orders");
    assert_eq!(ran["result"]["greetings"], serde_json::json!(["hello, ada", "hello, bob", "hello, eve"]));
    let page = server.run(["workflows", "show", ran["id"].as_str().unwrap()]).expect(0).stdout;
    for line in ["├─ ◆ extract ", "├─ ◆ transform ", "└─ ◆ load "] {
        assert!(page.contains(line), "{page}");
    }
}

// FEATURES: D5
#[test]
fn a_failed_payment_compensates_the_earlier_tasks() {
    let server = Server::start();
    let file = example("order-saga.yaml");
    let ran = server.run(["run", &file, "--wait"]).expect(1);
    let compensated: Vec<&str> = ran.stdout.lines().filter(|line| line.ends_with(": compensated")).collect();
    assert_eq!(compensated.len(), 2, "{}", ran.stdout);
    assert!(
        compensated[0].contains("invoice") && compensated[1].contains("reserve"),
        "the last step first: {}",
        ran.stdout
    );
    let list = server.run(["workflows", "--output", "json"]).expect(0).json();
    assert_eq!(list["items"][0]["rollback"]["state"], "rolled_back");
    server.run(["run", &file, "--wait", "--input", "card=valid"]).expect(0);
}

#[test]
fn a_deployment_waits_for_approval() {
    let server = Server::start();
    let id = server.run(["run", &example("deployment.yaml"), "--input", "version=2.0"]).expect(0).line().to_owned();
    let job = await_task(&server, &id, "approve", |task| task["job_state"] == "approval_required")["job"].clone();
    let job = job.as_str().unwrap();
    let page = server.run(["workflows", "show", &id]).expect(0).stdout;
    assert!(page.contains(&format!("outlast approvals approve {job}")), "{page}");
    let list = server.run(["approvals"]).expect(0).stdout;
    assert!(list.contains(&format!("{id} approve")) && list.contains("shop:2.0"), "{list}");
    server.run(["approvals", "approve", job, "--reason", "it was tested"]).expect(0);
    let workflow = ended(&server, &id);
    assert_eq!((&workflow["state"], &workflow["result"]["deployed"]), (&"succeeded".into(), &"shop:2.0".into()));
}

#[test]
fn a_schedule_is_created_triggered_listed_and_deleted() {
    let server = Server::start();
    let created = server.run(["schedules", "create", &example("nightly-schedule.yaml")]).expect(0).stdout;
    assert!(created.starts_with("sch_") && created.contains(" nightly: next at "), "{created}");
    let id = server.run(["schedules", "trigger", "nightly"]).expect(0).line().to_owned();
    assert_eq!(ended(&server, &id)["result"]["stored"], "yesterday: 3 orders");
    let list = server.run(["schedules"]).expect(0).stdout;
    let line = list.lines().nth(1).unwrap();
    assert!(line.starts_with("nightly  active  30 2 * * *  Europe/Berlin  data-pipeline"), "{list}");
    assert!(line.contains(&id), "{list}");
    server.run(["schedules", "rm", "nightly"]).expect(0);
    server.run(["schedules", "show", "nightly"]).expect(3);
    assert_eq!(server.run(["schedules", "list", "--output", "json"]).expect(0).json()["items"], serde_json::json!([]));
}
