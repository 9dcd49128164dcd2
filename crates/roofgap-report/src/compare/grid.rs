//! Cells that become a table in any form.

use crate::table::Table;

/// A table of `N` columns; a column whose name ends in `>` is set to the right.
#[derive(Debug, Clone)]
pub(super) struct Grid<const N: usize> {
    pub(super) columns: [&'static str; N],
    pub(super) rows: Vec<[String; N]>,
}

impl<const N: usize> Grid<N> {
    pub(super) fn new(columns: [&'static str; N]) -> Self {
        Grid {
            columns,
            rows: Vec::new(),
        }
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&self.columns);
        for row in &self.rows {
            table.row(row.clone());
        }
        table
    }

    pub(super) fn text(&self) -> String {
        self.table().text()
    }

    pub(super) fn markdown(&self) -> String {
        self.table().markdown()
    }

    /// As an HTML table; every cell is escaped.
    pub(super) fn html(&self) -> String {
        let align = |column: &str| if column.ends_with('>') { " class=n" } else { "" };
        let mut out = String::from("<table><thead><tr>");
        for column in self.columns {
            let name = crate::html::markup::escape(column.trim_end_matches('>'));
            out.push_str(&format!("<th{}>{name}</th>", align(column)));
        }
        out.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            out.push_str("<tr>");
            for (column, cell) in self.columns.iter().zip(row) {
                out.push_str(&format!(
                    "<td{}>{}</td>",
                    align(column),
                    crate::html::markup::escape(cell)
                ));
            }
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table>\n");
        out
    }
}
