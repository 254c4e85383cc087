//! What is kept, what is found again, and what goes.

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
async fn the_same_text_is_read_once_and_the_same_definition_kept_once() {
    let plans = Plans::default();
    let first = compiled(&plans, text("a")).await;
    assert!(Arc::ptr_eq(&first, &compiled(&plans, text("a")).await));
    let other_writing = compiled(&plans, yaml("a")).await;
    assert_eq!(other_writing.plan.digest, first.plan.digest);
    assert!(Arc::ptr_eq(&first, &other_writing));
    let spec = WorkflowSpec {
        digest: first.plan.digest,
        definition: first.plan.source.clone(),
        inputs: model::json::Json::null(),
    };
    assert!(Arc::ptr_eq(&first.plan, &plans.load(&spec).unwrap()));
    let fresh = Plans::default();
    assert_eq!(fresh.load(&spec).unwrap().digest, first.plan.digest);
}

#[tokio::test]
async fn what_is_wrong_is_said_every_time() {
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
    assert!(plans.load(&spec).is_err());
}

#[tokio::test]
async fn what_was_not_used_for_the_longest_time_goes_first() {
    let plans = Plans::default();
    let first = compiled(&plans, text("first")).await;
    let second = compiled(&plans, text("second")).await;
    plans.remember(WorkflowId(2), second.plan.digest);
    for number in 0..PLANS_MAX - 2 {
        compiled(&plans, text(&format!("n{number}"))).await;
    }
    assert!(Arc::ptr_eq(&first, &compiled(&plans, text("first")).await));
    compiled(&plans, text("one-too-many")).await;
    let mut cache = plans.cache.lock();
    assert_eq!(cache.slots.len(), PLANS_MAX);
    assert!(cache.by_digest(first.plan.digest).is_some());
    assert!(cache.by_digest(second.plan.digest).is_none());
    assert!(cache.by_workflow(WorkflowId(2)).is_none());
    assert_eq!(cache.texts.len(), PLANS_MAX, "what led to it went with it");
    assert_eq!(cache.bytes, cache.slots.values().map(|slot| slot.bytes).sum::<usize>());
}

#[tokio::test]
async fn what_leads_to_a_definition_is_bounded() {
    let plans = Plans::default();
    let kept = compiled(&plans, text("a")).await;
    for number in 0..2 * TEXTS_MAX {
        let Text::Json(plain) = text("a") else { panic!("it is JSON") };
        let spaced = [plain.as_ref(), " ".repeat(number).as_bytes()].concat();
        compiled(&plans, Text::Json(Bytes::from(spaced))).await;
    }
    for number in 0..2 * WORKFLOWS_MAX as u64 {
        plans.remember(WorkflowId(number), kept.plan.digest);
    }
    let cache = plans.cache.lock();
    assert_eq!((cache.slots.len(), cache.texts.len(), cache.workflows.len()), (1, TEXTS_MAX, WORKFLOWS_MAX));
}
