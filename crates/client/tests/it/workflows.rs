//! Requests and responses of workflows and schedules.

use std::time::Duration;

use api::{ProgressReport, ScheduleStart, TaskKind, WorkflowStart};
use client::schedules::ScheduleRef;
use client::workflows::{Filter, GraphFormat, TaskFilter};
use client::{Client, Options};
use model::id::{JobId, ScheduleId, WorkflowId};
use model::json::Json;
use model::workflow::{CatchUp, TaskState, WorkflowState};
use serde_json::json;

use crate::test_server::{Reaction, Request, TestServer, json as answer};

const WORKFLOW: &str = r#"{"id":"wf_0000000000001","name":"w","state":"rolling_back","reason":{"code":"task_failed","message":null},
    "tenant":"default","queue":"q_0000000000002","run":1,"created_at":"2026-01-01T00:00:00Z","since":"2026-01-01T00:00:00Z",
    "ended_at":null,"duration_ms":5,"submitter":null,"parent":null,"schedule":{"id":"sch_0000000000003","slot":"2026-01-01T00:00:00Z"},
    "labels":{},"inputs":{"a": 1.0},"result":null,"epoch":null,"tasks_total":1,"counts":{"failed":1},"items":{},
    "usage":{"cpu_seconds":0.5,"memory_peak_bytes":1,"jobs":1,"attempts":2},
    "rollback":{"state":"rolling_back","began_at":"2026-01-01T00:00:00Z","ended_at":null,"total":1,"compensated":0,"failed":0},
    "deadline":null,"later":true,"tasks":[{"name":"t","kind":"wait_for","state":"listening","item":null,"epoch":null,"needs":[],
    "job":null,"job_state":null,"child":null,"began_at":null,"ended_at":null,"duration_ms":null,"due":null,"reason":null,
    "merged_into":null,"compensation":null,"chosen":null,"progress":null,"items_total":null}]}"#;
const TASK: &str = r#"{"name":"t","kind":"job","state":"succeeded","item":3,"epoch":null,"needs":["s"],"job":"job_0000000000001",
    "job_state":"succeeded","child":null,"began_at":null,"ended_at":null,"duration_ms":null,"due":null,"reason":null,
    "merged_into":{"task":"u","item":null},"compensation":null,"chosen":null,"progress":null,"items_total":null,"attempts":1,
    "result":{"x": [1]}}"#;
const SCHEDULE: &str = r#"{"id":"sch_0000000000003","name":"n","tenant":"default","queue":null,"cron":"@daily","timezone":"UTC",
    "catch_up":"once","overlap":"forbid","jitter_ms":0,"paused":false,"created_at":"2026-01-01T00:00:00Z","submitter":null,
    "last_slot":null,"next_slot":null,"last_workflow":null,"started":0,"skipped":0,"waiting_slot":null,"trouble":null,
    "workflow":"w","inputs":{}}"#;
const PATH: &str = "/v1/workflows/wf_0000000000001";

async fn always(body: &'static str) -> (TestServer, Client) {
    let server = TestServer::start(move |_, request| match request.line.starts_with("DELETE") {
        true => Reaction::Send("HTTP/1.1 204 No Content\r\n\r\n".to_owned()),
        false => answer("200 OK", body),
    })
    .await;
    let client = Client::with_options(&server.url, Options::default()).unwrap();
    (server, client)
}

/// All requests but the one that asks for the generation of the server.
fn requests(server: &TestServer) -> Vec<Request> {
    server.requests().into_iter().filter(|request| request.line != "GET /healthz").collect()
}

fn lines(server: &TestServer) -> Vec<String> {
    requests(server).into_iter().map(|request| request.line).collect()
}

#[tokio::test]
async fn a_workflow_is_started_awaited_and_controlled() {
    let (server, client) = always(WORKFLOW).await;
    let id = WorkflowId(1);
    let start = WorkflowStart { definition: Json::parse(br#"{"name": "w"}"#), ..WorkflowStart::default() };
    let workflow = client.start_workflow(&start).await.unwrap();
    assert_eq!((workflow.id, workflow.state), (id, WorkflowState::RollingBack));
    assert_eq!((workflow.counts.failed, workflow.counts.total()), (1, 1));
    assert_eq!(workflow.inputs.unwrap().as_str(), r#"{"a": 1.0}"#);
    let task = &workflow.tasks.unwrap()[0];
    assert_eq!((task.kind, task.state), (TaskKind::WaitFor, TaskState::Listening));
    client.start_workflow_and_wait(&start, Duration::from_secs(1)).await.unwrap();
    client.workflow(id).await.unwrap();
    client.workflow_without_tasks(id).await.unwrap();
    client.wait_for_workflow(id, Duration::from_secs(2)).await.unwrap();
    client.cancel_workflow(id, true).await.unwrap();
    client.pause_workflow(id).await.unwrap();
    client.resume_workflow(id).await.unwrap();
    client.rerun_workflow(id, Some("t")).await.unwrap();
    client.remove_workflow(id).await.unwrap();
    let expected = [
        "POST /v1/workflows".to_owned(),
        "POST /v1/workflows?wait_ms=1000".to_owned(),
        format!("GET {PATH}"),
        format!("GET {PATH}?tasks=false"),
        format!("GET {PATH}?wait_ms=2000"),
        format!("POST {PATH}/cancel"),
        format!("POST {PATH}/pause"),
        format!("POST {PATH}/resume"),
        format!("POST {PATH}/rerun"),
        format!("DELETE {PATH}"),
    ];
    assert_eq!(lines(&server), expected);
    let bodies: Vec<String> = server.requests().into_iter().map(|request| request.body).collect();
    assert_eq!(bodies[0], r#"{"definition":{"name": "w"}}"#);
    assert_eq!((bodies[5].as_str(), bodies[8].as_str()), (r#"{"compensate":true}"#, r#"{"from":"t"}"#));
}

#[tokio::test]
async fn workflows_are_listed_with_their_filters() {
    let (server, client) = always(r#"{"items":[],"next_cursor":null}"#).await;
    let filter = Filter {
        states: vec![WorkflowState::Running, WorkflowState::Paused],
        name: Some("a b".to_owned()),
        schedule: Some(ScheduleId(3)),
        children: true,
        limit: Some(5),
        ..Filter::default()
    };
    client.workflows(&filter).await.unwrap();
    client.workflows(&Filter::default()).await.unwrap();
    let tasks = TaskFilter { states: vec![TaskState::Failed], cursor: Some("t1-0".to_owned()), limit: None };
    client.workflow_tasks(WorkflowId(1), &tasks).await.unwrap();
    client.schedules(Some("acme"), Some(2), None).await.unwrap();
    let expected = [
        "GET /v1/workflows?state=running%2Cpaused&name=a%20b&schedule=sch_0000000000003&children=true&limit=5",
        "GET /v1/workflows",
        "GET /v1/workflows/wf_0000000000001/tasks?state=failed&cursor=t1-0",
        "GET /v1/schedules?tenant=acme&limit=2",
    ];
    assert_eq!(lines(&server), expected);
}

#[tokio::test]
async fn task_names_are_encoded_and_results_decoded() {
    let (server, client) = always(TASK).await;
    let task = client.workflow_task(WorkflowId(1), "a/b", Some(3)).await.unwrap();
    assert_eq!((task.item, task.job), (Some(3), Some(JobId(1))));
    assert_eq!(task.result.unwrap().as_str(), r#"{"x": [1]}"#);
    assert_eq!(lines(&server), [format!("GET {PATH}/tasks/a%2Fb?item=3")]);
}

#[tokio::test]
async fn signals_progress_graphs_and_histories_have_their_routes() {
    let (server, client) = always(r#"{"accepted":true}"#).await;
    client.signal_workflow(WorkflowId(1), "go", &json!([1])).await.unwrap();
    client.report_progress(JobId(1), &ProgressReport { percent: 5, message: None }).await.unwrap();
    assert_eq!(client.workflow_graph(WorkflowId(1), GraphFormat::Mermaid).await.unwrap(), r#"{"accepted":true}"#);
    client.workflow_graph(WorkflowId(1), GraphFormat::Svg).await.unwrap();
    client.workflow_definition(WorkflowId(1)).await.unwrap();
    client.workflow_schema().await.unwrap();
    assert!(client.workflow_history(WorkflowId(1), Some(2), None).await.is_err(), "the response is not a history");
    let requests = requests(&server);
    assert_eq!((requests[0].body.as_str(), requests[1].body.as_str()), ("[1]", r#"{"percent":5}"#));
    let expected = [
        format!("POST {PATH}/signals/go"),
        "POST /v1/jobs/job_0000000000001/progress".to_owned(),
        format!("GET {PATH}/graph?format=mermaid"),
        format!("GET {PATH}/graph?format=svg"),
        format!("GET {PATH}/definition"),
        "GET /v1/schemas/workflow".to_owned(),
        format!("GET {PATH}/history?limit=2"),
    ];
    assert_eq!(lines(&server), expected);
}

#[tokio::test]
async fn diagnostics_of_a_definition_are_decoded() {
    let problem = r#"{"type":"/docs#invalid_definition","title":"t","status":400,"detail":"d","code":"invalid_definition","field":"tasks.a",
        "diagnostics":[{"code":"cycle","field":"tasks.a","message":"m","line":3,"column":null,"suggestion":null}]}"#;
    let server = TestServer::start(move |_, _| answer("400 Bad Request", problem)).await;
    let error = Client::new(&server.url).unwrap().validate_workflow(&WorkflowStart::default()).await.unwrap_err();
    let client::Error::Refused(problem) = error else { panic!("{error}") };
    assert_eq!((problem.diagnostics[0].code.as_str(), problem.diagnostics[0].line), ("cycle", Some(3)));
}

#[tokio::test]
async fn a_schedule_is_referenced_by_id_or_name() {
    let (server, client) = always(SCHEDULE).await;
    let start = ScheduleStart { name: "n".to_owned(), cron: "@daily".to_owned(), ..ScheduleStart::default() };
    let created = client.create_schedule(&start).await.unwrap();
    assert_eq!((created.id, created.catch_up), (ScheduleId(3), CatchUp::Once));
    client.schedule(created.id.to_string().as_str()).await.unwrap();
    client.pause_schedule("a b").await.unwrap();
    client.resume_schedule(ScheduleRef { name: "n", tenant: Some("acme") }).await.unwrap();
    client.remove_schedule("n").await.unwrap();
    assert!(client.trigger_schedule("n").await.is_err(), "the response is not a workflow");
    let expected = [
        "POST /v1/schedules",
        "GET /v1/schedules/sch_0000000000003",
        "POST /v1/schedules/a%20b/pause",
        "POST /v1/schedules/n/resume?tenant=acme",
        "DELETE /v1/schedules/n",
        "POST /v1/schedules/n/trigger",
    ];
    assert_eq!(lines(&server), expected);
}
