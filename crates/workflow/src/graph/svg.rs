//! A plan as a picture.

use std::fmt::Write;

use model::workflow::TaskState;

use super::layers::Graph;
use super::layout::{BOX_HEIGHT, Layout, Rectangle, Route, Scene, layout};
use super::picture::{Arrow, Kind, Picture, TaskBox};
use super::text::{escaped, fitted, one_line, width};
use crate::plan::Plan;

const STYLE: &str = include_str!("style.css");

const NAME_SIZE: f64 = 13.0;
const WORDS_SIZE: f64 = 11.0;
const TITLE_SIZE: f64 = 15.0;
const BOX_WIDTH_MIN: f64 = 120.0;
const BOX_WIDTH_MAX: f64 = 260.0;
/// Where text begins in a box, right of its sign, and the room behind it.
const TEXT_LEFT: f64 = 36.0;
const TEXT_RIGHT: f64 = 12.0;
const MARGIN: f64 = 20.0;
const TITLE_HEIGHT: f64 = 40.0;
const BAND_TITLE_HEIGHT: f64 = 30.0;
/// Enough for a title and for the note on what is left out.
const WIDTH_MIN: f64 = 420.0;
const ARROW_LENGTH: f64 = 7.0;

/// Draws a plan as a picture in SVG that stands for itself: it brings its colours for light and for dark surroundings.
/// With states, which are given by the number of the task in the words of the API, each box shows its own.
pub fn svg(plan: &Plan, states: Option<&dyn Fn(u32) -> &'static str>) -> String {
    let picture = Picture::of(plan);
    let state = |task: usize| states.map(|states| states(u32::try_from(task).unwrap_or(u32::MAX)));
    let states: Vec<Option<&str>> = (0..picture.boxes.len()).map(state).collect();
    let layout = layout(&scene(&picture, &states));
    let mut text = String::with_capacity(4_096 + 512 * picture.boxes.len() + 128 * picture.arrows.len());
    // Writing to a string cannot fail.
    let _ = Drawing { picture: &picture, states: &states, layout: &layout }.write(&mut text);
    text
}

/// What is to be laid out of a picture.
pub(super) fn scene(picture: &Picture<'_>, states: &[Option<&str>]) -> Scene {
    let room = |(task, state): (&TaskBox<'_>, &Option<&str>)| {
        let text = width(&one_line(task.name), NAME_SIZE).max(width(&words(task, *state), WORDS_SIZE));
        (text + TEXT_LEFT + TEXT_RIGHT).clamp(BOX_WIDTH_MIN, BOX_WIDTH_MAX)
    };
    Scene {
        widths: picture.boxes.iter().zip(states).map(room).collect(),
        graph: Graph {
            epochs: picture.boxes.iter().map(|task| task.epoch).collect(),
            arrows: picture.arrows.iter().map(|arrow| (arrow.from, arrow.to)).collect(),
        },
        has_bands: !picture.epochs.is_empty(),
    }
}

/// The second line of a box.
fn words(task: &TaskBox<'_>, state: Option<&str>) -> String {
    let words = task.words();
    match state {
        Some(state) => format!("{} · {}", state.replace('_', " "), one_line(&words)),
        None => one_line(&words).into_owned(),
    }
}

struct Drawing<'a> {
    picture: &'a Picture<'a>,
    states: &'a [Option<&'a str>],
    layout: &'a Layout,
}

impl Drawing<'_> {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        let top = self.top();
        let wide = (self.layout.width + 2.0 * MARGIN).max(WIDTH_MIN);
        let high = top + self.layout.height + MARGIN + if self.layout.bands.is_empty() { 0.0 } else { MARGIN };
        let name = escaped(self.picture.name);
        writeln!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" class="outlast-graph" role="img" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}">"#
        )?;
        let tasks = self.picture.boxes.len() + self.picture.tasks_left_out;
        writeln!(out, "<title>{name}: {tasks} task{}</title>", if tasks == 1 { "" } else { "s" })?;
        writeln!(out, "<style>{STYLE}</style>")?;
        writeln!(out, r#"<rect class="paper" width="{wide}" height="{high}" rx="8"/>"#)?;
        self.write_heading(wide, out)?;
        writeln!(out, r#"<g transform="translate({MARGIN} {top})">"#)?;
        self.write_bands(out)?;
        for route in &self.layout.routes {
            write_route(route, &self.picture.arrows[route.arrow], self.picture, out)?;
        }
        for (task, place) in self.layout.boxes.iter().enumerate() {
            write_box(&self.picture.boxes[task], self.states[task], *place, out)?;
        }
        writeln!(out, "</g>\n</svg>")
    }

    /// Where the layout begins, below the heading.
    fn top(&self) -> f64 {
        TITLE_HEIGHT + if self.layout.bands.is_empty() { 12.0 } else { BAND_TITLE_HEIGHT + 18.0 }
    }

    fn write_heading(&self, wide: f64, out: &mut String) -> std::fmt::Result {
        let note = self.picture.left_out().unwrap_or_default();
        let name = one_line(self.picture.name);
        let room = wide - 3.0 * MARGIN - width(&note, WORDS_SIZE);
        let shown = fitted(&name, TITLE_SIZE, room);
        writeln!(out, r#"<text class="heading" x="{MARGIN}" y="28">{}</text>"#, escaped(&shown))?;
        if !note.is_empty() {
            let right = wide - MARGIN;
            writeln!(out, r#"<text class="note" x="{right}" y="28">{}</text>"#, escaped(&note))?;
        }
        Ok(())
    }

    fn write_bands(&self, out: &mut String) -> std::fmt::Result {
        for band in &self.layout.bands {
            let (x, y) = (band.x, -BAND_TITLE_HEIGHT - 10.0);
            let high = self.layout.height + BAND_TITLE_HEIGHT + 10.0 + MARGIN;
            let full = one_line(self.picture.epochs.get(band.epoch).copied().unwrap_or_default());
            let name = fitted(&full, NAME_SIZE, band.width - 28.0);
            writeln!(out, r#"<g class="epoch"><title>epoch {}</title>"#, escaped(&full))?;
            writeln!(out, r#"<rect x="{x}" y="{y}" width="{}" height="{high}" rx="10"/>"#, band.width)?;
            writeln!(out, r#"<text x="{}" y="{}">{}</text></g>"#, x + 14.0, y + 22.0, escaped(&name))?;
        }
        Ok(())
    }
}

/// A line with its head. It is level where it leaves, where it passes a column and where it arrives.
fn write_route(route: &Route, arrow: &Arrow, picture: &Picture<'_>, out: &mut String) -> std::fmt::Result {
    let class = if arrow.case.is_some() { "need case" } else { "need" };
    write!(out, r#"<path class="{class}" d="M{} {}"#, route.start.0, route.start.1)?;
    let mut at = route.start;
    for pass in &route.passes {
        write_curve(at, (pass.left, pass.y), out)?;
        write!(out, "H{}", pass.right)?;
        at = (pass.right, pass.y);
    }
    let (x, y) = route.end;
    write_curve(at, (x - ARROW_LENGTH, y), out)?;
    match &arrow.case {
        Some(case) => {
            let from = escaped(picture.boxes[arrow.from].name);
            writeln!(out, r#""><title>{from}: {}</title></path>"#, escaped(case))?;
        }
        None => writeln!(out, r#""/>"#)?,
    }
    writeln!(out, r#"<path class="head" d="M{x} {y}l-{ARROW_LENGTH} -4v8z"/>"#)
}

fn write_curve(from: (f64, f64), to: (f64, f64), out: &mut String) -> std::fmt::Result {
    let middle = f64::midpoint(from.0, to.0);
    write!(out, "C{middle} {} {middle} {} {} {}", from.1, to.1, to.0, to.1)
}

fn write_box(task: &TaskBox<'_>, state: Option<&str>, place: Rectangle, out: &mut String) -> std::fmt::Result {
    let (full_name, full_words) = (one_line(task.name), words(task, state));
    let room = place.width - TEXT_LEFT - TEXT_RIGHT;
    let (x, y) = (place.x, place.y);
    let (wide, high) = (place.width, BOX_HEIGHT);
    writeln!(out, r#"<g class="task {}" transform="translate({x} {y})">"#, tone(state))?;
    let undo = if task.has_compensation { ", with compensation" } else { "" };
    writeln!(out, "<title>{}: {}{undo}</title>", escaped(&full_name), escaped(&full_words))?;
    if task.is_repeated {
        writeln!(out, r#"<rect class="box" x="5" y="5" width="{wide}" height="{high}" rx="9"/>"#)?;
    }
    let dashed = if task.is_conditional { " conditional" } else { "" };
    writeln!(out, r#"<rect class="box{dashed}" width="{wide}" height="{high}" rx="9"/>"#)?;
    writeln!(out, r#"<path class="sign" transform="translate(12 15)" d="{}"/>"#, sign(task.kind))?;
    let name = fitted(&full_name, NAME_SIZE, room);
    writeln!(out, r#"<text class="name" x="{TEXT_LEFT}" y="20">{}</text>"#, escaped(&name))?;
    let words = fitted(&full_words, WORDS_SIZE, room);
    writeln!(out, r#"<text class="words" x="{TEXT_LEFT}" y="36">{}</text>"#, escaped(&words))?;
    if task.has_compensation {
        let (left, top) = (wide - 56.0, high - 6.0);
        writeln!(out, r#"<rect class="undo" x="{left}" y="{top}" width="46" height="16" rx="8"/>"#)?;
        writeln!(out, r#"<text class="undo-name" x="{}" y="{}">undo</text>"#, left + 23.0, top + 12.0)?;
    }
    writeln!(out, "</g>")
}

/// A sign for what a task does, 16 by 16.
fn sign(kind: Kind<'_>) -> &'static str {
    match kind {
        // A triangle that points on.
        Kind::Job => "M4 2.5L13 8L4 13.5Z",
        // Two sheets, one behind the other.
        Kind::Workflow { .. } => "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
        // A clock.
        Kind::Delay => "M14 8a6 6 0 1 1-12 0a6 6 0 1 1 12 0M8 4.5V8l2.5 1.5",
        // A tick in a circle.
        Kind::Approval => "M14 8a6 6 0 1 1-12 0a6 6 0 1 1 12 0M5.2 8.2l2 2l3.6-4.2",
        // Waves that arrive.
        Kind::WaitFor { .. } => "M3 13.5h.01M3 8.5a5 5 0 0 1 5 5M3 3.5a10 10 0 0 1 10 10",
        // A way that forks.
        Kind::Switch => "M1.5 8H6L13.5 3.5M6 8L13.5 12.5M10.5 3.2L13.5 3.5L12.3 6.2M10.5 12.8L13.5 12.5L12.3 9.8",
    }
}

/// How a state looks; states that this does not know look like none.
fn tone(state: Option<&str>) -> &'static str {
    let Some(Ok(state)) = state.map(str::parse) else { return "plain" };
    match state {
        TaskState::Waiting => "plain",
        TaskState::Running | TaskState::Merged => "active",
        TaskState::Sleeping | TaskState::Listening => "held",
        TaskState::Succeeded => "good",
        TaskState::Failed | TaskState::Quarantined => "bad",
        TaskState::Skipped | TaskState::Cancelled => "faint",
    }
}
