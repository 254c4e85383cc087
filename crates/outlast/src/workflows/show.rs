//! Page of a workflow with its task tree.

use std::time::Duration;

use anyhow::Result;
use api::WorkflowView;

use super::tree::{Children, DrawOptions, WorkflowTree, draw};
use super::watch::{Watched, children_of, watch};
use crate::context::Context;
use crate::jobs::show::labels;
use crate::paint::Paint;
use crate::run::summary;
use crate::table::{Pairs, shorten};
use crate::{duration, exit, ids, screen, size};

const INPUTS_WIDTH: usize = 100;

pub async fn once(id: &str, context: &Context) -> Result<u8> {
    let view = context.client.workflow(ids::workflow(id)?).await?;
    if !context.printer.is_human_readable() {
        context.printer.print(&view, |_, _| String::new())?;
        return Ok(exit::DONE);
    }
    let children = children_of(&context.client, &view, Children::new()).await?;
    let width = screen::width();
    context.printer.print(&view, |view, paint| page(view, &children, width, paint))?;
    Ok(exit::DONE)
}

/// The exit code is 0 whether the workflow succeeded or not.
pub async fn until_end(id: &str, context: &Context) -> Result<u8> {
    let id = ids::workflow(id)?;
    match watch(id, context.printer.is_human_readable(), context).await? {
        Watched::Ended(view) => {
            context.printer.print(&*view, summary)?;
            Ok(exit::DONE)
        }
        Watched::Interrupted => Ok(exit::INTERRUPTED),
        Watched::OutputClosed => Ok(exit::DONE),
    }
}

fn page(view: &WorkflowView, children: &Children, width: usize, paint: Paint) -> String {
    let options = DrawOptions { paint, width, height: None, frame: None };
    let tree = WorkflowTree::new(view, children, Duration::ZERO);
    let mut text: String = draw(&tree, options).into_iter().map(|line| line + "\n").collect();
    text.push_str(&format!("\n{}", facts(view).render(paint)));
    if view.state.is_terminal() {
        text.push_str(&format!("\n{}", summary(view, paint)));
    }
    text
}

fn facts(view: &WorkflowView) -> Pairs {
    let mut pairs = Pairs::default();
    pairs.add("created", view.created_at);
    pairs.add_option("ended", view.ended_at);
    pairs.add_option("epoch", view.epoch.as_ref().filter(|_| !view.state.is_terminal()));
    pairs.add("tenant", &view.tenant);
    pairs.add("queue", view.queue);
    pairs.add_option("submitter", view.submitter.as_ref());
    pairs.add_option(
        "parent",
        view.parent.as_ref().map(|parent| {
            let task = parent.task.as_ref().map(|task| format!(", task {task}")).unwrap_or_default();
            format!("{}{task}", parent.workflow)
        }),
    );
    pairs.add_option("schedule", view.schedule.map(|from| format!("{} for {}", from.id, from.slot)));
    pairs.add_option("deadline", view.deadline);
    pairs.add_option("labels", (!view.labels.is_empty()).then(|| labels(&view.labels)));
    let inputs = view.inputs.as_ref().filter(|inputs| inputs.as_str() != "{}");
    pairs.add_option("inputs", inputs.map(|inputs| shorten(inputs.as_str(), INPUTS_WIDTH)));
    let usage = view.usage;
    let (jobs, attempts) = (usage.jobs, usage.attempts);
    let cpu = duration::show(Duration::try_from_secs_f64(usage.cpu_seconds).unwrap_or_default());
    let used =
        format!("{jobs} jobs, {attempts} attempts, cpu {cpu}, memory peak {}", size::show(usage.memory_peak_bytes));
    pairs.add_option("used", (jobs > 0).then_some(used));
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflows::tree::example;

    #[test]
    fn a_page_has_the_task_tree_and_the_details() {
        let view = example::workflow("succeeded");
        insta::assert_snapshot!(page(&view, &Children::new(), 80, Paint::NONE), @r#"
        build-and-test  succeeded  12s  2/2 tasks  wf_0000000000001
        ├─ ✓ fetch  succeeded   1.2s
        └─ ✓ build  succeeded    11s

        created    2026-01-01T00:00:00.000Z
        ended      2026-01-01T00:00:12.300Z
        tenant     default
        queue      q_0000000000002
        submitter  ada
        inputs     {"shards":3}
        used       3 jobs, 4 attempts, cpu 420ms, memory peak 3.0 MiB

        build-and-test succeeded in 12s, 3 jobs, 0.42s cpu
        "#);
    }
}
