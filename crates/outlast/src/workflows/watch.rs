//! Watches a workflow until it has ended.
//!
//! The workflow survives a restart of its server, so watching tolerates short outages.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::Result;
use api::WorkflowView;
use client::workflows::TaskFilter;
use client::{Client, Error};
use model::id::WorkflowId;
use model::workflow::TaskState;
use tokio::time::{MissedTickBehavior, interval};

use super::plain::ChangeLines;
use super::tree::{Children, DrawOptions, WorkflowTree, draw};
use crate::context::Context;
use crate::interrupt::{OrInterrupt, or_interrupt};
use crate::logs::{Outage, is_outage};
use crate::paint::{Paint, Tone};
use crate::screen::{self, Screen};
use crate::{duration, output};

/// Server-side wait of one request, and thus the poll interval of the tasks.
const STEP: Duration = Duration::from_millis(400);
/// Poll interval without progress output.
const SILENT_STEP: Duration = Duration::from_secs(30);
const STEP_MAX: Duration = Duration::from_secs(5);
/// The interval between two polls is at least this many times the duration of one, to limit the load on the server.
const COST_FACTOR: u32 = 10;
const FRAME: Duration = Duration::from_millis(120);
/// Limit of sub-workflows fetched per poll.
const CHILDREN_MAX: usize = 16;
/// Limit of tasks fetched in addition to those included in a large workflow.
const URGENT_MAX: usize = 50;
/// Limit of requests for them.
const URGENT_PAGES_MAX: usize = 12;

/// Result of watching.
pub enum Watched {
    Ended(Box<WorkflowView>),
    /// Ctrl-C; the workflow continues.
    Interrupted,
    /// The reader closed the output; the workflow continues.
    OutputClosed,
}

/// Shows progress until the workflow has ended. Without `shows`, only waits.
pub async fn watch(id: WorkflowId, shows: bool, context: &Context) -> Result<Watched> {
    let mut display = Display::new(shows);
    let work = async {
        tokio::select! {
            // A finished workflow takes precedence over a closed output.
            biased;
            result = until_end(id, &context.client, &mut display) => result,
            () = output::closed(), if shows => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        }
    };
    match or_interrupt(work).await {
        Ok(OrInterrupt::Done(view)) => Ok(Watched::Ended(Box::new(view))),
        Ok(OrInterrupt::Interrupted) => {
            print_stderr(&format!("\n{}", continues_message(id)));
            Ok(Watched::Interrupted)
        }
        Err(error) if crate::exit::is_broken_pipe(&error) => {
            print_stderr(&continues_message(id));
            Ok(Watched::OutputClosed)
        }
        Err(error) => Err(error),
    }
}

fn continues_message(id: WorkflowId) -> String {
    format!(
        "{id} continues. Watch it with `outlast workflows show --watch {id}`, \
         or cancel it with `outlast workflows cancel {id}`."
    )
}

/// Unlike `eprintln!`, does not panic if standard error is closed.
pub fn print_stderr(message: &str) {
    let _ = writeln!(io::stderr().lock(), "{message}");
}

async fn until_end(id: WorkflowId, client: &Client, display: &mut Display) -> Result<WorkflowView> {
    let (mut outage, client) = Outage::of(client);
    let mut children = Children::new();
    let mut step = Duration::ZERO;
    let mut ticks = interval(FRAME);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        let requested = Instant::now();
        let response = {
            let mut request = std::pin::pin!(fetch(&client, id, step, std::mem::take(&mut children), display.shows()));
            loop {
                tokio::select! {
                    response = &mut request => break response,
                    _ = ticks.tick(), if display.is_animated() => display.tick()?,
                }
            }
        };
        match response {
            Ok((view, found)) => {
                outage.end();
                let cost = requested.elapsed().saturating_sub(step);
                let usual = if display.shows() { STEP } else { SILENT_STEP };
                step = usual.max((cost * COST_FACTOR).min(STEP_MAX));
                let has_ended = view.state.is_terminal();
                let view = display.show(view, found)?;
                if has_ended {
                    return Ok(view);
                }
                children = display.children();
            }
            Err(error) => {
                if is_outage(&error) {
                    display.report_outage(&error, outage.limit())?;
                }
                outage.wait_or_fail(error).await?;
                children = display.children();
                // Poll immediately after the outage.
                step = Duration::ZERO;
            }
        }
    }
}

/// Fetches the workflow and its sub-workflows. Ended ones among the `known` are not fetched again.
async fn fetch(
    client: &Client,
    id: WorkflowId,
    wait: Duration,
    known: Children,
    with_children: bool,
) -> Result<(WorkflowView, Children), Error> {
    let mut view = if wait.is_zero() { client.workflow(id).await? } else { client.wait_for_workflow(id, wait).await? };
    if !with_children {
        return Ok((view, Children::new()));
    }
    if view.tasks_left_out > 0 {
        add_urgent(client, &mut view).await?;
    }
    let children = children_of(client, &view, known).await?;
    Ok((view, children))
}

/// Sub-workflows at all levels, up to a limit.
pub async fn children_of(client: &Client, view: &WorkflowView, mut known: Children) -> Result<Children, Error> {
    let mut children = Children::new();
    let mut pending: VecDeque<WorkflowId> = started_by(view).collect();
    let mut requests = 0;
    while let Some(id) = pending.pop_front() {
        let child = match known.remove(&id).filter(|child| child.state.is_terminal()) {
            Some(child) => child,
            None if requests < CHILDREN_MAX => {
                requests += 1;
                match client.workflow(id).await {
                    Ok(child) => child,
                    // It may have been deleted since.
                    Err(Error::Refused(problem)) if problem.status == 404 => continue,
                    Err(error) => return Err(error),
                }
            }
            None => continue,
        };
        pending.extend(started_by(&child));
        children.insert(id, child);
    }
    Ok(children)
}

fn started_by(view: &WorkflowView) -> impl Iterator<Item = WorkflowId> + '_ {
    view.tasks.iter().flatten().filter_map(|task| task.child)
}

/// Adds running and failed tasks to a workflow that is too large to include all tasks.
async fn add_urgent(client: &Client, view: &mut WorkflowView) -> Result<(), Error> {
    let states = vec![TaskState::Failed, TaskState::Quarantined, TaskState::Running, TaskState::Listening];
    let mut filter = TaskFilter { states, limit: Some(URGENT_MAX), cursor: None };
    let mut urgent = Vec::new();
    // A page may be short or empty and still have a next one.
    for _ in 0..URGENT_PAGES_MAX {
        let page = client.workflow_tasks(view.id, &filter).await?;
        urgent.extend(page.items.into_iter().filter(|task| task.item.is_none()));
        filter.cursor = page.next_cursor;
        if urgent.len() >= URGENT_MAX || filter.cursor.is_none() {
            break;
        }
    }
    let tasks = view.tasks.get_or_insert_default();
    for task in urgent {
        if !tasks.iter().any(|known| known.name == task.name) {
            tasks.push(task);
            view.tasks_left_out = view.tasks_left_out.saturating_sub(1);
        }
    }
    Ok(())
}

fn report_reconnect(is_unreachable: &mut bool) {
    if std::mem::take(is_unreachable) {
        print_stderr("the server is reachable again");
    }
}

/// Output of progress.
enum Display {
    /// Reports only outages.
    Silent {
        is_unreachable: bool,
    },
    Plain {
        lines: ChangeLines,
        is_unreachable: bool,
        children: Children,
    },
    Terminal(Box<Terminal>),
}

struct Terminal {
    screen: Screen,
    frame: usize,
    last: Option<(WorkflowView, Children, Instant)>,
    outage: Option<String>,
}

impl Display {
    fn new(shows: bool) -> Self {
        match (shows, screen::size()) {
            (false, _) => Self::Silent { is_unreachable: false },
            (true, None) => {
                Self::Plain { lines: ChangeLines::default(), is_unreachable: false, children: Children::new() }
            }
            (true, Some(_)) => {
                Self::Terminal(Box::new(Terminal { screen: Screen::default(), frame: 0, last: None, outage: None }))
            }
        }
    }

    fn shows(&self) -> bool {
        match self {
            Self::Silent { .. } => false,
            Self::Plain { .. } | Self::Terminal(_) => true,
        }
    }

    fn is_animated(&self) -> bool {
        match self {
            Self::Silent { .. } | Self::Plain { .. } => false,
            Self::Terminal(_) => true,
        }
    }

    /// Sub-workflows of the last poll.
    fn children(&self) -> Children {
        match self {
            Self::Silent { .. } => Children::new(),
            Self::Plain { children, .. } => children.clone(),
            Self::Terminal(terminal) => {
                terminal.last.as_ref().map(|(_, children, _)| children.clone()).unwrap_or_default()
            }
        }
    }

    fn show(&mut self, view: WorkflowView, found: Children) -> Result<WorkflowView> {
        match self {
            Self::Silent { is_unreachable } => report_reconnect(is_unreachable),
            Self::Plain { lines: change_lines, is_unreachable, children } => {
                report_reconnect(is_unreachable);
                let lines: String = change_lines.changes(&view, &found).into_iter().map(|line| line + "\n").collect();
                *children = found;
                if !lines.is_empty() {
                    output::write(lines.as_bytes())?;
                }
            }
            Self::Terminal(terminal) => {
                terminal.outage = None;
                terminal.last = Some((view.clone(), found, Instant::now()));
                terminal.draw()?;
            }
        }
        Ok(view)
    }

    fn report_outage(&mut self, error: &Error, limit: Duration) -> Result<()> {
        let outage = format!("the server is unreachable; retrying for up to {}", duration::show(limit));
        match self {
            Self::Silent { is_unreachable } | Self::Plain { is_unreachable, .. } => {
                if !std::mem::replace(is_unreachable, true) {
                    print_stderr(&format!("{outage} ({error})"));
                }
            }
            Self::Terminal(terminal) => {
                terminal.outage = Some(outage);
                terminal.draw()?;
            }
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<()> {
        match self {
            Self::Silent { .. } | Self::Plain { .. } => {}
            Self::Terminal(terminal) => {
                terminal.frame += 1;
                terminal.draw()?;
            }
        }
        Ok(())
    }
}

impl Terminal {
    fn draw(&mut self) -> Result<()> {
        let (Some((view, children, at)), Some(size)) = (&self.last, screen::size()) else { return Ok(()) };
        // During an outage the displayed times stop.
        let age = if self.outage.is_some() { Duration::ZERO } else { at.elapsed() };
        let mut tree = WorkflowTree::new(view, children, age);
        tree.notices.extend(self.outage.iter().map(|outage| (Tone::Bad, outage.clone())));
        let frame = (!view.state.is_terminal()).then_some(self.frame);
        // The cursor is on the last line.
        let height = Some(size.height.saturating_sub(1));
        let options = DrawOptions { paint: Paint::for_stdout(), width: size.width, height, frame };
        let lines = draw(&tree, options);
        self.screen.redraw(&lines, size)?;
        Ok(())
    }
}
