//! Task dependencies: needs, cycles, and the order of epochs.

use super::Compiler;
use crate::diagnostic::{Position, code};
use crate::limits;
use crate::node::MapEntry;
use crate::path::FieldPath;
use crate::plan::Task;

/// Edge: one task needs another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need {
    pub task: u32,
    pub needed: u32,
    /// Position in the definition.
    pub position: Position,
}

/// All edges between the tasks of a definition.
pub(super) struct Edges {
    needs: Vec<Need>,
    /// Edges from tasks to the switch that selects them.
    pub chosen: Vec<Need>,
    /// Epoch of each task.
    pub epochs: Vec<u32>,
    /// Tasks whose result is read, with duplicates.
    pub reads: Vec<u32>,
    tasks: usize,
    /// Start of each task's range in `needed`, which is deduplicated and in the order of the definition.
    starts: Vec<u32>,
    needed: Vec<(u32, Position)>,
}

impl Edges {
    pub fn new(tasks: usize) -> Self {
        Self {
            needs: Vec::new(),
            chosen: Vec::new(),
            epochs: vec![0; tasks],
            reads: Vec::new(),
            tasks,
            starts: Vec::new(),
            needed: Vec::new(),
        }
    }

    pub fn add(&mut self, need: Need) {
        self.needs.push(need);
    }

    /// Sorts the needs by task in linear time (counting sort) and removes duplicates.
    fn sort_by_task(&mut self) {
        let all = || self.needs.iter().chain(&self.chosen);
        let mut starts = vec![0u32; self.tasks + 1];
        all().for_each(|need| starts[need.task as usize + 1] += 1);
        (1..starts.len()).for_each(|at| starts[at] += starts[at - 1]);
        let mut sorted = vec![(0, Position::default()); starts[self.tasks] as usize];
        let mut next = starts.clone();
        for need in all() {
            let at = &mut next[need.task as usize];
            sorted[*at as usize] = (need.needed, need.position);
            *at += 1;
        }
        let mut seen_by = vec![u32::MAX; self.tasks];
        self.starts = Vec::with_capacity(self.tasks + 1);
        self.needed = Vec::with_capacity(sorted.len());
        for (task, bounds) in (0u32..).zip(starts.windows(2)) {
            self.starts.push(self.needed.len() as u32);
            for need in &sorted[bounds[0] as usize..bounds[1] as usize] {
                if std::mem::replace(&mut seen_by[need.0 as usize], task) != task {
                    self.needed.push(*need);
                }
            }
        }
        self.starts.push(self.needed.len() as u32);
        self.needs = Vec::new();
    }

    fn needs_of(&self, task: u32) -> &[(u32, Position)] {
        &self.needed[self.starts[task as usize] as usize..self.starts[task as usize + 1] as usize]
    }

    /// Sets `needs`, `dependents` and `is_read` of the tasks.
    pub fn install(self, tasks: &mut [Task]) {
        let mut dependents: Vec<Vec<u32>> = vec![Vec::new(); tasks.len()];
        for (number, task) in (0u32..).zip(tasks.iter_mut()) {
            let needed = self.needs_of(number);
            needed.iter().for_each(|(needed, _)| dependents[*needed as usize].push(number));
            task.needs = needed.iter().map(|(needed, _)| *needed).collect();
        }
        for (task, dependents) in tasks.iter_mut().zip(dependents) {
            task.dependents = dependents.into();
        }
        for read in self.reads {
            tasks[read as usize].is_read = true;
        }
    }
}

impl Compiler {
    /// Checks the edges. False if there are too many to be installed.
    pub(super) fn check_edges(
        &mut self,
        edges: &mut Edges,
        entries: &[MapEntry<'_>],
        epochs: &[&str],
        path: FieldPath<'_>,
    ) -> bool {
        let count = edges.needs.len() + edges.chosen.len();
        if count > limits::NEEDS_MAX {
            let message = format!("{count} needs: at most {} are allowed", limits::NEEDS_MAX);
            self.problems.add(entries[0].position, code::TOO_LARGE, path.field("tasks"), message);
            return false;
        }
        self.check_single_switch(edges, entries, path);
        edges.sort_by_task();
        self.check_cycles(edges, entries, path);
        if !epochs.is_empty() {
            self.check_epoch_order(edges, entries, epochs, path);
        }
        true
    }

    /// Two switches could decide differently about the same task.
    fn check_single_switch(&mut self, edges: &Edges, entries: &[MapEntry<'_>], path: FieldPath<'_>) {
        let mut chosen_by = vec![u32::MAX; entries.len()];
        for choice in &edges.chosen {
            let before = std::mem::replace(&mut chosen_by[choice.task as usize], choice.needed);
            if before != u32::MAX && before != choice.needed {
                let name = |task: u32| &*entries[task as usize].key;
                let (one, two) = (name(before), name(choice.needed));
                let message =
                    format!("both switches `{one}` and `{two}` select this task: it can be in one switch only");
                self.problems.add(choice.position, code::CONFLICT, path.task(name(choice.task)), message);
            }
        }
    }

    /// Topological sort (Kahn): removes tasks without needs until the rest contains only cycles and their dependents.
    fn check_cycles(&mut self, edges: &Edges, entries: &[MapEntry<'_>], path: FieldPath<'_>) {
        let tasks = entries.len();
        let mut dependents: Vec<Vec<u32>> = vec![Vec::new(); tasks];
        let mut left: Vec<usize> = Vec::with_capacity(tasks);
        for task in 0..tasks as u32 {
            left.push(edges.needs_of(task).len());
            edges.needs_of(task).iter().for_each(|(needed, _)| dependents[*needed as usize].push(task));
        }
        let mut free: Vec<u32> = (0..tasks as u32).filter(|task| left[*task as usize] == 0).collect();
        while let Some(task) = free.pop() {
            for dependent in &dependents[task as usize] {
                left[*dependent as usize] -= 1;
                if left[*dependent as usize] == 0 {
                    free.push(*dependent);
                }
            }
        }
        // Every remaining task needs another remaining task, so following these needs ends in a cycle.
        let mut visited_by = vec![0u32; tasks];
        for start in 0..tasks as u32 {
            if left[start as usize] == 0 || visited_by[start as usize] != 0 {
                continue;
            }
            let visit = start + 1;
            let mut chain = Vec::new();
            let mut at = start;
            while visited_by[at as usize] == 0 {
                visited_by[at as usize] = visit;
                chain.push(at);
                let next = edges.needs_of(at).iter().find(|(needed, _)| left[*needed as usize] > 0);
                at = next.expect("a remaining task needs another remaining task").0;
            }
            if visited_by[at as usize] == visit {
                let from = chain.iter().position(|task| *task == at).unwrap_or(0);
                self.report_cycle(&chain[from..], edges, entries, path);
            }
        }
    }

    /// Each task of `cycle` needs the next, and the last needs the first.
    fn report_cycle(&mut self, cycle: &[u32], edges: &Edges, entries: &[MapEntry<'_>], path: FieldPath<'_>) {
        const SHOWN_MAX: usize = 12;
        let name = |task: u32| &*entries[task as usize].key;
        // Starts with the task that is first in the text.
        let first = cycle.iter().enumerate().min_by_key(|(_, task)| **task).map_or(0, |(at, _)| at);
        let rotated: Vec<u32> = cycle[first..].iter().chain(&cycle[..first]).copied().collect();
        let next = rotated.get(1).copied().unwrap_or(rotated[0]);
        let position =
            edges.needs_of(rotated[0]).iter().find(|(needed, _)| *needed == next).map(|(_, position)| *position);
        let message = if let [only] = rotated[..] {
            format!("`{}` needs itself", name(only))
        } else {
            let mut chain: Vec<&str> = rotated.iter().take(SHOWN_MAX).map(|task| name(*task)).collect();
            if rotated.len() > SHOWN_MAX {
                chain.push("…");
            }
            format!("dependency cycle: {} → {}", chain.join(" → "), name(rotated[0]))
        };
        self.problems.add(position.unwrap_or_default(), code::CYCLE, path.task(name(rotated[0])), message);
    }

    fn check_epoch_order(&mut self, edges: &Edges, entries: &[MapEntry<'_>], epochs: &[&str], path: FieldPath<'_>) {
        let epoch = |task: u32| edges.epochs[task as usize];
        for task in 0..entries.len() as u32 {
            for (needed, position) in edges.needs_of(task) {
                if epoch(*needed) > epoch(task) {
                    let (name, other) = (&entries[task as usize].key, &entries[*needed as usize].key);
                    let (own, later) = (epochs[epoch(task) as usize], epochs[epoch(*needed) as usize]);
                    let message = format!(
                        "the task is in epoch `{own}` but needs `{other}`, which is in the later epoch `{later}`"
                    );
                    self.problems.add(*position, code::EPOCH_ORDER, path.task(name), message);
                }
            }
        }
    }
}
