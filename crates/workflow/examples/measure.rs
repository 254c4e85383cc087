//! Measures the compilation of large definitions, the memory of plans, and the rendering of jobs.
//!
//! `cargo run --release -p workflow --example measure`
#![expect(unsafe_code, reason = "implementing an allocator is unsafe; this one only counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use model::id::WorkflowId;
use serde_json::{Value, json};
use workflow::plan::{JobTemplate, TaskWork};
use workflow::scope::{JobContext, Scope, Tasks};
use workflow::{Plan, Source, compile};

const TASKS: usize = 100_000;
const RENDERS: u32 = 200_000;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

/// System allocator that counts the allocated bytes.
struct Counting;

// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(rounded(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(rounded(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Actual size of a block: a multiple of 16, including a word of the allocator.
fn rounded(bytes: usize) -> usize {
    (bytes + 8).next_multiple_of(16).max(32)
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let value = "x".repeat(100);
    let task = |needs: String| format!("    run: {{echo: {{value: \"{value}\"}}}}\n    needs: [{needs}]\n");
    let chain = definition(|at| if at == 0 { task(String::new()) } else { task(format!("t{}", at - 1)) });
    let fan = definition(|at| match at {
        0 => task(String::new()),
        last if last == TASKS - 1 => task((0..last).map(|at| format!("t{at}")).collect::<Vec<_>>().join(", ")),
        _ => task("t0".to_owned()),
    });
    let independent = definition(|_| format!("    run: {{echo: {{value: \"{value}\"}}}}\n"));
    let templates = definition(|at| {
        let needed = at.saturating_sub(1);
        if at == 0 {
            return "    run: {echo: {value: 1}}\n".to_owned();
        }
        format!(
            "    run: 'make ${{tasks.t{needed}.result.path}}'\n    when: ${{tasks.t{needed}.state == 'succeeded'}}\n"
        )
    });
    for (name, text) in
        [("chain", &chain), ("fan out and in", &fan), ("independent", &independent), ("templates", &templates)]
    {
        large(name, text);
    }
    renders();
}

fn definition(task: impl Fn(usize) -> String) -> String {
    let mut text = String::from("name: large\ntasks:\n");
    for at in 0..TASKS {
        let _ = write!(text, "  t{at}:\n{}", task(at));
    }
    text
}

fn large(name: &str, text: &str) {
    let before = ALLOCATED.load(Ordering::Relaxed);
    let start = Instant::now();
    let plan = compile(Source::Yaml(text)).unwrap_or_else(|problems| panic!("{problems}"));
    let compiled = start.elapsed();
    let retained = (ALLOCATED.load(Ordering::Relaxed) - before) / TASKS;
    let start = Instant::now();
    let again = Plan::load(&plan.source).unwrap_or_else(|problems| panic!("{problems}"));
    let loaded = start.elapsed();
    assert_eq!(again.digest, plan.digest);
    let source = plan.source.len() / TASKS;
    println!(
        "{name}: {TASKS} tasks, {} bytes of YAML; compiled in {} ms, loaded in {} ms; \
         {retained} bytes per task, {source} of them source text",
        text.len(),
        compiled.as_millis(),
        loaded.as_millis()
    );
}

struct Results(Value);

impl Tasks for Results {
    fn result(&self, _: u32) -> Cow<'_, Value> {
        Cow::Borrowed(&self.0)
    }

    fn state(&self, _: u32) -> &'static str {
        "succeeded"
    }
}

fn renders() {
    for (name, task) in [
        ("constant echo", "run: {echo: {value: {a: 1, b: text}}}"),
        ("echo of an item", "{run: {echo: {value: '${item}'}}, for_each: [1]}"),
        ("echo of a path", "run: {echo: {value: '${inputs.a.b[0]}'}}"),
        ("constant process", "run: {process: {command: [make, all], env: {A: b}}}"),
        ("shell with templates", "run: 'make ${inputs.name} --shard ${1 + 2}'"),
        ("echo with fields", "{run: {echo: {value: 1}}, topic: t, labels: {a: b}, retry: 3, attempt_timeout: 5s}"),
    ] {
        let text = format!("name: w\ninputs: {{a: any, name: string}}\ntasks:\n  t: {task}\n")
            .replace("t: run:", "t:\n    run:");
        let plan = compile(Source::Yaml(&text)).unwrap_or_else(|problems| panic!("{problems}"));
        let TaskWork::Job(job) = &plan.tasks[0].work else { panic!("the task is not a job") };
        let nanos = render(job);
        println!("{name}: {nanos} ns per job");
    }
}

fn render(job: &JobTemplate) -> u128 {
    let inputs = json!({"a": {"b": [{"c": 1}]}, "name": "all"});
    let results = Results(json!({"path": "out"}));
    let item = json!({"x": 1, "y": "text"});
    let scope = Scope {
        inputs: &inputs,
        tasks: &results,
        item: Some((&item, 3)),
        workflow: WorkflowId(1),
        name: "w",
        schedule: None,
        result: None,
    };
    let context =
        JobContext { workflow: WorkflowId(1), task: "t", item: Some(3), run: 0, tenant: "acme", compensation: false };
    let start = Instant::now();
    for _ in 0..RENDERS {
        black_box(job.render(black_box(&scope), &context)).unwrap_or_else(|error| panic!("{error}"));
    }
    start.elapsed().as_nanos() / u128::from(RENDERS)
}
