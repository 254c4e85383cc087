//! Tests of Mermaid drawings.

use super::{EVERYTHING, plan, plan_of};
use crate::graph::{NEEDS_DRAWN_MAX, TASKS_DRAWN_MAX, mermaid};

#[test]
fn a_chain_is_boxes_and_arrows() {
    let plan = plan("name: chain\ntasks: {a: {run: x}, b: {run: x, needs: a}, c: {run: x, needs: [a, b]}}");
    insta::assert_snapshot!(mermaid(&plan), @r#"
    flowchart LR
        t0["a"]
        t1["b"]
        t2["c"]
        t0 --> t1
        t0 --> t2
        t1 --> t2
    "#);
}

#[test]
fn every_kind_has_a_shape_and_every_epoch_a_subgraph() {
    insta::assert_snapshot!(mermaid(&plan(EVERYTHING)), @r#"
    flowchart LR
        subgraph epoch0["prepare"]
            direction LR
            t0["fetch"]
            compensation0(["compensate fetch"])
            t0 -.-> compensation0
            t1["lint<br>job, conditional"]
        end
        subgraph epoch1["build"]
            direction LR
            t2["test<br>job, for each"]
            t3[["pack<br>workflow package"]]
            t4(["soak"])
        end
        subgraph epoch2["publish"]
            direction LR
            t5{"choose"}
            t6{{"ask"}}
            t7[/"signal<br>waits for go"/]
            t8["notify"]
        end
        t0 --> t1
        t0 --> t2
        t0 --> t3
        t1 --> t3
        t3 --> t4
        t2 --> t5
        t4 --> t5
        t5 -->|"case 1"| t6
        t5 -->|"otherwise"| t7
        t0 --> t8
        t5 -->|"otherwise"| t8
        classDef aside stroke-dasharray: 4 3
        class compensation0 aside
    "#);
}

#[test]
fn compensations_are_attached_by_dotted_lines() {
    let plan =
        plan("name: saga\ntasks: {book: {run: x, compensation: y}, pay: {run: x, needs: book, compensation: y}}");
    insta::assert_snapshot!(mermaid(&plan), @r#"
    flowchart LR
        t0["book"]
        compensation0(["compensate book"])
        t0 -.-> compensation0
        t1["pay"]
        compensation1(["compensate pay"])
        t1 -.-> compensation1
        t0 --> t1
        classDef aside stroke-dasharray: 4 3
        class compensation0,compensation1 aside
    "#);
}

#[test]
fn when_and_for_each_are_shown() {
    let plan = plan(
        "name: marks\ninputs: {n: integer}\ntasks: {a: {run: x, for_each: [1, 2]}, b: {delay: 1s, when: \"${inputs.n > 1}\"}}",
    );
    insta::assert_snapshot!(mermaid(&plan), @r#"
    flowchart LR
        t0["a<br>job, for each"]
        t1(["b<br>delay, conditional"])
    "#);
}

#[test]
fn an_arrow_names_all_cases() {
    let plan = plan(
        "name: cases\ninputs: {n: integer}\ntasks: {a: {run: x}, pick: {switch: [{when: \"${inputs.n > 1}\", then: a}, {when: \
         \"${inputs.n > 0}\", then: a}, {then: a}]}}",
    );
    insta::assert_snapshot!(mermaid(&plan), @r#"
    flowchart LR
        t0["a"]
        t1{"pick"}
        t1 -->|"case 1, case 2, otherwise"| t0
    "#);
}

#[test]
fn names_are_escaped_in_labels() {
    let mut plan = plan("name: a\nepochs: [e]\ntasks: {a: {epoch: e, run: x, compensation: y}}");
    let hostile = "\"]; click t0 \"javascript:alert(1)\"\n%%{init: {}}%% <script>&`#35;$$x$$\\";
    plan.tasks[0].name = hostile.into();
    plan.epochs[0] = hostile.into();
    let text = mermaid(&plan);
    let quoted: Vec<&str> = text.lines().filter(|line| line.contains("click")).collect();
    assert_eq!(quoted.len(), 3, "{text}");
    for line in quoted {
        assert_eq!(line.matches('"').count(), 2, "{line}");
        let label = line.split('"').nth(1).unwrap();
        assert!(!label.contains(['<', '>', '&', '`', '%', '$', '\\', '\n']), "{label}");
    }
}

#[test]
fn omitted_tasks_and_needs_are_stated() {
    let exact = mermaid(&plan_of(&vec![Vec::new(); TASKS_DRAWN_MAX]));
    assert!(exact.contains("t1999[") && !exact.contains("not drawn"));
    let one_more = mermaid(&plan_of(&vec![Vec::new(); TASKS_DRAWN_MAX + 1]));
    assert!(one_more.contains("note[\"not drawn: 1 more task\"]") && !one_more.contains("t2000["));
    // 150 tasks, each of which needs all before it.
    let dense: Vec<Vec<usize>> = (0..150).map(|task| (0..task).collect()).collect();
    let text = mermaid(&plan_of(&dense));
    assert_eq!(text.matches(" --> ").count(), NEEDS_DRAWN_MAX);
    assert!(text.contains("not drawn: 1175 more needs"));
}
