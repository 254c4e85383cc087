//! Looking at a workflow until it has ended.
//!
//! The workflow outlasts its server, so the watching does, too: a server that is away is given some time to come back.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::Result;
use client::workflows::TaskFilter;
use client::{Client, Error};
use model::id::WorkflowId;
use model::view::WorkflowView;
use model::workflow::TaskState;
use tokio::time::{MissedTickBehavior, interval};

use super::plain::Plain;
use super::tree::{Children, Look, Whole, draw};
use crate::context::Context;
use crate::interrupt::{Raced, race};
use crate::logs::{Absence, is_absence};
use crate::output;
use crate::paint::{Paint, Tone};
use crate::screen::{self, Screen};

/// How long one request waits for the end, and so how often the tasks are looked at.
const STEP: Duration = Duration::from_millis(400);
/// The same where nobody looks.
const SILENT_STEP: Duration = Duration::from_secs(30);
const STEP_MAX: Duration = Duration::from_secs(5);
/// A look at a large workflow costs its server something: between two looks is this many times as long as one takes.
const COST_FACTOR: u32 = 10;
const FRAME: Duration = Duration::from_millis(120);
/// At most this many sub-workflows are looked at beside the workflow itself.
const CHILDREN_MAX: usize = 16;
/// Of the tasks that the server leaves out of a large workflow, at most this many are asked for.
const URGENT_MAX: usize = 50;
/// In at most this many requests.
const URGENT_PAGES_MAX: usize = 12;

/// How the watching ended.
pub enum Watched {
    Ended(Box<WorkflowView>),
    /// By Ctrl-C; the workflow goes on.
    Interrupted,
    /// Nobody reads what is shown any more; the workflow goes on.
    Unread,
}

/// Shows what happens until the workflow has ended. `shows` is false where only the end matters.
pub async fn watch(id: WorkflowId, shows: bool, context: &Context) -> Result<Watched> {
    let mut surface = Surface::new(shows);
    let work = async {
        tokio::select! {
            // What is there in time counts, even if nobody reads it.
            biased;
            result = until_end(id, &context.client, &mut surface) => result,
            () = output::unread(), if shows => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        }
    };
    match race(work).await {
        Ok(Raced::Done(view)) => Ok(Watched::Ended(Box::new(view))),
        Ok(Raced::Interrupted) => {
            say(&format!("\nstill running: outlast workflows show {id}\nto stop it: outlast workflows cancel {id}"));
            Ok(Watched::Interrupted)
        }
        Err(error) if crate::exit::is_broken_pipe(&error) => {
            say(&format!("still running: outlast workflows show {id}"));
            Ok(Watched::Unread)
        }
        Err(error) => Err(error),
    }
}

/// Unlike `eprintln!`, without a panic where standard error went away together with standard output.
pub fn say(words: &str) {
    let _ = writeln!(io::stderr().lock(), "{words}");
}

async fn until_end(id: WorkflowId, client: &Client, surface: &mut Surface) -> Result<WorkflowView> {
    let mut absence = Absence::default();
    let mut children = Children::new();
    let mut step = Duration::ZERO;
    let mut ticks = interval(FRAME);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        let asked = Instant::now();
        let answer = {
            let mut ask = std::pin::pin!(look(client, id, step, std::mem::take(&mut children), surface.shows()));
            loop {
                tokio::select! {
                    answer = &mut ask => break answer,
                    _ = ticks.tick(), if surface.moves() => surface.tick()?,
                }
            }
        };
        match answer {
            Ok((view, found)) => {
                absence.end();
                let cost = asked.elapsed().saturating_sub(step);
                let usual = if surface.shows() { STEP } else { SILENT_STEP };
                step = usual.max((cost * COST_FACTOR).min(STEP_MAX));
                let has_ended = view.state.is_terminal();
                let view = surface.show(view, found)?;
                if has_ended {
                    return Ok(view);
                }
                children = surface.children();
            }
            Err(error) => {
                if is_absence(&error) {
                    surface.away(&error)?;
                }
                absence.bear(error).await?;
                children = surface.children();
                // When it is back, what happened meanwhile is worth a look at once.
                step = Duration::ZERO;
            }
        }
    }
}

/// The workflow, with the sub-workflows that matter. Of `known` ones, those that have ended are not asked for again.
async fn look(
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

/// The sub-workflows of a workflow and theirs, as far as that is bearable.
pub async fn children_of(client: &Client, view: &WorkflowView, mut known: Children) -> Result<Children, Error> {
    let mut children = Children::new();
    let mut wanted: VecDeque<WorkflowId> = started_by(view).collect();
    let mut asked = 0;
    while let Some(id) = wanted.pop_front() {
        let child = match known.remove(&id).filter(|child| child.state.is_terminal()) {
            Some(child) => child,
            None if asked < CHILDREN_MAX => {
                asked += 1;
                match client.workflow(id).await {
                    Ok(child) => child,
                    // It may have been removed since.
                    Err(Error::Refused(problem)) if problem.status == 404 => continue,
                    Err(error) => return Err(error),
                }
            }
            None => continue,
        };
        wanted.extend(started_by(&child));
        children.insert(id, child);
    }
    Ok(children)
}

fn started_by(view: &WorkflowView) -> impl Iterator<Item = WorkflowId> + '_ {
    view.tasks.iter().flatten().filter_map(|task| task.child)
}

/// Adds tasks that run or failed to a workflow that is too large to be shown whole.
async fn add_urgent(client: &Client, view: &mut WorkflowView) -> Result<(), Error> {
    let states = vec![TaskState::Failed, TaskState::Quarantined, TaskState::Running, TaskState::Listening];
    let mut filter = TaskFilter { states, limit: Some(URGENT_MAX), cursor: None };
    let mut urgent = Vec::new();
    // A page may be short, or empty, and still have a next one.
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

fn say_back(is_away: &mut bool) {
    if std::mem::take(is_away) {
        say("the server is back");
    }
}

/// Where changes are shown.
enum Surface {
    /// Only that the server is away is said.
    Silent {
        is_away: bool,
    },
    Plain {
        plain: Plain,
        is_away: bool,
        children: Children,
    },
    Terminal(Box<Terminal>),
}

struct Terminal {
    screen: Screen,
    frame: usize,
    last: Option<(WorkflowView, Children, Instant)>,
    trouble: Option<String>,
}

impl Surface {
    fn new(shows: bool) -> Self {
        match (shows, screen::size()) {
            (false, _) => Self::Silent { is_away: false },
            (true, None) => Self::Plain { plain: Plain::default(), is_away: false, children: Children::new() },
            (true, Some(_)) => {
                Self::Terminal(Box::new(Terminal { screen: Screen::default(), frame: 0, last: None, trouble: None }))
            }
        }
    }

    fn shows(&self) -> bool {
        match self {
            Self::Silent { .. } => false,
            Self::Plain { .. } | Self::Terminal(_) => true,
        }
    }

    fn moves(&self) -> bool {
        match self {
            Self::Silent { .. } | Self::Plain { .. } => false,
            Self::Terminal(_) => true,
        }
    }

    /// What is known of sub-workflows from the last time.
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
            Self::Silent { is_away } => say_back(is_away),
            Self::Plain { plain, is_away, children } => {
                say_back(is_away);
                let lines: String = plain.changes(&view, &found).into_iter().map(|line| line + "\n").collect();
                *children = found;
                if !lines.is_empty() {
                    output::write(lines.as_bytes())?;
                }
            }
            Self::Terminal(terminal) => {
                terminal.trouble = None;
                terminal.last = Some((view.clone(), found, Instant::now()));
                terminal.draw()?;
            }
        }
        Ok(view)
    }

    fn away(&mut self, error: &Error) -> Result<()> {
        let trouble = "the server is away: waiting up to a minute for it to come back";
        match self {
            Self::Silent { is_away } | Self::Plain { is_away, .. } => {
                if !std::mem::replace(is_away, true) {
                    say(&format!("{trouble} ({error})"));
                }
            }
            Self::Terminal(terminal) => {
                terminal.trouble = Some(trouble.to_owned());
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
        // What a server that is away has said last does not grow older.
        let age = if self.trouble.is_some() { Duration::ZERO } else { at.elapsed() };
        let mut whole = Whole::new(view, children, age);
        whole.remarks.extend(self.trouble.iter().map(|trouble| (Tone::Bad, trouble.clone())));
        let frame = (!view.state.is_terminal()).then_some(self.frame);
        // The last line is where the cursor stands.
        let height = Some(size.height.saturating_sub(1));
        let look = Look { paint: Paint::for_stdout(), width: size.width, height, frame };
        let lines = draw(&whole, look);
        self.screen.redraw(&lines, size)?;
        Ok(())
    }
}
