//! Text tables without borders, and aligned name-value pairs.

use crate::paint::{Paint, Tone, sanitize};

/// Cell of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub fn new(text: impl ToString) -> Self {
        Self { text: sanitize(&text.to_string()), tone: Tone::Plain }
    }

    /// A dash for `None`.
    pub fn option(value: Option<impl ToString>) -> Self {
        value.map_or_else(|| Self::new("-").tone(Tone::Quiet), Self::new)
    }

    pub fn tone(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Heading and alignment.
pub type Column = (&'static str, Align);

#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub fn render(&self, paint: Paint) -> String {
        let headings: Vec<Cell> = self.columns.iter().map(|(name, _)| Cell::new(name).tone(Tone::Quiet)).collect();
        let width_of = |index: usize| {
            let rows = self.rows.iter().filter_map(|row| row.get(index)).map(Cell::width);
            rows.chain([headings[index].width()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width_of).collect();
        let mut text = String::new();
        for row in std::iter::once(&headings).chain(&self.rows) {
            self.render_row(row, &widths, paint, &mut text);
        }
        text
    }

    fn render_row(&self, row: &[Cell], widths: &[usize], paint: Paint, text: &mut String) {
        let mut line = String::new();
        for ((cell, width), (_, align)) in row.iter().zip(widths).zip(&self.columns) {
            let padding = " ".repeat(width - cell.width());
            let painted = paint.apply(cell.tone, &cell.text);
            line += &match align {
                Align::Left => painted + &padding,
                Align::Right => padding + &painted,
            };
            line.push_str("  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

/// Name-value pairs, one per line. Pairs without a value are omitted.
#[derive(Debug, Default)]
pub struct Pairs {
    pairs: Vec<(&'static str, Cell)>,
}

impl Pairs {
    pub fn add(&mut self, name: &'static str, value: impl ToString) {
        self.add_cell(name, Cell::new(value));
    }

    pub fn add_cell(&mut self, name: &'static str, cell: Cell) {
        self.pairs.push((name, cell));
    }

    pub fn add_option(&mut self, name: &'static str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    pub fn render(&self, paint: Paint) -> String {
        let width = self.pairs.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let line = |(name, cell): &(&str, Cell)| {
            format!("{}  {}\n", paint.apply(Tone::Quiet, &format!("{name:width$}")), paint.apply(cell.tone, &cell.text))
        };
        self.pairs.iter().map(line).collect()
    }
}

/// Truncates the text to `width` characters.
pub fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_without_spaces() {
        let mut table = Table::new(&[("NAME", Align::Left), ("COUNT", Align::Right), ("NOTE", Align::Left)]);
        table.row([Cell::new("a"), Cell::new(5), Cell::option(None::<u8>)]);
        table.row([Cell::new("länger"), Cell::new(12345678), Cell::new("")]);
        let expected = "NAME       COUNT  NOTE\na              5  -\nlänger  12345678\n";
        assert_eq!(table.render(Paint::NONE), expected);
    }

    #[test]
    fn pairs_without_a_value_are_omitted() {
        let mut pairs = Pairs::default();
        pairs.add("id", "job_1");
        pairs.add_option("exit code", Some(3));
        pairs.add_option("signal", None::<i32>);
        assert_eq!(pairs.render(Paint::NONE), "id         job_1\nexit code  3\n");
    }

    #[test]
    fn long_texts_are_truncated_at_character_boundaries() {
        assert_eq!(shorten("äöü", 3), "äöü");
        assert_eq!(shorten("äöüß", 3), "äö…");
    }
}
