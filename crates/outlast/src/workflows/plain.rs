//! What happens in a workflow as lines, one for each change, for where nothing can be drawn.

use std::collections::BTreeMap;
use std::time::Duration;

use model::view::{TaskView, WorkflowView};
use model::workflow::{TaskState, WorkflowState};

use super::tree::{Children, task_note, task_word};
use crate::duration;
use crate::paint::tame;

/// Remembers what was said.
#[derive(Debug, Default)]
pub struct Plain {
    state: Option<WorkflowState>,
    /// The last word on each task, by the path to it.
    said: BTreeMap<String, String>,
}

/// When the workflow began, and how many milliseconds ago that was when it was looked at.
#[derive(Debug, Clone, Copy)]
struct Clock {
    zero: u64,
    now: u64,
}

impl Plain {
    /// A line for each change since the last time.
    pub fn changes(&mut self, view: &WorkflowView, children: &Children) -> Vec<String> {
        let mut lines = Vec::new();
        if self.state.is_none() {
            lines.push((0, format!("{} started {}", view.name, view.id)));
        } else if self.state != Some(view.state) && !view.state.is_terminal() {
            let since = view.since.0.saturating_sub(view.created_at.0);
            lines.push((since.0, format!("{} {}", view.name, view.state)));
        }
        self.state = Some(view.state);
        let clock = Clock { zero: view.created_at.0.0, now: view.duration_ms };
        self.tasks(view, children, "", clock, &mut lines);
        // Several changes may have come with one look; they are told in the order in which they happened.
        lines.sort_by_key(|(at, _)| *at);
        lines
            .into_iter()
            .map(|(at, line)| format!("+{}  {}", duration::show(Duration::from_millis(at)), tame(&line)))
            .collect()
    }

    fn tasks(
        &mut self,
        view: &WorkflowView,
        children: &Children,
        path: &str,
        clock: Clock,
        lines: &mut Vec<(u64, String)>,
    ) {
        for task in view.tasks.as_deref().unwrap_or_default() {
            let name = format!("{path}{}", task.name);
            self.task(task, &name, clock, lines);
            for item in task.items.as_deref().unwrap_or_default() {
                let is_worth_a_line = item.state == TaskState::Failed || task_word(item).0 == "approval";
                if is_worth_a_line {
                    let name = format!("{name}[{}]", item.item.unwrap_or_default());
                    self.task(item, &name, clock, lines);
                }
            }
            if let Some(child) = task.child.and_then(|id| children.get(&id)) {
                self.tasks(child, children, &format!("{name}/"), clock, lines);
            }
        }
    }

    fn task(&mut self, task: &TaskView, name: &str, clock: Clock, lines: &mut Vec<(u64, String)>) {
        let (word, _, _, _) = task_word(task);
        let undoing = task.compensation.as_ref();
        let key = format!("{word} {}", undoing.map_or("", |undoing| undoing.state.as_str()));
        let known = self.said.get(name);
        if known == Some(&key) || (known.is_none() && task.state == TaskState::Waiting) {
            return;
        }
        let at = undoing.map(|undoing| undoing.at).or(task.ended_at).or(task.began_at);
        let at = at.map_or(clock.now, |at| at.0.0.saturating_sub(clock.zero));
        let took = task.duration_ms.filter(|_| task.state.is_terminal() && task.began_at.is_some());
        let took = took.filter(|_| undoing.is_none() && task.state != TaskState::Skipped);
        let took =
            took.map(|millis| format!(" in {}", duration::show(Duration::from_millis(millis)))).unwrap_or_default();
        let items = task.items_total.map(|total| format!(" ({total} items)")).unwrap_or_default();
        let note = task_note(task);
        let note = if note.is_empty() { note } else { format!(": {note}") };
        lines.push((at, format!("{name} {word}{took}{items}{note}")));
        self.said.insert(name.to_owned(), key);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tree::example::{items, task, task_with, workflow, workflow_of};
    use super::*;

    fn said(plain: &mut Plain, view: &WorkflowView) -> String {
        plain.changes(view, &Children::new()).join("\n")
    }

    #[test]
    fn each_change_is_one_line_and_is_said_once() {
        let mut plain = Plain::default();
        insta::assert_snapshot!(said(&mut plain, &workflow("running")), @"
        +0ms  build-and-test started wf_0000000000001
        +1.0s  build running
        +2.2s  fetch succeeded in 1.2s
        ");
        assert_eq!(said(&mut plain, &workflow("running")), "");
        insta::assert_snapshot!(said(&mut plain, &workflow("failed")), @"
        +1.9s  build failed in 900ms: job failed: it exited with 1
        +12s  publish cancelled: upstream failed
        ");
    }

    #[test]
    fn approvals_undoing_and_failed_items_have_their_lines() {
        let mut plain = Plain::default();
        let asks = json!({"kind": "approval", "job": "job_0000000000007", "job_state": "approval_required"});
        let undone = json!({"compensation": {"state": "done", "job": null, "at": "2026-01-01T00:00:05.000Z"}});
        let build = json!({"items_total": 3, "items": items("build", &[("succeeded", 1), ("failed", 1)])});
        let tasks = vec![
            task_with("approve", "running", Some(10), asks),
            task_with("charge", "succeeded", Some(10), undone),
            task_with("build", "running", Some(10), build),
            task("later", "waiting", None),
        ];
        insta::assert_snapshot!(said(&mut plain, &workflow_of("rolling_back", tasks, json!({}))), @"
        +0ms  build-and-test started wf_0000000000001
        +1.0s  approve approval: outlast approvals approve job_0000000000007 --reason …
        +1.0s  build running (3 items)
        +1.5s  build[1] failed in 500ms
        +5.0s  charge succeeded: undone
        ");
    }

    #[test]
    fn lines_have_no_control_codes() {
        let tasks =
            vec![task_with("a", "failed", Some(10), json!({"reason": {"code": "fatal", "message": "\u{1b}[31mred"}}))];
        let lines = said(&mut Plain::default(), &workflow_of("running", tasks, json!({})));
        assert!(lines.contains("·[31mred") && !lines.contains('\u{1b}'), "{lines}");
    }

    #[test]
    fn a_task_of_a_sub_workflow_is_named_with_its_path() {
        let child = workflow("failed");
        let started = json!({"kind": "workflow", "child": child.id});
        let view = workflow_of("running", vec![task_with("nested", "running", Some(2000), started)], json!({}));
        let lines = Plain::default().changes(&view, &Children::from([(child.id, child)]));
        assert!(lines.iter().any(|line| line.contains("  nested/build failed")), "{lines:?}");
    }
}
