//! Layered layout: boxes in columns, lines between them, epochs as bands.
//!
//! A line that crosses a column has a point in the order of that column, like a box, so that it runs between boxes and
//! not behind them.

use super::heights::heights;
use super::layers::{Graph, columns};
use super::order::{Columns, reduce_crossings, to_f64};

pub(super) const BOX_HEIGHT: f64 = 46.0;
/// Gap between two boxes of a column. Compensation badges and the shadow box of `for_each` tasks extend into it.
const BOX_GAP: f64 = 26.0;
/// Height and gap of a line that crosses a column.
const LINE_HEIGHT: f64 = 4.0;
const LINE_GAP: f64 = 12.0;
/// Gap between two columns, wider where many lines turn.
const COLUMN_GAP: f64 = 48.0;
const COLUMN_GAP_MAX: f64 = 140.0;
/// Padding around the columns of an epoch, and gap between two epochs.
const BAND_PADDING: f64 = 18.0;
const BAND_GAP: f64 = 12.0;
/// Maximum number of points of lines in columns. Beyond it, the longest lines are straight and may run behind boxes:
/// a chain of 2,000 tasks that all need the first would have millions of points.
const SEGMENTS_MAX: usize = 20_000;

/// Input of the layout.
pub(super) struct Scene {
    /// Preferred width of each box.
    pub(super) widths: Vec<f64>,
    pub(super) graph: Graph,
    /// Whether epochs are drawn as bands.
    pub(super) has_bands: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Layout {
    /// In the order of the scene's boxes.
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

/// Course of a line, from left to right.
#[derive(Debug, Clone)]
pub(super) struct Route {
    /// Index of the arrow in the scene.
    pub(super) arrow: usize,
    pub(super) start: (f64, f64),
    /// Horizontal segments through the columns that it crosses.
    pub(super) segments: Vec<LevelSegment>,
    pub(super) end: (f64, f64),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct LevelSegment {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) y: f64,
}

/// Background of the columns of an epoch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Band {
    pub(super) epoch: usize,
    pub(super) x: f64,
    pub(super) width: f64,
}

/// An arrow with its points in the columns that it crosses.
struct RoutedArrow {
    arrow: usize,
    from: usize,
    to: usize,
    points: Vec<usize>,
}

pub(super) fn layout(scene: &Scene) -> Layout {
    let count = scene.widths.len();
    let column_of = columns(&scene.graph);
    let mut grid = Columns { points: Vec::new(), before: vec![Vec::new(); count], after: vec![Vec::new(); count] };
    grid.points.resize_with(column_of.iter().max().map_or(0, |last| last + 1), Vec::new);
    for (task, column) in column_of.iter().enumerate() {
        grid.points[*column].push(task);
    }
    let lines = add_lines(scene, &column_of, &mut grid);
    reduce_crossings(&mut grid);
    let is_box = |point: usize| point < count;
    let points = grid.before.len();
    let sizes: Vec<f64> = (0..points).map(|point| if is_box(point) { BOX_HEIGHT } else { LINE_HEIGHT }).collect();
    let gaps: Vec<f64> = (0..points).map(|point| if is_box(point) { BOX_GAP } else { LINE_GAP }).collect();
    let middles: Vec<f64> = heights(&grid, &sizes, &gaps).into_iter().map(f64::round).collect();
    let (spans, bands, width) = place_columns(scene, &column_of, &grid);
    let rectangle = |task: usize| {
        let (x, width) = spans[column_of[task]];
        Rectangle { x, y: middles[task] - BOX_HEIGHT / 2.0, width, height: BOX_HEIGHT }
    };
    let boxes: Vec<Rectangle> = (0..count).map(rectangle).collect();
    let route = |line: RoutedArrow| {
        let first = column_of[line.from] + 1;
        let segment = |(column, point): (usize, usize)| {
            let (left, width) = spans[column];
            LevelSegment { left, right: left + width, y: middles[point] }
        };
        let (from, to) = (boxes[line.from], boxes[line.to]);
        Route {
            arrow: line.arrow,
            start: (from.x + from.width, middles[line.from]),
            segments: (first..).zip(line.points).map(segment).collect(),
            end: (to.x, middles[line.to]),
        }
    };
    let routes: Vec<Route> = lines.into_iter().map(route).collect();
    let bottoms = (0..points).map(|point| middles[point] + sizes[point] / 2.0);
    let height = bottoms.fold(0.0, f64::max);
    Layout { boxes, routes, bands, width, height }
}

/// Adds the lines to the grid, shortest first, with a point in each column that they cross.
fn add_lines(scene: &Scene, column_of: &[usize], grid: &mut Columns) -> Vec<RoutedArrow> {
    let length = |(from, to): (usize, usize)| column_of[to].saturating_sub(column_of[from]);
    let arrows = scene.graph.arrows.iter().copied().enumerate();
    // Only arrows on a cycle do not point to the right, and a plan has no cycles.
    let mut arrows: Vec<_> = arrows.filter(|(_, arrow)| length(*arrow) > 0).collect();
    arrows.sort_by_key(|(_, arrow)| length(*arrow));
    let mut segments_left = SEGMENTS_MAX;
    let mut lines = Vec::with_capacity(arrows.len());
    for (arrow, (from, to)) in arrows {
        let crossed = length((from, to)) - 1;
        let mut points = Vec::new();
        if crossed <= segments_left {
            segments_left -= crossed;
            let mut last = from;
            for column in column_of[from] + 1..column_of[to] {
                let point = grid.before.len();
                grid.points[column].push(point);
                grid.before.push(vec![last]);
                grid.after.push(Vec::new());
                grid.after[last].push(point);
                points.push(point);
                last = point;
            }
            grid.after[last].push(to);
            grid.before[to].push(last);
        }
        lines.push(RoutedArrow { arrow, from, to, points });
    }
    lines
}

/// Left edge and width of each column, the bands around them, and the total width.
fn place_columns(scene: &Scene, column_of: &[usize], grid: &Columns) -> (Vec<(f64, f64)>, Vec<Band>, f64) {
    let mut widths = vec![0.0_f64; grid.points.len()];
    let mut epochs = vec![0; grid.points.len()];
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
            let lines: usize = grid.points[column - 1].iter().map(|point| grid.after[*point].len()).sum();
            let gap = (COLUMN_GAP + to_f64(lines)).min(COLUMN_GAP_MAX).round();
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
