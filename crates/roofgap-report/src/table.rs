//! Tables, for a terminal and for Markdown.

/// How a column is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table of text cells.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

/// The widest a cell of a Markdown table gets.
const WIDEST: usize = 100;

impl Table {
    /// A table whose columns are named; a name that ends in `>` is set to the right.
    pub(crate) fn new(columns: &[&str]) -> Self {
        let columns = columns
            .iter()
            .map(|c| match c.strip_suffix('>') {
                Some(name) => (name.to_owned(), Align::Right),
                None => ((*c).to_owned(), Align::Left),
            })
            .collect();
        Self {
            columns,
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: impl Into<Vec<String>>) {
        self.rows.push(cells.into());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// For a terminal: columns apart by two spaces.
    pub(crate) fn text(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|r| r.iter().map(|c| plain(c)).collect())
            .collect();
        let widths = self.widths(&rows);
        let mut out = String::new();
        let header: Vec<String> = self.columns.iter().map(|c| c.0.clone()).collect();
        for cells in std::iter::once(&header).chain(&rows) {
            let line: Vec<String> = self
                .columns
                .iter()
                .zip(cells)
                .zip(&widths)
                .map(|((c, t), w)| pad(t, *w, c.1))
                .collect();
            out.push_str(line.join("  ").trim_end());
            out.push('\n');
        }
        out
    }

    /// For Markdown: aligned in the source, every cell escaped and cut.
    pub(crate) fn markdown(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|r| r.iter().map(|c| escape(c)).collect())
            .collect();
        let widths = self.widths(&rows);
        let mut out = String::new();
        let mut line = |cells: Vec<String>| {
            out.push_str("| ");
            out.push_str(&cells.join(" | "));
            out.push_str(" |\n");
        };
        let set = |cells: &[String]| {
            self.columns
                .iter()
                .zip(cells)
                .zip(&widths)
                .map(|((c, t), w)| pad(t, *w, c.1))
                .collect()
        };
        let header: Vec<String> = self.columns.iter().map(|c| c.0.clone()).collect();
        line(set(&header));
        line(
            self.columns
                .iter()
                .zip(&widths)
                .map(|(c, &w)| match c.1 {
                    Align::Left => "-".repeat(w),
                    Align::Right => format!("{}:", "-".repeat(w - 1)),
                })
                .collect(),
        );
        for row in &rows {
            line(set(row));
        }
        out
    }

    fn widths(&self, rows: &[Vec<String>]) -> Vec<usize> {
        let width = |i: usize, name: &str| {
            let cells = rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count());
            cells.max().unwrap_or(0).max(name.chars().count()).max(3)
        };
        self.columns
            .iter()
            .enumerate()
            .map(|(i, c)| width(i, &c.0))
            .collect()
    }
}

fn pad(text: &str, width: usize, align: Align) -> String {
    match align {
        Align::Left => format!("{text:<width$}"),
        Align::Right => format!("{text:>width$}"),
    }
}

/// One line without control characters.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Text that means itself in any Markdown viewer, cut to fit a cell.
pub(crate) fn escape(text: &str) -> String {
    let mut cut: String = text.chars().take(WIDEST).collect();
    if cut.len() < text.len() {
        cut.pop();
        cut.push('…');
    }
    let mut out = String::with_capacity(cut.len() + 8);
    for c in cut.chars() {
        match c {
            '|' | '`' | '*' | '_' | '[' | ']' | '\\' | '~' | '#' => {
                out.push('\\');
                out.push(c);
            }
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_stay_in_their_cell() {
        let mut table = Table::new(&["kernel", "ms>"]);
        table.row(["a|b`c<script>\nx".into(), "1.5".into()]);
        table.row(["y".repeat(5000), "2".into()]);
        let text = table.markdown();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(
            lines[2].starts_with("| a\\|b\\`c&lt;script&gt; x "),
            "{}",
            lines[2]
        );
        assert!(lines.iter().all(|l| l.chars().count() < 130));
        assert_eq!(lines[1].chars().filter(|c| *c == '|').count(), 3);
        assert!(table.text().lines().count() == 3);
    }
}
