//! A table of text cells, built column by column.

use crate::render::screen::Tone;
use roofgap_base::numbers::{NONE, count, ms, or_none};

/// The heading of a column, with its unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heading {
    /// Name and unit.
    pub name: String,
    /// Numbers are aligned to the right.
    pub numeric: bool,
    /// The cells have the colour of their row.
    pub judged: bool,
}

impl Heading {
    fn new(name: &str, numeric: bool) -> Self {
        Self { name: name.to_owned(), numeric, judged: false }
    }

    /// Returns the class of its cells in a style sheet.
    pub fn class(&self) -> Option<&'static str> {
        self.numeric.then_some("n")
    }
}

/// A table of text cells.
#[derive(Debug, Clone, Default)]
pub struct Table {
    pub(crate) headings: Vec<Heading>,
    pub(crate) rows: Vec<Vec<String>>,
    /// Judgement of each row; rows after the last have none.
    pub(crate) tones: Vec<Option<Tone>>,
    /// Positions of the rows that are a part of the row before them.
    pub(crate) notes: Vec<usize>,
}

/// A value as the text of a cell; a dash if it was not measured.
pub trait Cell {
    fn cell(self) -> String;
}

impl Cell for String {
    fn cell(self) -> String {
        self
    }
}

impl<T: ToString + ?Sized> Cell for &T {
    fn cell(self) -> String {
        self.to_string()
    }
}

impl Cell for u32 {
    fn cell(self) -> String {
        self.to_string()
    }
}

impl Cell for u64 {
    fn cell(self) -> String {
        count(self)
    }
}

impl Cell for f64 {
    fn cell(self) -> String {
        format!("{self:.1}")
    }
}

impl<C: Cell> Cell for Option<C> {
    fn cell(self) -> String {
        or_none(self, C::cell)
    }
}

impl Table {
    /// Starts a table with a row for each of `rows`.
    pub(crate) fn of<R>(rows: &[R]) -> TableBuilder<'_, R> {
        let table = Self { rows: vec![Vec::new(); rows.len()], ..Self::default() };
        TableBuilder { table, rows, only: None }
    }

    /// Creates an empty table. A name that ends in `>` is a column of numbers.
    pub(crate) fn new(names: &[&str]) -> Self {
        let heading = |name: &&str| Heading::new(name.trim_end_matches('>'), name.ends_with('>'));
        Self { headings: names.iter().map(heading).collect(), ..Self::default() }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl Into<Vec<String>>) {
        self.rows.push(cells.into());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Keeps the named columns, in the order given.
    pub(crate) fn pick(&self, names: &[&str]) -> Self {
        let position = |name: &&str| self.headings.iter().position(|h| h.name == **name);
        self.columns(&names.iter().filter_map(position).collect::<Vec<_>>())
    }

    /// Leaves out columns.
    pub(crate) fn without(&self, names: &[&str]) -> Self {
        self.filtered(|i| !names.contains(&self.headings[i].name.as_str()))
    }

    /// Leaves out the columns after the first in which no row has a value.
    pub(crate) fn measured(&self) -> Self {
        let has_value = |i| self.rows.iter().any(|row| row.get(i).is_some_and(|cell| cell != NONE));
        self.filtered(|i| i == 0 || has_value(i))
    }

    fn filtered(&self, keep: impl Fn(usize) -> bool) -> Self {
        self.columns(&(0..self.headings.len()).filter(|i| keep(*i)).collect::<Vec<_>>())
    }

    fn columns(&self, kept: &[usize]) -> Self {
        let row = |row: &Vec<String>| kept.iter().filter_map(|&i| row.get(i).cloned()).collect();
        Self {
            headings: kept.iter().map(|&i| self.headings[i].clone()).collect(),
            rows: self.rows.iter().map(row).collect(),
            tones: self.tones.clone(),
            notes: self.notes.clone(),
        }
    }

    /// Returns the headings and every row, with the cells of the rows made by `cell`.
    pub(crate) fn lines(&self, cell: impl Fn(&str) -> String) -> Vec<Vec<String>> {
        let rows = self.rows.iter().map(|row| row.iter().map(|text| cell(text)).collect());
        std::iter::once(self.headings.iter().map(|h| h.name.clone()).collect()).chain(rows).collect()
    }
}

/// Builds a table column by column.
pub struct TableBuilder<'a, R> {
    table: Table,
    rows: &'a [R],
    only: Option<&'a [&'a str]>,
}

impl<'a, R> TableBuilder<'a, R> {
    /// Makes only the named columns, in the order given.
    pub(crate) fn only(self, names: &'a [&'a str]) -> Self {
        Self { only: Some(names), ..self }
    }

    /// Adds a left-aligned column.
    pub(crate) fn text<C: Cell>(self, name: &str, cell: impl Fn(&'a R) -> C) -> Self {
        self.column(name, false, cell)
    }

    /// Adds a right-aligned column.
    pub(crate) fn number<C: Cell>(self, name: &str, cell: impl Fn(&'a R) -> C) -> Self {
        self.column(name, true, cell)
    }

    /// Adds a column of nanoseconds shown as milliseconds; the unit is added to its name.
    pub(crate) fn ms<V: Into<Option<i64>>>(self, name: &str, cell: impl Fn(&'a R) -> V) -> Self {
        self.number(&format!("{name} ms"), |row| cell(row).into().map(ms))
    }

    /// Adds a column of judgements: a word and its tone.
    pub(crate) fn judged<C: Cell>(mut self, name: &str, cell: impl Fn(&'a R) -> (C, Option<Tone>)) -> Self {
        self.table.tones = self.rows.iter().map(|row| cell(row).1).collect();
        let mut built = self.text(name, |row| cell(row).0);
        if let Some(heading) = built.table.headings.last_mut() {
            heading.judged = true;
        }
        built
    }

    /// Returns the table.
    pub(crate) fn build(self) -> Table {
        match self.only {
            Some(names) => self.table.pick(names),
            None => self.table,
        }
    }

    fn column<C: Cell>(mut self, name: &str, numeric: bool, cell: impl Fn(&'a R) -> C) -> Self {
        if self.only.is_none_or(|names| names.contains(&name)) {
            self.table.headings.push(Heading::new(name, numeric));
            for (cells, row) in self.table.rows.iter_mut().zip(self.rows) {
                cells.push(cell(row).cell());
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::screen::{Screen, columns};

    #[test]
    fn hostile_names_stay_in_their_cell() {
        let names = ["a|b`c<script>\nx".to_owned(), "y".repeat(5000)];
        let table = Table::of(&names).text("kernel", |name| name).ms("total", |_| 1_500_000).build();
        let text = table.markdown();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[2].starts_with("| a\\|b\\`c&lt;script&gt; x "), "{}", lines[2]);
        assert!(lines.iter().all(|l| l.chars().count() < 130));
        assert_eq!(lines[1].chars().filter(|c| *c == '|').count(), 3);
        assert_eq!(table.text(Screen::default()).lines().count(), 3);
        assert!(table.html().into_string().contains("a|b`c&lt;script&gt;"));
    }

    #[test]
    fn columns_line_up_without_control_characters() {
        let rows = [["a\u{1b}[2J", "1"], ["bcd", "22"]].map(|row| row.map(str::to_owned));
        assert_eq!(columns(["name", "n>"], rows, Screen::default()), "name     n\na [2J    1\nbcd     22\n");
    }

    #[test]
    fn picks_columns_by_name() {
        let table = Table::of(&[7_u64]).number("a", |n| *n).number("b", |n| n * 1000).build();
        assert_eq!(table.pick(&["b"]).text(Screen::default()), "    b\n7,000\n");
    }

    #[test]
    fn columns_without_a_value_are_left_out() {
        let table = Table::of(&[(Some(1_u64), None::<u64>), (None, None)])
            .text("name", |_| NONE)
            .number("some", |row| row.0)
            .number("none", |row| row.1)
            .build();
        assert_eq!(table.measured().text(Screen::default()), "name  some\n–        1\n–        –\n");
    }
}
