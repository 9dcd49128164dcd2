//! A table of text cells and its text, Markdown and HTML forms.

use super::fit::fit;
use super::heading::Heading;
use super::numbers::{NONE, count, ms, or_none};
use super::screen::Screen;
use maud::{Markup, html};
pub use roofgap_base::text::{cut, without_controls as plain};

/// The longest cell of a Markdown table, in characters.
const MARKDOWN_CELL: usize = 100;

/// The longest cell of an HTML table, in characters.
const HTML_CELL: usize = 1000;

/// A table of text cells.
#[derive(Debug, Clone, Default)]
pub struct Table {
    pub(crate) headings: Vec<Heading>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// Starts a table with a row for each of `rows`.
    pub(crate) fn of<R>(rows: &[R]) -> TableBuilder<'_, R> {
        TableBuilder { table: Self { headings: Vec::new(), rows: vec![Vec::new(); rows.len()] }, rows }
    }

    /// Creates an empty table. A name that ends in `>` is a column of numbers.
    pub(crate) fn new(names: &[&str]) -> Self {
        let heading = |name: &&str| Heading {
            name: name.trim_end_matches('>').to_owned(),
            numeric: name.ends_with('>'),
        };
        Self { headings: names.iter().map(heading).collect(), rows: Vec::new() }
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
        let kept: Vec<usize> = names.iter().filter_map(position).collect();
        let row = |row: &Vec<String>| kept.iter().filter_map(|&i| row.get(i).cloned()).collect();
        Self {
            headings: kept.iter().map(|&i| self.headings[i].clone()).collect(),
            rows: self.rows.iter().map(row).collect(),
        }
    }

    /// Leaves out the columns after the first in which no row has a value.
    pub(crate) fn measured(&self) -> Self {
        let has_value = |i: usize| self.rows.iter().any(|row| row.get(i).is_some_and(|cell| cell != NONE));
        let named = self.headings.iter().enumerate();
        let kept: Vec<&str> = named
            .filter(|(i, _)| *i == 0 || has_value(*i))
            .map(|(_, heading)| heading.name.as_str())
            .collect();
        self.pick(&kept)
    }

    /// Renders the table for a terminal, with two spaces between columns. In a narrow one, columns give way and names shrink.
    pub(crate) fn text(&self, screen: Screen) -> String {
        if self.is_empty() {
            return String::new();
        }
        let mut lines = self.lines(plain);
        let mut headings = self.headings.clone();
        if let Some(width) = screen.columns() {
            (headings, lines) = fit(&headings, &lines, width);
        }
        align(&headings, &mut lines);
        let mut out = String::new();
        for line in lines {
            let last = line.len().saturating_sub(1);
            let cells = line.iter().zip(&headings).enumerate().map(|(i, (cell, heading))| {
                let cell = if i == last { cell.trim_end() } else { cell };
                if JUDGED.contains(&heading.name.as_str()) { screen.word(cell) } else { cell.to_owned() }
            });
            out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            out.push('\n');
        }
        out
    }

    /// Renders the table as Markdown that is aligned in the source too. Cells are escaped and cut.
    pub(crate) fn markdown(&self) -> String {
        let mut lines = self.lines(escape);
        align(&self.headings, &mut lines);
        let rule = lines.first().into_iter().flatten().zip(&self.headings);
        let rule = rule.map(|(cell, heading)| {
            let width = cell.chars().count();
            if heading.numeric { format!("{}:", "-".repeat(width - 1)) } else { "-".repeat(width) }
        });
        lines.insert(1, rule.collect());
        lines.iter().map(|l| format!("| {} |\n", l.join(" | "))).collect()
    }

    /// Renders the table as HTML.
    pub(crate) fn html(&self) -> Markup {
        self.html_with(|_, cell| html! { (cell) })
    }

    /// Renders the table as HTML, with the content of a cell made by `content` from the column's name and the cell.
    pub(crate) fn html_with(&self, content: impl Fn(&str, &str) -> Markup) -> Markup {
        html! {
            div.scroll { table {
                thead { tr { @for h in &self.headings { th class=[h.class()] { (capitalized(&h.name)) } } } }
                tbody { @for row in &self.rows { tr {
                    @for (i, (h, cell)) in self.headings.iter().zip(row).enumerate() {
                        @if i == 0 { th scope="row" { (content(&h.name, &cut(cell, HTML_CELL))) } }
                        @else { td class=[h.class()] { (content(&h.name, &cut(cell, HTML_CELL))) } }
                    }
                } } }
            } }
        }
    }

    /// Returns the headings and every row, with the cells of the rows made by `cell`.
    fn lines(&self, cell: impl Fn(&str) -> String) -> Vec<Vec<String>> {
        let mut lines: Vec<Vec<String>> = vec![self.headings.iter().map(|h| h.name.clone()).collect()];
        let rows = self.rows.iter();
        lines.extend(rows.map(|row| row.iter().map(|c| cell(c)).collect::<Vec<_>>()));
        lines
    }
}

/// Columns whose words have a colour.
const JUDGED: [&str; 3] = ["is", "outcome", "status"];

/// Pads every cell to the width of its column.
fn align(headings: &[Heading], lines: &mut [Vec<String>]) {
    for (i, heading) in headings.iter().enumerate() {
        let cells = lines.iter().filter_map(|line| line.get(i));
        let width = cells.map(|c| c.chars().count()).max().unwrap_or(0).max(3);
        for cell in lines.iter_mut().filter_map(|line| line.get_mut(i)) {
            *cell = if heading.numeric { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
        }
    }
}

/// Builds a table column by column.
pub struct TableBuilder<'a, R> {
    table: Table,
    rows: &'a [R],
}

impl<R> TableBuilder<'_, R> {
    /// Adds a left-aligned column.
    pub(crate) fn text(self, name: &str, cell: impl Fn(&R) -> String) -> Self {
        self.column(name, false, cell)
    }

    /// Adds a right-aligned column.
    pub(crate) fn number(self, name: &str, cell: impl Fn(&R) -> String) -> Self {
        self.column(name, true, cell)
    }

    /// Adds a column of nanoseconds shown as milliseconds; the unit is added to its name.
    pub(crate) fn ms<V: Into<Option<i64>>>(self, name: &str, cell: impl Fn(&R) -> V) -> Self {
        self.number(&format!("{name} ms"), |row| or_none(cell(row).into(), ms))
    }

    /// Adds a column of counts.
    pub(crate) fn count<V: Into<Option<u64>>>(self, name: &str, cell: impl Fn(&R) -> V) -> Self {
        self.number(name, |row| or_none(cell(row).into(), count))
    }

    /// Adds a column of numbers with one decimal.
    pub(crate) fn decimal(self, name: &str, cell: impl Fn(&R) -> Option<f64>) -> Self {
        self.number(name, |row| or_none(cell(row), |value| format!("{value:.1}")))
    }

    /// Returns the table.
    pub(crate) fn build(self) -> Table {
        self.table
    }

    fn column(mut self, name: &str, numeric: bool, cell: impl Fn(&R) -> String) -> Self {
        let name = name.to_owned();
        self.table.headings.push(Heading { name, numeric });
        for (cells, row) in self.table.rows.iter_mut().zip(self.rows) {
            cells.push(cell(row));
        }
        self
    }
}

/// Renders columns for a terminal. A column whose name ends in `>` is aligned to the right.
pub fn columns<const N: usize>(
    names: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
    screen: Screen,
) -> String {
    let mut table = Table::new(&names);
    table.rows.extend(rows.into_iter().map(Vec::from));
    table.text(screen)
}

/// Makes the first letter a capital.
pub fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    first.chain(chars).collect()
}

/// Escapes text for any place of a Markdown document and cuts it to the size of a cell.
pub fn escape(text: &str) -> String {
    escape_long(&cut(text, MARKDOWN_CELL))
}

/// Escapes text for any place of a Markdown document.
pub fn escape_long(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '|' | '`' | '*' | '_' | '[' | ']' | '\\' | '~' | '#' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Escapes a sentence of a Markdown document: markup and tags only, so that the source stays readable.
pub fn escape_line(text: &str) -> String {
    plain(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('|', "\\|")
        .replace('`', "\\`")
        .replace('*', "\\*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_stay_in_their_cell() {
        let names = ["a|b`c<script>\nx".to_owned(), "y".repeat(5000)];
        let table =
            Table::of(&names).text("kernel", |name: &String| name.clone()).ms("total", |_| 1_500_000).build();
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
        let table = Table::of(&[7_u64]).count("a", |n| *n).count("b", |n| n * 1000).build();
        assert_eq!(table.pick(&["b"]).text(Screen::default()), "    b\n7,000\n");
    }

    #[test]
    fn columns_without_a_value_are_left_out() {
        let table = Table::of(&[(Some(1_u64), None), (None, None)])
            .text("name", |_| NONE.to_owned())
            .count("some", |row: &(Option<u64>, Option<u64>)| row.0)
            .count("none", |row| row.1)
            .build();
        assert_eq!(table.measured().text(Screen::default()), "name  some\n–        1\n–        –\n");
    }

    #[test]
    fn cuts_by_characters() {
        assert_eq!(cut("äöüß", 4), "äöüß");
        assert_eq!(cut("äöüß", 3), "äö…");
    }
}
