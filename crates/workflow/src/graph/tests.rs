//! Tests of drawings.

mod layouts;
mod pictures;
mod texts;
mod xml;

use std::sync::Arc;

use crate::{Plan, Source, compile};

/// A mutable plan, so that tests can set names that no definition may have.
fn plan(yaml: &str) -> Plan {
    match compile(Source::Yaml(yaml)) {
        Ok(plan) => Arc::into_inner(plan).expect("the plan has one owner"),
        Err(error) => panic!("{error}\n{yaml}"),
    }
}

/// A plan of jobs, given by the needs of each.
fn plan_of(needs: &[Vec<usize>]) -> Plan {
    let mut yaml = String::from("name: many\ntasks:\n");
    for (task, needs) in needs.iter().enumerate() {
        let needs: Vec<_> = needs.iter().map(|need| format!("t{need}")).collect();
        yaml.push_str(&format!("  t{task}: {{run: {{echo: {{value: 1}}}}, needs: [{}]}}\n", needs.join(", ")));
    }
    plan(&yaml)
}

/// One task of each kind, with epochs and everything else that a drawing shows.
const EVERYTHING: &str = r#"
name: release
inputs:
  shards: {type: list, default: [1, 2, 3]}
epochs: [prepare, build, publish]
workflows:
  package:
    tasks:
      pack: {run: {echo: {value: 1}}}
tasks:
  fetch: {epoch: prepare, run: "git clone", compensation: "rm -rf tree"}
  lint: {epoch: prepare, run: "make lint", needs: fetch, when: "${length(inputs.shards) > 1}"}
  test: {epoch: build, run: "make test", for_each: "${inputs.shards}", needs: fetch}
  pack: {epoch: build, workflow: package, needs: [fetch, lint]}
  soak: {epoch: build, delay: 10m, needs: pack}
  choose: {epoch: publish, needs: [test, soak], switch: [{when: "${length(inputs.shards) > 2}", then: ask}, {then: [signal, notify]}]}
  ask: {epoch: publish, approval: "Publish it?"}
  signal: {epoch: publish, wait_for: go}
  notify: {epoch: publish, run: "notify", needs: fetch}
"#;
