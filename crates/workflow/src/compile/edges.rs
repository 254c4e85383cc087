//! What comes before what: needs, their cycles, and the order of epochs.

use super::Compiler;
use crate::diagnostic::{Place, code};
use crate::limits;
use crate::node::Entry;
use crate::path::Path;
use crate::plan::Task;

/// One task needs another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need {
    pub task: u32,
    pub needed: u32,
    /// Where that is said.
    pub place: Place,
}

/// All edges of a definition.
pub(super) struct Edges {
    needs: Vec<Need>,
    /// Tasks that need the switch that chooses them.
    pub chosen: Vec<Need>,
    /// The epoch of each task.
    pub epochs: Vec<u32>,
    /// Tasks whose result is read, perhaps more than once.
    pub reads: Vec<u32>,
    tasks: usize,
    /// Without doubles, in the order they were said: from where the needs of each task begin.
    starts: Vec<u32>,
    needed: Vec<(u32, Place)>,
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

    /// Sorts the needs by task, in time that grows with their number, and drops doubles.
    fn gather(&mut self) {
        let all = || self.needs.iter().chain(&self.chosen);
        let mut starts = vec![0u32; self.tasks + 1];
        all().for_each(|need| starts[need.task as usize + 1] += 1);
        (1..starts.len()).for_each(|at| starts[at] += starts[at - 1]);
        let mut sorted = vec![(0, Place::default()); starts[self.tasks] as usize];
        let mut next = starts.clone();
        for need in all() {
            let at = &mut next[need.task as usize];
            sorted[*at as usize] = (need.needed, need.place);
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

    fn of(&self, task: u32) -> &[(u32, Place)] {
        &self.needed[self.starts[task as usize] as usize..self.starts[task as usize + 1] as usize]
    }

    /// Writes needs, dependents and `is_read` into the tasks.
    pub fn install(self, tasks: &mut [Task]) {
        let mut dependents: Vec<Vec<u32>> = vec![Vec::new(); tasks.len()];
        for (number, task) in (0u32..).zip(tasks.iter_mut()) {
            let needed = self.of(number);
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
    /// Whether they can be installed.
    pub(super) fn check_edges(
        &mut self,
        edges: &mut Edges,
        entries: &[Entry<'_>],
        epochs: &[&str],
        path: Path<'_>,
    ) -> bool {
        let count = edges.needs.len() + edges.chosen.len();
        if count > limits::NEEDS_MAX {
            let message = format!("{count} needs are too many: at most {}", limits::NEEDS_MAX);
            self.problems.add(entries[0].place, code::TOO_LARGE, path.field("tasks"), message);
            return false;
        }
        self.chosen_once(edges, entries, path);
        edges.gather();
        self.cycles(edges, entries, path);
        if !epochs.is_empty() {
            self.epoch_order(edges, entries, epochs, path);
        }
        true
    }

    /// Two switches could not agree about a task.
    fn chosen_once(&mut self, edges: &Edges, entries: &[Entry<'_>], path: Path<'_>) {
        let mut chosen_by = vec![u32::MAX; entries.len()];
        for choice in &edges.chosen {
            let before = std::mem::replace(&mut chosen_by[choice.task as usize], choice.needed);
            if before != u32::MAX && before != choice.needed {
                let name = |task: u32| &*entries[task as usize].key;
                let (one, two) = (name(before), name(choice.needed));
                let message = format!("two switches choose it, `{one}` and `{two}`: one can");
                self.problems.add(choice.place, code::CONFLICT, path.task(name(choice.task)), message);
            }
        }
    }

    /// Takes away tasks that need nothing more, until none is left or the rest needs each other.
    fn cycles(&mut self, edges: &Edges, entries: &[Entry<'_>], path: Path<'_>) {
        let tasks = entries.len();
        let mut dependents: Vec<Vec<u32>> = vec![Vec::new(); tasks];
        let mut left: Vec<usize> = Vec::with_capacity(tasks);
        for task in 0..tasks as u32 {
            left.push(edges.of(task).len());
            edges.of(task).iter().for_each(|(needed, _)| dependents[*needed as usize].push(task));
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
        // Every task that is left needs another that is left: following them leads into a cycle.
        let mut walked_in = vec![0u32; tasks];
        for start in 0..tasks as u32 {
            if left[start as usize] == 0 || walked_in[start as usize] != 0 {
                continue;
            }
            let walk = start + 1;
            let mut way = Vec::new();
            let mut at = start;
            while walked_in[at as usize] == 0 {
                walked_in[at as usize] = walk;
                way.push(at);
                let next = edges.of(at).iter().find(|(needed, _)| left[*needed as usize] > 0);
                at = next.expect("a task that is left needs another that is left").0;
            }
            if walked_in[at as usize] == walk {
                let from = way.iter().position(|task| *task == at).unwrap_or(0);
                self.cycle(&way[from..], edges, entries, path);
            }
        }
    }

    /// `cycle` are tasks of which each needs the next, and the last the first.
    fn cycle(&mut self, cycle: &[u32], edges: &Edges, entries: &[Entry<'_>], path: Path<'_>) {
        const SHOWN_MAX: usize = 12;
        let name = |task: u32| &*entries[task as usize].key;
        // Told from the task that stands first in the text.
        let first = cycle.iter().enumerate().min_by_key(|(_, task)| **task).map_or(0, |(at, _)| at);
        let turned: Vec<u32> = cycle[first..].iter().chain(&cycle[..first]).copied().collect();
        let next = turned.get(1).copied().unwrap_or(turned[0]);
        let place = edges.of(turned[0]).iter().find(|(needed, _)| *needed == next).map(|(_, place)| *place);
        let message = if let [only] = turned[..] {
            format!("`{}` needs itself", name(only))
        } else {
            let mut way: Vec<&str> = turned.iter().take(SHOWN_MAX).map(|task| name(*task)).collect();
            if turned.len() > SHOWN_MAX {
                way.push("…");
            }
            format!("the tasks need each other: {} → {}", way.join(" → "), name(turned[0]))
        };
        self.problems.add(place.unwrap_or_default(), code::CYCLE, path.task(name(turned[0])), message);
    }

    fn epoch_order(&mut self, edges: &Edges, entries: &[Entry<'_>], epochs: &[&str], path: Path<'_>) {
        let epoch = |task: u32| edges.epochs[task as usize];
        for task in 0..entries.len() as u32 {
            for (needed, place) in edges.of(task) {
                if epoch(*needed) > epoch(task) {
                    let (name, other) = (&entries[task as usize].key, &entries[*needed as usize].key);
                    let (own, later) = (epochs[epoch(task) as usize], epochs[epoch(*needed) as usize]);
                    let message =
                        format!("it is in epoch `{own}` and needs `{other}`, which is in the later epoch `{later}`");
                    self.problems.add(*place, code::EPOCH_ORDER, path.task(name), message);
                }
            }
        }
    }
}
