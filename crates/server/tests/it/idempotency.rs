//! Idempotency keys: one key makes one job, for concurrent and later submissions and after a restart.

use serde_json::{Value, json};

use crate::http::{Reply, Request};
use crate::support::{Api, Server, echo, endless, text, with};

async fn submit(api: &Api, key: &str, job: &Value) -> Reply {
    api.send(Request::post("/v1/jobs").header("idempotency-key", key).json(job)).await
}

#[tokio::test]
async fn the_same_key_and_body_return_the_first_job() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let job = endless();
        let first = submit(&server, "k", &job).await.expect(201);
        for _ in 0..3 {
            let again = submit(&server, "k", &job).await.expect(200);
            assert_eq!((&again["id"], &again["seq"]), (&first["id"], &first["seq"]));
            assert_eq!((&again["created_at"], &again["deduplicated"]), (&first["created_at"], &json!(true)));
        }
        let problem = submit(&server, "k", &echo("other")).await.refused(409, "idempotency_conflict");
        assert!(text(&problem["detail"]).contains("key"), "{problem}");
        assert_ne!(submit(&server, "k2", &job).await.expect(201)["id"], first["id"]);
        server.works_with(2).await;
    }
}

#[tokio::test]
async fn a_key_in_the_body_equals_the_same_key_in_the_header() {
    let server = Server::with_shards(4).await;
    let keyed = with(echo(1), json!({"idempotency_key": "k"}));
    let first = server.post("/v1/jobs", &keyed).await.expect(201);
    assert_eq!(server.post("/v1/jobs", &keyed).await.expect(200)["id"], first["id"]);
    assert_eq!(submit(&server, "k", &echo(1)).await.expect(200)["id"], first["id"]);
    assert_eq!(submit(&server, "k", &keyed).await.expect(200)["id"], first["id"]);
    let batch = json!({"jobs": [keyed, echo(2), keyed]});
    let answer = server.post("/v1/jobs", &batch).await.expect(200);
    for index in [0, 2] {
        assert_eq!(answer["results"][index]["id"], first["id"]);
        assert_eq!(answer["results"][index]["deduplicated"], true);
    }
    server.works_with(2).await;
}

#[tokio::test]
async fn queue_id_and_token_are_the_same_body_and_another_queue_is_a_conflict() {
    let server = Server::start().await;
    let queue = server.create_queue(&json!({"tag": "a"})).await;
    let by_id = with(echo(1), json!({"queue": queue["id"]}));
    let by_token = with(echo(1), json!({"queue": queue["token"]}));
    let first = submit(&server, "k", &by_id).await.expect(201);
    assert_eq!(submit(&server, "k", &by_token).await.expect(200)["id"], first["id"]);
    server.ended(&text(&first["id"])).await;
    assert_eq!(submit(&server, "k", &by_token).await.expect(200)["id"], first["id"]);
    submit(&server, "k", &echo(1)).await.refused(409, "idempotency_conflict");
    let other = server.create_queue(&json!({"tag": "b"})).await;
    let in_other_queue = with(echo(1), json!({"queue": other["id"]}));
    submit(&server, "k", &in_other_queue).await.refused(409, "idempotency_conflict");
}

#[tokio::test]
async fn tenants_do_not_share_keys() {
    let server = Server::with_shards(4).await;
    let first = submit(&server, "k", &echo(1)).await.expect(201);
    let other = submit(&server, "k", &with(echo(1), json!({"tenant": "acme"}))).await.expect(201);
    assert_ne!(first["id"], other["id"]);
}

#[tokio::test]
async fn twenty_concurrent_submissions_with_one_key_make_one_job() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let api = server.api();
        let sent: Vec<_> = (0..20)
            .map(|number| {
                // Every fourth submission is a batch.
                tokio::spawn(async move {
                    if number % 4 == 0 {
                        let batch = json!({"jobs": [with(echo(1), json!({"idempotency_key": "k"}))]});
                        return api.post("/v1/jobs", &batch).await.expect(200)["results"][0].clone();
                    }
                    let reply = submit(&api, "k", &echo(1)).await;
                    let answer: Value = serde_json::from_slice(&reply.body).unwrap();
                    let deduplicated = answer["deduplicated"] == true;
                    assert_eq!(reply.status, if deduplicated { 200 } else { 201 });
                    answer
                })
            })
            .collect();
        let mut ids = Vec::new();
        let mut firsts = 0;
        for answer in sent {
            let answer = answer.await.unwrap();
            ids.push(text(&answer["id"]));
            firsts += usize::from(answer["deduplicated"] != true);
        }
        ids.dedup();
        assert_eq!((ids.len(), firsts), (1, 1));
        assert_eq!(server.listed("/v1/jobs", 100).await, ids);
    }
}

#[tokio::test]
async fn a_key_is_remembered_after_its_job_has_ended_and_after_a_restart() {
    for shards in [1, 4] {
        let mut server = Server::with_shards(shards).await;
        let id = text(&submit(&server, "k", &echo(1)).await.expect(201)["id"]);
        server.ended(&id).await;
        for _ in 0..2 {
            let again = submit(&server, "k", &echo(1)).await.expect(200);
            assert_eq!((&again["id"], &again["state"]), (&json!(id), &json!("succeeded")));
            submit(&server, "k", &echo(2)).await.refused(409, "idempotency_conflict");
            server.restart().await;
        }
        assert_eq!(server.listed("/v1/jobs", 10).await, [id]);
    }
}

#[tokio::test]
async fn the_key_of_a_deleted_job_is_refused_as_gone() {
    let server = Server::start().await;
    let id = text(&submit(&server, "k", &echo(1)).await.expect(201)["id"]);
    server.ended(&id).await;
    assert_eq!(server.delete(&format!("/v1/jobs/{id}")).await.status, 204);
    let problem = submit(&server, "k", &echo(1)).await.refused(409, "idempotency_gone");
    assert!(text(&problem["detail"]).contains(&id), "{problem}");
    let waiting = Request::post("/v1/jobs?wait_ms=1000").header("idempotency-key", "k").json(&echo(1));
    server.send(waiting).await.refused(409, "idempotency_gone");
}

#[tokio::test]
async fn a_repeated_submission_can_wait_for_the_first_job_to_end() {
    let server = Server::with_shards(4).await;
    let job = json!({"run": {"echo": {"value": "slow", "delay_ms": 50}}});
    let first = submit(&server, "k", &job).await.expect(201);
    for _ in 0..2 {
        let waiting = Request::post("/v1/jobs?wait_ms=20000").header("idempotency-key", "k").json(&job);
        let again = server.send(waiting).await.expect(200);
        assert_eq!((&again["id"], &again["result"]), (&first["id"], &json!("slow")));
        assert_eq!(again["deduplicated"], true);
    }
}

#[tokio::test]
async fn a_refused_job_does_not_use_up_its_key() {
    let server = Server::start().await;
    let unknown = with(echo(1), json!({"queue": "q_0000000000000"}));
    submit(&server, "k", &unknown).await.refused(404, "unknown_queue");
    submit(&server, "k", &echo(1)).await.expect(201);
}

#[tokio::test]
async fn keys_outside_the_length_limits_are_refused() {
    let server = Server::start().await;
    submit(&server, &"k".repeat(255), &echo(1)).await.expect(201);
    submit(&server, &"k".repeat(256), &echo(1)).await.refused(400, "invalid_field");
    submit(&server, "", &echo(1)).await.refused(400, "invalid_field");
    server.works_with(1).await;
}

/// Each queue belongs to one of the shards; the key has its home in one of them.
#[tokio::test]
async fn one_key_makes_one_job_over_the_queues_of_all_shards() {
    let server = Server::with_shards(4).await;
    let mut queues = Vec::new();
    for number in 0..8 {
        queues.push(server.create_queue(&json!({"tag": format!("q{number}")})).await);
    }
    for round in 0..10 {
        let key = format!("key {round}");
        let jobs: Vec<Value> = queues.iter().map(|queue| with(echo(1), json!({"queue": queue["id"]}))).collect();
        let replies = futures_util::future::join_all(jobs.iter().map(|job| submit(&server, &key, job))).await;
        let created: Vec<usize> = (0..jobs.len()).filter(|index| replies[*index].status == 201).collect();
        assert_eq!(created.len(), 1, "round {round}");
        for (index, reply) in replies.into_iter().enumerate() {
            if index != created[0] {
                reply.refused(409, "idempotency_conflict");
            }
        }
        submit(&server, &key, &jobs[created[0]]).await.expect(200);
        submit(&server, &key, &echo(1)).await.refused(409, "idempotency_conflict");
    }
}
