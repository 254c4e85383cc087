//! Where everything stands in a picture: boxes in columns, lines between them, epochs as bands.
//!
//! A line that passes a column on its way takes part in the order of that column like a box, so that it runs between
//! boxes and not behind them.

use super::layers::{Graph, columns};
use super::order::{Columns, as_number, improve};
use super::place::heights;

pub(super) const BOX_HEIGHT: f64 = 46.0;
/// Room between two boxes of a column; badges and the second sheet of repeated tasks reach into it.
const BOX_GAP: f64 = 26.0;
/// The same for a line that passes between them.
const LINE_HEIGHT: f64 = 4.0;
const LINE_GAP: f64 = 12.0;
/// Room between two columns, more where many lines have to turn.
const COLUMN_GAP: f64 = 48.0;
const COLUMN_GAP_MAX: f64 = 140.0;
/// Room around the columns of an epoch, and between two epochs.
const BAND_PADDING: f64 = 18.0;
const BAND_GAP: f64 = 12.0;
/// How many passes of lines through columns take part in the order. Beyond it, the longest lines run straight, and
/// behind boxes if need be: one task that everything in a chain of 2,000 needs would otherwise make millions.
const PASSES_MAX: usize = 20_000;

/// What is laid out.
pub(super) struct Scene {
    /// How wide each box wants to be.
    pub(super) widths: Vec<f64>,
    pub(super) graph: Graph,
    /// Whether epochs are drawn as bands.
    pub(super) has_bands: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Layout {
    /// One for each box of the scene.
    pub(super) boxes: Vec<Rectangle>,
    pub(super) routes: Vec<Route>,
    pub(super) bands: Vec<Band>,
    pub(super) width: f64,
    pub(super) height: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Rectangle {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// The way of a line, from left to right.
#[derive(Debug, Clone)]
pub(super) struct Route {
    /// The place of the arrow in the scene.
    pub(super) arrow: usize,
    pub(super) start: (f64, f64),
    /// Columns that it passes: it runs level from the left to the right of each.
    pub(super) passes: Vec<Pass>,
    pub(super) end: (f64, f64),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Pass {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) y: f64,
}

/// The columns of an epoch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Band {
    pub(super) epoch: usize,
    pub(super) x: f64,
    pub(super) width: f64,
}

/// An arrow with the points that stand for it in the columns it passes.
struct Line {
    arrow: usize,
    from: usize,
    to: usize,
    points: Vec<usize>,
}

pub(super) fn layout(scene: &Scene) -> Layout {
    let count = scene.widths.len();
    let column_of = columns(&scene.graph);
    let mut stack = Columns { points: Vec::new(), before: vec![Vec::new(); count], after: vec![Vec::new(); count] };
    stack.points.resize_with(column_of.iter().max().map_or(0, |last| last + 1), Vec::new);
    for (task, column) in column_of.iter().enumerate() {
        stack.points[*column].push(task);
    }
    let lines = join(scene, &column_of, &mut stack);
    improve(&mut stack);
    let is_box = |point: usize| point < count;
    let points = stack.before.len();
    let sizes: Vec<f64> = (0..points).map(|point| if is_box(point) { BOX_HEIGHT } else { LINE_HEIGHT }).collect();
    let gaps: Vec<f64> = (0..points).map(|point| if is_box(point) { BOX_GAP } else { LINE_GAP }).collect();
    let middles: Vec<f64> = heights(&stack, &sizes, &gaps).into_iter().map(f64::round).collect();
    let (spans, bands, width) = spread(scene, &column_of, &stack);
    let rectangle = |task: usize| {
        let (x, width) = spans[column_of[task]];
        Rectangle { x, y: middles[task] - BOX_HEIGHT / 2.0, width, height: BOX_HEIGHT }
    };
    let boxes: Vec<Rectangle> = (0..count).map(rectangle).collect();
    let route = |line: Line| {
        let first = column_of[line.from] + 1;
        let pass = |(column, point): (usize, usize)| {
            let (left, width) = spans[column];
            Pass { left, right: left + width, y: middles[point] }
        };
        let (from, to) = (boxes[line.from], boxes[line.to]);
        Route {
            arrow: line.arrow,
            start: (from.x + from.width, middles[line.from]),
            passes: (first..).zip(line.points).map(pass).collect(),
            end: (to.x, middles[line.to]),
        }
    };
    let routes: Vec<Route> = lines.into_iter().map(route).collect();
    let bottoms = (0..points).map(|point| middles[point] + sizes[point] / 2.0);
    let height = bottoms.fold(0.0, f64::max);
    Layout { boxes, routes, bands, width, height }
}

/// Joins the columns with lines, and gives the lines their points in columns that they pass, shortest first.
fn join(scene: &Scene, column_of: &[usize], stack: &mut Columns) -> Vec<Line> {
    let length = |(from, to): (usize, usize)| column_of[to].saturating_sub(column_of[from]);
    let arrows = scene.graph.arrows.iter().copied().enumerate();
    // Only arrows within a circle would not go to the right, and a plan has none.
    let mut arrows: Vec<_> = arrows.filter(|(_, arrow)| length(*arrow) > 0).collect();
    arrows.sort_by_key(|(_, arrow)| length(*arrow));
    let mut passes_left = PASSES_MAX;
    let mut lines = Vec::with_capacity(arrows.len());
    for (arrow, (from, to)) in arrows {
        let passed = length((from, to)) - 1;
        let mut points = Vec::new();
        if passed <= passes_left {
            passes_left -= passed;
            let mut last = from;
            for column in column_of[from] + 1..column_of[to] {
                let point = stack.before.len();
                stack.points[column].push(point);
                stack.before.push(vec![last]);
                stack.after.push(Vec::new());
                stack.after[last].push(point);
                points.push(point);
                last = point;
            }
            stack.after[last].push(to);
            stack.before[to].push(last);
        }
        lines.push(Line { arrow, from, to, points });
    }
    lines
}

/// The left end and the width of each column, the bands around them, and the width of all.
fn spread(scene: &Scene, column_of: &[usize], stack: &Columns) -> (Vec<(f64, f64)>, Vec<Band>, f64) {
    let mut widths = vec![0.0_f64; stack.points.len()];
    let mut epochs = vec![0; stack.points.len()];
    for (task, column) in column_of.iter().enumerate() {
        widths[*column] = widths[*column].max(scene.widths[task].ceil());
        epochs[*column] = scene.graph.epochs[task];
    }
    let padding = if scene.has_bands { BAND_PADDING } else { 0.0 };
    let mut spans = Vec::with_capacity(widths.len());
    let mut bands: Vec<Band> = Vec::new();
    let mut x = padding;
    for (column, width) in widths.into_iter().enumerate() {
        let is_new_band = column == 0 || epochs[column] != epochs[column - 1];
        if column > 0 {
            let lines: usize = stack.points[column - 1].iter().map(|point| stack.after[*point].len()).sum();
            let gap = (COLUMN_GAP + as_number(lines)).min(COLUMN_GAP_MAX).round();
            let band_gap = if scene.has_bands && is_new_band { 2.0 * padding + BAND_GAP } else { 0.0 };
            x += gap.max(band_gap);
        }
        spans.push((x, width));
        match bands.last_mut().filter(|_| !is_new_band) {
            Some(band) => band.width = x + width + padding - band.x,
            None => bands.push(Band { epoch: epochs[column], x: x - padding, width: width + 2.0 * padding }),
        }
        x += width;
    }
    bands.retain(|_| scene.has_bands);
    (spans, bands, x + padding)
}
