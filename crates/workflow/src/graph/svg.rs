//! Draws a plan as SVG.

use std::fmt::Write;

use model::workflow::TaskState;

use super::layers::Graph;
use super::layout::{BOX_HEIGHT, Layout, Rectangle, Route, Scene, layout};
use super::picture::{Arrow, Picture, TaskBox, WorkKind};
use super::text::{escaped, one_line, truncated, width};
use crate::plan::Plan;

const STYLE: &str = include_str!("style.css");

const NAME_SIZE: f64 = 13.0;
const DETAIL_SIZE: f64 = 11.0;
const TITLE_SIZE: f64 = 15.0;
const BOX_WIDTH_MIN: f64 = 120.0;
const BOX_WIDTH_MAX: f64 = 260.0;
/// Left and right padding of the text in a box. The left one contains the icon.
const TEXT_LEFT: f64 = 36.0;
const TEXT_RIGHT: f64 = 12.0;
const MARGIN: f64 = 20.0;
const TITLE_HEIGHT: f64 = 40.0;
const BAND_TITLE_HEIGHT: f64 = 30.0;
/// Enough for a title and for the note about omitted parts.
const WIDTH_MIN: f64 = 420.0;
const ARROW_LENGTH: f64 = 7.0;

/// Draws a plan as a self-contained SVG with a light and a dark colour scheme. `states` returns the state of a task by
/// its number, as the API names it; with it, each box shows its state.
pub fn svg(plan: &Plan, states: Option<&dyn Fn(u32) -> &'static str>) -> String {
    let picture = Picture::of(plan);
    let state = |task: usize| states.map(|states| states(u32::try_from(task).unwrap_or(u32::MAX)));
    let states: Vec<Option<&str>> = (0..picture.boxes.len()).map(state).collect();
    let layout = layout(&scene(&picture, &states));
    let mut text = String::with_capacity(4_096 + 512 * picture.boxes.len() + 128 * picture.arrows.len());
    // Writing to a `String` cannot fail.
    let _ = Drawing { picture: &picture, states: &states, layout: &layout }.write(&mut text);
    text
}

/// Input of the layout.
pub(super) fn scene(picture: &Picture<'_>, states: &[Option<&str>]) -> Scene {
    let room = |(task, state): (&TaskBox<'_>, &Option<&str>)| {
        let text = width(&one_line(task.name), NAME_SIZE).max(width(&detail(task, *state), DETAIL_SIZE));
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

/// Second line of a box.
fn detail(task: &TaskBox<'_>, state: Option<&str>) -> String {
    let detail = task.detail();
    match state {
        Some(state) => format!("{} · {}", state.replace('_', " "), one_line(&detail)),
        None => one_line(&detail).into_owned(),
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
        let full_width = (self.layout.width + 2.0 * MARGIN).max(WIDTH_MIN);
        let full_height = top + self.layout.height + MARGIN + if self.layout.bands.is_empty() { 0.0 } else { MARGIN };
        let name = escaped(self.picture.name);
        writeln!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" class="outlast-graph" role="img" width="{full_width}" height="{full_height}" viewBox="0 0 {full_width} {full_height}">"#
        )?;
        let tasks = self.picture.boxes.len() + self.picture.tasks_omitted;
        writeln!(out, "<title>{name}: {tasks} task{}</title>", if tasks == 1 { "" } else { "s" })?;
        writeln!(out, "<style>{STYLE}</style>")?;
        writeln!(out, r#"<rect class="background" width="{full_width}" height="{full_height}" rx="8"/>"#)?;
        self.write_heading(full_width, out)?;
        writeln!(out, r#"<g transform="translate({MARGIN} {top})">"#)?;
        self.write_bands(out)?;
        for route in &self.layout.routes {
            write_route(route, &self.picture.arrows[route.arrow], self.picture, out)?;
        }
        for (task, rectangle) in self.layout.boxes.iter().enumerate() {
            write_box(&self.picture.boxes[task], self.states[task], *rectangle, out)?;
        }
        writeln!(out, "</g>\n</svg>")
    }

    /// Top of the layout, below the heading.
    fn top(&self) -> f64 {
        TITLE_HEIGHT + if self.layout.bands.is_empty() { 12.0 } else { BAND_TITLE_HEIGHT + 18.0 }
    }

    fn write_heading(&self, full_width: f64, out: &mut String) -> std::fmt::Result {
        let note = self.picture.omitted_note().unwrap_or_default();
        let name = one_line(self.picture.name);
        let room = full_width - 3.0 * MARGIN - width(&note, DETAIL_SIZE);
        let shown = truncated(&name, TITLE_SIZE, room);
        writeln!(out, r#"<text class="heading" x="{MARGIN}" y="28">{}</text>"#, escaped(&shown))?;
        if !note.is_empty() {
            let right = full_width - MARGIN;
            writeln!(out, r#"<text class="note" x="{right}" y="28">{}</text>"#, escaped(&note))?;
        }
        Ok(())
    }

    fn write_bands(&self, out: &mut String) -> std::fmt::Result {
        for band in &self.layout.bands {
            let (x, y) = (band.x, -BAND_TITLE_HEIGHT - 10.0);
            let full_height = self.layout.height + BAND_TITLE_HEIGHT + 10.0 + MARGIN;
            let full = one_line(self.picture.epochs.get(band.epoch).copied().unwrap_or_default());
            let name = truncated(&full, NAME_SIZE, band.width - 28.0);
            writeln!(out, r#"<g class="epoch"><title>epoch {}</title>"#, escaped(&full))?;
            writeln!(out, r#"<rect x="{x}" y="{y}" width="{}" height="{full_height}" rx="10"/>"#, band.width)?;
            writeln!(out, r#"<text x="{}" y="{}">{}</text></g>"#, x + 14.0, y + 22.0, escaped(&name))?;
        }
        Ok(())
    }
}

/// A line with its arrowhead. It is horizontal at both ends and where it crosses a column.
fn write_route(route: &Route, arrow: &Arrow, picture: &Picture<'_>, out: &mut String) -> std::fmt::Result {
    let class = if arrow.case.is_some() { "need case" } else { "need" };
    write!(out, r#"<path class="{class}" d="M{} {}"#, route.start.0, route.start.1)?;
    let mut at = route.start;
    for segment in &route.segments {
        write_curve(at, (segment.left, segment.y), out)?;
        write!(out, "H{}", segment.right)?;
        at = (segment.right, segment.y);
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

fn write_box(task: &TaskBox<'_>, state: Option<&str>, rectangle: Rectangle, out: &mut String) -> std::fmt::Result {
    let (full_name, full_detail) = (one_line(task.name), detail(task, state));
    let room = rectangle.width - TEXT_LEFT - TEXT_RIGHT;
    let (x, y) = (rectangle.x, rectangle.y);
    let (full_width, full_height) = (rectangle.width, BOX_HEIGHT);
    writeln!(out, r#"<g class="task {}" transform="translate({x} {y})">"#, style_class(state))?;
    let compensation = if task.has_compensation { ", with compensation" } else { "" };
    writeln!(out, "<title>{}: {}{compensation}</title>", escaped(&full_name), escaped(&full_detail))?;
    if task.is_repeated {
        writeln!(out, r#"<rect class="box" x="5" y="5" width="{full_width}" height="{full_height}" rx="9"/>"#)?;
    }
    let dashed = if task.is_conditional { " conditional" } else { "" };
    writeln!(out, r#"<rect class="box{dashed}" width="{full_width}" height="{full_height}" rx="9"/>"#)?;
    writeln!(out, r#"<path class="icon" transform="translate(12 15)" d="{}"/>"#, icon(task.kind))?;
    let name = truncated(&full_name, NAME_SIZE, room);
    writeln!(out, r#"<text class="name" x="{TEXT_LEFT}" y="20">{}</text>"#, escaped(&name))?;
    let detail = truncated(&full_detail, DETAIL_SIZE, room);
    writeln!(out, r#"<text class="detail" x="{TEXT_LEFT}" y="36">{}</text>"#, escaped(&detail))?;
    if task.has_compensation {
        let (left, top) = (full_width - 102.0, full_height - 6.0);
        writeln!(out, r#"<rect class="compensation" x="{left}" y="{top}" width="92" height="16" rx="8"/>"#)?;
        writeln!(
            out,
            r#"<text class="compensation-label" x="{}" y="{}">compensation</text>"#,
            left + 46.0,
            top + 12.0
        )?;
    }
    writeln!(out, "</g>")
}

/// Icon of a kind of work, 16 by 16.
fn icon(kind: WorkKind<'_>) -> &'static str {
    match kind {
        // Triangle pointing right.
        WorkKind::Job => "M4 2.5L13 8L4 13.5Z",
        // Two overlapping sheets.
        WorkKind::Workflow { .. } => "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
        // Clock.
        WorkKind::Delay => "M14 8a6 6 0 1 1-12 0a6 6 0 1 1 12 0M8 4.5V8l2.5 1.5",
        // Tick in a circle.
        WorkKind::Approval => "M14 8a6 6 0 1 1-12 0a6 6 0 1 1 12 0M5.2 8.2l2 2l3.6-4.2",
        // Radio waves.
        WorkKind::WaitFor { .. } => "M3 13.5h.01M3 8.5a5 5 0 0 1 5 5M3 3.5a10 10 0 0 1 10 10",
        // Fork.
        WorkKind::Switch => "M1.5 8H6L13.5 3.5M6 8L13.5 12.5M10.5 3.2L13.5 3.5L12.3 6.2M10.5 12.8L13.5 12.5L12.3 9.8",
    }
}

/// CSS class of a state; unknown states look like no state.
fn style_class(state: Option<&str>) -> &'static str {
    let Some(Ok(state)) = state.map(str::parse) else { return "plain" };
    match state {
        TaskState::Waiting => "plain",
        TaskState::Running | TaskState::Merged => "active",
        TaskState::Sleeping | TaskState::Listening => "suspended",
        TaskState::Succeeded => "good",
        TaskState::Failed | TaskState::Quarantined => "bad",
        TaskState::Skipped | TaskState::Cancelled => "faint",
    }
}
