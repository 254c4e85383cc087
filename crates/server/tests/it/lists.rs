//! Lists: filters, order and pages.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Server, echo, endless, text, with};

async fn submit_batch(server: &Server, jobs: Vec<Value>) -> Vec<String> {
    let answer = server.post("/v1/jobs", &json!({"jobs": jobs})).await.expect(200);
    answer["results"].as_array().unwrap().iter().map(|result| text(&result["id"])).collect()
}

// FEATURES: C12
#[tokio::test]
async fn pages_list_each_job_once_newest_first() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let mut all = BTreeSet::new();
        for _ in 0..8 {
            all.extend(submit_batch(&server, vec![echo(1); 15]).await);
            all.insert(server.submit(&endless()).await);
        }
        let newest_first: Vec<String> = all.iter().rev().cloned().collect();
        for limit in [1, 7, 100, 128, 1000] {
            assert_eq!(server.listed("/v1/jobs", limit).await, newest_first, "in pages of {limit}");
        }
        assert_eq!(server.listed("/v1/jobs/history", 50).await, newest_first);
    }
}

#[tokio::test]
async fn a_page_has_a_hundred_jobs_by_default() {
    let server = Server::start().await;
    submit_batch(&server, vec![echo(1); 101]).await;
    let page = server.get("/v1/jobs").await.expect(200);
    assert_eq!(page["items"].as_array().unwrap().len(), 100);
    assert!(page["next_cursor"].is_string());
}

/// Jobs that end during listing are neither skipped nor repeated.
#[tokio::test]
async fn pages_list_each_job_once_while_jobs_end() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        // The delays are shuffled, so that terminal jobs lie between live ones.
        let jobs = (0..1500).map(|number| json!({"run": {"echo": {"delay_ms": number * 7919 % 1000}}})).collect();
        let all: BTreeSet<String> = submit_batch(&server, jobs).await.into_iter().collect();
        let newest_first: Vec<String> = all.iter().rev().cloned().collect();
        while server.metric("outlast_jobs_live").await > 0 {
            let listed = server.listed("/v1/jobs", 1000).await;
            let missed: Vec<&String> = newest_first.iter().filter(|id| !listed.contains(id)).collect();
            assert_eq!(missed, [""; 0], "jobs are missing in the list");
            assert_eq!(listed, newest_first);
        }
    }
}

#[tokio::test]
async fn jobs_are_filtered_by_state() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let succeeded: BTreeSet<String> = submit_batch(&server, vec![echo(1); 5]).await.into_iter().collect();
        let failed = submit_batch(&server, vec![json!({"run": {"echo": {"fail": "fatal"}}}); 2]).await;
        let running = submit_batch(&server, vec![endless(); 3]).await;
        let blocked = server.submit(&with(echo(1), json!({"not_before": crate::support::from_now(600_000)}))).await;
        for id in succeeded.iter().chain(&failed) {
            server.ended(id).await;
        }
        for id in &running {
            server.job_in(id, "running").await;
        }
        let expect = async |path: &str, wanted: &[&String]| {
            let wanted: BTreeSet<String> = wanted.iter().map(|id| (*id).clone()).collect();
            let wanted: Vec<String> = wanted.into_iter().rev().collect();
            assert_eq!(server.listed(path, 2).await, wanted, "{path}");
        };
        let succeeded: Vec<&String> = succeeded.iter().collect();
        let [failed, running]: [Vec<&String>; 2] = [failed.iter().collect(), running.iter().collect()];
        let ended = [succeeded.clone(), failed.clone()].concat();
        expect("/v1/jobs?state=succeeded", &succeeded).await;
        expect("/v1/jobs?state=failed", &failed).await;
        expect("/v1/jobs?state=running", &running).await;
        expect("/v1/jobs?state=blocked", &[&blocked]).await;
        expect("/v1/jobs?state=failed,blocked", &[failed.clone(), vec![&blocked]].concat()).await;
        expect("/v1/jobs?state=succeeded,running,failed", &[ended.clone(), running.clone()].concat()).await;
        expect("/v1/jobs?state=quarantined,denied", &[]).await;
        expect("/v1/jobs/running", &running).await;
        expect("/v1/jobs/completed", &ended).await;
    }
}

#[tokio::test]
async fn jobs_are_filtered_by_queue_topic_and_tenant() {
    for shards in [1, 4] {
        let server = Server::with_shards(shards).await;
        let queue = server.create_queue(&json!({"tag": "mine"})).await;
        let (queue, token) = (text(&queue["id"]), text(&queue["token"]));
        let in_queue = server.submit(&with(echo(1), json!({"queue": queue}))).await;
        let on_topic = server.submit(&with(echo(1), json!({"topic": "hot & new"}))).await;
        let of_tenant = server.submit(&with(echo(1), json!({"tenant": "acme"}))).await;
        let both = server.submit(&with(echo(1), json!({"tenant": "acme", "topic": "hot & new"}))).await;
        for (path, wanted) in [
            (format!("/v1/jobs?queue={queue}"), vec![&in_queue]),
            (format!("/v1/jobs?queue={token}"), vec![&in_queue]),
            ("/v1/jobs?topic=hot%20%26%20new".to_owned(), vec![&both, &on_topic]),
            ("/v1/jobs?tenant=acme".to_owned(), vec![&both, &of_tenant]),
            ("/v1/jobs?tenant=acme&topic=default".to_owned(), vec![&of_tenant]),
            ("/v1/jobs?tenant=nobody".to_owned(), vec![]),
        ] {
            let listed = server.listed(&path, 10).await;
            let listed: BTreeSet<&String> = listed.iter().collect();
            assert_eq!(listed, wanted.into_iter().collect(), "{path}");
        }
        server.get("/v1/jobs?queue=q_0000000000000").await.refused(404, "unknown_queue");
    }
}
