//! Renders a tree as lines.

use super::branches::WorkflowTree;
use super::fit::fit;
use super::line::{Line, shortened, width_of};
use super::{Bar, Branch, Counts, Mark, counted, total};
use crate::duration;
use crate::paint::{Paint, Tone};

/// Minimum width for state labels beside the symbols.
const LABELS_WIDTH_MIN: usize = 44;
const BAR_WIDTH_MIN: usize = 60;
const WIDE_BAR_WIDTH_MIN: usize = 110;
/// Maximum width of a name as a fraction of the line: NAME_PART / NAME_PARTS.
const NAME_PART: usize = 2;
const NAME_PARTS: usize = 5;
const NAME_WIDTH_MAX: usize = 40;
const NAME_WIDTH_MIN: usize = 4;
/// Indent per level.
const PREFIX_WIDTH: usize = 3;
/// Symbol and space.
const SYMBOL_WIDTH: usize = 2;
const TOOK_WIDTH: usize = 6;
const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Options of a drawing.
#[derive(Debug, Clone, Copy)]
pub struct DrawOptions {
    pub paint: Paint,
    /// In columns.
    pub width: usize,
    /// In lines; `None`: unlimited.
    pub height: Option<usize>,
    /// Frame of the spinner; `None` without animation.
    pub frame: Option<usize>,
}

/// Renders the whole tree.
pub fn draw(tree: &WorkflowTree, options: DrawOptions) -> Vec<String> {
    let mut lines: Vec<Line> = vec![head(tree)];
    lines.extend(tree.notices.iter().map(|(tone, notice)| {
        let mut line = Line::default();
        line.push(*tone, notice);
        line
    }));
    let room = options.height.map_or(usize::MAX, |height| height.saturating_sub(lines.len()));
    let (branches, rest) = fit(tree.branches.clone(), tree.rest.clone(), room);
    let columns = Columns::new(&branches, options);
    columns.draw_all(&branches, &rest, "", &mut lines);
    let mut lines: Vec<String> = lines.into_iter().map(|line| line.render(options.width, options.paint)).collect();
    lines.truncate(options.height.unwrap_or(usize::MAX));
    lines
}

fn head(tree: &WorkflowTree) -> Line {
    let mut line = Line::default();
    line.push(Tone::Strong, &tree.name);
    line.push(Tone::Plain, "  ");
    line.push(tree.tone, &tree.state);
    line.push(Tone::Plain, &format!("  {}  {}", duration::show(tree.took), tree.tally));
    line.push(Tone::Quiet, &format!("  {}", tree.id));
    line
}

/// Column widths.
struct Columns {
    options: DrawOptions,
    name: usize,
    state: usize,
}

impl Columns {
    fn new(branches: &[Branch], options: DrawOptions) -> Self {
        let max = (options.width * NAME_PART / NAME_PARTS).min(NAME_WIDTH_MAX);
        let name = widest_name(branches, 0).min(max);
        let state = if options.width < LABELS_WIDTH_MIN { 0 } else { widest_state(branches) };
        Self { options, name, state }
    }

    fn draw_all(&self, branches: &[Branch], rest: &Counts, prefix: &str, lines: &mut Vec<Line>) {
        let has_rest = total(rest) > 0;
        for (at, branch) in branches.iter().enumerate() {
            let is_last = at + 1 == branches.len() && !has_rest;
            lines.push(self.line(branch, &format!("{prefix}{}", if is_last { "└─ " } else { "├─ " })));
            let below = format!("{prefix}{}", if is_last { "   " } else { "│  " });
            self.draw_all(&branch.below, &branch.rest, &below, lines);
        }
        if has_rest {
            let mut line = Line::default();
            line.push(Tone::Quiet, &format!("{prefix}└─ … {} more: {}", total(rest), counted(rest)));
            lines.push(line);
        }
    }

    fn line(&self, branch: &Branch, prefix: &str) -> Line {
        let mut line = Line::default();
        line.push(Tone::Quiet, prefix);
        line.push(branch.tone, symbol(branch.mark, self.options.frame));
        let indent = width_of(prefix) + SYMBOL_WIDTH;
        let name_end = self.name + PREFIX_WIDTH + SYMBOL_WIDTH;
        let name_tone = if branch.mark == Mark::Group { Tone::Strong } else { Tone::Plain };
        line.push(Tone::Plain, " ");
        line.push(name_tone, &shortened(&branch.name, name_end.saturating_sub(indent).max(NAME_WIDTH_MIN)));
        line.pad_to(name_end);
        if self.state > 0 {
            line.push(Tone::Plain, "  ");
            line.push(branch.tone, &format!("{:1$}", branch.state, self.state));
        }
        let took = branch.took.map(duration::show).unwrap_or_default();
        line.push(Tone::Quiet, &format!(" {took:>TOOK_WIDTH$}"));
        if let Some(bar) = branch.bar {
            line.push(Tone::Plain, "  ");
            self.bar(bar, branch.tone, &mut line);
        }
        if !branch.note.is_empty() {
            line.push(Tone::Quiet, &format!("  {}", branch.note));
        }
        line
    }

    fn bar(&self, bar: Bar, tone: Tone, line: &mut Line) {
        let width: u64 = match self.options.width {
            width if width >= WIDE_BAR_WIDTH_MIN => 20,
            width if width >= BAR_WIDTH_MIN => 10,
            _ => 0,
        };
        if width > 0 {
            // An empty list is complete.
            let full = (bar.done.min(bar.total) * width).checked_div(bar.total).unwrap_or(width);
            line.push(tone, &"█".repeat(usize::try_from(full).unwrap_or(0)));
            line.push(Tone::Quiet, &"░".repeat(usize::try_from(width - full).unwrap_or(0)));
            line.push(Tone::Plain, " ");
        }
        line.push(Tone::Plain, &format!("{}/{}", bar.done, bar.total));
    }
}

/// Width of the widest name including its indent.
fn widest_name(branches: &[Branch], indent: usize) -> usize {
    let width =
        |branch: &Branch| (indent + width_of(&branch.name)).max(widest_name(&branch.below, indent + PREFIX_WIDTH));
    branches.iter().map(width).max().unwrap_or(0)
}

fn widest_state(branches: &[Branch]) -> usize {
    branches.iter().map(|branch| branch.state.len().max(widest_state(&branch.below))).max().unwrap_or(0)
}

fn symbol(mark: Mark, frame: Option<usize>) -> &'static str {
    match mark {
        Mark::Waiting => "○",
        Mark::Busy => frame.map_or("●", |frame| SPINNER[frame % SPINNER.len()]),
        Mark::Suspended => "◔",
        Mark::ApprovalRequired => "?",
        Mark::Good => "✓",
        Mark::Bad => "✗",
        Mark::Skipped => "-",
        Mark::Cancelled => "⊘",
        Mark::Group => "◆",
    }
}
