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

impl Plain {
    /// A line for each change since the last time.
    pub fn changes(&mut self, view: &WorkflowView, children: &Children) -> Vec<String> {
        let mut lines = Vec::new();
        if self.state != Some(view.state) && !view.state.is_terminal() {
            let since = view.since.0.saturating_sub(view.created_at.0);
            let id = if self.state.is_none() { format!(" {}", view.id) } else { String::new() };
            lines.push((since.0, format!("{} {}{id}", view.name, view.state)));
        }
        self.state = Some(view.state);
        self.tasks(view, children, "", view.created_at.0.0, &mut lines);
        // Several changes may have come with one look; they are told in the order in which they happened.
        lines.sort_by_key(|(at, _)| *at);
        lines.into_iter().map(|(at, line)| format!("+{}  {}", duration::show(Duration::from_millis(at)), tame(&line))).collect()
    }

    fn tasks(&mut self, view: &WorkflowView, children: &Children, path: &str, zero: u64, lines: &mut Vec<(u64, String)>) {
        for task in view.tasks.as_deref().unwrap_or_default() {
            let name = format!("{path}{}", task.name);
            self.task(task, &name, zero, lines);
            for item in task.items.as_deref().unwrap_or_default() {
                let is_worth_a_line = item.state == TaskState::Failed || task_word(item).0 == "approval";
                if is_worth_a_line {
                    let name = format!("{name}[{}]", item.item.unwrap_or_default());
                    self.task(item, &name, zero, lines);
                }
            }
            if let Some(child) = task.child.and_then(|id| children.get(&id)) {
                self.tasks(child, children, &format!("{name}/"), zero, lines);
            }
        }
    }

    fn task(&mut self, task: &TaskView, name: &str, zero: u64, lines: &mut Vec<(u64, String)>) {
        let (word, _, _, _) = task_word(task);
        let undoing = task.compensation.as_ref();
        let key = format!("{word} {}", undoing.map_or("", |undoing| undoing.state.as_str()));
        let known = self.said.get(name);
        if known == Some(&key) || (known.is_none() && task.state == TaskState::Waiting) {
            return;
        }
        let at = undoing.map(|undoing| undoing.at).or(task.ended_at).or(task.began_at);
        let at = at.map_or(0, |at| at.0.0.saturating_sub(zero));
        let took = task.duration_ms.filter(|_| task.state.is_terminal() && task.began_at.is_some());
        let took = took.filter(|_| undoing.is_none() && task.state != TaskState::Skipped);
        let took = took.map(|millis| format!(" in {}", duration::show(Duration::from_millis(millis)))).unwrap_or_default();
        let items = task.items_total.map(|total| format!(" ({total} items)")).unwrap_or_default();
        let note = task_note(task);
        let note = if note.is_empty() { note } else { format!(": {note}") };
        lines.push((at, format!("{name} {word}{took}{items}{note}")));
        self.said.insert(name.to_owned(), key);
    }
}
