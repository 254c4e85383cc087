//! Lookup, eviction and limits of the cache.

use super::*;

fn text(name: &str) -> Text {
    Text::Json(Bytes::from(format!(r#"{{"name":"{name}","tasks":{{"a":{{"run":{{"echo":{{"value":1}}}}}}}}}}"#)))
}

fn yaml(name: &str) -> Text {
    Text::Yaml(Bytes::from(format!("name: {name}\ntasks:\n  a:\n    run: {{echo: {{value: 1}}}}\n")))
}

async fn compiled(plans: &Plans, text: Text) -> Arc<Compiled> {
    plans.compile(text).await.unwrap().unwrap()
}

#[tokio::test]
async fn the_same_text_is_compiled_once_and_the_same_definition_cached_once() {
    let plans = Plans::default();
    let first = compiled(&plans, text("a")).await;
    assert!(Arc::ptr_eq(&first, &compiled(&plans, text("a")).await));
    let from_yaml = compiled(&plans, yaml("a")).await;
    assert_eq!(from_yaml.plan.digest, first.plan.digest);
    assert!(Arc::ptr_eq(&first, &from_yaml));
    let spec = WorkflowSpec {
        digest: first.plan.digest,
        definition: first.plan.source.clone(),
        inputs: model::json::Json::null(),
    };
    let store = store::ModelStore::default();
    let load = |plans: &Plans| plans.load(&store, ShardId(0), &spec).unwrap();
    assert!(Arc::ptr_eq(&first.plan, &load(&plans).unwrap()));
    let fresh = Plans::default();
    assert_eq!(load(&fresh).unwrap().digest, first.plan.digest);
}

#[tokio::test]
async fn diagnostics_are_returned_every_time() {
    let plans = Plans::default();
    for _ in 0..2 {
        let wrong = plans.compile(Text::Yaml(Bytes::from_static(b"name: x\ntasks: {a: {}}"))).await.unwrap();
        assert!(!wrong.unwrap_err().0.is_empty());
    }
    let spec = WorkflowSpec {
        digest: Digest::of(b"x"),
        definition: Bytes::from_static(b"{}"),
        inputs: model::json::Json::null(),
    };
    let store = store::ModelStore::default();
    assert!(matches!(plans.load(&store, ShardId(0), &spec).unwrap(), Err(Unreadable::Invalid(_))));
    let missing = WorkflowSpec { definition: Bytes::new(), ..spec };
    assert!(matches!(plans.load(&store, ShardId(0), &missing).unwrap(), Err(Unreadable::Missing)));
}

#[tokio::test]
async fn the_least_recently_used_plan_is_evicted_first() {
    let plans = Plans::default();
    let first = compiled(&plans, text("first")).await;
    let second = compiled(&plans, text("second")).await;
    plans.map_workflow(WorkflowId(2), second.plan.digest);
    for number in 0..PLANS_MAX - 2 {
        compiled(&plans, text(&format!("n{number}"))).await;
    }
    assert!(Arc::ptr_eq(&first, &compiled(&plans, text("first")).await));
    compiled(&plans, text("one-too-many")).await;
    let mut cache = plans.cache.lock();
    assert_eq!(cache.entries.len(), PLANS_MAX);
    assert!(cache.by_digest(first.plan.digest).is_some());
    assert!(cache.by_digest(second.plan.digest).is_none());
    assert!(cache.by_workflow(WorkflowId(2)).is_none());
    assert_eq!(cache.texts.len(), PLANS_MAX, "its keys are removed with it");
    assert_eq!(cache.bytes, cache.entries.values().map(|entry| entry.bytes).sum::<usize>());
}

#[tokio::test]
async fn the_keys_of_a_plan_are_bounded() {
    let plans = Plans::default();
    let cached = compiled(&plans, text("a")).await;
    for number in 0..2 * TEXTS_MAX {
        let Text::Json(plain) = text("a") else { panic!("not JSON") };
        let spaced = [plain.as_ref(), " ".repeat(number).as_bytes()].concat();
        compiled(&plans, Text::Json(Bytes::from(spaced))).await;
    }
    for number in 0..2 * WORKFLOWS_MAX as u64 {
        plans.map_workflow(WorkflowId(number), cached.plan.digest);
    }
    let cache = plans.cache.lock();
    assert_eq!((cache.entries.len(), cache.texts.len(), cache.workflows.len()), (1, TEXTS_MAX, WORKFLOWS_MAX));
}
