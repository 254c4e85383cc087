//! Progress of a workflow as one line per change, for output that is not a terminal.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{TaskView, WorkflowView};
use model::workflow::{TaskState, WorkflowState};

use super::tree::{Children, task_label, task_note};
use crate::duration;
use crate::paint::sanitize;

/// Tracks the reported states.
#[derive(Debug, Default)]
pub struct ChangeLines {
    state: Option<WorkflowState>,
    /// Last reported state of each task, by path.
    reported: BTreeMap<String, String>,
}

/// Start of the workflow and its age in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Clock {
    zero: u64,
    now: u64,
}

impl ChangeLines {
    /// Lines for the changes since the last call.
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
        // One poll may return several changes; they are sorted by time.
        lines.sort_by_key(|(at, _)| *at);
        lines
            .into_iter()
            .map(|(at, line)| format!("+{}  {}", duration::show(Duration::from_millis(at)), sanitize(&line)))
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
                let is_reported = item.state == TaskState::Failed || task_label(item).0 == "approval";
                if is_reported {
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
        let (label, _, _, _) = task_label(task);
        let compensation = task.compensation.as_ref();
        let key = format!("{label} {}", compensation.map_or("", |compensation| compensation.state.as_str()));
        let known = self.reported.get(name);
        if known == Some(&key) || (known.is_none() && task.state == TaskState::Waiting) {
            return;
        }
        let at = compensation.map(|compensation| compensation.at).or(task.ended_at).or(task.began_at);
        let at = at.map_or(clock.now, |at| at.0.0.saturating_sub(clock.zero));
        let took = task.duration_ms.filter(|_| task.state.is_terminal() && task.began_at.is_some());
        let took = took.filter(|_| compensation.is_none() && task.state != TaskState::Skipped);
        let took =
            took.map(|millis| format!(" in {}", duration::show(Duration::from_millis(millis)))).unwrap_or_default();
        let items = task.items_total.map(|total| format!(" ({total} items)")).unwrap_or_default();
        let note = task_note(task);
        let note = if note.is_empty() { note } else { format!(": {note}") };
        lines.push((at, format!("{name} {label}{took}{items}{note}")));
        self.reported.insert(name.to_owned(), key);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tree::example::{items, task, task_with, workflow, workflow_of};
    use super::*;

    fn changes(lines: &mut ChangeLines, view: &WorkflowView) -> String {
        lines.changes(view, &Children::new()).join("\n")
    }

    #[test]
    fn each_change_is_reported_once() {
        let mut lines = ChangeLines::default();
        insta::assert_snapshot!(changes(&mut lines, &workflow("running")), @"
        +0ms  build-and-test started wf_0000000000001
        +1.0s  build running
        +2.2s  fetch succeeded in 1.2s
        ");
        assert_eq!(changes(&mut lines, &workflow("running")), "");
        insta::assert_snapshot!(changes(&mut lines, &workflow("failed")), @"
        +1.9s  build failed in 900ms: job failed: it exited with 1
        +12s  publish cancelled: upstream failed
        ");
    }

    #[test]
    fn approvals_compensations_and_failed_items_are_reported() {
        let mut lines = ChangeLines::default();
        let approval = json!({"kind": "approval", "job": "job_0000000000007", "job_state": "approval_required"});
        let compensated = json!({"compensation": {"state": "done", "job": null, "at": "2026-01-01T00:00:05.000Z"}});
        let build = json!({"items_total": 3, "items": items("build", &[("succeeded", 1), ("failed", 1)])});
        let tasks = vec![
            task_with("approve", "running", Some(10), approval),
            task_with("charge", "succeeded", Some(10), compensated),
            task_with("build", "running", Some(10), build),
            task("later", "waiting", None),
        ];
        insta::assert_snapshot!(changes(&mut lines, &workflow_of("rolling_back", tasks, json!({}))), @"
        +0ms  build-and-test started wf_0000000000001
        +1.0s  approve approval: outlast approvals approve job_0000000000007 --reason …
        +1.0s  build running (3 items)
        +1.5s  build[1] failed in 500ms
        +5.0s  charge succeeded: compensated
        ");
    }

    #[test]
    fn lines_have_no_control_codes() {
        let tasks =
            vec![task_with("a", "failed", Some(10), json!({"reason": {"code": "fatal", "message": "\u{1b}[31mred"}}))];
        let lines = changes(&mut ChangeLines::default(), &workflow_of("running", tasks, json!({})));
        assert!(lines.contains("·[31mred") && !lines.contains('\u{1b}'), "{lines}");
    }

    #[test]
    fn a_task_of_a_sub_workflow_is_named_with_its_path() {
        let child = workflow("failed");
        let started = json!({"kind": "workflow", "child": child.id});
        let view = workflow_of("running", vec![task_with("nested", "running", Some(2000), started)], json!({}));
        let lines = ChangeLines::default().changes(&view, &Children::from([(child.id, child)]));
        assert!(lines.iter().any(|line| line.contains("  nested/build failed")), "{lines:?}");
    }
}
