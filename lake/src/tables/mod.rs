//! The tables of a lake, `roofgap.lake/1`.
//!
//! - `record`: columns, tables and typed rows;
//! - `rows`: the tables, field by field;
//! - `batch`: rows as Arrow batches and Parquet bytes.

pub mod batch;
pub mod record;
pub mod rows;

use std::fmt::Write as _;

use record::{Record, Table};

/// The name of the schema.
pub const SCHEMA: &str = "roofgap.lake/1";

/// All tables. `runs` is written last of those of a run.
pub const TABLES: [Table; 11] = [
    rows::RunRow::TABLE,
    rows::StageRow::TABLE,
    rows::StepRow::TABLE,
    rows::KernelRow::TABLE,
    rows::CounterRow::TABLE,
    rows::FindingRow::TABLE,
    rows::CommunicationRow::TABLE,
    rows::RankRow::TABLE,
    rows::RequestRow::TABLE,
    rows::ErrorRow::TABLE,
    rows::EventRow::TABLE,
];

/// Partition columns and their types, in the order of the folders.
pub const PARTITIONS: [(&str, &str); 3] = [("date", "DATE"), ("project", "VARCHAR"), ("host", "VARCHAR")];

/// Returns the table of a name.
pub fn table(name: &str) -> Option<Table> {
    TABLES.into_iter().find(|table| table.name == name)
}

/// Describes all tables as Markdown, field by field, for `docs/lake.md`.
pub fn markdown() -> String {
    let mut text = String::new();
    for table in TABLES {
        let _ = write!(
            text,
            "### `{}`\n\n{}\n\n| column | type | null | meaning |\n|---|---|---|---|\n",
            table.name,
            table.doc.trim()
        );
        for column in table.columns {
            let null = if column.nullable { "yes" } else { "" };
            let (name, kind, doc) = (column.name, column.kind.sql(), column.doc.trim());
            let _ = writeln!(text, "| `{name}` | {kind} | {null} | {doc} |");
        }
        let order: Vec<String> = table.order.iter().map(|name| format!("`{name}`")).collect();
        let _ = write!(text, "\nSorted by {}.\n\n", order.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_every_column() {
        let page = include_str!("../../../docs/lake.md");
        let text = markdown();
        assert!(
            page.ends_with(text.trim_end()) || page.trim_end().ends_with(text.trim_end()),
            "docs/lake.md must end with:\n{text}"
        );
    }

    #[test]
    fn other_engines_read_the_same_columns() {
        let schema = include_str!("../../sql/schema.json");
        let schema: std::collections::BTreeMap<String, Vec<(String, String)>> =
            serde_json::from_str(schema).unwrap();
        for table in TABLES {
            let known = table.columns.iter();
            let mut known: Vec<(String, String)> =
                known.map(|c| (c.name.to_owned(), c.kind.sql().to_owned())).collect();
            known.extend(PARTITIONS.map(|(name, kind)| (name.to_owned(), kind.to_owned())));
            assert_eq!(schema.get(table.name), Some(&known), "{}", table.name);
        }
    }

    #[test]
    fn every_table_begins_with_the_key_and_sorts_by_its_own_columns() {
        for table in TABLES {
            let names: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
            assert_eq!(names.first(), Some(&"run_key"), "{}", table.name);
            assert!(table.order.iter().all(|name| names.contains(name)), "{}", table.name);
            let mut unique = names.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), names.len(), "{}", table.name);
            for partition in ["date", "project", "host"] {
                assert!(!names.contains(&partition), "{} has {partition}", table.name);
            }
        }
    }
}
