//! Tests of SVG drawings.

use model::workflow::TaskState;

use super::xml::{Element, read};
use super::{EVERYTHING, plan, plan_of};
use crate::graph::svg::svg;
use crate::graph::{NEEDS_DRAWN_MAX, TASKS_DRAWN_MAX};
use crate::plan::Plan;

fn elements(plan: &Plan) -> Vec<Element> {
    let text = svg(plan, None);
    read(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn texts<'a>(elements: &'a [Element], name: &str) -> Vec<&'a str> {
    elements.iter().filter(|element| element.name == name).map(|element| element.text.as_str()).collect()
}

fn with_class<'a>(elements: &'a [Element], class: &str) -> Vec<&'a Element> {
    let has = |element: &&Element| element.attribute("class").is_some_and(|all| all.split(' ').any(|one| one == class));
    elements.iter().filter(has).collect()
}

#[test]
fn every_task_has_a_box_with_its_name_and_every_need_an_arrow() {
    let plan = plan(EVERYTHING);
    let elements = elements(&plan);
    assert_eq!(with_class(&elements, "task").len(), plan.tasks.len());
    let needs: usize = plan.tasks.iter().map(|task| task.needs.len()).sum();
    assert_eq!(with_class(&elements, "need").len(), needs);
    assert_eq!(with_class(&elements, "head").len(), needs);
    assert_eq!(with_class(&elements, "case").len(), 3);
    assert_eq!(with_class(&elements, "epoch").len(), 3);
    assert_eq!(with_class(&elements, "compensation").len(), 1);
    assert_eq!(with_class(&elements, "conditional").len(), 1);
    let names: Vec<_> = with_class(&elements, "name").into_iter().map(|element| element.text.as_str()).collect();
    assert_eq!(names, ["fetch", "lint", "test", "pack", "soak", "choose", "ask", "signal", "notify"]);
    let titles = texts(&elements, "title");
    assert!(titles.contains(&"release: 9 tasks") && titles.contains(&"epoch build"), "{titles:?}");
    assert!(titles.contains(&"fetch: job, with compensation") && titles.contains(&"choose: case 1"), "{titles:?}");
}

#[test]
fn the_svg_is_self_contained() {
    let text = svg(&plan(EVERYTHING), None);
    for foreign in ["href", "url(", "@import", "<script", "<image", "<foreignObject", " id="] {
        assert!(!text.contains(foreign), "{foreign}");
    }
    assert!(text.contains("prefers-color-scheme: dark") && text.contains("role=\"img\""));
}

#[test]
fn states_are_shown_in_colour_and_text() {
    let plan = plan("name: a\ntasks: {a: {run: x}, b: {run: x}, c: {run: x}}");
    let states = |task: u32| ["succeeded", "failed", "something_new"][usize::try_from(task).unwrap()];
    let elements = read(&svg(&plan, Some(&states))).unwrap();
    let classes: Vec<_> =
        with_class(&elements, "task").into_iter().filter_map(|element| element.attribute("class")).collect();
    assert_eq!(classes, ["task good", "task bad", "task plain"]);
    let details: Vec<_> = with_class(&elements, "detail").into_iter().map(|element| element.text.as_str()).collect();
    assert_eq!(details, ["succeeded · job", "failed · job", "something new · job"]);
}

#[test]
fn every_style_class_is_in_the_stylesheet() {
    let plan = plan("name: a\ntasks: {a: {run: x}}");
    for state in TaskState::ALL {
        let text = svg(&plan, Some(&|_| state.as_str()));
        let elements = read(&text).unwrap();
        let class = with_class(&elements, "task")[0].attribute("class").unwrap().replace("task ", ".");
        assert!(class == ".plain" || text.contains(&format!(".outlast-graph {class} ")), "{class}");
    }
}

#[test]
fn names_are_escaped() {
    let mut plan = plan("name: a\nepochs: [e]\ntasks: {a: {epoch: e, wait_for: go}}");
    let hostile = "</title></text><script>alert('1')</script>\"&\0\u{202e}\u{ffff}]]>";
    plan.name = hostile.into();
    plan.tasks[0].name = hostile.into();
    plan.epochs[0] = hostile.into();
    plan.tasks[0].work = crate::plan::TaskWork::WaitFor { signal: hostile.into() };
    let elements = elements(&plan);
    assert!(elements.iter().all(|element| element.name != "script"));
    let shown = "</title></text><script>alert('1')</script>\"&\u{fffd}\u{fffd}\u{fffd}]]>";
    let titles = texts(&elements, "title");
    assert!(titles.contains(&format!("{shown}: waits for {shown}").as_str()), "{titles:?}");
    assert!(titles.contains(&format!("epoch {shown}").as_str()), "{titles:?}");
}

#[test]
fn a_long_name_is_truncated_and_complete_in_the_title() {
    let name = "n".repeat(64);
    let elements = elements(&plan(&format!("name: a\ntasks: {{{name}: {{run: x}}}}")));
    let shown = &with_class(&elements, "name")[0].text;
    assert!(shown.ends_with('…') && shown.len() < 40, "{shown}");
    assert!(texts(&elements, "title").contains(&format!("{name}: job").as_str()));
}

#[test]
fn the_drawing_of_a_large_plan_states_the_omitted_tasks() {
    let elements = elements(&plan_of(&vec![Vec::new(); TASKS_DRAWN_MAX + 500]));
    assert_eq!(with_class(&elements, "task").len(), TASKS_DRAWN_MAX);
    assert_eq!(with_class(&elements, "note")[0].text, "not drawn: 500 more tasks");
    assert!(texts(&elements, "title").contains(&"many: 2500 tasks"));
}

#[test]
fn the_number_of_drawn_needs_is_bounded() {
    let dense: Vec<Vec<usize>> = (0..150).map(|task| (0..task).collect()).collect();
    let elements = elements(&plan_of(&dense));
    assert_eq!(with_class(&elements, "need").len(), NEEDS_DRAWN_MAX);
    assert_eq!(with_class(&elements, "note")[0].text, "not drawn: 1175 more needs");
}

proptest::proptest! {
    #[test]
    fn any_name_gives_a_well_formed_svg(name in "\\PC{0,40}|.{0,40}") {
        let mut plan = plan("name: a\ntasks: {a: {run: x}}");
        plan.name = name.as_str().into();
        plan.tasks[0].name = name.as_str().into();
        let text = svg(&plan, None);
        proptest::prop_assert!(read(&text).is_ok(), "{:?}\n{}", read(&text), text);
    }
}
