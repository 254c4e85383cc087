//! Branches as lines.

use super::branches::Whole;
use super::fit::fit;
use super::line::{Line, shortened, width_of};
use super::{Bar, Branch, Counts, Mark, counted, total};
use crate::duration;
use crate::paint::{Paint, Tone};

/// Below this many columns there is no room for words beside the signs.
const WORDS_WIDTH_MIN: usize = 44;
const BAR_WIDTH_MIN: usize = 60;
const WIDE_BAR_WIDTH_MIN: usize = 110;
/// A name may take this part of the line, at most.
const NAME_PART: usize = 2;
const NAME_PARTS: usize = 5;
const NAME_WIDTH_MAX: usize = 40;
const NAME_WIDTH_MIN: usize = 4;
/// What stands before the sign of a line, for each level.
const PREFIX_WIDTH: usize = 3;
/// The sign and the space behind it.
const SIGN_WIDTH: usize = 2;
const TOOK_WIDTH: usize = 6;
const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// How a tree is to look.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    pub paint: Paint,
    /// In columns.
    pub width: usize,
    /// In lines; absent: as many as there are.
    pub height: Option<usize>,
    /// The picture of the spinner; absent where nothing moves.
    pub frame: Option<usize>,
}

/// The whole tree, line by line.
pub fn draw(whole: &Whole, look: Look) -> Vec<String> {
    let mut lines: Vec<Line> = vec![head(whole)];
    lines.extend(whole.remarks.iter().map(|(tone, remark)| {
        let mut line = Line::default();
        line.push(*tone, remark);
        line
    }));
    let room = look.height.map_or(usize::MAX, |height| height.saturating_sub(lines.len()));
    let (branches, rest) = fit(whole.branches.clone(), whole.rest.clone(), room);
    let columns = Columns::new(&branches, look);
    columns.draw_all(&branches, &rest, "", &mut lines);
    let mut lines: Vec<String> = lines.into_iter().map(|line| line.render(look.width, look.paint)).collect();
    lines.truncate(look.height.unwrap_or(usize::MAX));
    lines
}

fn head(whole: &Whole) -> Line {
    let mut line = Line::default();
    line.push(Tone::Strong, &whole.name);
    line.push(Tone::Plain, "  ");
    line.push(whole.tone, &whole.state);
    line.push(Tone::Plain, &format!("  {}  {}", duration::show(whole.took), whole.tally));
    line.push(Tone::Quiet, &format!("  {}", whole.id));
    line
}

/// Where the columns are.
struct Columns {
    look: Look,
    name: usize,
    state: usize,
}

impl Columns {
    fn new(branches: &[Branch], look: Look) -> Self {
        let max = (look.width * NAME_PART / NAME_PARTS).min(NAME_WIDTH_MAX);
        let name = widest_name(branches, 0).min(max);
        let state = if look.width < WORDS_WIDTH_MIN { 0 } else { widest_state(branches) };
        Self { look, name, state }
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
        line.push(branch.tone, sign(branch.mark, self.look.frame));
        let indent = width_of(prefix) + SIGN_WIDTH;
        let name_end = self.name + PREFIX_WIDTH + SIGN_WIDTH;
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
        let width: u64 = match self.look.width {
            width if width >= WIDE_BAR_WIDTH_MIN => 20,
            width if width >= BAR_WIDTH_MIN => 10,
            _ => 0,
        };
        if width > 0 {
            // An empty list is done.
            let full = (bar.done.min(bar.total) * width).checked_div(bar.total).unwrap_or(width);
            line.push(tone, &"█".repeat(usize::try_from(full).unwrap_or(0)));
            line.push(Tone::Quiet, &"░".repeat(usize::try_from(width - full).unwrap_or(0)));
            line.push(Tone::Plain, " ");
        }
        line.push(Tone::Plain, &format!("{}/{}", bar.done, bar.total));
    }
}

/// The widest name with its indent, so that what follows stands in one column.
fn widest_name(branches: &[Branch], indent: usize) -> usize {
    let width =
        |branch: &Branch| (indent + width_of(&branch.name)).max(widest_name(&branch.below, indent + PREFIX_WIDTH));
    branches.iter().map(width).max().unwrap_or(0)
}

fn widest_state(branches: &[Branch]) -> usize {
    branches.iter().map(|branch| branch.state.len().max(widest_state(&branch.below))).max().unwrap_or(0)
}

fn sign(mark: Mark, frame: Option<usize>) -> &'static str {
    match mark {
        Mark::Waiting => "○",
        Mark::Busy => frame.map_or("●", |frame| SPINNER[frame % SPINNER.len()]),
        Mark::Resting => "◔",
        Mark::Asking => "?",
        Mark::Good => "✓",
        Mark::Bad => "✗",
        Mark::Skipped => "-",
        Mark::Cancelled => "⊘",
        Mark::Group => "◆",
    }
}
