//! Random workflow definitions: graphs with every kind of task and every kind of failure.

use serde_json::{Map, Value, json};

use crate::operators::TOPICS;
use crate::rng::{Rate, Rng};
use crate::scenario::{MINUTE, SECOND};

/// Parameters of the definitions of a seed.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Limit on the tasks of a definition, other than the large one.
    pub tasks_max: u64,
    /// Depth of sub-workflows.
    pub depth: u32,
    pub epochs: Rate,
    pub each: Rate,
    pub items_max: u64,
    pub when: Rate,
    pub switch: Rate,
    pub merge: Rate,
    pub children: Rate,
    pub delay: Rate,
    pub delay_max: u64,
    pub approval: Rate,
    pub wait_for: Rate,
    /// Share of signal waits that have a timeout.
    pub wait_timeout: Rate,
    pub compensation: Rate,
    /// Share of compensations that fail or have a template error.
    pub bad_compensation: Rate,
    pub compensate: Rate,
    pub tolerate: Rate,
    pub error: Rate,
    pub fatal: Rate,
    pub timeout: Rate,
    pub whole_timeout: Rate,
    pub bad_outputs: Rate,
}

/// Names of signals.
pub const SIGNALS: [&str; 3] = ["go", "stop", "more"];

/// Builds one definition.
struct DefinitionBuilder<'a> {
    shape: &'a Shape,
    rng: &'a mut Rng,
    count: u64,
    epochs: u64,
    /// Tasks that are in a case of some switch.
    in_switch: Vec<bool>,
    children: Map<String, Value>,
}

/// A definition with `count` tasks. Its sub-workflows are small.
pub fn definition(rng: &mut Rng, shape: &Shape, count: u64, depth: u32) -> Value {
    let epochs = if rng.chance(shape.epochs) { rng.between(1, 4) } else { 0 };
    let mut children = Map::new();
    if depth > 0 && rng.chance(shape.children) {
        for number in 0..rng.between(1, 2) {
            let tasks = rng.between(1, 6);
            children.insert(format!("part{number}"), definition(rng, shape, tasks, depth - 1));
        }
    }
    let in_switch = vec![false; count as usize];
    let mut builder = DefinitionBuilder { shape, rng, count, epochs, in_switch, children };
    let tasks: Map<String, Value> = (0..count).map(|number| (name(number), builder.task(number))).collect();
    builder.finish(tasks)
}

fn name(number: u64) -> String {
    format!("t{number}")
}

impl DefinitionBuilder<'_> {
    fn finish(mut self, tasks: Map<String, Value>) -> Value {
        let mut definition = json!({
            "name": "drawn",
            "inputs": { "n": { "type": "integer", "default": 3 }, "list": { "type": "list", "default": [1, 2, 3] } },
            "tasks": tasks,
        });
        if self.epochs > 0 {
            definition["epochs"] = (0..self.epochs).map(|epoch| Value::from(format!("e{epoch}"))).collect();
        }
        if self.rng.one_in(2) {
            let read = self.rng.below(self.count);
            let bad = self.rng.chance(self.shape.bad_outputs);
            let text =
                if bad { format!("${{tasks.t{read}.result - 1}}") } else { format!("${{tasks.t{read}.result}}") };
            definition["outputs"] = json!({ "of": text });
        }
        if self.rng.chance(self.shape.whole_timeout) {
            definition["timeout"] = format!("{}ms", self.rng.between(SECOND, 2 * MINUTE)).into();
        }
        if !self.children.is_empty() {
            definition["workflows"] = Value::Object(std::mem::take(&mut self.children));
        }
        definition
    }

    fn task(&mut self, number: u64) -> Value {
        let mut task = Map::new();
        let needs: Vec<Value> = self.needs(number).into_iter().map(|need| name(need).into()).collect();
        if !needs.is_empty() {
            task.insert("needs".to_owned(), needs.into());
        }
        if self.epochs > 0 {
            // Epochs grow with the task number: a task never needs one of a later epoch.
            task.insert("epoch".to_owned(), format!("e{}", number * self.epochs / self.count).into());
        }
        if self.rng.chance(self.shape.when) {
            task.insert("when".to_owned(), self.condition(number).into());
        }
        let is_switch = self.work(number, &mut task);
        if !is_switch && self.rng.chance(self.shape.each) {
            self.each(&mut task);
        }
        let on_failure = if self.rng.chance(self.shape.compensate) {
            "compensate"
        } else if self.rng.chance(self.shape.tolerate) {
            "continue"
        } else {
            "fail"
        };
        task.insert("on_failure".to_owned(), on_failure.into());
        Value::Object(task)
    }

    /// Mostly tasks shortly before this one, so that graphs are neither chains nor stars.
    fn needs(&mut self, number: u64) -> Vec<u64> {
        let mut needs: Vec<u64> = Vec::new();
        if number > 0 {
            for _ in 0..self.rng.below(4) {
                let back = if self.rng.one_in(8) { self.rng.below(number) } else { self.rng.below(number.min(6)) };
                needs.push(number - 1 - back);
            }
        }
        needs.sort_unstable();
        needs.dedup();
        needs
    }

    fn condition(&mut self, number: u64) -> String {
        match self.rng.below(4) {
            0 => "${inputs.n % 2 == 1}".to_owned(),
            1 => "${inputs.n > 7}".to_owned(),
            2 if number > 0 => format!("${{tasks.t{}.state == \"succeeded\"}}", self.rng.below(number)),
            _ => "${length(inputs.list) > 1}".to_owned(),
        }
    }

    /// Draws the work of a task. Returns whether it is a switch.
    fn work(&mut self, number: u64, task: &mut Map<String, Value>) -> bool {
        let shape = *self.shape;
        if self.rng.chance(shape.switch) && self.switch(number, task) {
            return true;
        }
        let child = self.rng.index(self.children.len());
        let child = self.children.keys().nth(child).cloned().filter(|_| self.rng.one_in(3));
        if let Some(child) = child {
            task.insert("workflow".to_owned(), child.into());
            task.insert("with".to_owned(), json!({ "n": self.rng.below(10) }));
            self.timeout(task, 5 * MINUTE);
            if self.rng.one_in(3) {
                self.compensation(task);
            }
        } else if self.rng.chance(shape.delay) {
            task.insert("delay".to_owned(), self.delay());
        } else if self.rng.chance(shape.approval) {
            task.insert("approval".to_owned(), "may it go on with ${inputs.n}?".into());
            self.timeout(task, 5 * MINUTE);
        } else if self.rng.chance(shape.wait_for) {
            task.insert("wait_for".to_owned(), (*self.rng.pick(&SIGNALS).unwrap_or(&"go")).into());
            if self.rng.chance(shape.wait_timeout) {
                task.insert("timeout".to_owned(), format!("{}ms", self.rng.below(2 * MINUTE) + 1).into());
            }
        } else {
            self.run(number, task);
        }
        false
    }

    fn delay(&mut self) -> Value {
        match self.rng.below(6) {
            0 => "0ms".into(),
            1 => json!({ "until": "2020-01-01T00:00:00Z" }),
            2 => "${string(inputs.n) + \"s\"}".into(),
            _ => format!("{}ms", self.rng.below(self.shape.delay_max)).into(),
        }
    }

    /// Builds a switch over later tasks that are not in a case of another switch.
    fn switch(&mut self, number: u64, task: &mut Map<String, Value>) -> bool {
        let free: Vec<u64> =
            (number + 1..self.count.min(number + 8)).filter(|later| !self.in_switch[*later as usize]).collect();
        if free.len() < 2 {
            return false;
        }
        let middle = free.len() / 2;
        let names = |tasks: &[u64]| -> Value { tasks.iter().map(|task| Value::from(name(*task))).collect() };
        let when = self.condition(number);
        let mut cases = vec![json!({ "when": when, "then": names(&free[..middle]) })];
        let other = if self.rng.one_in(2) {
            json!({ "then": names(&free[middle..]) })
        } else {
            json!({ "when": self.condition(number), "then": names(&free[middle..]) })
        };
        cases.push(other);
        for later in free {
            self.in_switch[later as usize] = true;
        }
        task.insert("switch".to_owned(), cases.into());
        true
    }

    fn run(&mut self, number: u64, task: &mut Map<String, Value>) {
        let shape = *self.shape;
        let merged = self.rng.chance(shape.merge);
        let fail = if self.rng.chance(shape.error) {
            Some("error")
        } else if self.rng.chance(shape.fatal) {
            Some("fatal")
        } else {
            None
        };
        let run = if merged {
            task.insert("merge".to_owned(), "the same ${inputs.n}".into());
            json!({ "echo": { "value": "shared" } })
        } else if self.rng.one_in(6) {
            "true".into()
        } else {
            let mut echo = json!({ "value": self.value(number) });
            if let Some(fail) = fail {
                echo["fail"] = fail.into();
            }
            json!({ "echo": echo })
        };
        task.insert("run".to_owned(), run);
        task.insert("retry".to_owned(), self.rng.below(3).into());
        task.insert("topic".to_owned(), (*self.rng.pick(&TOPICS).unwrap_or(&"default")).into());
        self.timeout(task, MINUTE);
        if self.rng.chance(shape.compensation) {
            self.compensation(task);
        }
    }

    fn value(&mut self, number: u64) -> Value {
        match self.rng.below(5) {
            0 => self.rng.below(100).into(),
            1 if number > 0 => format!("${{tasks.t{}.result}}", self.rng.below(number)).into(),
            2 => "${inputs.n}".into(),
            // Arithmetic on a result that is not a number: a template error.
            3 if number > 0 && self.rng.one_in(6) => {
                format!("${{tasks.t{}.result * 2}}", self.rng.below(number)).into()
            }
            _ => format!("text {number}").into(),
        }
    }

    fn timeout(&mut self, task: &mut Map<String, Value>, most: u64) {
        if self.rng.chance(self.shape.timeout) {
            task.insert("timeout".to_owned(), format!("{}ms", self.rng.between(SECOND, most)).into());
        }
    }

    fn compensation(&mut self, task: &mut Map<String, Value>) {
        let bad = self.rng.chance(self.shape.bad_compensation);
        let run = match (bad, self.rng.below(4)) {
            (true, 0) => json!({ "echo": { "value": "${result - 1}" } }),
            (true, 1 | 2) => json!({ "echo": { "value": "undo", "fail": "fatal" } }),
            (true, _) => json!({ "echo": { "value": "undo", "fail": "error" } }),
            (false, 0) => "true".into(),
            (false, _) => json!({ "echo": { "value": { "undo": "${result}" } } }),
        };
        task.insert("compensation".to_owned(), json!({ "run": run, "retry": self.rng.below(3) }));
    }

    fn each(&mut self, task: &mut Map<String, Value>) {
        let most = if self.rng.one_in(8) { self.shape.items_max } else { self.shape.items_max.min(5) };
        let list = match self.rng.below(4) {
            0 => "${inputs.list}".into(),
            1 => format!("${{range({})}}", self.rng.below(most + 1)).into(),
            _ => (0..self.rng.below(most + 1)).collect(),
        };
        task.insert("for_each".to_owned(), list);
        if self.rng.one_in(2) {
            task.insert("concurrency".to_owned(), self.rng.between(1, 4).into());
        }
    }
}

/// Draws the parameters.
pub fn shape(rng: &mut Rng) -> Shape {
    let mut rate = |most: u64| if rng.below(10) < 4 { Rate::NEVER } else { Rate(rng.between(1, most) as u32) };
    Shape {
        epochs: rate(5_000),
        each: rate(2_500),
        when: rate(2_000),
        switch: rate(2_000),
        merge: rate(3_000),
        children: rate(6_000),
        delay: rate(2_500),
        approval: rate(800),
        wait_for: rate(1_000),
        wait_timeout: rate(9_000),
        compensation: rate(8_000),
        bad_compensation: rate(4_000),
        compensate: rate(6_000),
        tolerate: rate(5_000),
        error: rate(1_000),
        fatal: rate(800),
        timeout: rate(1_500),
        whole_timeout: rate(3_000),
        bad_outputs: rate(3_000),
        tasks_max: rng.between(3, 30),
        depth: rng.below(4) as u32,
        items_max: if rng.one_in(3) { 50 } else { 8 },
        delay_max: if rng.one_in(6) { 10 * MINUTE } else { rng.between(1, 20 * SECOND) },
    }
}

/// A chain of tasks whose outcome does not depend on lost or late messages. Only tasks that always succeed run in
/// parallel.
pub fn chain(rng: &mut Rng, depth: u32) -> Value {
    let count = rng.between(5, 9);
    // In the second half, so that there are tasks to compensate.
    let fails_at = rng.one_in(2).then(|| rng.between(count / 2, count - 1));
    let mut tasks = Map::new();
    for number in 0..count {
        let mut task = chain_task(rng, number, depth);
        if number > 0 {
            task["needs"] = name(number - 1).into();
        }
        if fails_at == Some(number) {
            task = json!({ "run": { "echo": { "value": 1, "fail": "fatal" } }, "needs": task["needs"].take() });
            if task["needs"].is_null() {
                task["needs"] = json!([]);
            }
        }
        task["epoch"] = format!("e{}", number * 2 / count).into();
        tasks.insert(name(number), task);
    }
    let mut definition = json!({ "name": "chain", "epochs": ["e0", "e1"], "on_failure": "compensate", "tasks": tasks });
    if depth > 0 {
        definition["workflows"] = json!({ "part": chain(rng, depth - 1) });
    }
    definition
}

fn chain_task(rng: &mut Rng, number: u64, depth: u32) -> Value {
    let compensation = match rng.below(4) {
        0 => json!({ "run": { "echo": { "value": "${result - 1}" } } }),
        1 => json!({ "run": { "echo": { "value": "undo", "fail": "fatal" } } }),
        _ => json!({ "run": { "echo": { "value": { "undo": "${result}" } } } }),
    };
    let text = format!("text {number}");
    match rng.below(9) {
        0 => json!({ "delay": format!("{}ms", rng.below(2 * SECOND)) }),
        1 => json!({ "wait_for": "go" }),
        2 => json!({ "approval": "may it?" }),
        3 if depth > 0 => json!({ "workflow": "part", "on_failure": "continue" }),
        3 | 4 => json!({
            "for_each": [1, 2, 3], "concurrency": 1, "run": { "echo": { "value": "${item}" } }, "compensation": compensation,
        }),
        5 => {
            json!({ "for_each": [1, 2, 3, 4, 5], "run": { "echo": { "value": "${index}" } }, "merge": "m${index % 2}" })
        }
        6 => json!({ "run": { "echo": { "value": 1, "fail": "error" } }, "retry": 1, "on_failure": "continue" }),
        7 => json!({ "when": "${false}", "run": { "echo": { "value": 1 } } }),
        _ => json!({ "run": { "echo": { "value": text } }, "compensation": compensation }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // FEATURES: B1
    #[test]
    fn every_random_definition_compiles() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let shape = shape(&mut rng);
            let count = rng.between(1, shape.tasks_max);
            let drawn = definition(&mut rng, &shape, count, shape.depth);
            let text = serde_json::to_vec(&drawn).unwrap();
            if let Err(error) = workflow::compile(workflow::Source::Json(&text)) {
                panic!("seed {seed}: {error}\n{drawn:#}");
            }
            let chained = chain(&mut rng, 2);
            let text = serde_json::to_vec(&chained).unwrap();
            if let Err(error) = workflow::compile(workflow::Source::Json(&text)) {
                panic!("seed {seed}: {error}\n{chained:#}");
            }
        }
    }
}
